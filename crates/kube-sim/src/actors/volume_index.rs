//! An index of volumes by claim and by class.

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::actors::api::ObservedObject;
use crate::actors::node_selector;
use crate::actors::storage::{
    self, access_modes, attributes_class, capacity, claim_ref, is_enough, requested, volume_mode,
};
use crate::object;
use crate::selector::LabelSelector;
use crate::store::{Stored, key};
use crate::validate::quantity::Quantity;

/// All observed volumes.
#[derive(Default)]
pub(super) struct VolumeIndex {
    volumes: BTreeMap<String, IndexedVolume>,
    /// Names of bound volumes by their claim.
    by_claim: BTreeMap<String, BTreeSet<String>>,
    /// Names of volumes without a claim, by class.
    free: BTreeMap<String, BTreeSet<String>>,
}

struct IndexedVolume {
    stored: Arc<Stored>,
    index_key: IndexKey,
    /// Parsed on demand: most volumes are bound, and their offer is never needed.
    offer: OnceCell<Offer>,
}

/// The properties of a volume that claims request.
struct Offer {
    size: Option<Quantity>,
    /// Sorted.
    modes: Vec<String>,
    volume_mode: String,
    attributes_class: String,
    available: bool,
}

/// Index key of a volume: its claim, or its class.
#[derive(PartialEq, Eq)]
enum IndexKey {
    Claim(String),
    Class(String),
}

impl VolumeIndex {
    pub(super) fn get(&self, name: &str) -> Option<&Arc<Stored>> {
        self.volumes.get(name).map(|entry| &entry.stored)
    }

    /// Caches a state of a volume, unless a newer one is cached.
    pub(super) fn keep(&mut self, volume: &ObservedObject) {
        let (name, stored) = (volume.stored.name(), Arc::clone(&volume.stored));
        let known = self.volumes.get(name);
        if known.is_some_and(|known| known.stored.resource_version() >= stored.resource_version()) {
            return;
        }
        let index_key = IndexKey::of(&volume.value);
        if known.is_none_or(|known| known.index_key != index_key) {
            self.remove(name);
            self.names_at(&index_key).insert(name.to_owned());
        }
        self.volumes.insert(name.to_owned(), IndexedVolume { stored, index_key, offer: OnceCell::new() });
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some(entry) = self.volumes.remove(name) {
            let names = self.names_at(&entry.index_key);
            names.remove(name);
            if names.is_empty() {
                match &entry.index_key {
                    IndexKey::Claim(claim) => drop(self.by_claim.remove(claim)),
                    IndexKey::Class(class) => drop(self.free.remove(class)),
                }
            }
        }
    }

    /// Returns the volume for a claim on any node: one that refers to the claim, or the smallest that is large enough.
    /// Volumes with fewer access modes come first. With `reserved_only`, only volumes that refer to the claim count.
    pub(super) fn find(&self, claim: &Value, reserved_only: bool) -> Option<&Arc<Stored>> {
        let modes = |entry: &IndexedVolume| (entry.offer().modes.len(), entry.offer().modes.clone());
        let fitting = self.fitting(claim, reserved_only);
        let best = fitting.min_by(|one, other| modes(one).cmp(&modes(other)).then_with(|| one.rank(other)));
        best.map(|entry| &entry.stored)
    }

    /// Returns the volume for a claim of a pod on this node, except the taken ones.
    pub(super) fn find_on_node(&self, claim: &Value, node: &Value, taken: &BTreeSet<&str>) -> Option<&Arc<Stored>> {
        let fitting = self.fitting(claim, false).filter(|entry| {
            !taken.contains(entry.stored.name()) && node_selector::volume_reaches(&entry.stored.parsed(), node)
        });
        fitting.min_by(|one, other| one.rank(other)).map(|entry| &entry.stored)
    }

    /// Returns whether a volume refers to exactly this claim.
    pub(super) fn is_reserved_for(&self, claim: &Value) -> bool {
        let names = self.by_claim.get(&key(object::namespace(claim), object::name(claim))).into_iter().flatten();
        names
            .filter_map(|name| self.get(name))
            .any(|volume| claim_ref(&volume.parsed()).is_some_and(|reference| reference.uid == object::uid(claim)))
    }

    fn fitting(&self, claim: &Value, reserved_only: bool) -> impl Iterator<Item = &IndexedVolume> {
        let wanted = Wanted::of(claim);
        let reserved = self.by_claim.get(&key(object::namespace(claim), object::name(claim)));
        let free = self.free.get(storage::class(claim)).filter(|_| !reserved_only);
        let names = reserved.into_iter().chain(free).flatten();
        names.filter_map(|name| self.volumes.get(name)).filter(move |entry| entry.fits(&wanted))
    }

    fn names_at(&mut self, index_key: &IndexKey) -> &mut BTreeSet<String> {
        match index_key {
            IndexKey::Claim(claim) => self.by_claim.entry(claim.clone()).or_default(),
            IndexKey::Class(class) => self.free.entry(class.clone()).or_default(),
        }
    }
}

struct Wanted<'a> {
    claim: &'a Value,
    size: Option<Quantity>,
    modes: Vec<&'a str>,
    selector: Option<LabelSelector>,
}

impl<'a> Wanted<'a> {
    fn of(claim: &'a Value) -> Self {
        let selector = LabelSelector::from_object(object::at(claim, &["spec", "selector"]));
        Self { claim, size: requested(claim), modes: access_modes(claim).collect(), selector }
    }
}

impl IndexKey {
    fn of(volume: &Value) -> Self {
        match claim_ref(volume) {
            Some(reference) => Self::Claim(reference.key()),
            None => Self::Class(storage::class(volume).to_owned()),
        }
    }
}

impl IndexedVolume {
    fn offer(&self) -> &Offer {
        self.offer.get_or_init(|| Offer::of(&self.stored.parsed()))
    }

    fn fits(&self, wanted: &Wanted<'_>) -> bool {
        let offer = self.offer();
        let fits = !self.stored.is_deleting()
            && wanted.modes.iter().all(|mode| offer.modes.iter().any(|own| own == mode))
            && is_enough(offer.size.as_ref(), wanted.size.as_ref())
            && offer.volume_mode == volume_mode(wanted.claim)
            && offer.attributes_class == attributes_class(wanted.claim);
        let chosen = match &self.index_key {
            IndexKey::Claim(_) => {
                let volume = self.stored.parsed();
                claim_ref(&volume).is_some_and(|reference| storage::refers_to(reference, wanted.claim))
            }
            IndexKey::Class(_) => {
                let matches = |selector: &LabelSelector| selector.matches(|label| self.stored.label(label));
                offer.available && wanted.selector.as_ref().is_none_or(matches)
            }
        };
        fits && chosen
    }

    /// Orders two fitting volumes by preference.
    fn rank(&self, other: &Self) -> Ordering {
        let is_free = |entry: &Self| matches!(entry.index_key, IndexKey::Class(_));
        is_free(self).cmp(&is_free(other)).then_with(|| match (&self.offer().size, &other.offer().size) {
            (Some(size), Some(other)) if is_free(self) => size.compare(other),
            _ => Ordering::Equal,
        })
    }
}

impl Offer {
    fn of(volume: &Value) -> Self {
        let mut modes: Vec<String> = access_modes(volume).map(str::to_owned).collect();
        modes.sort_unstable();
        Self {
            size: capacity(volume),
            modes,
            volume_mode: volume_mode(volume).to_owned(),
            attributes_class: attributes_class(volume).to_owned(),
            available: storage::phase(volume) == "Available",
        }
    }
}
