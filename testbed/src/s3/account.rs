//! The account of a server, with AWS SDK clients for it.

use s3_client::iam::Iam;
use s3_client::{Client, Credentials, Http, Settings};

use super::{EVERYTHING, Server};

/// A trust policy that lets every principal assume a role.
pub(super) const TRUSTS_ANYBODY: &str = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"*"},"Action":["sts:AssumeRole","sts:AssumeRoleWithWebIdentity"]}]}"#;

/// An S3 client for an endpoint with a key.
pub fn client(endpoint: &str, region: Option<&str>, key: Credentials) -> anyhow::Result<Client> {
    Ok(Client::new(&settings(endpoint, region)?, key)?)
}

/// An IAM client for an endpoint with a key.
pub fn iam_client(endpoint: &str, key: Credentials) -> anyhow::Result<Iam> {
    Ok(Iam::new(&settings(endpoint, None)?, key)?)
}

/// A user's inline policies, with the access that they allow.
pub async fn policies(iam: &Iam, user: &str) -> anyhow::Result<Vec<String>> {
    let mut policies = Vec::new();
    for name in iam.user_policies(user).await? {
        match iam.sdk().get_user_policy().user_name(user).policy_name(&name).send().await {
            Ok(policy) => policies.push(format!("policy {name} of {user}: {}", policy.policy_document)),
            // The policy was deleted after it was listed.
            Err(error) if error.as_service_error().is_some_and(|error| error.is_no_such_entity_exception()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(policies)
}

/// The addresses of a store's S3 and IAM, and its administrator's key.
#[derive(Clone)]
pub struct Account {
    /// The address of S3.
    pub endpoint: String,
    /// The address of IAM and STS.
    pub iam_endpoint: String,
    /// The only region; `None` if the store accepts any.
    pub region: Option<String>,
    /// The path below which IAM lists the users that provisioners created.
    pub(crate) user_path: &'static str,
    /// The id of the administrator's key.
    pub access_key: String,
    /// The secret of the administrator's key.
    pub secret_key: String,
}

impl Account {
    /// An account at these addresses, whose administrator is `root`.
    pub(crate) fn new(s3: &str, iam: &str, region: Option<&str>, user_path: &'static str) -> Self {
        Self {
            endpoint: format!("http://{s3}"),
            iam_endpoint: format!("http://{iam}"),
            region: region.map(str::to_owned),
            user_path,
            access_key: "root".to_owned(),
            secret_key: "the-secret-of-root".to_owned(),
        }
    }

    /// An S3 client with a key.
    pub fn s3(&self, credentials: Credentials) -> anyhow::Result<Client> {
        client(&self.endpoint, self.region.as_deref(), credentials)
    }

    /// An S3 client with the administrator's key.
    pub fn admin(&self) -> anyhow::Result<Client> {
        self.s3(self.key())
    }

    /// An IAM client with the administrator's key. It signs for AWS' first region, independent of the region of S3.
    pub fn iam(&self) -> anyhow::Result<Iam> {
        iam_client(&self.iam_endpoint, self.key())
    }

    /// The administrator's key.
    pub fn key(&self) -> Credentials {
        Credentials::new(&self.access_key, &self.secret_key)
    }

    /// The names of the users that provisioners created.
    pub async fn users(&self) -> anyhow::Result<Vec<String>> {
        let mut users = self.iam()?.users(self.user_path).await?;
        users.retain(|user| *user != self.access_key);
        Ok(users)
    }

    /// The buckets, and the users that provisioners created, with their keys and policies.
    pub async fn assets(&self) -> anyhow::Result<Vec<String>> {
        let iam = self.iam()?;
        let mut all: Vec<String> = self.admin()?.list_buckets().await?;
        for user in self.users().await? {
            all.extend(iam.access_keys(&user).await?.into_iter().map(|key| format!("key {}", key.id)));
            all.extend(policies(&iam, &user).await?);
            all.push(user);
        }
        Ok(all)
    }
}

impl Server {
    /// An S3 client with a key.
    pub fn s3(&self, key: Credentials) -> anyhow::Result<Client> {
        client(&self.endpoint, None, key)
    }

    /// An S3 client with the administrator's key.
    pub fn admin(&self) -> anyhow::Result<Client> {
        self.s3(self.key())
    }

    /// An S3 client for a region, with the administrator's key.
    pub fn admin_in(&self, region: &str) -> anyhow::Result<Client> {
        client(&self.endpoint, Some(region), self.key())
    }

    /// The variables that give a program the administrator's key.
    pub fn variables(&self) -> [String; 2] {
        [format!("AWS_ACCESS_KEY_ID={}", self.access_key), format!("AWS_SECRET_ACCESS_KEY={}", self.secret_key)]
    }

    /// The account as seen from one region.
    pub fn account(&self, region: &str) -> Account {
        let Self { endpoint, access_key, secret_key, .. } = self.clone();
        Account {
            iam_endpoint: endpoint.clone(),
            endpoint,
            region: Some(region.to_owned()),
            user_path: "/kube-provisioner/",
            access_key,
            secret_key,
        }
    }

    /// An IAM client with the administrator's key.
    pub fn iam(&self) -> anyhow::Result<Iam> {
        self.iam_at(&self.endpoint, self.key())
    }

    /// An IAM client for another address, with a key.
    pub fn iam_at(&self, endpoint: &str, key: Credentials) -> anyhow::Result<Iam> {
        iam_client(endpoint, key)
    }

    /// An STS client with the administrator's key.
    pub(super) fn sts(&self) -> anyhow::Result<aws_sdk_sts::Client> {
        let config = settings(&self.endpoint, None)?.sdk_config(self.key())?;
        Ok(aws_sdk_sts::Client::new(&config))
    }

    /// Creates a role that every principal may assume; returns its ARN.
    pub async fn create_role(&self, name: &str) -> anyhow::Result<String> {
        let iam = self.iam()?;
        iam.sdk().create_role().role_name(name).assume_role_policy_document(TRUSTS_ANYBODY).send().await?;
        Ok(format!("arn:aws:iam::123456789012:role/{name}"))
    }

    /// Grants all permissions to a role.
    pub async fn allow_everything(&self, role: &str) -> anyhow::Result<()> {
        let iam = self.iam()?;
        let put = iam.sdk().put_role_policy().role_name(role).policy_name("policy");
        put.policy_document(EVERYTHING).send().await?;
        Ok(())
    }

    /// The administrator's key.
    pub fn key(&self) -> Credentials {
        Credentials::new(&self.access_key, &self.secret_key)
    }
}

fn settings(endpoint: &str, region: Option<&str>) -> anyhow::Result<Settings> {
    // Connections end with the runtime that opened them, and each test has its own runtime.
    let mut settings = Settings::new(Http::from_env(None)?).at(endpoint);
    settings.region = region.map_or(settings.region, str::to_owned);
    Ok(settings)
}
