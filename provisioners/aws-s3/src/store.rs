//! Where S3 and IAM are, and with whose key they are administered.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use kube_provisioner::Secrets;
use kube_provisioner::bucket::Endpoint;
use s3_client::iam::{Iam, Temporary, assume_role_with_web_identity};
use s3_client::{Client, Clients, Credentials, Settings};

use crate::parameters::Parameters;
use crate::region::Region;

/// The roles of the Secret with the administrator's key: `adminSecretName`, and `secretName` as in 2019.
pub(crate) const ADMIN: [&str; 2] = ["admin", ""];

/// A role's key is renewed so long before it ends.
const RENEWAL: Duration = Duration::from_secs(300);

/// What applies where classes say nothing. The variables are those of AWS's own tools.
#[derive(Args, Clone)]
pub struct Defaults {
    /// Region of classes that name none
    #[arg(long, env = "AWS_REGION", value_name = "REGION")]
    region: Option<String>,

    /// Address of S3 [default: that of the region]
    #[arg(long, env = "AWS_ENDPOINT_URL_S3", value_name = "URL")]
    endpoint: Option<String>,

    /// Address of IAM [default: that of the region's partition]
    #[arg(long, env = "AWS_ENDPOINT_URL_IAM", value_name = "URL")]
    iam_endpoint: Option<String>,

    /// Address of STS [default: that of the region]
    #[arg(long, env = "AWS_ENDPOINT_URL_STS", value_name = "URL")]
    sts_endpoint: Option<String>,

    /// Role that the provisioner takes by its service account's token, for classes that name no Secret
    #[arg(long, env = "AWS_ROLE_ARN", value_name = "ARN", requires = "web_identity_token_file")]
    role_arn: Option<String>,

    /// File with the service account's token
    #[arg(long, env = "AWS_WEB_IDENTITY_TOKEN_FILE", value_name = "FILE", requires = "role_arn")]
    web_identity_token_file: Option<PathBuf>,

    /// File with certificates that the services' certificates must be signed by [default: those of the system]
    #[arg(long, env = "AWS_CA_BUNDLE", value_name = "FILE")]
    ca_bundle: Option<PathBuf>,

    /// Time limit of one request, in seconds
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
}

/// An account of AWS in one region, as its administrator sees it.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) region: Region,
    pub(crate) s3: Client,
    pub(crate) iam: Iam,
    pub(crate) endpoint: Endpoint,
}

/// Why there is no connection. The text says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Misconfigured(String);

impl Stores {
    pub(crate) fn new(defaults: Defaults) -> Self {
        Self { defaults, clients: Clients::default(), role: tokio::sync::Mutex::default() }
    }

    /// The account and the region of a class.
    pub(crate) async fn of(&self, parameters: &Parameters, secrets: &Secrets) -> Result<Store, Misconfigured> {
        let region = self.region(parameters)?;
        let credentials = self.administrator(secrets, &region).await?;
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let s3 = given(&parameters.endpoint).or(given(&self.defaults.endpoint)).unwrap_or_else(|| region.s3());
        let (iam, iam_region) = region.iam();
        let iam = given(&parameters.iam_endpoint).or(given(&self.defaults.iam_endpoint)).unwrap_or_else(|| iam.into());
        let endpoint = Endpoint::of_url(&s3).map(|endpoint| Endpoint { region: region.name().to_owned(), ..endpoint });
        let endpoint = endpoint.ok_or_else(|| Misconfigured(format!("{s3:?} is no address of S3: expected a URL")))?;
        let s3 = self.client(s3, region.name(), "s3")?.with_credentials(credentials.clone());
        let iam = self.client(iam, iam_region, "iam")?.with_credentials(credentials);
        Ok(Store { region, s3, iam: Iam::new(iam), endpoint })
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
