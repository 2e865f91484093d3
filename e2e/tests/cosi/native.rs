//! The controller in the place of the sidecar, with its rights and no others, on definitions of v1alpha2 with all their validation
//! rules. A player of the central controller works beside it. Test names begin with the ids of
//! `docs/book/pages/reference/behaviour.md`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use gcs_sim::Server;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube_provisioner::BucketOptions;
use kube_provisioner::rbac::{Account, cosi_controller_rules, manifests};
use s3_client::Credentials;
use serde_json::{Value, json};
use testbed::cluster::{Access, Program, TestSpace, apply, eventually, provisioner_program};
use testbed::control_plane::State;
use testbed::s3::S3;
use tokio::time::sleep;

use crate::central::{Central, Cosi};

const SOON: Duration = Duration::from_secs(90);
const ALL: &str = "RUST_LOG=trace";
const REGION: &str = "eu-west-1";
/// How often the controller is killed.
const KILLS: u64 = 10;

pub(crate) struct Native {
    pub(crate) space: TestSpace,
    pub(crate) cosi: Cosi,
    driver: String,
    access: Access,
    _central: Central,
}

/// What a pod gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entries(pub(crate) BTreeMap<String, String>);

impl Entries {
    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// As Amazon's clients read them.
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
        install_definitions(&space).await?;
        let driver = format!("s3.{}.example.com", space.namespace());
        let options = BucketOptions::new(space.provisioner()).options;
        let rules = cosi_controller_rules(&driver, &options);
        space.apply(&manifests(&Account { name: "driver", namespace: space.namespace() }, &rules)).await?;
        let access = space.access_of("driver").await?;
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

    /// Starts the program of a package. `variables` are `NAME=value`.
    pub(crate) fn start(&self, package: &str, variables: &[&str], more: &[&str]) -> anyhow::Result<Program> {
        let program = provisioner_program(package)?.display().to_string();
        let kubeconfig = self.access.kubeconfig.display().to_string();
        let arguments = [
            ["--provisioner-name", self.space.provisioner()],
            ["--cosi-driver-name", &self.driver],
            ["--kubeconfig", &kubeconfig],
            ["--namespace", self.space.namespace()],
            ["--call-timeout", "5"],
            // A process that was killed is followed soon.
            ["--lease-duration", "3s"],
            ["--lease-renew-deadline", "2s"],
            ["--lease-retry-period", "500ms"],
        ];
        let command = variables.iter().copied().chain([program.as_str(), "--cosi-controller"]);
        self.space.spawn(package, "env", command.chain(arguments.concat()).chain(more.iter().copied()))
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
        gone.await?.with_context(|| format!("{kind} {name} is not gone"))
    }

    pub(crate) async fn entries(&self, secret: &str) -> anyhow::Result<Entries> {
        let data = self.space.api::<Secret>().get(secret).await?.data.unwrap_or_default();
        let texts = data.into_iter().map(|(name, value)| Ok((name, String::from_utf8(value.0)?)));
        Ok(Entries(texts.collect::<anyhow::Result<_>>()?))
    }

    async fn told(&self, name: &str, part: &str) -> anyhow::Result<()> {
        let events = self.space.api::<k8s_openapi::api::core::v1::Event>();
        let told = eventually(SOON, async || {
            let events = events.list(&ListParams::default()).await?;
            let about = events.iter().filter(|event| event.involved_object.name.as_deref() == Some(name));
            Ok(about.filter_map(|event| event.message.as_deref()).any(|text| text.contains(part)).then_some(()))
        });
        told.await?.with_context(|| format!("no event of {name} has {part:?}"))
    }

    /// No Secret is left, and the log has none of these.
    pub(crate) async fn done(self, program: &Program, secrets: &[&str]) -> anyhow::Result<()> {
        let left = self.space.api::<Secret>().list(&ListParams::default()).await?;
        let names: Vec<_> =
            left.iter().filter(|secret| secret.type_.as_deref() == Some("Opaque")).map(ResourceExt::name_any).collect();
        ensure!(names.is_empty(), "Secrets are left: {names:?}");
        let told = [program.output(), program.arguments()?.join(" ")].concat();
        ensure!(!secrets.iter().any(|secret| told.contains(secret)), "a secret is in the log or in the arguments");
        self.space.done().await
    }
}

/// Installs the definitions of v1alpha2, if they are not, and waits until they are served. They stay, as other tests use them, too.
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

