//! Checks of the invariants, during the run and at the end.
//!
//! The judge follows all changes of the store in their order, and is notified of each backend step when it happens:
//! before it checks a step, it has seen every earlier change.

mod checks;
mod cluster_view;
mod final_checks;
mod invariant;
mod places;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube_sim::{Request, Subscription, Verb};

pub(crate) use self::cluster_view::LEASE_ENTRIES;
use self::cluster_view::{ChangeEffect, ClusterView};
pub(crate) use self::final_checks::index;
pub use self::invariant::{Invariant, Violation};
use self::places::Places;
use crate::backend::{Asset, AssetStage};
use crate::plan::{Plan, Sharing, UserAction};
use crate::process::Process;

/// The size of a new asset, which every claim requests at first.
const SIZE: u64 = 1 << 30;

/// The kind of a call to the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Provision,
    Delete,
    CleanUp,
    EndAttempt,
    Expand,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Provision => "provision",
            Self::Delete => "delete",
            Self::CleanUp => "clean_up",
            Self::EndAttempt => "end_attempt",
            Self::Expand => "expand",
        }
    }
}

pub(crate) struct Judge {
    changes: Subscription,
    pub(crate) view: ClusterView,
    pub(crate) assets: BTreeMap<String, Asset>,
    /// Names that `delete` has removed, unless an attempt for an unbound claim was recorded since.
    removed: BTreeSet<String>,
    /// Names that `clean_up` has removed.
    cleaned: BTreeSet<String>,
    /// Names exempted from checks because of what users did to them.
    pub(crate) exempted: BTreeSet<String>,
    /// Names whose asset an administrator has removed manually, or given to another owner. The author has to detect
    /// that.
    changed_by_admin: BTreeSet<String>,
    /// Names of volumes that were being deleted when users removed their finalizers.
    stripped: BTreeSet<String>,
    /// Names of volumes that users have deleted.
    pub(crate) by_hand: BTreeSet<String>,
    /// Names of assets whose claims were alive when users removed their volumes by force. These assets must stay
    /// untouched.
    lost: BTreeSet<String>,
    /// Names that were in a journal when users replaced it. The journal's process may remember them.
    remembered: BTreeSet<String>,
    /// Names of volumes that were restored from a backup, and are bound to no claim of this cluster.
    restored_volumes: BTreeSet<String>,
    places: Places,
    cluster_id: String,
    /// Names of restored volumes that were bound again.
    rebound: BTreeSet<String>,
    /// The uids of claims that were restored with their volumes.
    pub(crate) copied_claims: BTreeSet<String>,
    calls: BTreeMap<u64, Call>,
    /// By process and volume, the version of the cluster when the process last read the volume.
    reads: BTreeMap<(String, String), u64>,
    /// By name, the value prepared for the attempt in progress, and its replica if each node has its own.
    attempts: BTreeMap<String, (u64, Option<String>)>,
    by_node: bool,
    /// True if the author implements all methods, so that it is asked before a deletion and can expand volumes.
    whole_author: bool,
    /// The processes that may delete a volume, by the author's last answer.
    permitted: BTreeSet<(String, String)>,
    /// The classes that are never recreated.
    lasting: BTreeSet<String>,
    /// The invariants that are not checked.
    ignored: BTreeSet<Invariant>,
    numbers: u64,
    pub(crate) writes: u32,
    pub(crate) steps: u32,
    pub(crate) deletions: u32,
    pub(crate) saved: u32,
    pub(crate) verdict: Option<Violation>,
}

struct Call {
    process: Arc<Process>,
    freezes: u32,
    kind: Kind,
    name: String,
}

