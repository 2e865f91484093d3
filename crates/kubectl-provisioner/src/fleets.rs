//! The Leases and journals of provisioners, and the replica that is responsible for a key.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube_provisioner::explain::journal::EntryObjects;
use kube_provisioner::explain::volume::Attempt;
use kube_provisioner::protocol;
use provisioner_runtime::controller::shard_of;
use provisioner_runtime::journal::{Entry, JournalObject, Listing, part_journal_name, selector};
use provisioner_runtime::lease_name;
use serde_json::Value;

use crate::CommandContext;
use crate::object::{ago, annotation, at, label, name, namespace, optional_text, text, time};
use crate::reader::{CONFIG_MAP, LEASE};

const FLEET: &str = "kube-provisioner/fleet";
const MEMBER: &str = "kube-provisioner/fleet-member";
const SHARDS: &str = "kube-provisioner/shards";

/// The fleets found in the cluster.
#[derive(Default)]
pub(crate) struct Fleets {
    pub(crate) all: Vec<Fleet>,
    /// True if all Leases could be read; otherwise there may be more.
    pub(crate) leases_known: bool,
    pub(crate) journals_known: bool,
}

/// The replicas of one provisioner in one namespace.
#[derive(Default)]
pub(crate) struct Fleet {
    pub(crate) namespace: String,
    /// The name of its Lease, derived from the provisioner's name.
    pub(crate) name: String,
    pub(crate) shards: Vec<Shard>,
    pub(crate) journals: Vec<Listing>,
    /// The kind of claims it serves, according to its Leases.
    serves: Option<String>,
    /// The number of live replicas that share several shards.
    pub(crate) members: usize,
}

/// One shard's Lease.
#[derive(Clone)]
pub(crate) struct Shard {
    pub(crate) lease: String,
    pub(crate) number: u32,
    /// The number of shards, according to its holder.
    pub(crate) shard_count: u32,
    pub(crate) holder: Option<String>,
    pub(crate) alive: bool,
    /// The time of the last renewal, for display.
    pub(crate) renewed: String,
}

impl Fleets {
    /// Finds the fleets of these provisioners, or all fleets.
    pub(crate) async fn find(context: &CommandContext<'_>, provisioners: &BTreeSet<String>) -> Self {
        let scope = context.args.provisioner_namespace.as_deref().unwrap_or_default();
        let now = context.environment.now();
        let mut leases = context.reader.list(&LEASE, scope, ("labelSelector", FLEET)).await;
        let mut leases_known = leases.is_some();
        // Other leader election clients set no label.
        for provisioner in provisioners {
            let field = format!("metadata.name={}", lease_name(provisioner));
            let named = context.reader.list(&LEASE, scope, ("fieldSelector", &field)).await;
            leases_known &= named.is_some();
            let unlabelled = named.into_iter().flatten().filter(|lease| label(lease, FLEET).is_none());
            leases = leases.map(|leases| leases.into_iter().chain(unlabelled).collect());
        }
        let maps = context.reader.list(&CONFIG_MAP, scope, ("labelSelector", &selector(None))).await;
        let in_leases = context.reader.list(&LEASE, scope, ("labelSelector", &selector(None))).await;
        let mut journals_known = maps.is_some() && in_leases.is_some();
        let mut fleets: BTreeMap<(String, String), Fleet> = BTreeMap::new();
        let of = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
        for lease in leases.iter().flatten() {
            let fleet = label(lease, FLEET).unwrap_or(name(lease));
            let fleet = fleets.entry(of(namespace(lease), fleet)).or_default();
            fleet.serves = label(lease, protocol::SERVES).map(str::to_owned).or(fleet.serves.take());
            match label(lease, MEMBER) {
                Some(_) => fleet.members += usize::from(Shard::read(lease, now).alive),
                None => fleet.shards.push(Shard::read(lease, now)),
            }
        }
        for object in maps.into_iter().chain(in_leases).flatten() {
            let place = namespace(&object).to_owned();
            let journal = name(&object).to_owned();
            let Ok(object) = serde_json::from_value::<JournalObject>(object) else {
                journals_known = false;
                let note = format!("the attempts in namespace {place}: the journal {journal} cannot be decoded");
                context.reader.record(note);
                continue;
            };
            let journal = Listing::read(&object);
            fleets.entry((place, journal.group.clone())).or_default().journals.push(journal);
        }
        let named = |((namespace, name), fleet)| Fleet { namespace, name, ..fleet };
        let mut all: Vec<Fleet> = fleets.into_iter().map(named).collect();
        all.iter_mut().for_each(|fleet| fleet.shards.sort_by_key(|shard| (shard.shard_count, shard.number)));
        Self { all, leases_known, journals_known }
    }