struct Aws {
    native: Native,
    s3: S3,
}

impl Aws {
    async fn new(test: &str) -> anyhow::Result<Self> {
        Ok(Self { native: Native::new(test).await?, s3: S3::start(&State::for_tests()?.guard()).await? })
    }

    fn start(&self) -> anyhow::Result<Program> {
        let server = self.s3.server();
        let id = format!("AWS_ACCESS_KEY_ID={}", server.access_key);
        let secret = format!("AWS_SECRET_ACCESS_KEY={}", server.secret_key);
        let endpoint = server.endpoint.as_str();
        let arguments = [["--endpoint", endpoint], ["--iam-endpoint", endpoint], ["--region", REGION]];
        self.native.start("aws-s3-provisioner", &[&id, &secret, ALL], &arguments.concat())
    }

    async fn users(&self) -> anyhow::Result<Vec<String>> {
        self.s3.server().iam()?.users("/kube-provisioner/").await.context("cannot list users")
    }

    async fn done(self, program: &Program, secrets: &[&str]) -> anyhow::Result<()> {
        let (users, buckets) = (self.users().await?, self.s3.server().admin_in(REGION)?.list_buckets().await?);
        ensure!(users.is_empty() && buckets.is_empty(), "left: {users:?} {buckets:?}");
        self.native.done(program, secrets).await
    }
}

#[tokio::test]
async fn aws_j3_j6_j14_j16_j17_a_claim_and_its_access() -> anyhow::Result<()> {
    let aws = Aws::new("cosi-n-life").await?;
    let (native, program) = (&aws.native, aws.start()?);
    native.claim("photos", "delete").await?;
    let claim = native.ready("BucketClaim", "photos").await?;
    native.access("web", &["photos"]).await?;
    native.ready("BucketAccess", "web").await?;
    let entries = native.entries("web-photos").await?;
    ensure!(claim["status"]["boundBucketName"] == entries.bucket(), "{claim}");
    ensure!(entries.works().await?, "the key does not work");

    // Lost, and edited.
    let secrets = native.space.api::<Secret>();
    secrets.delete("web-photos", &DeleteParams::default()).await?;
    let back = async || Ok((native.entries("web-photos").await.ok() == Some(entries.clone())).then_some(()));
    eventually(SOON, back).await?.context("a lost Secret is not restored")?;
    let edit = Patch::Merge(json!({"data": {"BUCKET_NAME": "eA=="}}));
    secrets.patch("web-photos", &PatchParams::default(), &edit).await?;
    eventually(SOON, back).await?.context("an edited Secret is not restored")?;

    native.cosi.delete("BucketAccess", "web").await?;
    native.gone("BucketAccess", "web").await?;
    ensure!(!entries.works().await?, "the key works still");
    ensure!(secrets.get_opt("web-photos").await?.is_none(), "its Secret is left");
    let admin = aws.s3.server().admin_in(REGION)?;
    ensure!(admin.get_object(entries.bucket(), "cat").await?.is_some(), "the object is gone");
    native.cosi.delete("BucketClaim", "photos").await?;
    native.gone("BucketClaim", "photos").await?;
    let secret = entries.get("AWS_SECRET_ACCESS_KEY").to_owned();
    aws.done(&program, &[&secret]).await
}