impl Judge {
    pub(crate) fn new(changes: Subscription, cluster_id: String, plan: &Plan, ignored: BTreeSet<Invariant>) -> Self {
        let lasts = |class: &usize| {
            let ends = |action: &UserAction| match action {
                UserAction::DropClass(other) | UserAction::MakeClass(other) => other == class,
                _ => false,
            };
            !plan.actions.iter().any(|(_, action)| ends(action))
        };
        Self {
            changes,
            view: ClusterView::of(plan),
            assets: BTreeMap::new(),
            removed: BTreeSet::new(),
            cleaned: BTreeSet::new(),
            exempted: BTreeSet::new(),
            changed_by_admin: BTreeSet::new(),
            stripped: BTreeSet::new(),
            by_hand: BTreeSet::new(),
            lost: BTreeSet::new(),
            remembered: BTreeSet::new(),
            restored_volumes: BTreeSet::new(),
            places: Places::default(),
            cluster_id,
            rebound: BTreeSet::new(),
            copied_claims: BTreeSet::new(),
            calls: BTreeMap::new(),
            reads: BTreeMap::new(),
            attempts: BTreeMap::new(),
            by_node: plan.slots.iter().flatten().any(|life| life.sharing == Sharing::Nodes),
            whole_author: plan.whole_author,
            permitted: BTreeSet::new(),
            lasting: (0..plan.classes.len()).filter(lasts).map(|class| format!("class-{class}")).collect(),
            ignored,
            numbers: 0,
            writes: 0,
            steps: 0,
            deletions: 0,
            saved: 0,
            verdict: None,
        }
    }

    /// Processes all changes so far.
    pub(crate) fn process_changes(&mut self, at: Duration) {
        while let Some(change) = self.changes.try_next() {
            self.writes += u32::from(change.resource.plural != "nodes");
            let news = self.view.apply(&change, &mut self.exempted);
            if let Some(ChangeEffect::Shrunk(what)) = &news {
                self.report_violation(at, Invariant::Sized, format!("{what} shrinks"));
            }
            self.check_sizes(at);
            if let Some(ChangeEffect::Saved(created)) = news {
                self.saved += 1;
                let whole = self.assets.get(&created).is_some_and(|asset| asset.stage == AssetStage::Exported);
                if !whole && !self.was_changed_by_users(&created) && !self.was_under_way(&created) {
                    let asset = self.assets.get(&created).map(|asset| asset.stage);
                    self.report_violation(
                        at,
                        Invariant::Whole,
                        format!("{created} is saved, and its asset is {asset:?}"),
                    );
                }
                self.check_places(at, &created);
            }
            // An attempt that is recorded for a claim that was never bound is finished, even if the claim is deleted.
            let view = &self.view;
            self.removed.retain(|name| !view.was_never_bound(name) || !view.is_recorded(name));
            self.see_bindings();
            self.check_covered(at, change.resource_version);
        }
    }

    /// A claim that is bound to a restored volume owns it, and its deletion removes the volume. The same applies to a
    /// claim that is deleted while the binder binds the volume to it.
    fn see_bindings(&mut self) {
        let by_claim = self.view.claims.values().filter(|claim| claim.bound).map(|claim| &claim.volume);
        let by_volume = self.view.volumes.iter().filter(|(_, volume)| volume.bound).map(|(name, _)| name);
        self.rebound.extend(by_claim.chain(by_volume).filter(|name| self.restored_volumes.contains(*name)).cloned());
        for name in &self.rebound {
            self.restored_volumes.remove(name);
            self.lost.remove(name);
        }
    }

    /// Records that users are about to replace the journals.
    pub(crate) fn drop_journals(&mut self, at: Duration) {
        self.process_changes(at);
        self.exempted.extend(self.view.journals.values().flatten().cloned());
        self.remembered.extend(self.view.journals.values().flatten().cloned());
    }

    /// Records that users are about to remove a volume and its claim by force.
    pub(crate) fn record_forced_deletion(&mut self, name: &str) {
        let served = self.view.living_claim_of(name).is_some()
            && self.view.volumes.get(name).is_some_and(|volume| volume.ours && volume.bound && !volume.deleting)
            && !self.view.is_recorded(name)
            && !self.remembered.contains(name)
            && self.calls.values().all(|call| call.name != name);
        // A call in progress may end in any way.
        if served {
            self.lost.insert(name.to_owned());
        }
        self.exempted.insert(name.to_owned());
        self.by_hand.insert(name.to_owned());
    }