    /// Returns the journal entry of the key for this provisioner.
    pub(crate) fn attempt(&self, provisioner: &str, key: &str) -> Attempt<'_> {
        match self.for_provisioner(provisioner).into_iter().find_map(|fleet| fleet.entry(key)) {
            None => Attempt::None,
            Some((_, _, true)) => Attempt::AwaitsAdoption,
            Some((_, entry, false)) => Attempt::Recorded(entry),
        }
    }

    /// Returns the key of the journal entry of the claim with this uid.
    pub(crate) fn key_of(&self, provisioner: &str, claim: &str) -> Option<&str> {
        let journals = self.for_provisioner(provisioner).into_iter().flat_map(|fleet| &fleet.journals);
        let mut entries = journals.flat_map(|journal| &journal.entries);
        entries.find(|entry| EntryObjects::read(entry).uid() == Some(claim)).map(|entry| entry.key.as_str())
    }

    /// Returns true if this provisioner is known to serve claims of another kind than `kind`.
    pub(crate) fn serves_another(&self, provisioner: &str, kind: &str) -> bool {
        self.for_provisioner(provisioner).first().and_then(|fleet| fleet.serves()).is_some_and(|served| served != kind)
    }

    /// Returns the installations of this provisioner, active ones first.
    pub(crate) fn for_provisioner(&self, provisioner: &str) -> Vec<&Fleet> {
        let mut fleets: Vec<&Fleet> = self.all.iter().filter(|fleet| fleet.serves_name(provisioner)).collect();
        fleets.sort_by_key(|fleet| !fleet.is_held());
        fleets
    }
}

impl Fleet {
    /// Returns true if these are replicas of the provisioner with this name. A name that is too long for a label value
    /// is shortened and ends with a hash.
    pub(crate) fn is_named(&self, provisioner: &str) -> bool {
        let name = lease_name(provisioner);
        self.name == name || selector(Some(&name)).rsplit('=').next() == Some(&self.name)
    }

    /// Returns true if these replicas serve this name, which may be an additional one.
    fn serves_name(&self, provisioner: &str) -> bool {
        let has_alias = |journal: &Listing| journal.aliases.iter().any(|alias| alias == provisioner);
        self.is_named(provisioner) || self.journals.iter().any(has_alias)
    }

    /// Returns the kind of claims it serves. A journal entry implies volumes, because attempts for buckets are not
    /// recorded in journals, and so does the journal of a node.
    fn serves(&self) -> Option<&str> {
        let is_of_volumes = self.journals.iter().any(|journal| journal.layout == "node" || !journal.is_empty());
        self.serves.as_deref().or(is_of_volumes.then_some(protocol::SERVES_VOLUMES))
    }

    /// Returns true if a Lease shows that a shard has a live holder.
    pub(crate) fn is_held(&self) -> bool {
        self.shards.iter().any(|shard| shard.alive)
    }

    /// Returns true if every node has its own replica.
    pub(crate) fn is_per_node(&self) -> bool {
        // After a change of the coordination, the former Leases remain, and the former journals until they are empty.
        !self.is_held() && self.journals.iter().any(|journal| journal.layout == "node")
    }

    /// Returns true if there are Leases, none of them has a live holder, and no node has its own replica.
    pub(crate) fn is_abandoned(&self) -> bool {
        !self.shards.is_empty() && !self.is_held() && !self.is_per_node()
    }

    /// Returns true if the replica of this node has written its journal, or may have. Journals are named after the
    /// provisioner's main name, and `provisioner` may be an additional one.
    pub(crate) fn may_have_run_on(&self, node: &str, provisioner: &str) -> bool {
        let is_main = self.is_named(provisioner);
        let journal = part_journal_name(if is_main { provisioner } else { &self.name }, node);
        // Journals begin with the name of the Lease, unless it ends with a hash, which hides the main name.
        let prefix = format!("{}-journal-", self.name);
        let is_known = is_main || self.journals.iter().any(|journal| journal.name.starts_with(&prefix));
        !is_known || self.journals.iter().any(|one| one.name == journal)
    }

    /// Returns the number of shards, preferably according to a live holder.
    fn shard_count(&self) -> u32 {
        let alive = self.shards.iter().find(|shard| shard.alive);
        alive.or(self.shards.first()).map_or(1, |shard| shard.shard_count).max(1)
    }

