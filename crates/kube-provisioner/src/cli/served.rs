//! The kinds of claims that a program serves: volumes or buckets.

use k8s_openapi::api::storage::v1::StorageClass;

use super::BoxError;
use super::console::{is_confirmed, print};
use super::orphans::{Console, Orphans, SearchContext};
use crate::bucket::BucketHooks;
use crate::controller::shared::class_parameters::read_with_secrets;
use crate::controller::{BucketController, Controller, RunError, bucket, cluster_id, volume};
use crate::hooks::Hooks;
use crate::options::{BucketOptions, Options};
use crate::parameters;
use crate::rbac::{AccessRule, bucket_rules, rules};

/// A provisioner with its options. This module is private, so that the trait cannot be implemented outside.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a provisioner with its options",
    note = "return `(provisioner, options)`: a `Provisioner` with `Options`, or a `BucketProvisioner` with `BucketOptions`"
)]
pub trait Served: Sized + 'static {
    /// The options without effect, by their clap IDs.
    const ABSENT: &'static [&'static str] = &[];

    /// True if attempts are recorded in journals.
    const HAS_JOURNAL: bool;

    /// True if the program can be a COSI driver.
    const HAS_COSI: bool = false;

    /// Returns the reasons why the provisioner would reject the class, in the words of its events.
    fn refused(class: &StorageClass) -> Vec<String>;

    /// Returns settings that have no effect, although the class is served.
    fn class_problems(class: &StorageClass) -> Vec<String> {
        let _ = class;
        Vec::new()
    }

    /// Returns a warning about a valid class.
    fn class_warning(class: &StorageClass, own_name: Option<&str>) -> Option<String> {
        let _ = (class, own_name);
        None
    }

    /// Returns all permissions that the controller needs.
    fn rules(options: &Options, former_shards: &[u32]) -> Vec<AccessRule>;

    /// Returns all permissions that a COSI driver needs; `None` if the program cannot be one.
    fn cosi_rules(options: &Options) -> Option<Vec<AccessRule>> {
        let _ = options;
        None
    }

    /// Returns all permissions that the COSI controller of this driver needs; `None` if the program cannot be one.
    ///
    /// # Errors
    /// If the driver's name is invalid.
    fn cosi_controller_rules(options: &Options, driver: Option<&str>) -> Result<Option<Vec<AccessRule>>, String> {
        let _ = (options, driver);
        Ok(None)
    }

    /// Returns true if the program has the command `orphans`.
    fn lists_assets() -> bool {
        false
    }

    /// Runs the command `orphans`.
    fn orphans(self, orphans: &Orphans) -> impl Future<Output = Result<(), BoxError>> {
        let _ = orphans;
        async { Err("this provisioner cannot list what its backend has".into()) }
    }

    /// Runs the controller.
    fn run(self) -> impl Future<Output = Result<(), RunError>>;
}

impl<P: Hooks> Served for (P, Options) {
    const HAS_JOURNAL: bool = true;

    fn refused(class: &StorageClass) -> Vec<String> {
        let capabilities = P::capabilities();
        let mut problems = Vec::new();
        let is_limited = class.allowed_topologies.as_ref().is_some_and(|terms| !terms.is_empty());
        if !capabilities.allowed_topologies && is_limited {
            problems.push("allowedTopologies are not supported by this provisioner; remove them".to_owned());
        }
        if !capabilities.mount_options && class.mount_options.as_ref().is_some_and(|options| !options.is_empty()) {
            problems.push("mountOptions are not supported by this provisioner; remove them".to_owned());
        }
        let parameters = class.parameters.clone().unwrap_or_default();
        let parse = parameters::from_map::<P::Parameters>;
        if let Err(problem) = read_with_secrets(parameters, &capabilities.secrets, parse) {
            problems.push(volume::parameters_problem(&problem));
        }
        let mut problems: Vec<String> =
            problems.iter().map(|problem| format!("Warning ProvisioningFailed: {problem}")).collect();
        let is_expanded = capabilities.expansion || capabilities.expanded_elsewhere;
        if !is_expanded && class.allow_volume_expansion == Some(true) {
            let problem = "volumes cannot be expanded by this provisioner; remove allowVolumeExpansion";
            problems.push(format!("Warning VolumeResizeFailed: {problem}"));
        }
        problems
    }

    fn class_warning(class: &StorageClass, own_name: Option<&str>) -> Option<String> {
        P::class_warning(class, own_name)
    }

    fn class_problems(class: &StorageClass) -> Vec<String> {
        P::class_problems(class)
    }

    fn rules(options: &Options, former_shards: &[u32]) -> Vec<AccessRule> {
        [rules(options, &P::capabilities(), former_shards), P::access_rules()].concat()
    }

    async fn run(self) -> Result<(), RunError> {
        let (provisioner, options) = self;
        Controller::new(provisioner, options).run().await
    }
}

impl<B: BucketHooks> Served for (B, BucketOptions) {
    const ABSENT: &'static [&'static str] = &["node_name", "add_finalizer"];
    const HAS_JOURNAL: bool = false;
    const HAS_COSI: bool = cfg!(feature = "cosi");

    fn refused(class: &StorageClass) -> Vec<String> {
        let name = class.metadata.name.as_deref().unwrap_or_default();
        let text = |problem: String| format!("Warning InvalidClass: {}", bucket::class_text(name, &problem));
        bucket::class_problem::<B>(class.parameters.as_ref()).map(text).into_iter().collect()
    }

    fn rules(options: &Options, former_shards: &[u32]) -> Vec<AccessRule> {
        [bucket_rules(options, &B::capabilities(), former_shards), B::access_rules()].concat()
    }

    #[cfg(feature = "cosi")]
    fn cosi_rules(options: &Options) -> Option<Vec<AccessRule>> {
        Some([crate::rbac::cosi_rules(options, &B::capabilities()), B::access_rules()].concat())
    }

    #[cfg(feature = "cosi")]
    fn cosi_controller_rules(options: &Options, driver: Option<&str>) -> Result<Option<Vec<AccessRule>>, String> {
        let mut of_driver = BucketOptions::new(options.provisioner_name.clone());
        of_driver.cosi_driver_name = driver.map(str::to_owned);
        let driver = crate::cosi::driver_of_options(&of_driver)?;
        Ok(Some([crate::rbac::cosi_controller_rules(&driver, options), B::access_rules()].concat()))
    }

    fn lists_assets() -> bool {
        B::capabilities().assets
    }

    async fn orphans(self, orphans: &Orphans) -> Result<(), BoxError> {
        let (provisioner, bucket_options) = self;
        #[cfg(feature = "cosi")]
        let driver = crate::cosi::driver_of_options(&bucket_options).ok();
        #[cfg(not(feature = "cosi"))]
        let driver = None;
        let options = bucket_options.options;
        let client = super::client(&options).await?;
        let cluster_id = cluster_id(&options, &client).await?;
        let names = std::iter::once(&options.provisioner_name).chain(&options.additional_provisioner_names);
        let context =
            SearchContext { backend: &provisioner, client, cluster_id, names: names.cloned().collect(), driver };
        orphans.run(&context, &Console { print, confirm: is_confirmed }).await
    }

    async fn run(self) -> Result<(), RunError> {
        let (provisioner, options) = self;
        #[cfg(feature = "cosi")]
        if options.cosi_endpoint.is_some() {
            return crate::cosi::CosiDriver::new(provisioner, options).run().await;
        }
        #[cfg(feature = "cosi")]
        if options.cosi_controller {
            return crate::cosi::CosiController::new(provisioner, options).run().await;
        }
        BucketController::new(provisioner, options).run().await
    }
}
