//! TLS with a certificate authority for the life of the server.

use std::net::IpAddr;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, crypto};
use tokio_rustls::TlsAcceptor;

/// The acceptor of TLS connections, and the authority's certificate.
pub(super) struct Tls {
    pub(super) acceptor: TlsAcceptor,
    /// The authority that clients must trust.
    pub(super) ca_pem: String,
}

/// A failure to create or use the certificate.
pub(super) type Error = Box<dyn std::error::Error + Send + Sync>;

impl Tls {
    /// TLS for a server at this address, and at `localhost`.
    pub(super) fn new(address: IpAddr) -> Result<Self, Error> {
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(DnType::CommonName, "kube-sim");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let ca_pem = authority.self_signed(&key)?.pem();
        let issuer = Issuer::new(authority, key);

        let mut server = CertificateParams::new(["localhost".to_owned()])?;
        server.subject_alt_names.push(SanType::IpAddress(address));
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        server.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = server.signed_by(&key, &issuer)?.der().clone();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), ca_pem })
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Tls").finish_non_exhaustive()
    }
}
