//! The Leases and journals of provisioners, and which replica serves a key.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube_provisioner::explain::volume::Attempt;
use kube_provisioner::protocol;
use provisioner_runtime::controller::shard_of;
use provisioner_runtime::journal::{Entry, JournalObject, Listing, selector};
use provisioner_runtime::lease_name;
use serde_json::Value;

use crate::Asked;
use crate::object::{ago, annotation, at, given, label, name, namespace, text, time};
use crate::reader::{CONFIG_MAP, LEASE};

const FLEET: &str = "kube-provisioner/fleet";
const MEMBER: &str = "kube-provisioner/fleet-member";
const SHARDS: &str = "kube-provisioner/shards";

/// What was found of provisioners.
#[derive(Default)]
pub(crate) struct Fleets {
    pub(crate) all: Vec<Fleet>,
    /// Both could be read; otherwise there may be more.
    pub(crate) leases_known: bool,
    pub(crate) journals_known: bool,
}

/// The replicas of one provisioner in one namespace.
#[derive(Default)]
pub(crate) struct Fleet {
    pub(crate) namespace: String,
    /// The name of its Lease, made of the provisioner's.
    pub(crate) name: String,
    pub(crate) shards: Vec<Shard>,
    pub(crate) journals: Vec<Listing>,
    /// What its Leases say that claims are for.
    serves: Option<String>,
    /// Replicas that share several shards and live.
    pub(crate) members: usize,
}

/// One shard's Lease.
#[derive(Clone)]
pub(crate) struct Shard {
    pub(crate) lease: String,
    pub(crate) number: u32,
    /// How many there are, as its holder says.
    pub(crate) of: u32,
    pub(crate) holder: Option<String>,
    pub(crate) alive: bool,
    /// When it was renewed, for people.
    pub(crate) renewed: String,
}

impl Fleets {
    /// Those of one provisioner, or of all.
    pub(crate) async fn find(asked: &Asked<'_>, provisioners: &BTreeSet<String>) -> Self {
        let scope = asked.args.provisioner_namespace.as_deref().unwrap_or_default();
        let now = asked.environment.now();
        let mut leases = asked.reader.list(&LEASE, scope, ("labelSelector", FLEET)).await;
        // Leader election of other programs sets no label.
        for provisioner in provisioners {
            let field = format!("metadata.name={}", lease_name(provisioner));
            let named = asked.reader.list(&LEASE, scope, ("fieldSelector", &field)).await;
            let unlabelled = named.into_iter().flatten().filter(|lease| label(lease, FLEET).is_none());
            leases = leases.map(|leases| leases.into_iter().chain(unlabelled).collect());
        }
        let maps = asked.reader.list(&CONFIG_MAP, scope, ("labelSelector", &selector(None))).await;
        let in_leases = asked.reader.list(&LEASE, scope, ("labelSelector", &selector(None))).await;
        let (leases_known, journals_known) = (leases.is_some(), maps.is_some() && in_leases.is_some());
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
            let Ok(object) = serde_json::from_value::<JournalObject>(object) else { continue };
            let journal = Listing::read(&object);
            fleets.entry((place, journal.group.clone())).or_default().journals.push(journal);
        }
        let named = |((namespace, name), fleet)| Fleet { namespace, name, ..fleet };
        let mut all: Vec<Fleet> = fleets.into_iter().map(named).collect();
        all.iter_mut().for_each(|fleet| fleet.shards.sort_by_key(|shard| (shard.of, shard.number)));
        Self { all, leases_known, journals_known }
    }

    /// What the journals of this provisioner record of the key.
    pub(crate) fn attempt(&self, provisioner: &str, key: &str) -> Attempt<'_> {
        match self.of(provisioner).into_iter().find_map(|fleet| fleet.entry(key)) {
            None => Attempt::None,
            Some((_, _, true)) => Attempt::AwaitsAdoption,
            Some((_, entry, false)) => Attempt::Recorded(entry),
        }
    }

    /// Whether this provisioner serves claims of another kind than `kind`, as far as it is known.
    pub(crate) fn serves_another(&self, provisioner: &str, kind: &str) -> bool {
        self.of(provisioner).first().and_then(|fleet| fleet.serves()).is_some_and(|served| served != kind)
    }

    /// The installations of this provisioner, those that work first.
    pub(crate) fn of(&self, provisioner: &str) -> Vec<&Fleet> {
        let mut fleets: Vec<&Fleet> = self.all.iter().filter(|fleet| fleet.is_of(provisioner)).collect();
        fleets.sort_by_key(|fleet| !fleet.is_held());
        fleets
    }
}

impl Fleet {
    /// Whether these are replicas of this provisioner. What is too long for a label ends with a hash there.
    pub(crate) fn is_of(&self, provisioner: &str) -> bool {
        let name = lease_name(provisioner);
        self.name == name || selector(Some(&name)).rsplit('=').next() == Some(&self.name)
    }

    /// What claims are for. Attempts for buckets are recorded in no journal.
    fn serves(&self) -> Option<&str> {
        let by_journal = (!self.journals.is_empty()).then_some(protocol::SERVES_VOLUMES);
        self.serves.as_deref().or(by_journal)
    }

