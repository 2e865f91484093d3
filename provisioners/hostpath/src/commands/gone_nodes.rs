//! Finds volumes and journals of nodes that no longer exist, and deletes them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use kube_provisioner::console::print;
use kube_provisioner::k8s_openapi::api::core::v1::{Node, ObjectReference, PersistentVolume, PersistentVolumeClaim};
use kube_provisioner::k8s_openapi::api::events::v1::Event;
use kube_provisioner::k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube_provisioner::kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube_provisioner::kube::{Api, Client};
use kube_provisioner::protocol::PROVISIONED_BY;
use kube_provisioner::{NodeJournals, Options, client, error_chain, parse_duration};
use serde_json::json;

use super::BoxError;
use super::objects::{
    FinalizerScope, annotation, ignore_concurrent_change, name_of, remove, text, uid_precondition, volumes,
};
use crate::node::NODE;
use crate::placement::GONE_SINCE;

/// Checks all volumes once, for a CronJob that runs every few minutes. The first check that misses a node deletes
/// nothing.
#[derive(Args)]
pub(crate) struct GoneNodes {
    /// Time between the loss of a node and the deletion of its volumes, such as 30m or 12h
    #[arg(long, env, value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
    grace: Duration,

    /// Delete the claims, volumes and empty journals of such nodes; without this flag, only list claims and volumes
    #[arg(long)]
    delete: bool,

    /// Name of the provisioner
    #[arg(long, env, value_name = "NAME")]
    provisioner_name: String,

    /// Additional names that the provisioner serves, separated by commas
    #[arg(long, env, value_name = "NAMES", value_delimiter = ',')]
    additional_provisioner_names: Vec<String>,

    /// Namespace of the provisioner, with its journals [default: the pod's or the kubeconfig's]
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Kubeconfig file [default: the pod's service account, or ~/.kube/config]
    #[arg(long, env, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl GoneNodes {
    pub(crate) async fn execute(self) -> Result<(), BoxError> {
        let mut options = Options::new(&self.provisioner_name);
        options.additional_provisioner_names.clone_from(&self.additional_provisioner_names);
        options.kubeconfig.clone_from(&self.kubeconfig);
        options.namespace.clone_from(&self.namespace);
        let client = client(&options).await?;
        // The journals are listed before the nodes, so that they do not include a node that registers in the meantime.
        let journals = NodeJournals::list(&options).await?;
        let run = GoneNodesRun { volumes: Api::all(client.clone()), client, provisioner: options, options: self };
        // The nodes are listed after the volumes, so that every volume's node is found, even if it registers in the
        // meantime.
        let volumes = volumes(&run.volumes, |volume| run.summarize(&volume)).await?;
        let nodes = run.nodes(&ListParams::default()).await?;
        let mut failed = 0;
        for volume in &volumes {
            // A policy that protects one claim must not block the others.
            if let Err(error) = run.process_volume(volume, &nodes).await {
                failed += 1;
                print(&format!("{}: {}\n", volume.name, error_chain(&*error)));
            }
        }
        run.delete_empty_journals(&journals, &nodes).await?;
        match failed {
            0 => Ok(()),
            failed => Err(format!("volumes were not changed ({failed} in total)").into()),
        }
    }
}

struct GoneNodesRun {
    client: Client,
    volumes: Api<PersistentVolume>,
    provisioner: Options,
    options: GoneNodes,
}

/// The fields of a volume that this command needs. The rest is dropped, because a cluster may have very many volumes.
struct VolumeSummary {
    name: String,
    uid: String,
    node: String,
    since: Option<String>,
    claim: Option<ObjectReference>,
}

impl GoneNodesRun {
    /// Returns the names of nodes. A new node with the name of a former node protects the volumes: its disk may be
    /// the same, and if it is not, `root replace` abandons them.
    async fn nodes(&self, which: &ListParams) -> Result<BTreeSet<String>, BoxError> {
        let list = Api::<Node>::all(self.client.clone()).list_metadata(which).await?;
        Ok(list.items.into_iter().filter_map(|node| node.metadata.name).collect())
    }

    fn summarize(&self, volume: &PersistentVolume) -> Option<VolumeSummary> {
        let is_ours = annotation(volume, PROVISIONED_BY).is_some_and(|by| self.provisioner.serves(by));
        Some(VolumeSummary {
            name: name_of(volume).to_owned(),
            uid: text(&volume.metadata.uid).to_owned(),
            node: annotation(volume, NODE).filter(|_| is_ours)?.to_owned(),
            since: annotation(volume, GONE_SINCE).map(str::to_owned),
            claim: volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone()),
        })
    }

