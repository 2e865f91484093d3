//! The addresses of S3 and IAM, and the administrator's key.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use kube_provisioner::Secrets;
use kube_provisioner::bucket::{Endpoint, RecentlyCreated};
use s3_client::iam::{Iam, Temporary, assume_role_with_web_identity};
use s3_client::{Client, Clients, Credentials, Settings};

use crate::parameters::Parameters;
use crate::region::Region;

/// The roles of the Secret with the administrator's key: `adminSecretName`, and `secretName` as in 2019.
pub(crate) const ADMIN: [&str; 2] = ["admin", ""];

/// IAM and the settings of buckets are eventually consistent. After this time a read shows what was written.
/// <https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot.html#troubleshoot_general_eventual-consistency>
const SETTLED: Duration = Duration::from_secs(30);

/// A role's key is renewed so long before it ends.
const RENEWAL: Duration = Duration::from_secs(300);

/// What applies where classes say nothing. The variables are those of AWS's own tools.
#[derive(Args, Clone)]
pub struct Defaults {
    /// Region of the buckets, for classes without `region`
    #[arg(long, env = "AWS_REGION", value_name = "REGION")]
    region: Option<String>,

    /// S3 endpoint [default: that of the region]
    #[arg(long, env = "AWS_ENDPOINT_URL_S3", value_name = "URL")]
    endpoint: Option<String>,

    /// IAM endpoint [default: that of the region's partition]
    #[arg(long, env = "AWS_ENDPOINT_URL_IAM", value_name = "URL")]
    iam_endpoint: Option<String>,

    /// STS endpoint [default: that of the region]
    #[arg(long, env = "AWS_ENDPOINT_URL_STS", value_name = "URL")]
    sts_endpoint: Option<String>,

    /// ARN of the permissions boundary for new users, for classes without `permissionsBoundary`
    #[arg(long, env = "AWS_PERMISSIONS_BOUNDARY", value_name = "ARN")]
    permissions_boundary: Option<String>,

    /// ARN of the IAM role to assume with the ServiceAccount token, for classes without a Secret
    #[arg(long, env = "AWS_ROLE_ARN", value_name = "ARN", requires = "web_identity_token_file")]
    role_arn: Option<String>,

    /// File with the ServiceAccount token for --role-arn
    #[arg(long, env = "AWS_WEB_IDENTITY_TOKEN_FILE", value_name = "FILE", requires = "role_arn")]
    web_identity_token_file: Option<PathBuf>,

    /// File with CA certificates for the endpoints [default: the system's]
    #[arg(long, env = "AWS_CA_BUNDLE", value_name = "FILE")]
    ca_bundle: Option<PathBuf>,

    /// Timeout of one request, in seconds
    #[arg(long, env = "AWS_CALL_TIMEOUT", value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=600))]
    call_timeout: u64,

    /// The administrator's key in the environment: no arguments, which everybody on the machine may read.
    #[arg(skip = environment())]
    environment: Option<Credentials>,
}

/// Gives connections. One that was made is used again.
pub(crate) struct Stores {
    defaults: Defaults,
    clients: Clients,
    role: tokio::sync::Mutex<Option<Temporary>>,
    recent: Arc<RecentlyCreated>,
}

/// An account of AWS in one region, as its administrator sees it.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) region: Region,
    pub(crate) s3: Client,
    pub(crate) iam: Iam,
    pub(crate) endpoint: Endpoint,
    /// S3's address, where it is not the region's own.
    given_url: Option<String>,
    /// What was made in any account a moment ago.
    pub(crate) recent: Arc<RecentlyCreated>,
    permissions_boundary: Option<String>,
}

impl Store {
    /// Whether S3 is Amazon's own, at a region's address or at that of a VPC.
    pub(crate) fn is_aws(&self) -> bool {
        [".amazonaws.com", ".amazonaws.com.cn"].iter().any(|suffix| self.endpoint.host.ends_with(suffix))
    }

    /// Whether it can only have been made by the one whom S3 has answered so, if a bucket was made: in us-east-1, and in stores
    /// that are like it, S3 answers the same where the account has the bucket already.
    pub(crate) fn makes_a_bucket_once(&self) -> bool {
        self.is_aws() && self.region.location_constraint().is_some()
    }

    /// What clients must know of the store, beside what they know of AWS.
    pub(crate) fn client_settings(&self) -> Vec<(&'static str, &str)> {
        // Not AWS_ENDPOINT_URL: clients would ask SQS and STS there, too.
        let url = self.given_url.as_deref().map(|url| ("AWS_ENDPOINT_URL_S3", url));
        // Clients add sums that some stores refuse: https://docs.aws.amazon.com/sdkref/latest/guide/feature-dataintegrity.html.
        let sums = ["AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION"]
            .map(|name| (name, "when_required"));
        let sums = sums.into_iter().filter(|_| !self.is_aws());
        url.into_iter().chain(sums).collect()
    }

