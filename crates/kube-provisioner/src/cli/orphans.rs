//! `orphans`: compares the assets in the backends with the ObjectBuckets.

mod cosi;
mod removal;
mod sets;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Client;
use kube::api::{Api, ListParams};

use self::removal::remove;
use self::sets::{AssetSet, ClusterRecords, State, report, sets};
use super::BoxError;
use crate::bucket::{Asset, BucketStartContext, ListAssets};
use crate::controller::bucket::backend::BucketBackend;
use crate::controller::bucket::read_texts;
use crate::controller::bucket::recorded_assets::RecordedAssets;
use crate::controller::shared::class_parameters::{BadParameters, ClassParameters, Parsed};
use crate::controller::shared::secret_names::TemplateNames;
use crate::controller::shared::secret_reading::{SecretReadError, read_secrets};
use crate::secrets::Secrets;

/// List buckets and users that have no ObjectBucket
#[derive(Args, Clone, Debug, Default)]
pub struct Orphans {
    /// Check only the backends of these StorageClasses, separated by commas [default: all classes of the provisioner]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    class: Vec<String>,

    /// Remove orphans, after a confirmation for each
    #[arg(long)]
    delete: bool,

    /// Skip the confirmations
    #[arg(long, requires = "delete")]
    yes: bool,

    /// Remove these buckets with their objects, separated by commas [default: only empty buckets are removed]
    #[arg(long, value_name = "BUCKETS", value_delimiter = ',', requires = "delete")]
    with_objects: Vec<String>,
}

/// The location of a class's assets, and the data needed to remove them.
#[derive(Clone)]
struct SearchTarget {
    class: String,
    texts: BTreeMap<String, String>,
    parsed: Parsed,
    secrets: Secrets,
}

/// The functions that print output and ask questions.
pub(super) struct Console {
    pub(super) print: fn(&str),
    pub(super) confirm: fn(&str) -> Result<bool, BoxError>,
}

/// The cluster, and the provisioner whose assets are compared with it.
pub(crate) struct SearchContext<'a> {
    pub(crate) backend: &'a dyn BucketBackend,
    pub(crate) client: Client,
    pub(crate) cluster_id: String,
    /// The provisioner's name and its additional names.
    pub(crate) names: Vec<String>,
    /// The name of its COSI driver.
    pub(crate) driver: Option<String>,
}