    /// Whether a shard has a holder that lives. Without Leases nobody can see that.
    pub(crate) fn is_held(&self) -> bool {
        self.shards.iter().any(|shard| shard.alive)
    }

    /// Every node has a replica of its own.
    pub(crate) fn is_per_node(&self) -> bool {
        self.shards.is_empty() && self.journals.iter().any(|journal| journal.layout == "node")
    }

    /// Whether nobody works, as far as Leases show it.
    pub(crate) fn is_abandoned(&self) -> bool {
        !self.shards.is_empty() && !self.is_held()
    }

    /// The number of shards: that of the holders that live, if there are any.
    fn count(&self) -> u32 {
        let alive = self.shards.iter().find(|shard| shard.alive);
        alive.or(self.shards.first()).map_or(1, |shard| shard.of).max(1)
    }

    /// The shard that the work on this key belongs to.
    pub(crate) fn shard(&self, key: &str) -> Option<&Shard> {
        let (of, number) = (self.count(), shard_of(key, self.count()));
        self.shards.iter().find(|shard| (shard.of, shard.number) == (of, number))
    }

    /// Whose turn it is to work on this key.
    pub(crate) fn turn(&self, key: &str) -> String {
        if self.is_per_node() {
            return format!("the replica of its node, in namespace {}", self.namespace);
        }
        let of = self.count();
        let place = match of {
            1 => format!("namespace {}", self.namespace),
            _ => format!("shard {} of {of} in namespace {}", shard_of(key, of), self.namespace),
        };
        match (self.shard(key), self.journals.first()) {
            (Some(shard), _) => format!("{place}: {}", shard.describe()),
            (None, Some(journal)) if self.shards.is_empty() => format!(
                "{place}: there is no Lease; {} wrote the journal last, and nobody can see whether it runs",
                or_nobody(&journal.holder)
            ),
            _ => format!("{place}: nobody has its Lease"),
        }
    }

    /// The journal with an entry, and whether another replica than the present ones wrote it.
    pub(crate) fn entry(&self, key: &str) -> Option<(&Listing, &Entry, bool)> {
        let holding = self
            .journals
            .iter()
            .find_map(|journal| Some((journal, journal.entries.iter().find(|entry| entry.key == key)?)));
        holding.map(|(journal, entry)| {
            let other = !self.is_per_node() && self.is_held() && journal.layout != self.count().to_string();
            (journal, entry, other)
        })
    }
}

impl Shard {
    fn read(lease: &Value, now: Timestamp) -> Self {
        let of = annotation(lease, SHARDS).and_then(|shards| shards.parse().ok()).unwrap_or(1);
        // With one shard the Lease has no number.
        let number = if of == 1 { Some("0") } else { name(lease).rsplit('-').next() };
        let renewed = given(lease, &["spec", "renewTime"]).and_then(time);
        let duration = at(lease, &["spec", "leaseDurationSeconds"]).as_i64().unwrap_or(15).clamp(0, 3600);
        let until = renewed.and_then(|renewed| renewed.checked_add(SignedDuration::from_secs(duration)).ok());
        let holder = given(lease, &["spec", "holderIdentity"]).map(str::to_owned);
        Self {
            lease: name(lease).to_owned(),
            number: number.and_then(|number| number.parse().ok()).unwrap_or_default(),
            of,
            alive: holder.is_some() && until.is_some_and(|until| until > now),
            holder,
            renewed: renewed.map_or_else(|| "never".to_owned(), |renewed| ago(now, renewed)),
        }
    }

    pub(crate) fn describe(&self) -> String {
        match (&self.holder, self.alive) {
            (Some(holder), true) => format!("{holder} has the Lease and renewed it {}", self.renewed),
            (Some(holder), false) => {
                format!("nobody; {holder} had the Lease {} and renewed it last {}", self.lease, self.renewed)
            }
            (None, _) => format!("nobody; the Lease {} was given up", self.lease),
        }
    }

    /// The pod of the replica that has the Lease. Names of pods have no underscores.
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

pub(crate) fn or_nobody(holder: &str) -> &str {
    if holder.is_empty() { "nobody" } else { holder }
}

/// The signs of kube-controller-manager: `Some` where its Lease says that it does not run.
pub(crate) async fn controller_manager_is_gone(asked: &Asked<'_>) -> Option<String> {
    let lease = asked.reader.get(&LEASE, "kube-system", "kube-controller-manager").await;
    match lease.object() {
        Some(lease) => {
            let shard = Shard::read(lease, asked.environment.now());
            (!shard.alive)
                .then(|| format!("kube-controller-manager does not run: its Lease was renewed {}", shard.renewed))
        }
        None if lease.is_absent() => {
            Some("kube-controller-manager has no Lease in kube-system, so it may not run".to_owned())
        }
        None => None,
    }
}

/// The uid of the entry's claim: entries are called like volumes.
pub(crate) fn claim_uid(entry: &Entry) -> &str {
    entry.key.strip_prefix("pvc-").unwrap_or(&entry.key)
}

/// The class's provisioner.
pub(crate) fn provisioner_of(class: &Value) -> &str {
    text(class, &["provisioner"])
}
