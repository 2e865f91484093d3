//! Calls to the provisioner about one account, without the controller.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::{Instant, sleep};

use super::Subject;
use super::fixture::Fixture;
use crate::bucket::{
    Account, Asset, AssetKind, BucketAccess, BucketRequest, ClaimName, Credentials, GrantRequest, GrantedAccount,
    ListAssets, ProvisionedBucket,
};
use crate::conformance::verdict::Broken;
use crate::controller::SYSTEM_NAMESPACE;
use crate::controller::bucket::{
    BucketBackend, UntypedAccount, UntypedBucket, UntypedGrant, UntypedRequest, read_texts,
};
use crate::controller::shared::class_parameters::{ClassParameters, Parsed};
use crate::controller::shared::secret_names::TemplateNames;
use crate::error::{DeleteError, ProvisionVerdict};
use crate::secrets::Secrets;

/// Consecutive failures that count as a refusal.
const REFUSALS: usize = 8;

/// The location of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Class,
    Claim,
}

/// A provisioner process that knows one claim and the answers to it.
pub(super) struct Direct<'a> {
    subject: &'a Subject,
    pub(super) backend: Arc<dyn BucketBackend>,
    pub(super) account: Account,
    parameters: ClassParameters,
    config: Parsed,
    config_texts: BTreeMap<String, String>,
    secrets: Secrets,
    cluster_id: String,
    state: BTreeMap<String, String>,
    key: Option<Credentials>,
    /// The provisioner's warning in its last answer.
    pub(super) warning: Option<String>,
}

