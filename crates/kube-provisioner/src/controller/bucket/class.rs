//! StorageClasses from the watch, with their parameters parsed by the provisioner's code before any lock is taken.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::storage::v1::StorageClass;
use objectbucket_api::names::{CLASS_BUCKET_NAME, PROVISIONER_LABEL};
use provisioner_runtime::controller::catch_panic;
use provisioner_runtime::fingerprint;
use provisioner_runtime::watch::Change;

use super::backend::BucketBackend;
use super::decide::Rules;
use super::delivered_names;
use super::facts::{OurClass, ReclaimPolicy};
use crate::bucket::BucketCapabilities;
use crate::controller::shared::class_parameters::{BadParameters, ClassParameters, Parsed};
use crate::controller::shared::watched::WatchedClass;
use crate::parameters::ParameterError;
use crate::protocol::{BUCKET_CLAIM_NAME, CONFIG_MAP_NAME, SECRET_NAME};

/// The class parameter with the validity of a key after it was rotated out.
const OVERLAP: &str = "credentialsOverlap";
/// The class parameter with the keys of `additionalConfig` that its claims may use.
const ALLOWED_CONFIG: &str = "allowedAdditionalConfig";
/// The class parameters with the keys of the labels and annotations that a claim's Secret and ConfigMap receive from
/// the claim.
const COPIED: [&str; 2] = ["copyClaimLabels", "copyClaimAnnotations"];
/// The keys that must not be copied: they have a meaning on the objects themselves.
const NOT_COPIED: [&str; 2] = [PROVISIONER_LABEL, "kubectl.kubernetes.io/last-applied-configuration"];
/// The keys of `additionalConfig` that are not passed to the provisioner.
const OF_CONTROLLER: [&str; 3] = [BUCKET_CLAIM_NAME, SECRET_NAME, CONFIG_MAP_NAME];
/// The default validity of a key after it was rotated out.
const USUAL_OVERLAP: Duration = Duration::from_secs(24 * 3600);

pub(crate) type ReadClass = crate::controller::shared::read_class::ReadClass<OurClass>;

pub(crate) fn read_class(event: Change<WatchedClass>, rules: &Rules, backend: &dyn BucketBackend) -> Change<ReadClass> {
    ReadClass::of_event(event, &rules.names, |class| read_own(class, rules, backend))
}

fn read_own(class: StorageClass, rules: &Rules, backend: &dyn BucketBackend) -> OurClass {
    let texts = Arc::new(class.parameters.unwrap_or_default());
    let metadata = &class.metadata;
    OurClass {
        name: metadata.name.as_deref().unwrap_or_default().into(),
        fingerprint: fingerprint(&(&metadata.uid, &metadata.resource_version)),
        policy: if class.reclaim_policy.as_deref() == Some("Retain") {
            ReclaimPolicy::Retain
        } else {
            ReclaimPolicy::Delete
        },
        bucket: texts.get(CLASS_BUCKET_NAME).filter(|name| !name.is_empty()).map(|name| name.as_str().into()),
        allowed_config: allowed_config(&texts),
        parameters: read_parameters(&texts, rules, backend),
        texts,
    }
}

/// Returns the keys of `additionalConfig` that claims of a class with these parameters may use.
pub(crate) fn allowed_config(texts: &BTreeMap<String, String>) -> Option<Vec<String>> {
    texts.get(ALLOWED_CONFIG).map(|keys| list(keys))
}

fn list(keys: &str) -> Vec<String> {
    keys.split(',').map(str::trim).filter(|key| !key.is_empty()).map(str::to_owned).collect()
}

/// Reads the parameters of a class, or of an ObjectBucket that records them. Calls the provisioner's code.
pub(crate) fn read_parameters(
    texts: &BTreeMap<String, String>,
    rules: &Rules,
    backend: &dyn BucketBackend,
) -> Result<ClassParameters, BadParameters> {
    read_texts(texts, &rules.capabilities, |texts| backend.parse(texts))
}

/// Reads parameters like [`read_parameters`], with the provisioner's code as `parse`.
pub(crate) fn read_texts(
    texts: &BTreeMap<String, String>,
    capabilities: &BucketCapabilities,
    parse: impl FnOnce(&BTreeMap<String, String>) -> Result<Parsed, ParameterError>,
) -> Result<ClassParameters, BadParameters> {
    let mut of_author = texts.clone();
    for parameter in [CLASS_BUCKET_NAME, OVERLAP, ALLOWED_CONFIG].into_iter().chain(COPIED) {
        of_author.remove(parameter);
    }
    let of_names = delivered_names::take(&mut of_author);
    let read = ClassParameters::read(of_author, &capabilities.secrets, parse);
    if matches!(read, Err(BadParameters::Crashed(_))) {
        return read;
    }
    let of_author = match &read {
        Err(BadParameters::Invalid(problem)) => Some(problem.clone()),
        _ => None,
    };
    let problems: Vec<String> =
        [of_author, overlap(texts).err(), of_names.err(), copied(texts).err()].into_iter().flatten().collect();
    if problems.is_empty() { read } else { Err(BadParameters::Invalid(problems.join("; "))) }
}

/// Returns the validity of a key after it was rotated out.
pub(crate) fn overlap(texts: &BTreeMap<String, String>) -> Result<Duration, String> {
    match texts.get(OVERLAP) {
        None => Ok(USUAL_OVERLAP),
        Some(text) => {
            crate::options::parse_time_limit(text).map_err(|problem| format!("parameter \"{OVERLAP}\": {problem}"))
        }
    }
}

/// Returns the keys of the claim's labels and annotations that its Secret and ConfigMap receive.
pub(super) fn copied(texts: &BTreeMap<String, String>) -> Result<[Vec<String>; 2], String> {
    let keys = COPIED.map(|parameter| texts.get(parameter).map(|keys| list(keys)).unwrap_or_default());
    for (parameter, keys) in COPIED.iter().zip(&keys) {
        if let Some(key) = keys.iter().find(|key| is_reserved(key)) {
            return Err(format!("parameter \"{parameter}\": \"{key}\" is reserved and cannot be copied"));
        }
    }
    Ok(keys)
}

fn is_reserved(key: &str) -> bool {
    NOT_COPIED.contains(&key) || key.starts_with("kube-provisioner/")
}

/// Returns the keys of `additionalConfig` that claims can use. A panic of the provisioner's code is reported when it
/// reads a claim.
pub(crate) fn known_config(backend: &dyn BucketBackend) -> Option<Vec<String>> {
    let of_author = catch_panic(|| backend.keys()[1]).ok()??;
    Some(of_author.iter().copied().chain(OF_CONTROLLER).map(str::to_owned).collect())
}

/// Returns the entries of `additionalConfig` that are passed to the provisioner.
pub(crate) fn of_author(config: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let texts = config.iter().filter(|(key, _)| !OF_CONTROLLER.contains(&key.as_str()));
    texts.map(|(key, value)| (key.clone(), value.clone())).collect()
}
