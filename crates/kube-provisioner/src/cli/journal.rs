//! `journal`: lists, accepts and drops recorded attempts.

use std::collections::BTreeSet;

use clap::{Args, Subcommand};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use provisioner_runtime::client::Connection;
use provisioner_runtime::journal::{self, Entry, JournalKind, Listing, PART_LAYOUT, part_journal_name};
use provisioner_runtime::lease::lease_name;
use serde::Deserialize;

use super::BoxError;
use super::console::table as aligned;
use crate::controller::shared::program::connection;
use crate::options::Options;
use crate::parameters::quoted;
use crate::protocol;

/// List, accept or drop attempts in the journal
#[derive(Args, Clone, Debug)]
pub(super) struct Journal {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// List attempts in progress
    List,
    /// Let the provisioner finish an attempt from a restored journal
    Accept {
        /// The entry, by its name in `list`
        entry: String,
    },
    /// Remove an attempt from the journal; storage that it created stays in the backend
    Drop {
        /// The entry, by its name in `list`
        entry: String,
        /// Drop the entry; without this flag, only print the storage that may stay in the backend
        #[arg(long)]
        yes: bool,
    },
}

impl Journal {
    pub(super) const OPTIONS: [&'static str; 3] = ["provisioner_name", "kubeconfig", "namespace"];

    pub(super) async fn run(&self, options: &Options, print: impl Fn(&str)) -> Result<(), BoxError> {
        self.execute(&Journals::of(options).await?, print).await
    }

    async fn execute(&self, journals: &Journals, print: impl Fn(&str)) -> Result<(), BoxError> {
        let Journals { client, kind, namespace, provisioner } = journals;
        let listings = journals.list().await?;
        let (key, yes) = match &self.action {
            Action::List if listings.is_empty() => {
                return Err(format!(
                    "namespace {namespace} has no journal of {provisioner}: check --provisioner-name and \
                     --namespace; a provisioner creates its journal when it starts to work{}",
                    in_memory_hint(*kind)
                )
                .into());
            }
            Action::List => {
                print(&table(&listings));
                return Ok(());
            }
            Action::Accept { entry } => return accept(journals, &listings, entry, print).await,
            Action::Drop { entry, yes } => (entry, *yes),
        };
        let journals_with_key = journals_with_key(&listings, key);
        match journals_with_key.iter().find_map(|(_, entry)| *entry) {
            Some(entry) => print(&leftover_text(entry)),
            None if !journals_with_key.is_empty() => print(&format!(
                "{key} cannot be read. Its attempt may have left an asset of this name in the backend.\n"
            )),
            None => {
                return Err(format!(
                    "no journal in namespace {namespace} has an entry {key}; see `journal list`{}",
                    in_memory_hint(*kind)
                )
                .into());
            }
        }
        if !yes {
            return Err("nothing was done; add --yes to drop the entry".into());
        }
        for (journal, _) in &journals_with_key {
            journal::request_drop(client, *kind, namespace, &journal.name, key).await?;
            print(&format!("{key} is dropped from {} within seconds, or when a replica takes it over\n", journal.name));
        }
        Ok(())
    }
}

/// Returns how to end attempts that the command cannot see.
fn in_memory_hint(kind: JournalKind) -> &'static str {
    match kind {
        JournalKind::Lease => {
            "; if /readyz of the provisioner shows `journal (in memory)`, restart it to end its attempts"
        }
        _ => "",
    }
}

/// Accepts a restored entry.
async fn accept(
    Journals { client, kind, namespace, .. }: &Journals,
    listings: &[Listing],
    key: &str,
    print: impl Fn(&str),
) -> Result<(), BoxError> {
    let has = |listing: &&Listing| listing.restored.iter().any(|entry| entry.key == key);
    let Some(listing) = listings.iter().find(has) else {
        return Err(
            format!("no journal in namespace {namespace} has a restored entry {key}; see `journal list`").into()
        );
    };
    journal::request_accept(client, *kind, namespace, &listing.name, key).await?;
    print(&format!("{key} of {} is finished by the replica that holds the journal\n", listing.name));
    Ok(())
}

