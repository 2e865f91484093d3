//! Connections to S3 and IAM with the administrator's credentials.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_config::sts::AssumeRoleProvider;
use aws_config::{BehaviorVersion, Region as SdkRegion, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials as _, SharedCredentialsProvider};
use aws_smithy_runtime::client::identity::IdentityCache;
use aws_smithy_runtime_api::client::identity::SharedIdentityCache;
use clap::Args;
use kube_provisioner::bucket::{BackendConfigError, Endpoint, EndpointError, RecentlyCreated};
use kube_provisioner::{Secrets, parse_time_limit};
use s3_client::iam::Iam;
use s3_client::{Client, Connections, Http, Settings, chain};
use tokio::sync::OnceCell;

use crate::dialect::Dialect;
use crate::failure::Failure;
use crate::parameters::{IamArn, Parameters};
use crate::region::Region;
use crate::role::OidcProvider;

/// The roles of the Secret with the administrator's key: `adminSecretName`, or `secretName` in classes of the
/// provisioner of 2019.
pub(crate) const ADMIN: [&str; 2] = ["admin", ""];

/// The time after which reads reflect a write. IAM and bucket settings are eventually consistent.
/// <https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot.html#troubleshoot_general_eventual-consistency>
const PROPAGATION_TIME: Duration = Duration::from_secs(30);

/// The provisioner renews credentials this long before they expire, or up to half of that later.
const RENEWAL: Duration = Duration::from_secs(60);

/// The maximum number of cached roles, which is more than the classes of a cluster use.
const MAX_ROLES: usize = 100;

/// The defaults for classes that do not set a value. The environment variables have the same names as in AWS's own
/// tools.
#[derive(Args, Clone)]
pub struct Defaults {
    /// Region of the buckets, for classes without `region`
    #[arg(long, env = "AWS_REGION", value_name = "REGION")]
    region: Option<Region>,

    /// S3 endpoint [default: the region's endpoint]
    #[arg(long, env = "AWS_ENDPOINT_URL_S3", value_name = "URL")]
    endpoint: Option<Endpoint>,

    /// IAM endpoint [default: the endpoint of the region's partition]
    #[arg(long, env = "AWS_ENDPOINT_URL_IAM", value_name = "URL")]
    iam_endpoint: Option<Endpoint>,

    /// ARN of the permissions boundary for new users, for classes without `permissionsBoundary`
    #[arg(long, env = "AWS_PERMISSIONS_BOUNDARY", value_name = "ARN")]
    permissions_boundary: Option<IamArn>,

    /// ARN of the cluster's OIDC provider in IAM, for access without keys, for classes without `oidcProviderArn`
    #[arg(long, env = "AWS_OIDC_PROVIDER_ARN", value_name = "ARN")]
    oidc_provider_arn: Option<OidcProvider>,

    /// Use the FIPS endpoints of AWS
    #[arg(long, env = "AWS_USE_FIPS_ENDPOINT")]
    fips: bool,

    /// Use the dual-stack endpoints of AWS, which also support IPv6
    #[arg(long, env = "AWS_USE_DUALSTACK_ENDPOINT")]
    dual_stack: bool,

    /// File with CA certificates for the endpoints [default: the system's]
    #[arg(long, env = "AWS_CA_BUNDLE", value_name = "FILE")]
    ca_bundle: Option<PathBuf>,

    /// Timeout of one request
    #[arg(long, env = "AWS_CALL_TIMEOUT", value_name = "TIME", default_value = "15s", value_parser = parse_time_limit)]
    call_timeout: Duration,
}

impl Defaults {
    /// Reads the file with CA certificates, so that the provisioner refuses to start with a wrong path.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn check(&self) -> Result<(), BackendConfigError> {
        self.http(&Connections::default()).map(drop)
    }

    fn http(&self, connections: &Connections) -> Result<Http, BackendConfigError> {
        let ca_bundle = self.ca_bundle.as_deref().map(BackendConfigError::read).transpose()?;
        connections.with_ca_bundle(ca_bundle).map_err(BackendConfigError::new)
    }
}

