//! Calls to the provisioner about one account, without the controller.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::{Instant, sleep};

use super::fixture::Fixture;
use super::{BucketClaim, Subject};
use crate::bucket::{Asset, AssetKind, BucketAccess, ClaimName, Credentials, ListAssets};
use crate::conformance::verdict::Violation;
use crate::controller::SYSTEM_NAMESPACE;
use crate::controller::bucket::backend::BucketBackend;
use crate::controller::bucket::read_texts;
use crate::controller::shared::class_parameters::Parsed;
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
    pub(super) claim: BucketClaim<Parsed, Parsed>,
    /// The provisioner's warning in its last answer.
    pub(super) warning: Option<String>,
}

impl<'a> Direct<'a> {
    pub(super) fn new(subject: &'a Subject, fixture: &Fixture<'_>, claim: ClaimName) -> Result<Self, Violation> {
        let backend = (subject.start)(fixture.cluster.client("kit"));
        let capabilities = backend.capabilities();
        let parameters = read_texts(&subject.parameters, &capabilities, |texts| backend.parse(texts));
        let parameters = parameters.map_err(|problem| Violation(format!("the class's parameters: {problem:?}")))?;
        let config = backend.parse_config(&BTreeMap::new());
        let config = config.map_err(|error| Violation(format!("an empty additionalConfig: {error}")))?;
        let mut secrets = Secrets::default();
        for named in &parameters.secrets {
            let names = TemplateNames { claim: &claim.name, namespace: &claim.namespace, volume: "" };
            let (namespace, secret) = named.resolve(names).map_err(Violation)?;
            let object = fixture.cluster.get("", "secrets", &namespace, &secret).unwrap_or_default();
            if let Ok(object) = serde_json::from_value::<k8s_openapi::api::core::v1::Secret>(object) {
                let data = object.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
                secrets.insert(named.role.clone(), data);
            }
        }
        let system = fixture.cluster.get("", "namespaces", "", SYSTEM_NAMESPACE).unwrap_or_default();
        let cluster_id = system["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let claim = BucketClaim { claim, secrets, cluster_id, ..BucketClaim::new("", parameters.parsed, config) };
        Ok(Self { subject, backend, claim, warning: None })
    }

    /// Adds a setting to the claim's class or its `additionalConfig`. Returns `None` if the provisioner's types reject
    /// it.
    pub(super) fn with_setting(mut self, place: Place, key: &str, value: &str) -> Option<Self> {
        let setting = BTreeMap::from([(key.to_owned(), value.to_owned())]);
        match place {
            Place::Class => {
                let texts = self.subject.parameters.clone().into_iter().chain(setting).collect();
                let read = read_texts(&texts, &self.backend.capabilities(), |texts| self.backend.parse(texts));
                self.claim.parameters = Arc::new(read.ok()?.parsed);
            }
            Place::Claim => {
                self.claim.config = Arc::new(self.backend.parse_config(&setting).ok()?);
                self.claim.config_texts = setting;
            }
        }
        Some(self)
    }

    /// Moves the claim to another cluster.
    pub(super) fn in_another_cluster(mut self) -> Self {
        self.claim.cluster_id.insert_str(0, "not-");
        self
    }

    fn set_key(&mut self, key: Option<Credentials>) {
        self.claim.access_key_id = key.as_ref().map(|key| key.access_key_id.clone());
        self.claim.credentials = key;
    }

    pub(super) async fn create_bucket(&mut self, name: &str) -> Result<BucketAccess, Violation> {
        let start = Instant::now();
        let made = loop {
            match self.backend.create_bucket(self.claim.request(name)).await {
                Ok(made) => break made,
                Err(error) => self.retry_or_fail("create_bucket", start, &error).await?,
            }
        };
        self.claim.state.extend(made.state);
        Ok(self.claim.own(name))
    }

    /// Grants the account access. Returns false if the provisioner refuses: some permanently refuse all foreign
    /// buckets.
    pub(super) async fn grant(&mut self, buckets: &[BucketAccess]) -> Result<bool, Violation> {
        let start = Instant::now();
        let granted = loop {
            match self.backend.grant(self.claim.grant(buckets.to_vec())).await {
                Ok(granted) => break granted,
                Err(error) if error.verdict() == ProvisionVerdict::Invalid => return Ok(false),
                Err(error) => self.retry_or_fail("grant", start, &error).await?,
            }
        };
        self.claim.state.extend(granted.state);
        self.set_key(granted.credentials);
        Ok(true)
    }

    pub(super) fn key(&self) -> Option<&str> {
        self.claim.access_key_id.as_deref()
    }

    /// Returns the account's key, including its secret.
    pub(super) fn credentials(&self) -> Option<&Credentials> {
        self.claim.credentials.as_ref()
    }

    /// Replaces the IDs that the backend has chosen for this account and its bucket by names, in a line of the
    /// backend's list.
    pub(super) fn with_names(&self, line: &str) -> String {
        let chosen = self.claim.state.iter().map(|(name, id)| (name.as_str(), id.as_str()));
        let ids = chosen.chain(self.key().map(|id| ("access key", id))).filter(|(_, id)| id.len() > 3);
        ids.fold(line.to_owned(), |line, (name, id)| line.replace(id, &format!("<{name}>")))
    }

    /// Calls `create_bucket` for an own bucket, or else `grant`, until there is a final answer. Returns false if the
    /// provisioner refuses the request, or fails several times in a row, as it may for settings that cannot be applied.
    pub(super) async fn try_provision(&mut self, name: &str, buckets: Option<&[BucketAccess]>) -> bool {
        for _ in 0..REFUSALS {
            let answer = match buckets {
                None => self
                    .backend
                    .create_bucket(self.claim.request(name))
                    .await
                    .map(|made| (made.state, None, made.warning)),
                Some(buckets) => {
                    let granted = self.backend.grant(self.claim.grant(buckets.to_vec())).await;
                    granted.map(|granted| (granted.state, granted.credentials, granted.warning))
                }
            };
            match answer {
                Ok((state, key, warning)) => {
                    self.claim.state.extend(state);
                    self.set_key(key);
                    self.warning = self.warning.take().or(warning);
                    return true;
                }
                Err(error) if error.verdict() == ProvisionVerdict::Invalid => return false,
                Err(_) => sleep(self.subject.tempo.step()).await,
            }
        }
        false
    }

    pub(super) async fn rotate(&mut self, buckets: &[BucketAccess]) -> Result<(), Violation> {
        let start = Instant::now();
        let key = loop {
            match self.backend.rotate(self.claim.granted_for(buckets.to_vec())).await {
                Ok(key) => break key,
                Err(error) => self.retry_or_fail("rotate", start, &error).await?,
            }
        };
        self.set_key(Some(key));
        Ok(())
    }

    /// Removes the account's former keys.
    pub(super) async fn retire_keys(&self, buckets: &[BucketAccess]) -> Result<(), Violation> {
        let start = Instant::now();
        while let Err(error) = self.backend.revoke_old_keys(self.claim.granted_for(buckets.to_vec())).await {
            self.retry_or_fail("retire", start, &error).await?;
        }
        Ok(())
    }

    /// Waits until `list_keys` returns these keys. Returns false if the provisioner cannot list them.
    pub(super) async fn expect_keys(&self, buckets: &[BucketAccess], wanted: &[&str]) -> Result<bool, Violation> {
        let (start, wanted) = (Instant::now(), wanted.iter().copied().collect::<BTreeSet<_>>());
        loop {
            match self.backend.list_keys(self.claim.granted_for(buckets.to_vec())).await {
                Ok(None) => return Ok(false),
                Ok(Some(keys)) if keys.iter().map(String::as_str).collect::<BTreeSet<_>>() == wanted => {
                    return Ok(true);
                }
                Ok(Some(keys)) => {
                    let text = format!("it returned {keys:?} instead of {wanted:?}");
                    self.retry_or_fail("list_keys", start, &text).await?;
                }
                Err(error) => self.retry_or_fail("list_keys", start, &error).await?,
            }
        }
    }

    /// Waits until `list_assets` returns this bucket of the account.
    pub(super) async fn expect_listed_bucket(&self, name: &str) -> Result<(), Violation> {
        let start = Instant::now();
        loop {
            let BucketClaim { parameters, secrets, cluster_id, .. } = self.claim.clone();
            let list = ListAssets { parameters, secrets, cluster_id };
            let listed = self.backend.list_assets(list).await;
            let is_it = |asset: &Asset| {
                asset.kind == AssetKind::Bucket && asset.name == name && asset.owner.name == self.claim.account().name
            };
            match listed {
                Ok(assets) if assets.found.iter().any(is_it) => return Ok(()),
                Ok(assets) => {
                    self.retry_or_fail("list_assets", start, &format!("{name} is not in {:?}", assets.found)).await?;
                }
                Err(error) => self.retry_or_fail("list_assets", start, &error).await?,
            }
        }
    }

    pub(super) async fn revoke(&self, buckets: &[BucketAccess]) -> Result<(), Violation> {
        let start = Instant::now();
        while let Err(error) = self.backend.revoke(self.claim.granted_for(buckets.to_vec())).await {
            self.retry_or_fail("revoke", start, &error).await?;
        }
        Ok(())
    }

    pub(super) async fn delete_bucket(&self, name: &str) -> Result<(), Violation> {
        let start = Instant::now();
        while let Err(error) = self.backend.delete_bucket(self.claim.bucket(name)).await {
            self.retry_or_fail("delete_bucket", start, &error).await?;
        }
        Ok(())
    }

    /// Makes the controller's calls for a deleted claim, once.
    pub(super) async fn deprovision(&self, bucket: &BucketAccess) -> Result<(), DeleteError> {
        if bucket.belongs_to(&self.claim.account()) {
            self.backend.delete_bucket(self.claim.bucket(&bucket.name)).await?;
        }
        self.backend.revoke(self.claim.granted_for(vec![bucket.clone()])).await
    }

    /// Calls [`Self::deprovision`] until it succeeds, for a claim without assets.
    pub(super) async fn delete_missing(&self, bucket: &BucketAccess) -> Result<(), Violation> {
        let start = Instant::now();
        while let Err(error) = self.deprovision(bucket).await {
            self.retry_or_fail("removing fails where there is nothing", start, &error).await?;
        }
        Ok(())
    }

    /// Waits before a retry, since backends fail occasionally, or returns the error after a time limit.
    async fn retry_or_fail(
        &self,
        method: &str,
        start: Instant,
        error: &impl std::fmt::Display,
    ) -> Result<(), Violation> {
        if start.elapsed() > self.subject.tempo.limit() {
            return Err(Violation(format!("`{method}` for {}: {error}", self.claim.account().name)));
        }
        sleep(self.subject.tempo.step()).await;
        Ok(())
    }
}