    /// Records that users are about to remove the finalizers of a volume and its claim. This deletes the objects that
    /// only these finalizers hold.
    pub(crate) fn strip(&mut self, name: &str) {
        if self.view.volumes.get(name).is_some_and(|volume| volume.ours && volume.deleting) {
            self.stripped.insert(name.to_owned());
        }
    }

    /// Records that users are about to delete a volume whose finalizers they removed before. Its claim is lost.
    pub(crate) fn delete_unprotected(&mut self, name: &str) {
        self.stripped.insert(name.to_owned());
    }

    /// Records that an administrator manually creates an asset with a volume's name, at any moment.
    pub(crate) fn record_manual_creation(&mut self, at: Duration, name: &str) {
        self.process_changes(at);
        if !self.assets.contains_key(name) {
            self.adopt_foreigner(name);
            self.changed_by_admin.insert(name.to_owned());
        }
    }

    /// Records that an administrator manually removes an asset (`None`), or marks it as another owner's, while no call
    /// uses it.
    pub(crate) fn take_over(&mut self, at: Duration, name: &str, mark: Option<AssetStage>) {
        self.process_changes(at);
        let Some(asset) = self.assets.get_mut(name) else { return };
        if asset.stage != AssetStage::Exported || self.calls.values().any(|call| call.name == name) {
            return;
        }
        match mark {
            Some(stage) => (asset.claim, asset.stage) = (String::new(), stage),
            None => drop(self.assets.remove(name)),
        }
        self.changed_by_admin.insert(name.to_owned());
    }

    /// Records that users are about to restore a volume.
    pub(crate) fn record_restored_volume(&mut self, name: &str) {
        self.restored_volumes.insert(name.to_owned());
        self.rebound.remove(name);
        self.exempted.insert(name.to_owned());
    }

    /// Records that a user confirms that the data of a restored volume may be deleted.
    pub(crate) fn record_deletion_consent(&mut self, name: &str) {
        self.restored_volumes.remove(name);
        self.lost.remove(name);
        self.rebound.insert(name.to_owned());
    }

    /// Checks a call of another cluster for an asset of this one.
    pub(crate) fn check_foreign_call(&mut self, at: Duration, who: &str, kind: Kind, name: &str) {
        self.process_changes(at);
        if self.assets.get(name).is_some_and(|asset| !asset.claim.is_empty()) {
            let seen = format!("{who}, of another cluster, calls {} for {name}", kind.name());
            self.report_violation(at, Invariant::Untouched, seen);
        }
    }

    /// Returns true if a volume is saved too late: a request that was sent before its process paused cannot be stopped.
    /// Another process has finished the volume and deleted it, and no claim will ever be bound to this one.
    fn was_under_way(&self, volume: &str) -> bool {
        let view = &self.view;
        // Another claim may have received the name in the meantime.
        let of_another = view.is_of_another(volume) && !view.claims.contains_key(&view.volumes[volume].claim);
        of_another
            || (self.removed.contains(volume) || self.cleaned.contains(volume))
                && !view.claims.contains_key(view.claim_uid_of(volume))
    }

