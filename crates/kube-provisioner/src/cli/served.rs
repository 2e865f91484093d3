//! What a program serves: claims of volumes or claims of buckets.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use k8s_openapi::api::storage::v1::StorageClass;

use crate::bucket::BucketProvisioner;
use crate::capabilities::Capabilities;
use crate::controller::{bucket, secret_names, volume};
use crate::options::Options;
use crate::parameters;
use crate::provisioner::Provisioner;
use crate::rbac::{AccessRule, bucket_rules, rules};

/// What the common commands have to know of a program.
pub(super) trait Served {
    /// Whether attempts are recorded in journals.
    const HAS_JOURNAL: bool;

    /// What the provisioner would refuse, as events say it.
    fn refused(class: &StorageClass) -> Vec<String>;

    /// Every right that is needed.
    fn rules(options: &Options, former_shards: &[u32]) -> Vec<AccessRule>;
}

/// Claims of volumes.
pub(super) struct Volumes<P>(PhantomData<P>);

/// Claims of buckets.
pub(super) struct Buckets<B>(PhantomData<B>);

impl<P: Provisioner> Served for Volumes<P> {
    const HAS_JOURNAL: bool = true;

    fn refused(class: &StorageClass) -> Vec<String> {
        let capabilities = P::capabilities();
        let mut problems = Vec::new();
        let is_limited = class.allowed_topologies.as_ref().is_some_and(|terms| !terms.is_empty());
        if !capabilities.allowed_topologies && is_limited {
            problems.push("allowedTopologies are not heeded by this provisioner; remove them".to_owned());
        }
        if !capabilities.mount_options && class.mount_options.as_ref().is_some_and(|options| !options.is_empty()) {
            problems.push("mountOptions are not supported by this provisioner; remove them".to_owned());
        }
        let parameters = class.parameters.clone().unwrap_or_default();
        if let Err(problem) = read_parameters::<P>(parameters, &capabilities) {
            problems.push(volume::parameters_problem(&problem));
        }
        let mut problems: Vec<String> =
            problems.iter().map(|problem| format!("Warning ProvisioningFailed: {problem}")).collect();
        if !capabilities.expansion && class.allow_volume_expansion == Some(true) {
            let problem = "volumes cannot be expanded by this provisioner; remove allowVolumeExpansion";
            problems.push(format!("Warning VolumeResizeFailed: {problem}"));
        }
        problems
    }

    fn rules(options: &Options, former_shards: &[u32]) -> Vec<AccessRule> {
        let mut rules = rules(options, &P::capabilities(), former_shards);
        rules.extend(P::access_rules());
        rules
    }
}

impl<B: BucketProvisioner> Served for Buckets<B> {
    const HAS_JOURNAL: bool = false;

    fn refused(class: &StorageClass) -> Vec<String> {
        let name = class.metadata.name.as_deref().unwrap_or_default();
        let problem = bucket::class_problem::<B>(class.parameters.as_ref());
        problem
            .map(|problem| format!("Warning InvalidClass: {}", bucket::class_text(name, &problem)))
            .into_iter()
            .collect()
    }

    fn rules(options: &Options, former_shards: &[u32]) -> Vec<AccessRule> {
        let mut rules = bucket_rules(options, &B::capabilities(), former_shards);
        rules.extend(B::access_rules());
        rules
    }
}

fn read_parameters<P: Provisioner>(
    mut parameters: BTreeMap<String, String>,
    capabilities: &Capabilities,
) -> Result<(), String> {
    secret_names::take(&mut parameters, &capabilities.secrets)?;
    parameters::from_map::<P::Parameters>(&parameters).map(drop).map_err(|problems| problems.to_string())
}