    async fn process_volume(&self, volume: &VolumeSummary, nodes: &BTreeSet<String>) -> Result<(), BoxError> {
        let VolumeSummary { name, node, since, .. } = volume;
        if nodes.contains(node) {
            if since.is_some() {
                self.annotate(volume, None).await?;
                print(&format!("{name}: the node {node} is back\n"));
            }
            return Ok(());
        }
        let now = Timestamp::now();
        let Some(since) = since.as_ref().and_then(|text| text.parse::<Timestamp>().ok()) else {
            self.annotate(volume, Some(now)).await?;
            let text = self.notice(node);
            print(&format!("{name}: {text}\n"));
            return self.emit_events(volume, &text).await;
        };
        // A time in the future is from a wrong clock, or from an administrator who wants a longer grace period.
        let is_over = Duration::try_from(now.duration_since(since)).is_ok_and(|gone| gone >= self.options.grace);
        if !is_over || !self.options.delete {
            print(&format!("{name}: the node {node} has not existed since {since}\n"));
            return Ok(());
        }
        // Check the node again, because the work on other volumes may have taken minutes.
        let live = self.nodes(&ListParams::default().fields(&format!("metadata.name={node}"))).await?;
        if live.is_empty() {
            self.abandon(volume).await
        } else {
            print(&format!("{name}: the node {node} is back\n"));
            Ok(())
        }
    }

    /// Deletes empty journals of former nodes. If a journal is not empty, its node finishes the entries when it returns
    /// with its disk.
    async fn delete_empty_journals(&self, journals: &NodeJournals, nodes: &BTreeSet<String>) -> Result<(), BoxError> {
        for (journal, entries) in journals.of_missing_nodes(nodes.iter()) {
            if entries > 0 {
                print(&format!(
                    "journal {journal}: its node does not exist; its unfinished attempts ({entries} in total), see \
                     `journal list`, are finished if the node comes back with its disk; if the disk is lost, delete the \
                     ConfigMap\n"
                ));
            } else if self.options.delete && journals.remove_empty(journal).await? {
                print(&format!("journal {journal}: deleted, because its node does not exist and it was empty\n"));
            }
        }
        Ok(())
    }

    fn notice(&self, node: &str) -> String {
        let grace = self.options.grace.as_secs();
        if self.options.delete {
            format!(
                "the node {node} of this volume no longer exists, and its data is lost with it; unless the same node \
                 comes back, the claim and the volume are deleted in {grace} s"
            )
        } else {
            format!(
                "the node {node} of this volume no longer exists, and its data is lost with it; bring the same node \
                 back, or delete the claim and the volume"
            )
        }
    }

    /// Deletes the claim first, so that a new claim can be created. Afterwards the volume no longer needs protection.
    async fn abandon(&self, volume: &VolumeSummary) -> Result<(), BoxError> {
        if let Some(claim) = &volume.claim {
            let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), text(&claim.namespace));
            ignore_concurrent_change(
                claims.delete(text(&claim.name), &uid_precondition(text(&claim.uid))).await.map(drop),
            )?;
        }
        remove(&self.volumes, &volume.name, &volume.uid, FinalizerScope::Ours).await?;
        print(&format!("{}: abandoned with its node {}\n", volume.name, volume.node));
        Ok(())
    }

    async fn annotate(&self, volume: &VolumeSummary, since: Option<Timestamp>) -> Result<(), BoxError> {
        let annotations = json!({GONE_SINCE: since.map(|since| since.to_string())});
        let patch = Patch::Merge(json!({"metadata": {"uid": volume.uid, "annotations": annotations}}));
        ignore_concurrent_change(self.volumes.patch(&volume.name, &PatchParams::default(), &patch).await.map(drop))
    }

    /// Writes an event about the volume and about its claim.
    async fn emit_events(&self, volume: &VolumeSummary, note: &str) -> Result<(), BoxError> {
        let some = |text: &str| Some(text.to_owned());
        let of_volume = ObjectReference {
            api_version: some("v1"),
            kind: some("PersistentVolume"),
            name: some(&volume.name),
            uid: some(&volume.uid),
            ..ObjectReference::default()
        };
        for about in [Some(of_volume), volume.claim.clone()].into_iter().flatten() {
            let now = Timestamp::now();
            // Events about cluster-scoped objects are in this namespace.
            let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
            let event = Event {
                metadata: ObjectMeta {
                    name: Some(format!("{}.{:x}", volume.name, now.as_nanosecond())),
                    namespace: some(&namespace),
                    ..ObjectMeta::default()
                },
                action: some("CheckNode"),
                event_time: Some(MicroTime(now)),
                note: some(note),
                reason: some("NodeGone"),
                regarding: Some(about),
                reporting_controller: some(&self.options.provisioner_name),
                reporting_instance: some("gone-nodes"),
                type_: some("Warning"),
                ..Event::default()
            };
            let events = Api::<Event>::namespaced(self.client.clone(), &namespace);
            // The claim's namespace may no longer exist.
            ignore_concurrent_change(events.create(&PostParams::default(), &event).await.map(drop))?;
        }
        Ok(())
    }
}