    /// Records that a request of a process was handled.
    pub(crate) fn answered(&mut self, at: Duration, process: &Process, request: &Request, code: u16) {
        let ours = request.resource.is("", "persistentvolumes") && !request.name.is_empty();
        let before = if ours { self.view.volumes.get(&request.name).cloned() } else { None };
        self.process_changes(at);
        if ours && (code < 300 || code == 404) && matches!(request.verb, Verb::Get | Verb::Delete | Verb::Patch) {
            self.reads.insert((process.name.clone(), request.name.clone()), self.view.version);
        }
        if !ours || code >= 300 || request.verb.is_read() {
            return;
        }
        let Some(before) = before else { return };
        let (who, name, verb) = (&process.name, &request.name, request.verb.as_str());
        if !before.ours {
            self.report_violation(
                at,
                Invariant::Untouched,
                format!("{who}: {verb} of {name}, which belongs to another owner"),
            );
        }
        if request.verb != Verb::Delete || before.deleting {
            return;
        }
        if let Some(claim) = self.view.living_claim_of(name) {
            let seen = format!("{who} deletes the volume {name} of the claim {claim}, which lives");
            self.report_violation(at, Invariant::Untouched, seen);
        }
        if before.retained_since.is_some() && self.assets.contains_key(name) {
            self.report_violation(
                at,
                Invariant::Untouched,
                format!("{who} deletes the volume {name}, which is to be kept"),
            );
        }
    }

    /// Records that the author is asked whether this process may delete a volume.
    pub(crate) fn forbid(&mut self, who: &str, name: &str) {
        self.permitted.remove(&(who.to_owned(), name.to_owned()));
    }

    /// Records that the author allows this process to delete a volume.
    pub(crate) fn permit(&mut self, who: &str, name: &str) {
        self.permitted.insert((who.to_owned(), name.to_owned()));
    }

    /// Records that a call of the author's code begins. The returned number ends it.
    pub(crate) fn begin(&mut self, at: Duration, process: &Arc<Process>, kind: Kind, name: &str) -> u64 {
        self.process_changes(at);
        let who = &process.name;
        let other =
            self.calls.values().find(|call| call.name == name && !call.process.is_dead_or_paused_since(call.freezes));
        if let Some(other) = other {
            let (other, others) = (other.kind.name(), &other.process.name);
            let seen = format!("{who}: {} of {name} begins while {others} is in its {other}", kind.name());
            self.report_violation(at, Invariant::Exclusive, seen);
        }
        match kind {
            Kind::Provision | Kind::Expand | Kind::EndAttempt => {}
            Kind::Delete => self.check_deletion(at, who, name),
            Kind::CleanUp => self.check_clean_up(at, who, name),
        }
        self.numbers += 1;
        let call = Call { process: process.clone(), freezes: process.freezes(), kind, name: name.to_owned() };
        self.calls.insert(self.numbers, call);
        self.numbers
    }

    /// Records that a call for this claim begins. When names contain a truncated UID, another claim may have used the
    /// name before, and must have no assets left.
    pub(crate) fn record_claim(&mut self, at: Duration, who: &str, name: &str, claim: &str) {
        self.process_changes(at);
        let Some(served) = &mut self.view.served else { return };
        if served.insert(name.to_owned(), claim.to_owned()).is_none_or(|former| former == claim) {
            return;
        }
        let has_volume = self.view.is_of_another(name);
        let has_asset = self.assets.get(name).is_some_and(|asset| !asset.is_foreign() && asset.claim != claim);
        if (has_volume || has_asset) && !self.exempted.contains(name) {
            let seen =
                format!("{who} calls for the claim {claim} by {name}, which another claim's volume or asset has");
            self.report_violation(at, Invariant::Exclusive, seen);
        }
        for said in [&mut self.removed, &mut self.cleaned, &mut self.by_hand, &mut self.stripped] {
            said.remove(name);
        }
    }

