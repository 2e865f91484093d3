//! The controller as a replacement of the sidecar, with exactly its permissions, on CRDs of v1alpha2 with all their
//! validation rules. A fake of the central controller runs next to it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use gcs_sim::Server;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::ListParams;
use kube_provisioner::BucketOptions;
use kube_provisioner::rbac::{Account, cosi_controller_rules, manifests};
use s3_client::Credentials;
use serde_json::{Value, json};
use testbed::cluster::{Access, Program, TestSpace, apply, eventually, provisioner_program};

use super::central::{CentralController, Cosi};

pub(crate) const SOON: Duration = Duration::from_secs(90);
/// Log everything, to check that the log contains no secrets.
pub(crate) const ALL: &str = "RUST_LOG=trace";

pub(crate) struct Native {
    pub(crate) space: TestSpace,
    pub(crate) cosi: Cosi,
    driver: String,
    access: Access,
    _central: CentralController,
}

/// The entries that a pod receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entries(pub(crate) BTreeMap<String, String>);

impl Entries {
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// An S3 client configured like Amazon's clients.
    pub(crate) fn client(&self) -> anyhow::Result<s3_client::Client> {
        let key = Credentials::new(self.get("AWS_ACCESS_KEY_ID"), self.get("AWS_SECRET_ACCESS_KEY"));
        testbed::s3::client(self.get("AWS_ENDPOINT_URL"), Some(self.get("AWS_DEFAULT_REGION")), key)
    }

    pub(crate) fn bucket(&self) -> &str {
        self.get("BUCKET_NAME")
    }

    pub(crate) async fn works(&self) -> anyhow::Result<bool> {
        let client = self.client()?;
        Ok(client.put_object(self.bucket(), "cat", "miaow").await.is_ok()
            && client.get_object(self.bucket(), "cat").await.is_ok())
    }
}

impl Native {
    pub(crate) async fn new(test: &str) -> anyhow::Result<Self> {
        let space = TestSpace::new(test).await?;
        let driver = format!("s3.{}.example.com", space.namespace());
        let options = BucketOptions::new(space.provisioner()).options;
        let rules = cosi_controller_rules(&driver, &options);
        let account = manifests(&Account { name: "driver", namespace: space.namespace() }, &rules);
        Self::with(space, driver, ("driver", &account)).await
    }

    /// Uses a driver account with this name.
    pub(crate) async fn with(
        space: TestSpace,
        driver: String,
        (account, manifests): (&str, &[Value]),
    ) -> anyhow::Result<Self> {
        install_definitions(&space).await?;
        space.apply(manifests).await?;
        let access = space.access_of(account).await?;
        let cosi = Cosi::new(space.client(), space.namespace());
        let central = cosi.start();
        let native = Self { space, cosi, driver, access, _central: central };
        for (kind, suffix, spec) in [
            ("BucketClass", "delete", json!({"deletionPolicy": "Delete"})),
            ("BucketClass", "retain", json!({"deletionPolicy": "Retain"})),
            ("BucketAccessClass", "key", json!({"authenticationType": "Key", "multiBucketAccess": "MultipleBuckets"})),
        ] {
            let mut spec = spec;
            spec["driverName"] = native.driver.as_str().into();
            let name = native.class(suffix);
            let object = json!({
                "apiVersion": "objectstorage.k8s.io/v1alpha2", "kind": kind, "metadata": {"name": name}, "spec": spec,
            });
            native.space.apply(&[object]).await?;
        }
        Ok(native)
    }

    fn class(&self, suffix: &str) -> String {
        self.space.cluster_wide_name(suffix)
    }

    /// Starts a package's program. `variables` have the form `NAME=value`.
    pub(crate) fn start(&self, package: &str, variables: &[&str], more: &[&str]) -> anyhow::Result<Program> {
        let program = provisioner_program(package)?.display().to_string();
        let kubeconfig = self.access.kubeconfig.display().to_string();
        let arguments = [
            ["--provisioner-name", self.space.provisioner()],
            ["--cosi-driver-name", &self.driver],
            ["--kubeconfig", &kubeconfig],
            ["--namespace", self.space.namespace()],
            ["--call-timeout", "5s"],
            // A short lease, so that another process soon takes over from a killed one.
            ["--lease-duration", "3s"],
            ["--lease-renew-deadline", "2s"],
            ["--lease-retry-period", "500ms"],
        ];
        let command = variables.iter().copied().chain([program.as_str(), "--cosi-controller"]);
        self.space.spawn(package, "env", command.chain(arguments.concat()).chain(more.iter().copied()))
    }