    /// The policy that limits a new user.
    pub(crate) fn permissions_boundary<'a>(&'a self, parameters: &'a Parameters) -> Option<&'a str> {
        let of_class = parameters.permissions_boundary.as_deref().filter(|boundary| !boundary.is_empty());
        of_class.or(self.permissions_boundary.as_deref())
    }
}

/// Why there is no connection. The text says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Misconfigured(String);

impl Stores {
    pub(crate) fn new(defaults: Defaults) -> Self {
        let (clients, role) = Default::default();
        let recent = Arc::new(RecentlyCreated::within(SETTLED));
        Self { defaults, clients, role, recent }
    }

    /// The account and the region of a class.
    pub(crate) async fn of(&self, parameters: &Parameters, secrets: &Secrets) -> Result<Store, Misconfigured> {
        let region = self.region(parameters)?;
        let credentials = self.administrator(secrets, &region).await?;
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let given_url = given(&parameters.endpoint).or(given(&self.defaults.endpoint));
        let s3 = given_url.clone().unwrap_or_else(|| region.s3());
        let (iam, iam_region) = region.iam();
        let iam = given(&parameters.iam_endpoint).or(given(&self.defaults.iam_endpoint)).unwrap_or_else(|| iam.into());
        let endpoint = Endpoint::of_url(&s3).map(|endpoint| endpoint.region(region.name()));
        let endpoint = endpoint.ok_or_else(|| Misconfigured(format!("{s3:?} is no address of S3: expected a URL")))?;
        let s3 = self.client(s3, region.name(), "s3")?.with_credentials(credentials.clone());
        let iam = self.client(iam, iam_region, "iam")?.with_credentials(credentials);
        let permissions_boundary = given(&self.defaults.permissions_boundary);
        Ok(Store {
            region,
            s3,
            iam: Iam::new(iam),
            endpoint,
            given_url,
            recent: self.recent.clone(),
            permissions_boundary,
        })
    }

    /// Whether the provisioner's own credentials can be had, where it has some.
    pub(crate) async fn probe(&self) -> Result<(), Misconfigured> {
        if self.defaults.role_arn.is_some() {
            let region = self.region(&Parameters::default())?;
            self.administrator(&Secrets::default(), &region).await?;
        }
        Ok(())
    }

    fn region(&self, parameters: &Parameters) -> Result<Region, Misconfigured> {
        if let Some(region) = &parameters.region {
            return Ok(region.0.clone());
        }
        let text = self.defaults.region.as_deref().filter(|text| !text.is_empty()).ok_or_else(|| {
            Misconfigured("no region is known: set region in the StorageClass, or --region".to_owned())
        })?;
        Region::new(text).ok_or_else(|| Misconfigured(format!("--region: {text:?} is no region, such as eu-central-1")))
    }

    /// The class's Secret, or else what the process was given. What is named and broken is never passed over.
    async fn administrator(&self, secrets: &Secrets, region: &Region) -> Result<Credentials, Misconfigured> {
        if let Some(role) = ADMIN.into_iter().find(|role| secrets.has(role)) {
            let text = |name| secrets.text(role, name).filter(|text| !text.is_empty());
            let key = text("AWS_ACCESS_KEY_ID").zip(text("AWS_SECRET_ACCESS_KEY"));
            let (id, secret) = key.ok_or_else(|| {
                let text = "the Secret that the class names has no AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
                Misconfigured(text.to_owned())
            })?;
            let session_token = text("AWS_SESSION_TOKEN").map(str::to_owned);
            return Ok(Credentials { session_token, ..Credentials::new(id, secret) });
        }
        let Defaults { role_arn, web_identity_token_file, environment, .. } = &self.defaults;
        match (role_arn.as_ref().zip(web_identity_token_file.as_ref()), environment) {
            (Some(_), Some(_)) => Err(Misconfigured(
                "the provisioner has both a role and AWS_ACCESS_KEY_ID: take one of them away".to_owned(),
            )),
            (Some((role, file)), None) => self.role(role, file, region).await,
            (None, Some(key)) => Ok(key.clone()),
            (None, None) => Err(Misconfigured(
                "no administrator's key is known: name its Secret by adminSecretName and adminSecretNamespace in the \
                 StorageClass, or give the provisioner a role (AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE) or \
                 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                    .to_owned(),
            )),
        }
    }