    /// Records that the author prepares an attempt.
    pub(crate) fn prepare(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Records that a call of an attempt begins, with the value prepared for the attempt.
    pub(crate) fn attempt(&mut self, at: Duration, who: &str, name: &str, prepared: u64) {
        // With a replica per node, an attempt left on a deleted node does not affect the next attempt.
        let node = who.rsplit_once('-').map(|(slot, _)| slot.to_owned()).filter(|_| self.by_node);
        let known = self.attempts.get(name).filter(|(_, of)| *of == node);
        let begun = known.map_or(prepared, |(begun, _)| *begun);
        self.attempts.insert(name.to_owned(), (begun, node));
        if begun != prepared && !self.exempted.contains(name) {
            let seen =
                format!("{who} continues with {prepared} for {name}, although {begun} was prepared at the start");
            self.report_violation(at, Invariant::Again, seen);
        }
    }

    /// Records that the author has released the resources of an attempt.
    pub(crate) fn end_attempt(&mut self, name: &str) {
        self.attempts.remove(name);
    }

    pub(crate) fn end(&mut self, call: u64) {
        self.calls.remove(&call);
    }

    /// Records the creation of an asset.
    pub(crate) fn allocate(&mut self, at: Duration, name: &str, claim: &str, stage: AssetStage) {
        self.process_changes(at);
        self.steps += 1;
        if let Some((other, _)) = self.assets.iter().find(|(_, asset)| !claim.is_empty() && asset.claim == claim) {
            let seen = format!("{name} gets an asset for the claim {claim}, which has {other}");
            self.report_violation(at, Invariant::Once, seen);
        }
        if self.removed.contains(name) {
            self.report_violation(at, Invariant::NotAgain, format!("{name} gets an asset again after it was deleted"));
        }
        // The asset belongs to the provisioner again, and all invariants apply to it.
        if !self.view.volumes.get(name).is_some_and(|volume| volume.ours) {
            self.changed_by_admin.remove(name);
        }
        self.numbers += 1;
        let asset = Asset { number: self.numbers, claim: claim.to_owned(), stage, size: SIZE };
        self.assets.insert(name.to_owned(), asset);
        self.check_covered(at, 0);
    }

    /// Adds an asset of another owner.
    pub(crate) fn adopt_foreigner(&mut self, name: &str) {
        let asset = Asset { number: 0, claim: String::new(), stage: AssetStage::Exported, size: SIZE };
        self.assets.insert(name.to_owned(), asset);
    }

    /// Records the progress of an asset towards completion or removal.
    pub(crate) fn advance(&mut self, at: Duration, name: &str, stage: AssetStage) {
        self.process_changes(at);
        self.steps += 1;
        if stage == AssetStage::Fading {
            self.deletions += 1;
            self.check_removal(at, name);
        }
        if let Some(asset) = self.assets.get_mut(name) {
            asset.stage = stage;
        }
        self.check_covered(at, 0);
    }

    /// Records that an asset grows to this size, if it is smaller.
    pub(crate) fn grow(&mut self, at: Duration, name: &str, bytes: u64) {
        self.process_changes(at);
        self.steps += 1;
        if let Some(asset) = self.assets.get_mut(name) {
            asset.size = asset.size.max(bytes);
        }
    }

    /// Records that an asset is partly removed, and can be completed again.
    pub(crate) fn undo(&mut self, at: Duration, name: &str) {
        self.process_changes(at);
        self.steps += 1;
        self.check_undoing(at, name);
        if let Some(asset) = self.assets.get_mut(name) {
            asset.stage = AssetStage::Allocated;
        }
        self.cleaned.insert(name.to_owned());
        self.check_covered(at, 0);
    }

    /// Records the removal of an asset.
    pub(crate) fn remove(&mut self, at: Duration, name: &str, deleted: bool) {
        self.process_changes(at);
        self.steps += 1;
        if deleted {
            self.check_removal(at, name);
            self.deletions += 1;
            self.removed.insert(name.to_owned());
        } else {
            self.check_undoing(at, name);
            self.cleaned.insert(name.to_owned());
        }
        self.assets.remove(name);
        self.requirement_ends(name);
    }

    /// Records a violation. Only the first one is reported.
    pub(crate) fn report_violation(&mut self, at: Duration, invariant: Invariant, seen: String) {
        if self.verdict.is_none() && !self.ignored.contains(&invariant) {
            self.verdict = Some(Violation { invariant, at, seen });
        }
    }
}