/// Creates a [`Store`] for each class, and reuses connections and credentials.
pub(crate) struct Stores {
    defaults: Defaults,
    connections: Connections,
    /// The process's own configuration, from its environment, pod, node or profile.
    own: OnceCell<SdkConfig>,
    roles: Mutex<BTreeMap<Role, SharedCredentialsProvider>>,
    identities: SharedIdentityCache,
    recent: Arc<RecentlyCreated>,
    recently_removed: Arc<RecentlyCreated>,
}

/// A role's ARN, its external ID, the region of STS, and the key (ID and secret) that assumes the role; without a key,
/// the provisioner's own credentials assume it.
type Role = (String, Option<String>, String, Option<(String, String)>);

/// Access to one region of an AWS account with the administrator's credentials.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) region: Region,
    pub(crate) s3: Client,
    pub(crate) iam: Iam,
    pub(crate) endpoint: Endpoint,
    /// The S3 endpoint, if it is not the region's default.
    given_url: Option<String>,
    given_dialect: Option<Dialect>,
    /// The objects that were recently created in any account.
    pub(crate) recent: Arc<RecentlyCreated>,
    /// Recently removed users and roles. Not every administrator has permission to see that they no longer exist.
    recently_removed: Arc<RecentlyCreated>,
    permissions_boundary: Option<IamArn>,
    oidc_provider: Option<OidcProvider>,
}

impl Store {
    /// Returns the store's dialect. The endpoint of a region or of a VPC identifies AWS; SeaweedFS identifies itself in
    /// its answers.
    pub(crate) fn dialect(&self) -> Dialect {
        let is_amazons = || {
            let mut suffixes = [".amazonaws.com", ".amazonaws.com.cn"].iter();
            self.given_url.is_none() || suffixes.any(|suffix| self.endpoint.host.ends_with(suffix))
        };
        match self.given_dialect {
            Some(dialect) => dialect,
            None if is_amazons() => Dialect::Aws,
            None if self.s3.server_header().starts_with("SeaweedFS") => Dialect::SeaweedFs,
            None => Dialect::Other,
        }
    }

    /// Sends a request to a store whose dialect is unknown. This happens before the first user is created, since the
    /// names of users depend on the dialect.
    ///
    /// # Errors
    /// If the request fails without an answer, or with 429 or 5xx, which need not come from the store itself.
    pub(crate) async fn learn_dialect(&self, bucket: &str) -> Result<(), Failure> {
        if self.dialect() != Dialect::Other || !self.s3.server_header().is_empty() {
            return Ok(());
        }
        match self.s3.bucket_tagging(bucket).await {
            Err(error) if error.status().is_none_or(|status| status == 429 || status >= 500) => {
                Err(Failure::of(format!("read the tags of the bucket {bucket}"), "s3:GetBucketTagging")(error))
            }
            _ => Ok(()),
        }
    }

    /// See [`Dialect::success_proves_creation`].
    pub(crate) fn success_proves_creation(&self) -> bool {
        self.dialect().success_proves_creation(&self.region)
    }

    /// Returns true if "no such bucket" may mean that AWS does not show the bucket yet.
    pub(crate) fn may_hide(&self, bucket: &str) -> bool {
        self.dialect().supports_all_properties() && self.recent.has(bucket)
    }

    /// Records that a user or a role was removed.
    pub(crate) fn record_removal(&self, name: &str) {
        self.recent.removed(name);
        self.recently_removed.created(name);
    }

    /// Returns true if this process has recently removed the user or role, and has not created it again.
    pub(crate) fn was_removed(&self, name: &str) -> bool {
        self.recently_removed.has(name) && !self.recent.has(name)
    }

    /// Returns the settings that clients need in addition to their defaults for AWS.
    pub(crate) fn client_settings(&self) -> Vec<(&'static str, &str)> {
        // AWS_ENDPOINT_URL would also redirect the clients' requests to SQS and STS.
        let url = self.given_url.as_deref().map(|url| ("AWS_ENDPOINT_URL_S3", url));
        // Clients add checksums that some stores refuse:
        // https://docs.aws.amazon.com/sdkref/latest/guide/feature-dataintegrity.html.
        let sums = ["AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION"]
            .map(|name| (name, "when_required"));
        // Amazon's Python clients read the region only from this variable. AWS redirects them to the right region, but
        // other stores do not.
        let others = sums.into_iter().chain([("AWS_DEFAULT_REGION", self.region.name())]);
        url.into_iter().chain(others.filter(|_| !self.dialect().supports_all_properties())).collect()
    }

