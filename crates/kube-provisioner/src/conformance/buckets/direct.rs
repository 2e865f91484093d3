//! Calls of the author's code without the controller between, about one claim.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Subject;
use super::fixture::Fixture;
use crate::bucket::{BucketRequest, ClaimName, ProvisionedBucket, Source};
use crate::conformance::verdict::Broken;
use crate::controller::SYSTEM_NAMESPACE;
use crate::controller::bucket::{BucketBackend, UntypedBucket, UntypedRequest, read_texts};
use crate::controller::shared::class_parameters::{ClassParameters, Parsed};
use crate::controller::shared::secret_names::TemplateNames;
use crate::secrets::Secrets;

/// A process of the author's code that knows one claim.
pub(super) struct Direct {
    pub(super) backend: Arc<dyn BucketBackend>,
    claim: ClaimName,
    parameters: ClassParameters,
    config: Parsed,
    secrets: Secrets,
    cluster_id: String,
}

impl Direct {
    pub(super) fn new(subject: &Subject, fixture: &Fixture<'_>, claim: ClaimName) -> Result<Self, Broken> {
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
        Ok(Self { backend, claim, parameters, config, secrets, cluster_id })
    }

    /// The same claim of another cluster.
    pub(super) fn in_another_cluster(self) -> Self {
        Self { cluster_id: format!("not-{}", self.cluster_id), ..self }
    }

    /// What `provision` is asked for the first time.
    pub(super) fn request(&self, bucket: &str) -> UntypedRequest {
        let request = BucketRequest {
            claim: self.claim.clone(),
            secrets: self.secrets.clone(),
            cluster_id: self.cluster_id.clone(),
            ..BucketRequest::new(bucket, (), ())
        };
        UntypedRequest { request, parameters: self.parameters.parsed.clone(), config: self.config.clone() }
    }

    /// What the other methods are asked about a bucket of which no answer was seen.
    pub(super) fn bucket(&self, name: &str, source: Source) -> UntypedBucket {
        let bucket = ProvisionedBucket {
            claim: self.claim.clone(),
            parameters: None,
            secrets: self.secrets.clone(),
            cluster_id: self.cluster_id.clone(),
            ..ProvisionedBucket::new(name, source, ())
        };
        UntypedBucket { bucket, parameters: Some(self.parameters.parsed.clone()) }
    }
}