impl Orphans {
    pub(super) const OPTIONS: [&'static str; 4] =
        ["provisioner_name", "additional_provisioner_names", "kubeconfig", "cluster_id"];

    pub(super) async fn run(&self, context: &SearchContext<'_>, console: &Console) -> Result<(), BoxError> {
        let mut start = BucketStartContext::new(context.client.clone());
        start.cluster_id.clone_from(&context.cluster_id);
        context.backend.start(start).await.map_err(|error| error.to_string())?;
        let (targets, mut problems) = self.targets(context).await?;
        let found = self.list_assets(context, &targets, &mut problems).await;
        // An ObjectBucket is written before the assets that it represents are created, and COSI accounts are created
        // for a BucketAccess. Reading the objects after the backends therefore misses nothing.
        let recorded = ClusterRecords::read(&context.client).await?;
        (console.print)(&report(&found, &recorded, &problems));
        if self.delete {
            self.delete(context, console, (&targets, found), &recorded).await?;
        }
        Ok(())
    }

    /// Removes the confirmed orphans. Confirmation takes time, so the backends are read once more before the first
    /// removal, and the ObjectBuckets before each one.
    async fn delete(
        &self,
        context: &SearchContext<'_>,
        console: &Console,
        (targets, found): (&[SearchTarget], Vec<AssetSet>),
        recorded: &ClusterRecords,
    ) -> Result<(), BoxError> {
        check_readable(&recorded.objects)?;
        let mut chosen = Vec::new();
        for set in found.into_iter().filter(|set| set.state(recorded) == State::Orphan) {
            if self.yes || (console.confirm)(&format!("remove {}?", set.text()))? {
                chosen.push(set);
            }
        }
        if chosen.is_empty() {
            return Ok(());
        }
        let now = self.list_assets(context, targets, &mut Vec::new()).await;
        let mut failed = 0;
        for set in chosen {
            let recorded = ClusterRecords::read(&context.client).await?;
            check_readable(&recorded.objects)?;
            if !now.contains(&set) || set.state(&recorded) != State::Orphan {
                (console.print)(&format!("{} is kept: it changed in the meantime\n", set.text()));
                continue;
            }
            let Some(target) = targets.iter().find(|target| target.class == set.class) else { continue };
            match remove(context, target, &set, &self.with_objects).await {
                Ok(()) => (console.print)(&format!("{} is removed\n", set.text())),
                Err(error) => {
                    failed += 1;
                    (console.print)(&format!("{} is not removed: {error}\n", set.text()));
                }
            }
        }
        if failed > 0 { Err(format!("orphans that could not be removed: {failed}").into()) } else { Ok(()) }
    }

    /// Returns the classes that the provisioner serves, and the reasons why others cannot be examined.
    async fn targets(&self, context: &SearchContext<'_>) -> Result<(Vec<SearchTarget>, Vec<String>), BoxError> {
        let classes: Api<StorageClass> = Api::all(context.client.clone());
        let classes = classes.list(&ListParams::default()).await?.items;
        let mut named: BTreeSet<&str> = self.class.iter().map(String::as_str).collect();
        let (mut targets, mut problems) = (Vec::new(), Vec::new());
        for class in classes.iter().filter(|class| context.names.contains(&class.provisioner)) {
            let name = class.metadata.name.as_deref().unwrap_or_default();
            if !self.class.is_empty() && !named.remove(name) {
                continue;
            }
            match target(context, name, class.parameters.clone().unwrap_or_default()).await {
                Ok(target) => targets.push(target),
                Err(error) => problems.push(format!("the StorageClass {name} is skipped: {error}")),
            }
        }
        let of_cosi = match &context.driver {
            Some(driver) => cosi::classes(&context.client, driver).await?,
            None => Vec::new(),
        };
        for (name, parameters) in of_cosi.into_iter().filter(|_| self.class.is_empty()) {
            match target(context, &name, cosi::of_author(parameters)).await {
                Ok(target) => targets.push(target),
                Err(error) => problems.push(format!("the {name} is skipped: {error}")),
            }
        }
        if self.class.is_empty() && targets.is_empty() && problems.is_empty() {
            Err(format!("no StorageClass names {}, so there is no backend to search", context.names.join(" or "))
                .into())
        } else if named.is_empty() || self.class.is_empty() {
            Ok((targets, problems))
        } else {
            let named = named.into_iter().collect::<Vec<_>>().join(", ");
            Err(format!("no StorageClass of this provisioner is named {named}").into())
        }
    }

    /// Returns the assets in the backends, which classes may share.
    async fn list_assets(
        &self,
        context: &SearchContext<'_>,
        targets: &[SearchTarget],
        problems: &mut Vec<String>,
    ) -> Vec<AssetSet> {
        let mut found: Vec<(String, Asset)> = Vec::new();
        for SearchTarget { class, parsed, secrets, .. } in targets {
            let list = ListAssets::new(parsed.clone(), secrets.clone(), &context.cluster_id);
            match context.backend.list_assets(list).await {
                Ok(assets) => {
                    problems.extend(assets.unread);
                    for asset in assets.found {
                        if !found.iter().any(|(_, known)| *known == asset) {
                            found.push((class.clone(), asset));
                        }
                    }
                }
                Err(error) => problems.push(format!("the {} is skipped: {error}", with_kind(class))),
            }
        }
        sets(found)
    }
}

/// Adds the kind to the name of a StorageClass. The names of COSI classes already contain it.
fn with_kind(class: &str) -> String {
    if class.contains(' ') { class.to_owned() } else { format!("StorageClass {class}") }
}

/// Reads a target. It fails as a whole, or is read with the parameters that the class has now.
async fn target(
    context: &SearchContext<'_>,
    name: &str,
    texts: BTreeMap<String, String>,
) -> Result<SearchTarget, BoxError> {
    let ClassParameters { parsed, secrets: named } = read(context.backend, &texts)?;
    if named.iter().any(|secret| secret.template().is_some()) {
        return Err("its Secrets differ from claim to claim".into());
    }
    let names = TemplateNames { claim: "", namespace: "", volume: "" };
    let secrets = read_secrets(&context.client, &named, names).await.map_err(|unread| match unread {
        SecretReadError::Unnamed(problem) => problem,
        SecretReadError::Missing { namespace, name } => format!("the Secret {namespace}/{name} does not exist"),
        SecretReadError::Failed(error) => error.to_string(),
    })?;
    Ok(SearchTarget { class: name.to_owned(), texts, parsed, secrets })
}

fn read(backend: &dyn BucketBackend, texts: &BTreeMap<String, String>) -> Result<ClassParameters, BoxError> {
    let read = read_texts(texts, &backend.capabilities(), |texts| backend.parse(texts));
    read.map_err(|(BadParameters::Invalid(problem) | BadParameters::Crashed(problem))| problem.into())
}

/// Checks that every ObjectBucket can be read, since an unreadable one may represent any asset.
fn check_readable(recorded: &RecordedAssets) -> Result<(), BoxError> {
    if recorded.unreadable.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "nothing is removed while these ObjectBuckets cannot be read, because each may represent any bucket: {}",
            recorded.unreadable.join(", ")
        )
        .into())
    }
}