/// Returns the keys of all entries, including restored ones.
pub(super) async fn recorded_keys(options: &Options) -> Result<Vec<String>, BoxError> {
    let listings = Journals::of(options).await?.list().await?;
    if let Some(damaged) = listings.iter().find(|listing| !listing.unreadable.is_empty()) {
        return Err(format!("the journal {} has entries that cannot be read; see `journal list`", damaged.name).into());
    }
    Ok(listings
        .into_iter()
        .flat_map(|listing| listing.entries.into_iter().chain(listing.restored))
        .map(|entry| entry.key)
        .collect())
}

/// The journals of a provisioner.
struct Journals {
    client: Client,
    kind: JournalKind,
    namespace: String,
    provisioner: String,
}

impl Journals {
    async fn of(options: &Options) -> Result<Self, BoxError> {
        let Connection { client, namespace, .. } = connection(options).await?;
        let namespace = options.namespace.clone().unwrap_or(namespace);
        Ok(Self { client, kind: options.journal_kind(), namespace, provisioner: options.provisioner_name.clone() })
    }

    async fn list(&self) -> Result<Vec<Listing>, BoxError> {
        let group = lease_name(&self.provisioner);
        Ok(journal::list(&self.client, self.kind, &self.namespace, Some(&group)).await?)
    }
}

/// The journals of per-node replicas, which must be listed before the existing nodes.
pub struct NodeJournals {
    journals: Journals,
    listings: Vec<Listing>,
}

impl NodeJournals {
    /// Lists the journals.
    ///
    /// # Errors
    /// If the journals cannot be read.
    pub async fn list(options: &Options) -> Result<Self, BoxError> {
        Self::among(Journals::of(options).await?).await
    }

    async fn among(journals: Journals) -> Result<Self, BoxError> {
        let mut listings = journals.list().await?;
        listings.retain(|listing| listing.layout == PART_LAYOUT);
        Ok(Self { journals, listings })
    }

    /// Returns the journals of nodes that are not among these, with the number of their entries.
    pub fn of_missing_nodes<'a>(&self, nodes: impl Iterator<Item = &'a String>) -> Vec<(&str, usize)> {
        let there: BTreeSet<String> = nodes.map(|node| part_journal_name(&self.journals.provisioner, node)).collect();
        let gone = self.listings.iter().filter(|listing| !there.contains(&listing.name));
        gone.map(|listing| {
            let Listing { entries, restored, unreadable, .. } = listing;
            (&*listing.name, entries.len() + restored.len() + unreadable.len())
        })
        .collect()
    }

    /// Deletes a journal, unless it contains an entry or was written since it was listed. Returns true if it was
    /// deleted.
    ///
    /// # Errors
    /// If the API server does not answer as expected.
    pub async fn remove_empty(&self, name: &str) -> Result<bool, BoxError> {
        let Some(listing) = self.listings.iter().find(|listing| listing.name == name) else { return Ok(false) };
        let Journals { client, kind, namespace, .. } = &self.journals;
        Ok(journal::remove_empty(client, *kind, namespace, listing).await?)
    }
}

/// Returns the journals with this key, and its entry unless the line cannot be read. An entry that is being moved is in
/// two journals.
fn journals_with_key<'a>(listings: &'a [Listing], key: &str) -> Vec<(&'a Listing, Option<&'a Entry>)> {
    let entry = |listing: &'a Listing| listing.entries.iter().chain(&listing.restored).find(|entry| entry.key == key);
    // The first word of such a line is its key.
    let has_line = |listing: &Listing| listing.unreadable.iter().any(|line| line.split(' ').next() == Some(key));
    let all = listings.iter().map(|listing| (listing, entry(listing)));
    all.filter(|(listing, entry)| entry.is_some() || has_line(listing)).collect()
}