impl<'a> Direct<'a> {
    pub(super) fn new(subject: &'a Subject, fixture: &Fixture<'_>, claim: ClaimName) -> Result<Self, Broken> {
        let backend = (subject.start)(fixture.cluster.client("kit"));
        let capabilities = backend.capabilities();
        let parameters = read_texts(&subject.parameters, &capabilities, |texts| backend.parse(texts));
        let parameters = parameters.map_err(|problem| Broken(format!("the class's parameters: {problem:?}")))?;
        let config = backend.parse_config(&BTreeMap::new());
        let config = config.map_err(|error| Broken(format!("an empty additionalConfig: {error}")))?;
        let mut secrets = Secrets::default();
        for named in &parameters.secrets {
            let names = TemplateNames { claim: &claim.name, namespace: &claim.namespace, volume: "" };
            let (namespace, secret) = named.resolve(names).map_err(Broken)?;
            let object = fixture.cluster.get("", "secrets", &namespace, &secret).unwrap_or_default();
            if let Ok(object) = serde_json::from_value::<k8s_openapi::api::core::v1::Secret>(object) {
                let data = object.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
                secrets.insert(named.role.clone(), data);
            }
        }
        let system = fixture.cluster.get("", "namespaces", "", SYSTEM_NAMESPACE).unwrap_or_default();
        let cluster_id = system["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        Ok(Self {
            subject,
            backend,
            account: Account::of(claim),
            parameters,
            config,
            config_texts: BTreeMap::new(),
            secrets,
            cluster_id,
            state: BTreeMap::new(),
            key: None,
            warning: None,
        })
    }

    /// Adds a setting to the claim's class or its `additionalConfig`. Returns `None` if the provisioner's types reject
    /// it.
    pub(super) fn with_setting(mut self, place: Place, key: &str, value: &str) -> Option<Self> {
        let setting = BTreeMap::from([(key.to_owned(), value.to_owned())]);
        match place {
            Place::Class => {
                let texts = self.subject.parameters.clone().into_iter().chain(setting).collect();
                let read = read_texts(&texts, &self.backend.capabilities(), |texts| self.backend.parse(texts));
                self.parameters = read.ok()?;
            }
            Place::Claim => {
                self.config = self.backend.parse_config(&setting).ok()?;
                self.config_texts = setting;
            }
        }
        Some(self)
    }

    /// Moves the claim to another cluster.
    pub(super) fn in_another_cluster(self) -> Self {
        Self { cluster_id: format!("not-{}", self.cluster_id), ..self }
    }

    /// Returns the argument of `create_bucket`.
    pub(super) fn request(&self, bucket: &str) -> UntypedRequest {
        let (parameters, config) = (self.parameters.parsed.clone(), self.config.clone());
        BucketRequest {
            owner: self.account.clone(),
            state: self.state.clone(),
            config_texts: self.config_texts.clone(),
            secrets: self.secrets.clone(),
            cluster_id: self.cluster_id.clone(),
            ..BucketRequest::new(bucket, parameters, config)
        }
    }

    /// Returns the argument of `delete_bucket`.
    pub(super) fn bucket(&self, name: &str) -> UntypedBucket {
        ProvisionedBucket {
            owner: self.account.clone(),
            state: self.state.clone(),
            config_texts: self.config_texts.clone(),
            secrets: self.secrets.clone(),
            cluster_id: self.cluster_id.clone(),
            ..ProvisionedBucket::new(name, self.parameters.parsed.clone())
        }
    }

    /// Returns the argument of `grant`.
    pub(super) fn grant(&self, buckets: &[BucketAccess]) -> UntypedGrant {
        let (parameters, config) = (self.parameters.parsed.clone(), self.config.clone());
        GrantRequest {
            account: self.account.clone(),
            buckets: buckets.to_vec(),
            state: self.state.clone(),
            access_key_id: self.key.as_ref().map(|key| key.access_key_id.clone()),
            credentials: self.key.clone(),
            config_texts: self.config_texts.clone(),
            secrets: self.secrets.clone(),
            cluster_id: self.cluster_id.clone(),
            ..GrantRequest::new("", parameters, config)
        }
    }

    /// Returns the argument of `revoke`.
    pub(super) fn granted(&self, buckets: &[BucketAccess]) -> UntypedAccount {
        GrantedAccount {
            account: self.account.clone(),
            buckets: buckets.to_vec(),
            state: self.state.clone(),
            access_key_id: self.key.as_ref().map(|key| key.access_key_id.clone()),
            config_texts: self.config_texts.clone(),
            secrets: self.secrets.clone(),
            cluster_id: self.cluster_id.clone(),
            ..GrantedAccount::new("", self.parameters.parsed.clone())
        }
    }

    /// Returns the access to the account's own bucket of this name.
    pub(super) fn own(&self, bucket: &str) -> BucketAccess {
        BucketAccess { state: self.state.clone(), ..BucketAccess::new(bucket, Some(self.account.clone())) }
    }

    pub(super) async fn has_bucket(&mut self, name: &str) -> Result<BucketAccess, Broken> {
        let start = Instant::now();
        let made = loop {
            match self.backend.create_bucket(self.request(name)).await {
                Ok(made) => break made,
                Err(error) => self.again("create_bucket", start, &error).await?,
            }
        };
        self.state.extend(made.state);
        Ok(self.own(name))
    }

    /// Grants the account access. Returns false if the provisioner refuses: some permanently refuse all foreign
    /// buckets.
    pub(super) async fn is_let_in(&mut self, buckets: &[BucketAccess]) -> Result<bool, Broken> {
        let start = Instant::now();
        let granted = loop {
            match self.backend.grant(self.grant(buckets)).await {
                Ok(granted) => break granted,
                Err(error) if error.verdict() == ProvisionVerdict::Invalid => return Ok(false),
                Err(error) => self.again("grant", start, &error).await?,
            }
        };
        self.state.extend(granted.state);
        self.key = granted.credentials;
        Ok(true)
    }

    pub(super) fn key(&self) -> Option<&str> {
        self.key.as_ref().map(|key| key.access_key_id.as_str())
    }

    /// Returns the account's key, including its secret.
    pub(super) fn credentials(&self) -> Option<&Credentials> {
        self.key.as_ref()
    }

    /// Replaces the IDs that the backend has chosen for this account and its bucket by names, in a line of the
    /// backend's list.
    pub(super) fn with_names(&self, line: &str) -> String {
        let chosen = self.state.iter().map(|(name, id)| (name.as_str(), id.as_str()));
        let ids = chosen.chain(self.key().map(|id| ("access key", id))).filter(|(_, id)| id.len() > 3);
        ids.fold(line.to_owned(), |line, (name, id)| line.replace(id, &format!("<{name}>")))
    }

    /// Calls `create_bucket` for an own bucket, or else `grant`, until there is a final answer. Returns false if the
    /// provisioner refuses the request, or fails several times in a row, as it may for settings that cannot be applied.
    pub(super) async fn accepts(&mut self, name: &str, buckets: Option<&[BucketAccess]>) -> bool {
        for _ in 0..REFUSALS {
            let answer = match buckets {
                None => {
                    self.backend.create_bucket(self.request(name)).await.map(|made| (made.state, None, made.warning))
                }
                Some(buckets) => {
                    let granted = self.backend.grant(self.grant(buckets)).await;
                    granted.map(|granted| (granted.state, granted.credentials, granted.warning))
                }
            };
            match answer {
                Ok((state, key, warning)) => {
                    self.state.extend(state);
                    (self.key, self.warning) = (key, self.warning.take().or(warning));
                    return true;
                }
                Err(error) if error.verdict() == ProvisionVerdict::Invalid => return false,
                Err(_) => sleep(self.subject.tempo.step()).await,
            }
        }
        false
    }

    pub(super) async fn rotates(&mut self, buckets: &[BucketAccess]) -> Result<(), Broken> {
        let start = Instant::now();
        self.key = loop {
            match self.backend.rotate(self.granted(buckets)).await {
                Ok(key) => break Some(key),
                Err(error) => self.again("rotate", start, &error).await?,
            }
        };
        Ok(())
    }

    /// Removes the account's former keys.
    pub(super) async fn retires(&self, buckets: &[BucketAccess]) -> Result<(), Broken> {
        let start = Instant::now();
        while let Err(error) = self.backend.revoke_old_keys(self.granted(buckets)).await {
            self.again("retire", start, &error).await?;
        }
        Ok(())
    }

    /// Waits until `list_keys` returns these keys. Returns false if the provisioner cannot list them.
    pub(super) async fn lists_keys(&self, buckets: &[BucketAccess], wanted: &[&str]) -> Result<bool, Broken> {
        let (start, wanted) = (Instant::now(), wanted.iter().copied().collect::<BTreeSet<_>>());
        loop {
            match self.backend.list_keys(self.granted(buckets)).await {
                Ok(None) => return Ok(false),
                Ok(Some(keys)) if keys.iter().map(String::as_str).collect::<BTreeSet<_>>() == wanted => {
                    return Ok(true);
                }
                Ok(Some(keys)) => {
                    let text = format!("it returned {keys:?} instead of {wanted:?}");
                    self.again("list_keys", start, &text).await?;
                }
                Err(error) => self.again("list_keys", start, &error).await?,
            }
        }
    }

    /// Waits until `list_assets` returns this bucket of the account.
    pub(super) async fn lists_bucket(&self, name: &str) -> Result<(), Broken> {
        let start = Instant::now();
        loop {
            let parameters = Arc::new(self.parameters.parsed.clone());
            let list = ListAssets::of(parameters, self.secrets.clone(), self.cluster_id.clone());
            let listed = self.backend.list_assets(list).await;
            let is_it = |asset: &Asset| {
                asset.kind == AssetKind::Bucket && asset.name == name && asset.owner.name == self.account.name
            };
            match listed {
                Ok(assets) if assets.found.iter().any(is_it) => return Ok(()),
                Ok(assets) => self.again("list_assets", start, &format!("{name} is not in {:?}", assets.found)).await?,
                Err(error) => self.again("list_assets", start, &error).await?,
            }
        }
    }

    pub(super) async fn is_let_out(&self, buckets: &[BucketAccess]) -> Result<(), Broken> {
        let start = Instant::now();
        while let Err(error) = self.backend.revoke(self.granted(buckets)).await {
            self.again("revoke", start, &error).await?;
        }
        Ok(())
    }

    pub(super) async fn has_no_bucket(&self, name: &str) -> Result<(), Broken> {
        let start = Instant::now();
        while let Err(error) = self.backend.delete_bucket(self.bucket(name)).await {
            self.again("delete_bucket", start, &error).await?;
        }
        Ok(())
    }

    /// Makes the controller's calls for a deleted claim, once.
    pub(super) async fn ends(&self, bucket: &BucketAccess) -> Result<(), DeleteError> {
        if bucket.belongs_to(&self.account) {
            self.backend.delete_bucket(self.bucket(&bucket.name)).await?;
        }
        self.backend.revoke(self.granted(std::slice::from_ref(bucket))).await
    }

    /// Calls [`Self::ends`] until it succeeds, for a claim without assets.
    pub(super) async fn has_nothing(&self, bucket: &BucketAccess) -> Result<(), Broken> {
        let start = Instant::now();
        while let Err(error) = self.ends(bucket).await {
            self.again("removing fails where there is nothing", start, &error).await?;
        }
        Ok(())
    }

    /// Waits before a retry, since backends fail occasionally, or returns the error after a time limit.
    async fn again(&self, method: &str, start: Instant, error: &impl std::fmt::Display) -> Result<(), Broken> {
        if start.elapsed() > self.subject.tempo.limit() {
            return Err(Broken(format!("`{method}` for {}: {error}", self.account.name)));
        }
        sleep(self.subject.tempo.step()).await;
        Ok(())
    }
}