    /// A key of the role's, which is used until shortly before it ends.
    async fn role(&self, role: &str, file: &Path, region: &Region) -> Result<Credentials, Misconfigured> {
        let mut known = self.role.lock().await;
        if let Some(known) = &*known
            && known.expires > Timestamp::now() + RENEWAL
        {
            return Ok(known.credentials.clone());
        }
        let given = self.defaults.sts_endpoint.clone().filter(|text| !text.is_empty());
        let sts = self.client(given.unwrap_or_else(|| region.sts()), region.name(), "sts")?;
        let token = String::from_utf8_lossy(&read(file)?).trim().to_owned();
        let taken = assume_role_with_web_identity(&sts, role, "kube-provisioner", &token).await;
        let taken = taken.map_err(|error| {
            let advice = "check the role's trust policy and the service account's annotation";
            Misconfigured(format!("the role {role} cannot be taken: {error}; {advice}"))
        })?;
        Ok(known.insert(taken).credentials.clone())
    }

    fn client(&self, url: String, region: &str, service: &str) -> Result<Client, Misconfigured> {
        let mut settings = Settings::new(url);
        settings.region = region.to_owned();
        settings.service = service.to_owned();
        settings.ca_bundle = self.defaults.ca_bundle.as_deref().map(read).transpose()?;
        settings.time_limit = Duration::from_secs(self.defaults.call_timeout);
        settings.repeats = true;
        self.clients.get(settings).map_err(|error| Misconfigured(error.to_string()))
    }
}

fn environment() -> Option<Credentials> {
    let text = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
    let (id, secret) = text("AWS_ACCESS_KEY_ID").zip(text("AWS_SECRET_ACCESS_KEY"))?;
    Some(Credentials { session_token: text("AWS_SESSION_TOKEN"), ..Credentials::new(id, secret) })
}

fn read(file: &Path) -> Result<Vec<u8>, Misconfigured> {
    std::fs::read(file).map_err(|error| Misconfigured(format!("cannot read {}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    async fn store(more: &[&str]) -> Store {
        let given = ["aws-s3-provisioner", "--provisioner-name", "aws", "--iam-endpoint", "http://127.0.0.1:1"];
        let defaults = crate::Args::parse_from([&given, more].concat()).defaults;
        let key = [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", "hidden")];
        let secrets = Secrets::new([("admin", key)]);
        Stores::new(defaults).of(&Parameters::default(), &secrets).await.unwrap()
    }

    #[tokio::test]
    async fn clients_of_aws_need_no_settings_and_those_of_other_stores_do() {
        assert_eq!(store(&["--region", "eu-central-1"]).await.client_settings(), []);
        let vpc = "http://bucket.vpce-1-a.s3.us-east-1.vpce.amazonaws.com";
        let in_vpc = store(&["--region", "us-east-1", "--endpoint", vpc]).await;
        assert_eq!(in_vpc.client_settings(), [("AWS_ENDPOINT_URL_S3", vpc)]);
        let other = store(&["--region", "us-east-1", "--endpoint", "http://store:9000"]).await;
        let sums = ["AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION"];
        let [sent, read] = sums.map(|name| (name, "when_required"));
        assert_eq!(other.client_settings(), [("AWS_ENDPOINT_URL_S3", "http://store:9000"), sent, read]);
    }

    #[tokio::test]
    async fn only_aws_outside_its_first_region_makes_a_bucket_once() {
        assert!(store(&["--region", "eu-central-1"]).await.makes_a_bucket_once());
        assert!(store(&["--region", "cn-north-1"]).await.makes_a_bucket_once());
        assert!(!store(&["--region", "us-east-1"]).await.makes_a_bucket_once());
        for host in ["http://store:9000", "http://amazonaws.com.example.com", "http://notamazonaws.com"] {
            let store = store(&["--region", "eu-central-1", "--endpoint", host]).await;
            assert!(!store.is_aws() && !store.makes_a_bucket_once(), "{host}");
        }
    }

    #[tokio::test]
    async fn a_class_without_a_boundary_has_that_of_the_provisioner() {
        let store = store(&["--region", "eu-central-1", "--permissions-boundary", "arn:a"]).await;
        let of =
            |boundary: &str| Parameters { permissions_boundary: Some(boundary.to_owned()), ..Parameters::default() };
        assert_eq!(store.permissions_boundary(&Parameters::default()), Some("arn:a"));
        assert_eq!(store.permissions_boundary(&of("arn:b")), Some("arn:b"));
        assert_eq!(store.permissions_boundary(&of("")), Some("arn:a"));
    }

    /// AWS takes the tags with the bucket. No request is sent: nobody listens.
    #[tokio::test]
    async fn on_aws_a_bucket_without_tags_is_somebody_elses() {
        use crate::ownership::{Maker, maker};
        let uid = "00000000-0000-4000-8000-000000000001";
        let store = store(&["--region", "us-east-1", "--endpoint", "http://s3.us-east-1.amazonaws.com"]).await;
        for name in ["photos".to_owned(), format!("photos-{uid}")] {
            assert_eq!(maker(&store, &name, uid).await.unwrap(), Maker::SomebodyElse);
            store.recent.created(&name);
            let error = maker(&store, &name, uid).await.unwrap_err();
            assert!(error.to_string().contains("does not show the tags"), "{error}");
        }
    }
}