/// Returns the table that `journal list` prints.
pub fn table(listings: &[Listing]) -> String {
    let mut rows = vec![["JOURNAL", "HOLDER", "ENTRY", "CLAIM", "CLASS", "CLAIM SINCE"].map(str::to_owned)];
    let mut notes = String::new();
    for Listing { name, holder, entries, restored, unreadable, dropping, .. } in listings {
        let all = entries.iter().map(|entry| (entry, ""));
        for (entry, origin) in all.chain(restored.iter().map(|entry| (entry, " (restored)"))) {
            let objects = EntryObjects::read(entry);
            let dropped = if dropping.contains(&entry.key) { " (being dropped)" } else { "" };
            let key = format!("{}{origin}{dropped}", entry.key);
            rows.push([name.clone(), holder.clone(), key, objects.claim(), objects.class_name(), objects.since()]);
        }
        notes.extend(unreadable.iter().map(|line| format!("{name} cannot be read: {}\n", quoted(line))));
    }
    if rows.len() == 1 {
        return format!("no journal has an entry\n{notes}");
    }
    aligned(&rows) + &notes
}

/// Returns what the user must search for in the backend once the entry is dropped.
fn leftover_text(entry: &Entry) -> String {
    let objects = EntryObjects::read(entry);
    let node = objects.node().map(|node| format!(", on node {node}")).unwrap_or_default();
    let parameters = match &*objects.parameters() {
        [] => "without parameters".to_owned(),
        keys => format!("parameters {}", keys.join(", ")),
    };
    format!(
        "The attempt for claim {} may have left an asset in the backend: named {}, of StorageClass {} \
         ({parameters}){node}.\nThe provisioner does not look for it after the entry is dropped: remove it manually.\n",
        objects.claim(),
        entry.key,
        objects.class_name(),
    )
}

/// The readable objects of an entry.
#[derive(Debug, Default)]
pub struct EntryObjects {
    claim: ObjectMeta,
    class: StorageClass,
}

impl EntryObjects {
    /// Reads the objects of an entry.
    pub fn read(entry: &Entry) -> Self {
        #[derive(Default, Deserialize)]
        struct EntryText {
            metadata: ObjectMeta,
        }
        let claim = serde_json::from_str::<EntryText>(&entry.text).unwrap_or_default().metadata;
        let class = entry.shared.first().and_then(|(_, text)| serde_json::from_str(text).ok()).unwrap_or_default();
        Self { claim, class }
    }

    /// Returns namespace and name of the claim; `?` replaces what cannot be read.
    pub fn claim(&self) -> String {
        let part = |part: &Option<String>| part.clone().unwrap_or_else(|| "?".to_owned());
        format!("{}/{}", part(&self.claim.namespace), part(&self.claim.name))
    }

    /// Returns the uid of the claim, if it can be read.
    #[cfg(feature = "unstable-explain")]
    pub fn uid(&self) -> Option<&str> {
        self.claim.uid.as_deref()
    }

    /// Returns the name of the class; `?` if it cannot be read.
    pub fn class_name(&self) -> String {
        self.class.metadata.name.clone().unwrap_or_else(|| "?".to_owned())
    }

    /// Returns the creation time of the claim; `?` if it cannot be read.
    pub fn since(&self) -> String {
        self.claim.creation_timestamp.as_ref().map_or("?".to_owned(), |time| time.0.to_string())
    }

    fn node(&self) -> Option<&String> {
        self.claim.annotations.as_ref()?.get(protocol::SELECTED_NODE)
    }