    /// Returns the OIDC provider in IAM that represents the cluster.
    pub(crate) fn oidc_provider<'a>(&'a self, parameters: &'a Parameters) -> Option<&'a OidcProvider> {
        parameters.oidc_provider_arn.as_ref().or(self.oidc_provider.as_ref())
    }

    /// Returns the ARN of the policy that limits the permissions of new users.
    pub(crate) fn permissions_boundary<'a>(&'a self, parameters: &'a Parameters) -> Option<&'a str> {
        let boundary = parameters.permissions_boundary.as_ref().or(self.permissions_boundary.as_ref());
        boundary.map(|IamArn(arn)| arn.as_str())
    }
}

impl Stores {
    pub(crate) fn new(defaults: Defaults) -> Self {
        let (connections, own, roles) = Default::default();
        let identities = IdentityCache::lazy().buffer_time(RENEWAL).build();
        let [recent, recently_removed] = [(); 2].map(|()| Arc::new(RecentlyCreated::within(PROPAGATION_TIME)));
        Self { defaults, connections, own, roles, identities, recent, recently_removed }
    }

    /// Returns access to the account and the region of a class.
    pub(crate) async fn of(&self, parameters: &Parameters, secrets: &Secrets) -> Result<Store, BackendConfigError> {
        let (region, mut settings) = self.settings(parameters)?;
        let (credentials, identities) = self.administrator(parameters, secrets, &region).await?;
        settings.identities = identities;
        let mut settings_of_iam = settings.clone();
        settings_of_iam.endpoint = self.iam_endpoint(parameters).map(Endpoint::url);
        if settings_of_iam.endpoint.is_some() {
            region.iam_region().clone_into(&mut settings_of_iam.region);
        }
        let endpoint = s3_endpoint(&settings).await?.region(region.name());
        Ok(Store {
            region,
            s3: Client::new(&settings, credentials.clone()).map_err(BackendConfigError::new)?,
            iam: Iam::new(&settings_of_iam, credentials).map_err(BackendConfigError::new)?,
            endpoint,
            given_url: settings.endpoint,
            given_dialect: parameters.store,
            recent: self.recent.clone(),
            recently_removed: self.recently_removed.clone(),
            permissions_boundary: self.defaults.permissions_boundary.clone(),
            oidc_provider: self.defaults.oidc_provider_arn.clone(),
        })
    }

    /// Checks that the provisioner can retrieve its own credentials if the environment configures them.
    pub(crate) async fn probe(&self) -> Result<(), BackendConfigError> {
        let given = ["AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"];
        if given.into_iter().any(|name| std::env::var_os(name).is_some()) {
            let provider = own_credentials(self.own().await?)?;
            let had = provider.provide_credentials().await;
            had.map_err(|error| {
                BackendConfigError::new(format!("the provisioner has no credentials: {}", chain(&error)))
            })?;
        }
        Ok(())
    }

    /// Returns the class's S3 endpoint, and its IAM endpoint if that is not Amazon's default.
    pub(crate) async fn endpoints(&self, parameters: &Parameters) -> Result<Vec<Endpoint>, BackendConfigError> {
        let (_, settings) = self.settings(parameters)?;
        let s3 = s3_endpoint(&settings).await?;
        Ok([s3].into_iter().chain(self.iam_endpoint(parameters).cloned()).collect())
    }

    /// Returns the region of a class, and the settings for S3 in it.
    fn settings(&self, parameters: &Parameters) -> Result<(Region, Settings), BackendConfigError> {
        let defaults = &self.defaults;
        let region = parameters.region.as_ref().or(defaults.region.as_ref()).cloned().ok_or_else(|| {
            BackendConfigError::new("no region is configured: set region in the StorageClass, or --region")
        })?;
        let mut settings = Settings::new(defaults.http(&self.connections)?);
        region.name().clone_into(&mut settings.region);
        settings.endpoint = parameters.endpoint.as_ref().or(defaults.endpoint.as_ref()).map(Endpoint::url);
        (settings.time_limit, settings.retries) = (defaults.call_timeout, true);
        (settings.fips, settings.dual_stack) = (defaults.fips, defaults.dual_stack);
        Ok((region, settings))
    }