    /// Starts the controller with a fake of Google's services.
    pub(crate) fn start_on_google(&self, google: &Server, files: &Path) -> anyhow::Result<Program> {
        let file = files.join("key.json").display().to_string();
        std::fs::write(&file, google.admin_key())?;
        let arguments =
            [["--endpoint", &google.endpoint], ["--iam-endpoint", &google.endpoint], ["--credentials-file", &file]];
        self.start("gcs-provisioner", &[ALL], &arguments.concat())
    }

    pub(crate) async fn claim(&self, name: &str, class: &str) -> anyhow::Result<()> {
        let spec = json!({"bucketClassName": self.class(class), "protocols": ["S3"]});
        self.cosi.create("BucketClaim", name, spec).await.map(drop)
    }

    pub(crate) async fn access(&self, name: &str, claims: &[&str]) -> anyhow::Result<()> {
        let claim = |claim: &&str| json!({"bucketClaimName": claim, "accessMode": "ReadWrite", "accessSecretName": format!("{name}-{claim}")});
        let claims: Vec<_> = claims.iter().map(claim).collect();
        let spec = json!({"bucketClaims": claims, "bucketAccessClassName": self.class("key"), "protocol": "S3"});
        self.cosi.create("BucketAccess", name, spec).await.map(drop)
    }

    pub(crate) async fn ready(&self, kind: &str, name: &str) -> anyhow::Result<Value> {
        let ready = eventually(SOON, async || {
            let object = self.cosi.api(kind).get(name).await?;
            Ok((object.data["status"]["readyToUse"] == true).then_some(object.data))
        });
        ready.await?.with_context(|| format!("{kind} {name} is not ready"))
    }

    pub(crate) async fn gone(&self, kind: &str, name: &str) -> anyhow::Result<()> {
        let gone = eventually(SOON, async || Ok(self.cosi.api(kind).get_opt(name).await?.is_none().then_some(())));
        gone.await?.with_context(|| format!("{kind} {name} still exists"))
    }

    pub(crate) async fn entries(&self, secret: &str) -> anyhow::Result<Entries> {
        let data = self.space.api::<Secret>().get(secret).await?.data.unwrap_or_default();
        let texts = data.into_iter().map(|(name, value)| Ok((name, String::from_utf8(value.0)?)));
        Ok(Entries(texts.collect::<anyhow::Result<_>>()?))
    }

    /// Ends the test after checking that no Secret remains and that the log contains none of these secrets.
    pub(crate) async fn done(self, program: &Program, secrets: &[&str]) -> anyhow::Result<()> {
        let left = self.space.api::<Secret>().list(&ListParams::default()).await?;
        let names: Vec<_> =
            left.iter().filter(|secret| secret.type_.as_deref() == Some("Opaque")).map(ResourceExt::name_any).collect();
        ensure!(names.is_empty(), "Secrets still exist: {names:?}");
        let told = [program.output(), program.arguments()?.join(" ")].concat();
        ensure!(!secrets.iter().any(|secret| told.contains(secret)), "a secret is in the log or in the arguments");
        self.space.done().await
    }
}

/// Installs the CRDs of v1alpha2 if necessary, and waits until the API server serves them. They are never removed
/// because other tests use them.
async fn install_definitions(space: &TestSpace) -> anyhow::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testbed/cosi/v1alpha2");
    let mut definitions = Vec::new();
    for file in std::fs::read_dir(folder)? {
        definitions.push(serde_saphyr::from_str(&std::fs::read_to_string(file?.path())?)?);
    }
    let cosi = Cosi::new(space.client(), space.namespace());
    let served = eventually(SOON, async || {
        let mut is_served = apply(&space.client(), &definitions).await.is_ok();
        for kind in ["Bucket", "BucketClaim", "BucketAccess", "BucketClass", "BucketAccessClass"] {
            is_served = is_served && cosi.api(kind).list(&ListParams::default()).await.is_ok();
        }
        Ok(is_served.then_some(()))
    });
    served.await?.context("the API server does not serve COSI's objects")
}