#[tokio::test]
async fn aws_j7_j13_what_is_not_ours_stays() -> anyhow::Result<()> {
    let aws = Aws::new("cosi-n-keep").await?;
    let (native, program) = (&aws.native, aws.start()?);
    native.claim("films", "retain").await?;
    let bound = native.ready("BucketClaim", "films").await?["status"]["boundBucketName"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    // The name of a Secret is taken.
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web-films"}, "stringData": {"mine": "x"}});
    let secret: Secret = native.space.create(&serde_json::from_value(secret)?).await?;
    native.access("web", &["films"]).await?;
    native.told("web", "Secret web-films exists and does not belong to this BucketAccess").await?;
    let secrets = native.space.api::<Secret>();
    ensure!(secrets.get("web-films").await? == secret, "the Secret has changed");
    ensure!(aws.users().await? == [format!("obc.{bound}")], "{:?}", aws.users().await?);
    native.cosi.delete("BucketAccess", "web").await?;
    native.gone("BucketAccess", "web").await?;
    ensure!(secrets.get("web-films").await? == secret, "the Secret has changed");
    secrets.delete("web-films", &DeleteParams::default()).await?;

    native.cosi.delete("BucketClaim", "films").await?;
    native.gone("BucketClaim", "films").await?;
    let admin = aws.s3.server().admin_in(REGION)?;
    sleep(Duration::from_secs(2)).await;
    ensure!(admin.list_buckets().await?.len() == 1, "the bucket is gone");
    // An administrator wants it gone after all.
    let policy = Patch::Merge(json!({"spec": {"deletionPolicy": "Delete"}}));
    native.cosi.api("Bucket").patch(&bound, &PatchParams::default(), &policy).await?;
    native.cosi.delete("Bucket", &bound).await?;
    native.gone("Bucket", &bound).await?;
    aws.done(&program, &[]).await
}

#[tokio::test]
async fn aws_j15_j18_a_controller_that_is_killed_leaves_nothing() -> anyhow::Result<()> {
    let aws = Aws::new("cosi-n-kill").await?;
    let native = &aws.native;
    let mut program = aws.start()?;
    native.claim("photos", "delete").await?;
    native.ready("BucketClaim", "photos").await?;
    native.access("web", &["photos"]).await?;
    native.ready("BucketAccess", "web").await?;
    let entries = native.entries("web-photos").await?;
    let secrets = native.space.api::<Secret>();
    let version = secrets.get("web-photos").await?.resource_version();
    for kill in 0..KILLS {
        let moment = Duration::from_millis(60 * kill);
        let (claim, access) = (format!("claim-{kill}"), format!("access-{kill}"));
        native.claim(&claim, "delete").await?;
        native.access(&access, &[&claim]).await?;
        sleep(moment).await;
        program.kill().await?;
        program = aws.start()?;
        native.ready("BucketAccess", &access).await?;
        ensure!(native.entries(&format!("{access}-{claim}")).await?.works().await?, "the key does not work");
        native.cosi.delete("BucketAccess", &access).await?;
        native.cosi.delete("BucketClaim", &claim).await?;
        sleep(moment).await;
        program.kill().await?;
        program = aws.start()?;
        native.gone("BucketAccess", &access).await?;
        native.gone("BucketClaim", &claim).await?;
    }
    ensure!(native.entries("web-photos").await? == entries, "the key has changed");
    ensure!(secrets.get("web-photos").await?.resource_version() == version, "the Secret was written again");
    ensure!(entries.works().await?, "the key works no more");
    native.cosi.delete("BucketAccess", "web").await?;
    native.cosi.delete("BucketClaim", "photos").await?;
    native.gone("BucketClaim", "photos").await?;
    let secret = entries.get("AWS_SECRET_ACCESS_KEY").to_owned();
    aws.done(&program, &[&secret]).await
}

#[tokio::test]
async fn gcs_j14_j17_one_account_of_two_buckets() -> anyhow::Result<()> {
    let (native, google, files) = (Native::new("cosi-n-gcs").await?, Server::start().await?, tempfile::tempdir()?);
    let file = files.path().join("key.json").display().to_string();
    std::fs::write(&file, google.admin_key())?;
    let arguments =
        [["--endpoint", &google.endpoint], ["--iam-endpoint", &google.endpoint], ["--credentials-file", &file]];
    let program = native.start("gcs-provisioner", &[ALL], &arguments.concat())?;
    for claim in ["photos", "films"] {
        native.claim(claim, "delete").await?;
        native.ready("BucketClaim", claim).await?;
    }
    native.access("web", &["photos", "films"]).await?;
    native.ready("BucketAccess", "web").await?;
    let (photos, films) = (native.entries("web-photos").await?, native.entries("web-films").await?);
    ensure!(photos.get("AWS_ACCESS_KEY_ID") == films.get("AWS_ACCESS_KEY_ID"), "two accounts");
    ensure!(photos.bucket() != films.bucket() && photos.works().await? && films.works().await?, "a key does not work");
    native.cosi.delete("BucketAccess", "web").await?;
    native.gone("BucketAccess", "web").await?;
    ensure!(!photos.works().await? && !films.works().await?, "the key works still");
    for claim in ["photos", "films"] {
        native.cosi.delete("BucketClaim", claim).await?;
        native.gone("BucketClaim", claim).await?;
    }
    let left: Vec<_> = google.assets().into_iter().collect();
    ensure!(left.is_empty(), "left: {left:?}");
    native.done(&program, &[photos.get("AWS_SECRET_ACCESS_KEY"), "ya29.", "PRIVATE KEY"]).await
}