    fn parameters(&self) -> Vec<&str> {
        self.class.parameters.iter().flatten().map(|(key, _)| key.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use kube_sim::{Cluster, PatchKind, Target};
    use serde_json::json;

    use super::*;

    fn listing(name: &str, entries: &[&str], unreadable: &[&str]) -> Listing {
        let class = r#"{"metadata":{"name":"gold"},"provisioner":"p","parameters":{"password":"x","path":"y"}}"#;
        let entry = |key: &&str| {
            Entry {
            key: (*key).to_owned(),
            text: r#"{"metadata":{"name":"data","namespace":"shop","uid":"u","creationTimestamp":"2026-01-01T00:00:00Z","annotations":{"volume.kubernetes.io/selected-node":"n1"}}}"#.to_owned(),
            shared: vec![("gold-1".to_owned(), class.into())],
        }
        };
        Listing {
            name: name.to_owned(),
            version: "1".to_owned(),
            group: "g".to_owned(),
            aliases: Vec::new(),
            layout: "1".to_owned(),
            holder: "pod-1_ab".to_owned(),
            entries: entries.iter().map(entry).collect(),
            restored: Vec::new(),
            unreadable: unreadable.iter().map(|line| (*line).to_owned()).collect(),
            dropping: vec!["pvc-2".to_owned()],
        }
    }

    fn journals(cluster: &Cluster) -> Journals {
        let (kind, provisioner) = (JournalKind::ConfigMap, "example.com/p".to_owned());
        Journals { client: cluster.client("admin"), kind, namespace: "storage".to_owned(), provisioner }
    }

    #[tokio::test]
    async fn reports_a_provisioner_without_a_journal() {
        let command = Journal { action: Action::List };
        let error = command.execute(&journals(&Cluster::new()), |_| {}).await.unwrap_err().to_string();
        assert!(error.starts_with("namespace storage has no journal of example.com/p: check"), "{error}");
        let of_sidecar = Journals { kind: JournalKind::Lease, ..journals(&Cluster::new()) };
        let error = command.execute(&of_sidecar, |_| {}).await.unwrap_err().to_string();
        assert!(error.contains("journal (in memory)"), "{error}");
    }

    #[test]
    fn the_table_has_a_row_for_each_entry() {
        let mut damaged = listing("p-journal-1-of-2", &["pvc-3"], &["{\u{1b}"]);
        damaged.entries[0].text = "{".to_owned();
        damaged.entries[0].shared.clear();
        damaged.restored = listing("", &["pvc-4"], &[]).entries;
        assert_eq!(
            table(&[listing("p-journal", &["pvc-1", "pvc-2"], &[]), damaged]),
            "\
JOURNAL            HOLDER     ENTRY                   CLAIM       CLASS   CLAIM SINCE
p-journal          pod-1_ab   pvc-1                   shop/data   gold    2026-01-01T00:00:00Z
p-journal          pod-1_ab   pvc-2 (being dropped)   shop/data   gold    2026-01-01T00:00:00Z
p-journal-1-of-2   pod-1_ab   pvc-3                   ?/?         ?       ?
p-journal-1-of-2   pod-1_ab   pvc-4 (restored)        shop/data   gold    2026-01-01T00:00:00Z
p-journal-1-of-2 cannot be read: \"{\\u{1b}\"
"
        );
        assert_eq!(table(&[listing("p-journal", &[], &[])]), "no journal has an entry\n");
    }

    #[test]
    fn describes_leftovers_without_parameter_values() {
        let listings = [listing("a", &["pvc-1"], &[]), listing("b", &["pvc-1", "pvc-2"], &[])];
        let journals_with_key = journals_with_key(&listings, "pvc-1");
        assert_eq!(journals_with_key.iter().map(|(journal, _)| &*journal.name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(
            leftover_text(journals_with_key[0].1.unwrap()),
            "The attempt for claim shop/data may have left an asset in the backend: named pvc-1, of StorageClass gold \
             (parameters password, path), on node n1.\nThe provisioner does not look for it after the entry is \
             dropped: remove it manually.\n"
        );
    }

    const JOURNAL: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata:
  name: example.com-p-journal
  namespace: storage
  labels: {app.kubernetes.io/component: journal, app.kubernetes.io/instance: example.com-p}
  annotations: {kube-provisioner/holder: pod-1_ab, kube-provisioner/layout: "1"}
data:
  version: "1"
  entries: |
    pvc-1 - {"metadata":{"name":"data","namespace":"shop"}}
    pvc-9 lost-text {}
"#;

    #[tokio::test(start_paused = true)]
    async fn removes_unchanged_empty_journals_of_missing_nodes() {
        let cluster = Cluster::new();
        cluster.create_yaml("{apiVersion: v1, kind: Namespace, metadata: {name: storage}}").unwrap();
        let put = |name: &str, layout: &str, entries: &str| {
            let annotations = json!({"kube-provisioner/holder": "pod-1_ab", "kube-provisioner/layout": layout});
            let labels =
                json!({"app.kubernetes.io/component": "journal", "app.kubernetes.io/instance": "example.com-p"});
            let metadata = json!({"name": name, "namespace": "storage", "labels": labels, "annotations": annotations});
            let data = json!({"version": "1", "entries": entries});
            let journal = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
            cluster.create(&journal).unwrap();
        };
        let long = "n".repeat(250);
        put(&part_journal_name("example.com/p", &long), "node", "");
        put("example.com-p-journal", "1", "");
        put("example.com-p-journal-node-here", "node", "");
        put("example.com-p-journal-node-gone", "node", "");
        put("example.com-p-journal-node-busy", "node", "pvc-1 - {}\n");
        put("example.com-p-journal-node-back", "node", "");
        let journals = NodeJournals::among(journals(&cluster)).await.unwrap();
        let nodes = ["here".to_owned(), long];
        let gone = journals.of_missing_nodes(nodes.iter());
        let name = |node: &str| format!("example.com-p-journal-node-{node}");
        let counts: Vec<_> = gone.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        assert_eq!(counts, [(name("back"), 0), (name("busy"), 1), (name("gone"), 0)]);
        // Its node has registered again, and a replica has taken over the journal.
        let journal = |name: &'static str| Target { group: "", plural: "configmaps", namespace: "storage", name };
        let held = json!({"metadata": {"annotations": {"kube-provisioner/holder": "pod-2_cd"}}});
        cluster.patch(&journal("example.com-p-journal-node-back"), None, PatchKind::Merge, &held).unwrap();
        let mut removed = Vec::new();
        for (name, _) in gone {
            removed.push(journals.remove_empty(name).await.unwrap());
        }
        assert_eq!(removed, [false, false, true]);
        assert_eq!(cluster.list("", "configmaps", Some("storage")).unwrap().len(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn drops_an_entry_only_when_confirmed() {
        let cluster = Cluster::new();
        cluster.create_yaml("{apiVersion: v1, kind: Namespace, metadata: {name: storage}}").unwrap();
        cluster.create_yaml(JOURNAL).unwrap();
        let journals = journals(&cluster);
        let printed = Mutex::new(String::new());
        let run = async |action: Action| {
            let print = |text: &str| printed.lock().unwrap().push_str(text);
            let done = Journal { action }.execute(&journals, print).await;
            (std::mem::take(&mut *printed.lock().unwrap()), done.map_err(|error| error.to_string()).err())
        };
        let drop = |entry: &str, yes| Action::Drop { entry: entry.to_owned(), yes };
        let (table, error) = run(Action::List).await;
        assert!(table.contains("pvc-1   shop/data") && error.is_none(), "{table}");
        let (text, error) = run(drop("pvc-1", false)).await;
        assert!(text.contains("named pvc-1") && error.is_some_and(|error| error.contains("--yes")), "{text}");
        assert!(!run(Action::List).await.0.contains("being dropped"));
        let (text, error) = run(drop("pvc-1", true)).await;
        assert!(
            text.ends_with(
                "pvc-1 is dropped from example.com-p-journal within seconds, or when a replica takes it over\n"
            ),
            "{text}"
        );
        assert_eq!(error, None);
        assert!(run(Action::List).await.0.contains("pvc-1 (being dropped)"));
        let (text, error) = run(drop("pvc-9", true)).await;
        assert!(text.starts_with("pvc-9 cannot be read.") && text.contains("is dropped from"), "{text}");
        assert_eq!(error, None);
        let (text, error) = run(drop("pvc-2", true)).await;
        assert_eq!(text, "");
        assert!(error.is_some_and(|error| error.contains("no journal in namespace storage has an entry pvc-2")));
    }
}
