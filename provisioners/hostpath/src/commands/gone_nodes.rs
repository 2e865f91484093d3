//! `gone-nodes`: volumes and journals of nodes that no longer exist.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use directory_volumes::commands::print;
use jiff::Timestamp;
use kube_provisioner::k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube_provisioner::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_provisioner::kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube_provisioner::kube::{Api, Client, Error};
use kube_provisioner::protocol::{FINALIZER, PROVISIONED_BY};
use kube_provisioner::{NodeJournals, Options, client, parse_duration};
use serde_json::json;

use super::BoxError;
use crate::events::{Warning, of_volume};
use crate::node::{NODE, NODE_UID};
use crate::placement::GONE_SINCE;

const PAGE: u32 = 500;
/// So often a write is made again after a conflict; the rest is done at the next look.
const MOST_ATTEMPTS: usize = 5;

/// One look at all volumes; a CronJob makes one every few minutes. Nothing is deleted at the first look.
#[derive(Args)]
pub(crate) struct GoneNodes {
    /// How long a node must be gone before its volumes are deleted, such as 30m or 12h
    #[arg(long, env, value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
    grace: Duration,

    /// Delete the claims, volumes and empty journals of such nodes; without this flag, only list claims and volumes
    #[arg(long)]
    delete: bool,

    /// Name of the provisioner
    #[arg(long, env, value_name = "NAME")]
    provisioner_name: String,

    /// Namespace of the provisioner, with its journals [default: the pod's or the kubeconfig's]
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Kubeconfig file [default: the pod's service account, or the user's default]
    #[arg(long, env, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl GoneNodes {
    pub(crate) async fn execute(self) -> Result<(), BoxError> {
        let mut options = Options::new(&self.provisioner_name);
        options.kubeconfig.clone_from(&self.kubeconfig);
        options.namespace.clone_from(&self.namespace);
        let client = client(&options).await?;
        // Before the nodes: the journal of a node that registers meanwhile is not among them.
        let journals = NodeJournals::list(&options).await?;
        let look = Look { volumes: Api::all(client.clone()), client, options: self };
        let nodes = look.nodes().await?;
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = look.volumes.list(&page).await?;
            for volume in &list.items {
                if look.is_ours(volume) {
                    look.at(volume, &nodes).await?;
                }
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => break,
            }
        }
        look.at_journals(&journals, &nodes).await
    }
}

struct Look {
    client: Client,
    volumes: Api<PersistentVolume>,
    options: GoneNodes,
}

impl Look {
    /// The uids of all nodes: another node may have got the name of one that is gone.
    async fn nodes(&self) -> Result<BTreeMap<String, String>, BoxError> {
        let list = Api::<Node>::all(self.client.clone()).list_metadata(&ListParams::default()).await?;
        let pair = |node: ObjectMeta| Some((node.name?, node.uid?));
        Ok(list.items.into_iter().filter_map(|node| pair(node.metadata)).collect())
    }

    fn is_ours(&self, volume: &PersistentVolume) -> bool {
        annotation(volume, PROVISIONED_BY) == Some(&self.options.provisioner_name)
    }

    async fn at(&self, volume: &PersistentVolume, nodes: &BTreeMap<String, String>) -> Result<(), BoxError> {
        let (Some(node), Some(uid)) = (annotation(volume, NODE), annotation(volume, NODE_UID)) else {
            return Ok(());
        };
        let (name, since) = (name_of(volume), annotation(volume, GONE_SINCE));
        if nodes.get(node).is_some_and(|there| there == uid) {
            if since.is_some() {
                self.annotate(volume, None).await?;
                print(&format!("{name}: the node {node} is back\n"));
            }
            return Ok(());
        }
        let now = Timestamp::now();
        let Some(since) = since.and_then(|text| text.parse::<Timestamp>().ok()) else {
            self.annotate(volume, Some(now)).await?;
            let text = self.notice(node);
            print(&format!("{name}: {text}\n"));
            return self.tell(volume, &text).await;
        };
        let is_over = now.duration_since(since).unsigned_abs() >= self.options.grace;
        match is_over && self.options.delete {
            true => self.give_up(volume, node).await,
            false => {
                print(&format!("{name}: the node {node} is gone since {since}\n"));
                Ok(())
            }
        }
    }

