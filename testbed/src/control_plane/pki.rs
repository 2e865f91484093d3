//! Certificates and keys of one control plane.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};

/// The files that the components refer to, in a directory that only its owner may enter.
#[derive(Clone, Debug)]
pub(super) struct Pki {
    pub(super) ca: PathBuf,
    pub(super) ca_pem: String,
    /// The serving certificate of the API server, the controller manager and the scheduler.
    pub(super) serving_cert: PathBuf,
    pub(super) serving_key: PathBuf,
    /// The key that signs service account tokens.
    pub(super) service_account_key: PathBuf,
    /// The key that verifies service account tokens.
    pub(super) service_account_public_key: PathBuf,
    pub(super) admin: Identity,
    pub(super) controller_manager: Identity,
    pub(super) scheduler: Identity,
    /// The API server's identity for requests to the kubelet.
    pub(super) kubelet_client: Identity,
    /// The identity of a node.
    pub(super) kubelet: Identity,
}

/// A client certificate with its key, as PEM.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) user: String,
    pub(super) cert_pem: String,
    pub(super) key_pem: String,
}

/// The file of the authority's key, next to its certificate.
const CA_KEY: &str = "ca.key";

/// The names of the API server.
const API_SERVER_NAMES: [&str; 5] =
    ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];

impl Pki {
    /// Creates all files. `addresses` are those at which clients reach the components.
    pub(super) fn create(dir: &Path, addresses: &[Ipv4Addr]) -> anyhow::Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let key = KeyPair::generate()?;
        write_secret(&dir.join(CA_KEY), &key.serialize_pem())?;
        let (ca_pem, issuer) = authority_of(key)?;
        let ca = dir.join("ca.crt");
        fs::write(&ca, &ca_pem)?;

        let (cert, key) = serving(&issuer, "kube-apiserver", &API_SERVER_NAMES, addresses)?;
        let serving_cert = dir.join("serving.crt");
        fs::write(&serving_cert, cert)?;
        let serving_key = dir.join("serving.key");
        write_secret(&serving_key, &key)?;

        let signing = KeyPair::generate()?;
        let service_account_key = dir.join("service-account.key");
        write_secret(&service_account_key, &signing.serialize_pem())?;
        let service_account_public_key = dir.join("service-account.pub");
        fs::write(&service_account_public_key, signing.public_key_pem())?;

        Ok(Self {
            ca,
            ca_pem,
            serving_cert,
            serving_key,
            service_account_key,
            service_account_public_key,
            admin: client(&issuer, "admin", Some("system:masters"))?,
            controller_manager: client(&issuer, "system:kube-controller-manager", None)?,
            scheduler: client(&issuer, "system:kube-scheduler", None)?,
            kubelet_client: client(&issuer, "kube-apiserver-kubelet-client", Some("system:masters"))?,
            kubelet: node(&issuer, super::node::NAME)?,
        })
    }
}

/// The certificates of an additional node. The control plane's directory contains only its own node's certificates.
pub(super) struct NodePki {
    pub(super) serving_cert: PathBuf,
    pub(super) serving_key: PathBuf,
    pub(super) kubelet: Identity,
    pub(super) kube_proxy: Identity,
}

impl NodePki {
    /// Writes the files into `dir`. `pki` is the directory of [`Pki::create`].
    pub(super) fn create(dir: &Path, pki: &Path, name: &str, address: Ipv4Addr) -> anyhow::Result<Self> {
        let key = fs::read_to_string(pki.join(CA_KEY)).context("the authority's key cannot be read")?;
        let (_, issuer) = authority_of(KeyPair::from_pem(&key)?)?;
        let (serving_cert, serving_key) = (dir.join("serving.crt"), dir.join("serving.key"));
        let (cert, key) = serving(&issuer, name, &[name], &[address])?;
        fs::write(&serving_cert, cert)?;
        write_secret(&serving_key, &key)?;
        let kube_proxy = client(&issuer, "system:kube-proxy", None)?;
        Ok(Self { serving_cert, serving_key, kubelet: node(&issuer, name)?, kube_proxy })
    }
}

/// Writes a file that only its owner may read.
pub(crate) fn write_secret(path: &Path, text: &str) -> anyhow::Result<()> {
    // An existing file would keep its mode, so remove it first.
    let _ = fs::remove_file(path);
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Creates an authority, and returns its certificate and its issuer.
pub(crate) fn authority() -> anyhow::Result<(String, Issuer<'static, KeyPair>)> {
    authority_of(KeyPair::generate()?)
}

fn authority_of(key: KeyPair) -> anyhow::Result<(String, Issuer<'static, KeyPair>)> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "authority for tests");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let pem = params.self_signed(&key)?.pem();
    Ok((pem, Issuer::new(params, key)))
}

/// A server's certificate and key.
pub(crate) fn serving(
    issuer: &Issuer<'_, KeyPair>,
    common_name: &str,
    names: &[&str],
    addresses: &[Ipv4Addr],
) -> anyhow::Result<(String, String)> {
    let mut params = CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())?;
    for address in addresses {
        params.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(*address)));
    }
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    signed(&mut params, issuer)
}

fn client(issuer: &Issuer<'_, KeyPair>, user: &str, group: Option<&str>) -> anyhow::Result<Identity> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, user);
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let (cert_pem, key_pem) = signed(&mut params, issuer)?;
    Ok(Identity { user: user.to_owned(), cert_pem, key_pem })
}

/// The identity of a kubelet for its requests.
fn node(issuer: &Issuer<'_, KeyPair>, name: &str) -> anyhow::Result<Identity> {
    client(issuer, &format!("system:node:{name}"), Some("system:nodes"))
}

fn signed(params: &mut CertificateParams, issuer: &Issuer<'_, KeyPair>) -> anyhow::Result<(String, String)> {
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    Ok((params.signed_by(&key, issuer)?.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn keys_are_readable_only_by_their_owner() {
        let dir = std::env::temp_dir().join(format!("e2e-pki-{}", std::process::id()));
        let pki = Pki::create(&dir, &[Ipv4Addr::LOCALHOST]).unwrap();
        for key in [&pki.serving_key, &pki.service_account_key, &dir.join(CA_KEY)] {
            assert_eq!(fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600, "{}", key.display());
        }
        let public = fs::read_to_string(&pki.service_account_public_key).unwrap();
        assert!(public.starts_with("-----BEGIN PUBLIC KEY-----"));
        fs::remove_dir_all(&dir).unwrap();
    }
}