    /// Returns the shard to which the work on this key belongs.
    pub(crate) fn shard(&self, key: &str) -> Option<&Shard> {
        let (of, number) = (self.shard_count(), shard_of(key, self.shard_count()));
        let shard = self.shards.iter().find(|shard| (shard.shard_count, shard.number) == (of, number));
        shard.filter(|_| !self.is_per_node())
    }

    /// Describes the replica that works on this key.
    pub(crate) fn describe_replica(&self, key: &str) -> String {
        if self.is_per_node() {
            return format!("the replica of its node, in namespace {}", self.namespace);
        }
        let of = self.shard_count();
        let place = match of {
            1 => format!("namespace {}", self.namespace),
            _ => format!("shard {} of {of} in namespace {}", shard_of(key, of), self.namespace),
        };
        match (self.shard(key), self.journals.first()) {
            (Some(shard), _) => format!("{place}: {}", shard.describe()),
            (None, Some(journal)) if self.shards.is_empty() => format!(
                "{place}: there is no Lease; {} wrote the journal last; whether it runs is unknown",
                or_none(&journal.holder)
            ),
            _ => format!("{place}: its Lease has no holder"),
        }
    }

    /// Returns the journal that contains an entry for the key, the entry, and whether the journal belongs to a former
    /// number of shards.
    pub(crate) fn entry(&self, key: &str) -> Option<(&Listing, &Entry, bool)> {
        let holding = self
            .journals
            .iter()
            .find_map(|journal| Some((journal, journal.entries.iter().find(|entry| entry.key == key)?)));
        holding.map(|(journal, entry)| {
            let other = !self.is_per_node() && self.is_held() && journal.layout != self.shard_count().to_string();
            (journal, entry, other)
        })
    }

    /// Returns the journal with which an entry for the key was restored.
    pub(crate) fn restored_in(&self, key: &str) -> Option<&Listing> {
        self.journals.iter().find(|journal| journal.restored.iter().any(|entry| entry.key == key))
    }
}

impl Shard {
    fn read(lease: &Value, now: Timestamp) -> Self {
        let of = annotation(lease, SHARDS).and_then(|shards| shards.parse().ok()).unwrap_or(1);
        // With one shard, the Lease name has no number.
        let number = if of == 1 { Some("0") } else { name(lease).rsplit('-').next() };
        let renewed = optional_text(lease, &["spec", "renewTime"]).and_then(time);
        let duration = at(lease, &["spec", "leaseDurationSeconds"]).as_i64().unwrap_or(15).clamp(0, 3600);
        let until = renewed.and_then(|renewed| renewed.checked_add(SignedDuration::from_secs(duration)).ok());
        let holder = optional_text(lease, &["spec", "holderIdentity"]).map(str::to_owned);
        Self {
            lease: name(lease).to_owned(),
            number: number.and_then(|number| number.parse().ok()).unwrap_or_default(),
            shard_count: of,
            alive: holder.is_some() && until.is_some_and(|until| until > now),
            holder,
            renewed: renewed.map_or_else(|| "never".to_owned(), |renewed| ago(now, renewed)),
        }
    }

    pub(crate) fn describe(&self) -> String {
        match (&self.holder, self.alive) {
            (Some(holder), true) => format!("{holder} has the Lease and renewed it {}", self.renewed),
            (Some(holder), false) => {
                format!("none; {holder} had the Lease {} and renewed it last {}", self.lease, self.renewed)
            }
            (None, _) => format!("none; the Lease {} was released", self.lease),
        }
    }

    /// Returns the pod of the replica that holds the Lease. Pod names contain no underscores.
    pub(crate) fn pod(&self) -> Option<&str> {
        self.holder.as_deref().filter(|_| self.alive)?.split('_').next()
    }

    pub(crate) fn state(&self) -> &'static str {
        match (&self.holder, self.alive) {
            (Some(_), true) => "alive",
            (Some(_), false) => "expired",
            (None, _) => "free",
        }
    }
}

pub(crate) fn or_none(holder: &str) -> &str {
    if holder.is_empty() { "none" } else { holder }
}

/// Returns why kube-controller-manager appears not to run, according to its Lease.
pub(crate) async fn controller_manager_problem(context: &CommandContext<'_>) -> Option<String> {
    let lease = context.reader.get(&LEASE, "kube-system", "kube-controller-manager").await;
    match lease.object() {
        Some(lease) => {
            let shard = Shard::read(lease, context.environment.now());
            (!shard.alive)
                .then(|| format!("kube-controller-manager does not run: its Lease was renewed {}", shard.renewed))
        }
        None if lease.is_absent() => {
            Some("kube-controller-manager has no Lease in kube-system, so it may not run".to_owned())
        }
        None => None,
    }
}