    /// Nothing is lost with an empty journal. What is in another one, a node that comes back with its disk has to finish.
    async fn at_journals(&self, journals: &NodeJournals, nodes: &BTreeMap<String, String>) -> Result<(), BoxError> {
        for (journal, entries) in journals.of_gone_nodes(nodes.keys()) {
            if entries > 0 {
                print(&format!(
                    "journal {journal}: its node is gone; its {entries} unfinished attempts, see `journal list`, are finished \
                     if the node comes back with its disk; if the disk is gone, delete the ConfigMap\n"
                ));
            } else if self.options.delete && journals.remove_empty(journal).await? {
                print(&format!("journal {journal}: deleted, its node is gone and nothing was in it\n"));
            }
        }
        Ok(())
    }

    fn notice(&self, node: &str) -> String {
        let grace = self.options.grace.as_secs();
        match self.options.delete {
            true => format!(
                "the node {node} of this volume is gone, and its data with it; unless the same node comes back, the claim and \
                 the volume are deleted in {grace} s"
            ),
            false => format!(
                "the node {node} of this volume is gone, and its data with it; bring the same node back, or delete the claim \
                 and the volume"
            ),
        }
    }

    /// The claim first, so that a new one can be made; the volume then has nothing to protect any more.
    async fn give_up(&self, volume: &PersistentVolume, node: &str) -> Result<(), BoxError> {
        let name = name_of(volume);
        if let Some(claim) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) {
            let (namespace, claim_name) = (text(&claim.namespace), text(&claim.name));
            let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), namespace);
            settled(claims.delete(claim_name, &only(&claim.uid)).await.map(drop))?;
        }
        settled(self.volumes.delete(name, &only(&volume.metadata.uid)).await.map(drop))?;
        // The controller-manager writes to it at the same time.
        for _ in 0..MOST_ATTEMPTS {
            let live = self.volumes.get_opt(name).await?.filter(|live| live.metadata.uid == volume.metadata.uid);
            let Some(mut live) = live.map(|live| live.metadata) else { break };
            let finalizers = live.finalizers.get_or_insert_default();
            if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
                break;
            }
            finalizers.retain(|finalizer| finalizer != FINALIZER);
            let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": live.resource_version}});
            settled(self.volumes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop))?;
        }
        print(&format!("{name}: given up with its node {node}\n"));
        Ok(())
    }

    async fn annotate(&self, volume: &PersistentVolume, since: Option<Timestamp>) -> Result<(), BoxError> {
        let annotations = json!({GONE_SINCE: since.map(|since| since.to_string())});
        let patch = Patch::Merge(json!({"metadata": {"uid": volume.metadata.uid, "annotations": annotations}}));
        settled(self.volumes.patch(name_of(volume), &PatchParams::default(), &patch).await.map(drop))
    }

    /// An event on the volume and on its claim.
    async fn tell(&self, volume: &PersistentVolume, note: &str) -> Result<(), BoxError> {
        let of_claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone());
        let (action, reason) = ("LookForNode", "NodeGone");
        let (controller, instance) = (&*self.options.provisioner_name, "gone-nodes");
        let warning = Warning { action, reason, note, controller, instance };
        for object in [Some(of_volume(volume)), of_claim].into_iter().flatten() {
            warning.send(&self.client, name_of(volume), object).await?;
        }
        Ok(())
    }
}

/// An object that is gone was deleted by somebody else. The next call checks one that has changed.
fn settled(done: Result<(), Error>) -> Result<(), BoxError> {
    match done {
        Err(Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        done => Ok(done?),
    }
}

fn only(uid: &Option<String>) -> DeleteParams {
    let preconditions = Preconditions { uid: uid.clone(), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

fn annotation<'a>(volume: &'a PersistentVolume, key: &str) -> Option<&'a String> {
    volume.metadata.annotations.as_ref()?.get(key)
}

fn name_of(volume: &PersistentVolume) -> &str {
    text(&volume.metadata.name)
}

fn text(part: &Option<String>) -> &str {
    part.as_deref().unwrap_or_default()
}