    fn iam_endpoint<'a>(&'a self, parameters: &'a Parameters) -> Option<&'a Endpoint> {
        parameters.iam_endpoint.as_ref().or(self.defaults.iam_endpoint.as_ref())
    }

    /// Returns the configuration that Amazon's default credential chain finds for this process.
    async fn own(&self) -> Result<&SdkConfig, BackendConfigError> {
        let http = self.defaults.http(&self.connections)?;
        let region = self.defaults.region.as_ref().map_or("us-east-1", Region::name);
        let load = async || {
            let loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http.client());
            let loader = match key_in_environment(|name| std::env::var(name).ok()) {
                Some(key) => loader.credentials_provider(key),
                None => loader,
            };
            // The loader knows only the settings of the environment and the profile.
            let loader = if self.defaults.fips { loader.use_fips(true) } else { loader };
            let loader = if self.defaults.dual_stack { loader.use_dual_stack(true) } else { loader };
            // Without a region, the loader would request it from the node.
            loader.region(SdkRegion::new(region.to_owned())).load().await
        };
        Ok(self.own.get_or_init(load).await)
    }

    /// Returns the administrator's credentials: the key in the class's Secret, or else the process's own credentials.
    /// If the class names a role, these assume the role. A source that is named but unusable is an error. The cache is
    /// only for credentials that expire and are renewed; it would keep the keys of all Secrets forever.
    async fn administrator(
        &self,
        parameters: &Parameters,
        secrets: &Secrets,
        region: &Region,
    ) -> Result<(SharedCredentialsProvider, Option<SharedIdentityCache>), BackendConfigError> {
        let role = parameters.admin_role_arn.as_ref();
        let renewed = Some(self.identities.clone());
        match (key_in(secrets)?, role) {
            (Some(key), None) => Ok((SharedCredentialsProvider::new(key), None)),
            (None, None) => Ok((own_credentials(self.own().await?)?, renewed)),
            (key, Some(IamArn(arn))) => {
                let role = (arn.clone(), parameters.external_id.clone(), region.name().to_owned());
                Ok((self.role(role, key).await?, renewed))
            }
        }
    }

    /// Returns the credentials of a role, which this key or else the provisioner's own credentials assume.
    async fn role(
        &self,
        (arn, external_id, region): (String, Option<String>, String),
        key: Option<Credentials>,
    ) -> Result<SharedCredentialsProvider, BackendConfigError> {
        let taken_by = key.as_ref().map(|key| (key.access_key_id().to_owned(), key.secret_access_key().to_owned()));
        let role = (arn, external_id, region, taken_by);
        if let Some(known) = self.roles().get(&role) {
            return Ok(known.clone());
        }
        let own = self.own().await?;
        let base = match key {
            Some(key) => SharedCredentialsProvider::new(key),
            None => own_credentials(own)?,
        };
        let config = own.to_builder().region(SdkRegion::new(role.2.clone())).build();
        let mut provider = AssumeRoleProvider::builder(&role.0).session_name("kube-provisioner").configure(&config);
        if let Some(external_id) = &role.1 {
            provider = provider.external_id(external_id);
        }
        let provider = SharedCredentialsProvider::new(provider.build_from_provider(base).await);
        let mut roles = self.roles();
        if roles.len() >= MAX_ROLES {
            roles.clear();
        }
        Ok(roles.entry(role).or_insert(provider).clone())
    }

    fn roles(&self) -> MutexGuard<'_, BTreeMap<Role, SharedCredentialsProvider>> {
        self.roles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn s3_endpoint(settings: &Settings) -> Result<Endpoint, BackendConfigError> {
    let address = settings.s3_address().await.map_err(BackendConfigError::new)?;
    address.parse().map_err(|error: EndpointError| BackendConfigError::new(format!("S3 at {address:?}: {error}")))
}

fn own_credentials(own: &SdkConfig) -> Result<SharedCredentialsProvider, BackendConfigError> {
    let none = || BackendConfigError::new("Amazon's client was built without credentials");
    own.credentials_provider().ok_or_else(none)
}