/// Returns the claim's uid from an entry whose key is a volume name with the default prefix.
pub(crate) fn claim_uid(entry: &Entry) -> &str {
    entry.key.strip_prefix("pvc-").unwrap_or(&entry.key)
}

/// Returns the number of lines in the journals that cannot be read, in words. Returns `None` if there are none.
pub(crate) fn unreadable_lines<'a>(fleets: impl Iterator<Item = &'a Fleet>) -> Option<String> {
    match fleets.flat_map(|fleet| &fleet.journals).map(|journal| journal.unreadable.len()).sum::<usize>() {
        0 => None,
        1 => Some("1 line of the journals cannot be read; it may be an attempt".to_owned()),
        lines => Some(format!("{lines} lines of the journals cannot be read; an attempt may be among them")),
    }
}

/// Returns the class's provisioner.
pub(crate) fn provisioner_of(class: &Value) -> &str {
    text(class, &["provisioner"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(layout: &str) -> Listing {
        let layout = layout.to_owned();
        let (name, version, group, aliases, holder) = Default::default();
        let (entries, restored, unreadable, dropping) = Default::default();
        Listing { name, version, group, aliases, layout, holder, entries, restored, unreadable, dropping }
    }

    #[test]
    fn finds_fleets_by_additional_names_in_journals() {
        let listing = Listing { aliases: vec!["example.com/former".to_owned()], ..journal("node") };
        let all = vec![Fleet { name: "example.com-p".to_owned(), journals: vec![listing], ..Fleet::default() }];
        let fleets = Fleets { all, leases_known: true, journals_known: true };
        let found =
            ["example.com/p", "example.com/former", "example.com/q"].map(|name| fleets.for_provisioner(name).len());
        assert_eq!(found, [1, 1, 0]);
    }

    #[test]
    fn only_node_journals_imply_volumes_when_empty() {
        let of = |layout: &str| Fleet { journals: vec![journal(layout)], ..Fleet::default() };
        assert_eq!((of("1").serves(), of("node").serves()), (None, Some(protocol::SERVES_VOLUMES)));
    }

    #[test]
    fn counts_unreadable_lines_in_words() {
        let text = |lines: usize| {
            let listing = Listing { unreadable: vec![String::new(); lines], ..journal("1") };
            let fleet = Fleet { journals: vec![listing], ..Fleet::default() };
            unreadable_lines(std::iter::once(&fleet))
        };
        assert_eq!(text(0), None);
        assert_eq!(text(1).as_deref(), Some("1 line of the journals cannot be read; it may be an attempt"));
        assert_eq!(text(2).as_deref(), Some("2 lines of the journals cannot be read; an attempt may be among them"));
    }

    #[test]
    fn lack_of_a_node_journal_counts_only_if_its_name_is_known() {
        let fleet = |name: &str, of_n1: &str| {
            let listing = Listing { name: of_n1.to_owned(), ..journal("node") };
            Fleet { name: name.to_owned(), journals: vec![listing], ..Fleet::default() }
        };
        let on_nodes =
            |fleet: &Fleet, provisioner: &str| ["n1", "n2"].map(|node| fleet.may_have_run_on(node, provisioner));
        let plain = fleet("example.com-p", "example.com-p-journal-node-n1");
        let hashed = fleet("example.com-p-caf12ea1", "example.com-p-journal-node-n1-d8774004");
        assert_eq!(on_nodes(&plain, "example.com/p"), [true, false]);
        assert_eq!(on_nodes(&plain, "example.com/former"), [true, false]);
        assert_eq!(on_nodes(&hashed, "example.com/P"), [true, false]);
        assert_eq!(on_nodes(&hashed, "example.com/former"), [true, true]);
    }

    #[test]
    fn recognizes_per_node_replicas_despite_former_leases_and_journals() {
        let (lease, renewed) = Default::default();
        let shard = Shard { lease, number: 0, shard_count: 1, holder: None, alive: false, renewed };
        let journals = vec![journal("1"), journal("node")];
        let per_node = Fleet { shards: vec![shard.clone()], journals, ..Fleet::default() };
        assert!(per_node.is_per_node() && !per_node.is_abandoned());
        let elected = Fleet { shards: vec![Shard { alive: true, ..shard }], ..per_node };
        assert!(!elected.is_per_node());
    }
}