/// Returns the key in the environment, without the line break at the end of a Secret that was created from a file.
fn key_in_environment(variable: impl Fn(&str) -> Option<String>) -> Option<Credentials> {
    let text = |name| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let (id, secret) = text("AWS_ACCESS_KEY_ID").zip(text("AWS_SECRET_ACCESS_KEY"))?;
    Some(Credentials::new(id, secret, text("AWS_SESSION_TOKEN"), None, "the environment"))
}

/// Returns the key in the class's Secret, if the class names a Secret.
fn key_in(secrets: &Secrets) -> Result<Option<Credentials>, BackendConfigError> {
    let Some(role) = ADMIN.into_iter().find(|role| secrets.has(role)) else { return Ok(None) };
    let text = |name| secrets.text(role, name).filter(|text| !text.is_empty());
    let key = text("AWS_ACCESS_KEY_ID").zip(text("AWS_SECRET_ACCESS_KEY"));
    let (id, secret) = key.ok_or_else(|| {
        BackendConfigError::new("the Secret that the class names has no AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    })?;
    let token = text("AWS_SESSION_TOKEN").map(str::to_owned);
    Ok(Some(Credentials::new(id, secret, token, None, "the class's Secret")))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpListener;

    use clap::Parser;
    use kube_provisioner::bucket::Owner;

    use super::*;

    pub(crate) async fn store(more: &[&str]) -> Store {
        let given = ["aws-s3-provisioner", "--provisioner-name", "aws", "--iam-endpoint", "http://127.0.0.1:1"];
        let defaults = crate::Args::parse_from([&given, more].concat()).defaults;
        let key = [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", "hidden")];
        let secrets = Secrets::new([("admin", key)]);
        Stores::new(defaults).of(&Parameters::default(), &secrets).await.unwrap()
    }

    /// Starts a server on which `answer` returns a status and a body for each request, and returns its address.
    pub(crate) fn server(answer: impl Fn(&str) -> (u16, &'static str) + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut request, mut length) = (BufReader::new(stream.unwrap()), String::new(), 0);
                loop {
                    let start = request.len();
                    stream.read_line(&mut request).unwrap();
                    let line = request[start..].trim().to_ascii_lowercase();
                    if let Some(bytes) = line.strip_prefix("content-length: ") {
                        length = bytes.parse().unwrap();
                    }
                    if line.is_empty() {
                        break;
                    }
                }
                stream.by_ref().take(length).read_to_string(&mut request).unwrap();
                let (status, body) = answer(&request);
                let head = format!("HTTP/1.1 {status} -\r\ncontent-length: {}\r\nconnection: close", body.len());
                write!(stream.get_mut(), "{head}\r\n\r\n{body}").unwrap();
            }
        });
        address
    }

    #[test]
    fn trims_line_breaks_from_keys_in_the_environment() {
        let key = key_in_environment(|name| (name != "AWS_SESSION_TOKEN").then(|| format!("{name}\n"))).unwrap();
        assert_eq!((key.access_key_id(), key.session_token()), ("AWS_ACCESS_KEY_ID", None));
        assert!(key_in_environment(|name| (name == "AWS_ACCESS_KEY_ID").then(String::new)).is_none());
    }

    #[tokio::test]
    async fn own_credentials_use_the_requested_endpoints_of_sts() {
        let given = ["aws-s3-provisioner", "--provisioner-name", "aws", "--fips", "--dual-stack"];
        let stores = Stores::new(crate::Args::parse_from(given).defaults);
        let own = stores.own().await.unwrap();
        assert_eq!((own.use_fips(), own.use_dual_stack()), (Some(true), Some(true)));
    }

    #[tokio::test]
    async fn client_settings_depend_on_the_store() {
        assert_eq!(store(&["--region", "eu-central-1"]).await.client_settings(), []);
        let vpc = "http://bucket.vpce-1-a.s3.us-east-1.vpce.amazonaws.com";
        let in_vpc = store(&["--region", "us-east-1", "--endpoint", vpc]).await;
        assert_eq!(in_vpc.client_settings(), [("AWS_ENDPOINT_URL_S3", vpc)]);
        let other = store(&["--region", "us-east-1", "--endpoint", "http://store:9000"]).await;
        let sums = ["AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION"];
        let [sent, read] = sums.map(|name| (name, "when_required"));
        let [address, region] = [("AWS_ENDPOINT_URL_S3", "http://store:9000"), ("AWS_DEFAULT_REGION", "us-east-1")];
        assert_eq!(other.client_settings(), [address, sent, read, region]);
    }

    #[tokio::test]
    async fn success_proves_creation_only_outside_us_east_1() {
        assert!(store(&["--region", "eu-central-1"]).await.success_proves_creation());
        assert!(store(&["--region", "cn-north-1"]).await.success_proves_creation());
        assert!(!store(&["--region", "us-east-1"]).await.success_proves_creation());
        for host in ["http://store:9000", "http://amazonaws.com.example.com", "http://notamazonaws.com"] {
            let store = store(&["--region", "eu-central-1", "--endpoint", host]).await;
            assert!(store.dialect() == Dialect::Other && !store.success_proves_creation(), "{host}");
        }
    }

    #[tokio::test]
    async fn only_aws_may_hide_a_new_bucket() {
        for (host, hides) in [("http://s3.us-east-1.amazonaws.com", true), ("http://store:9000", false)] {
            let store = store(&["--region", "us-east-1", "--endpoint", host]).await;
            assert!(!store.may_hide("photos"), "{host}");
            store.recent.created("photos");
            assert_eq!(store.may_hide("photos"), hides, "{host}");
            store.recent.removed("photos");
            assert!(!store.may_hide("photos"), "{host}");
        }
    }

    #[tokio::test]
    async fn boundary_of_the_class_overrides_the_default() {
        let (of_flag, of_class) = ("arn:aws:iam::1:policy/a", "arn:aws:iam::1:policy/b");
        let store = store(&["--region", "eu-central-1", "--permissions-boundary", of_flag]).await;
        let class = Parameters { permissions_boundary: of_class.parse().ok(), ..Parameters::default() };
        assert_eq!(store.permissions_boundary(&Parameters::default()), Some(of_flag));
        assert_eq!(store.permissions_boundary(&class), Some(of_class));
    }

    #[test]
    fn rejects_invalid_flags_at_startup() {
        let parsed = |more: [&str; 2]| {
            let given = ["aws-s3-provisioner", "--provisioner-name", "aws"];
            crate::Args::try_parse_from(given.into_iter().chain(more))
        };
        for (flag, value, problem) in [
            ("--region", "Frankfurt", "expected a region, such as eu-central-1"),
            ("--endpoint", "localhost:9000", "expected an endpoint"),
            ("--endpoint", "http://store/s3/", "has no path"),
            ("--iam-endpoint", "store", "expected an endpoint"),
            ("--permissions-boundary", "boundary", "expected an ARN of IAM"),
            ("--oidc-provider-arn", "oidc.example.com", "is not an OIDC provider"),
        ] {
            let error = parsed([flag, value]).map(drop).unwrap_err().to_string();
            assert!(error.contains(flag) && error.contains(problem), "{error}");
        }
        let defaults = parsed(["--ca-bundle", "/nonexistent/ca.pem"]).unwrap().defaults;
        let error = defaults.check().unwrap_err().to_string();
        assert!(error.starts_with("cannot read /nonexistent/ca.pem: "), "{error}");
    }

    /// AWS accepts the tags in the request that creates the bucket. The endpoint would not answer, so the test sends no
    /// requests.
    #[tokio::test]
    async fn aws_buckets_without_tags_belong_to_others() {
        use crate::account::Account;
        use crate::dialect::Creator;
        let owner = kube_provisioner::bucket::BucketRequest::new("photos", (), ()).owner;
        let uid = &owner.claim.uid;
        let account = Account::of(&owner, "c", ("photos", true), &BTreeMap::new());
        let creator =
            async |store: &Store, name: &str| Dialect::Aws.creator(store, name, Owner::Unknown, &account).await;
        let store = store(&["--region", "us-east-1", "--endpoint", "http://s3.us-east-1.amazonaws.com"]).await;
        for name in ["photos".to_owned(), format!("photos-{uid}")] {
            assert_eq!(creator(&store, &name).await.unwrap(), Creator::Other);
            store.recent.created(&name);
            let error = creator(&store, &name).await.unwrap_err();
            assert!(error.to_string().contains("does not show the newly created tags"), "{error}");
        }
    }
}
