//! Optional complications of a seed: a second cluster, backups, objects that cannot be read, and unexpected manual
//! actions.

use std::time::Duration;

use crate::refusals::{Reason, Refusal};

/// The complications of one seed. Half of the seeds have only those that are drawn separately: `shares`, `names`,
/// `replaced`, `refusals` and `late`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Complications {
    pub(crate) definitions: Definitions,
    /// Another cluster uses the same store, with the same names.
    pub(crate) second_cluster: bool,
    /// Claims want one bucket name.
    pub(crate) rivals: bool,
    /// An administrator creates, deletes and re-tags buckets in the store.
    pub(crate) by_hand: bool,
    /// Users remove finalizers.
    pub(crate) force: bool,
    /// A backup is restored with new uids and without status.
    pub(crate) restore: bool,
    /// Objects become unreadable, and readable again.
    pub(crate) unreadable: bool,
    /// Claims use the buckets of other claims.
    pub(crate) shares: bool,
    /// Claims name their Secrets and ConfigMaps.
    pub(crate) names: bool,
    /// Claims point at ObjectBuckets of others, some of which another provisioner has left.
    pub(crate) pointers: bool,
    /// Claims are replaced by their manifests, without finalizer and label.
    pub(crate) replaced: bool,
    /// The API server refuses writes for some time.
    pub(crate) refusals: bool,
    /// The fraction of writes that are handled long after their connection broke.
    pub(crate) late: f64,
}

/// The CustomResourceDefinitions of the clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Definitions {
    #[default]
    Ours,
    /// The definitions keep unknown fields.
    Rook,
    /// The definitions have no schema, and keep whatever is written.
    Loose,
    /// The definitions drop the content of the reference to the claim.
    Pruning,
}

impl Complications {
    /// Draws the complications independently of everything else, so that a seed without them stays unchanged.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed.rotate_left(17) ^ 0x0b0c_4e75);
        let shares = fastrand::Rng::with_seed(seed.rotate_left(29) ^ 0x54a2_e000).u8(0..3) == 0;
        let names = fastrand::Rng::with_seed(seed.rotate_left(41) ^ 0x6e61_6d65).u8(0..3) == 0;
        let mut api = fastrand::Rng::with_seed(seed.rotate_left(53) ^ 0x0072_6566_7573);
        let refusals = api.u8(0..4) == 0;
        let late = if api.u8(0..4) == 0 { [0.02, 0.1, 0.3][api.usize(0..3)] } else { 0.0 };
        let replaced = api.u8(0..4) == 0;
        let mut complications = Self { shares, names, replaced, refusals, late, ..Self::default() };
        if random.bool() {
            return complications;
        }
        for _ in 0..random.u8(1..4) {
            match random.u8(0..7) {
                0 => complications.second_cluster = true,
                1 => complications.rivals = true,
                2 => complications.by_hand = true,
                3 => complications.force = true,
                4 => complications.restore = true,
                5 => complications.unreadable = true,
                _ => complications.pointers = true,
            }
        }
        complications.definitions = match random.u8(0..3) {
            // Other definitions reject unreadable objects.
            0 if complications.unreadable => Definitions::Rook,
            _ if complications.unreadable => Definitions::Loose,
            0 | 1 if complications.pointers => Definitions::Pruning,
            0 => Definitions::Rook,
            1 if !complications.restore => Definitions::Pruning,
            _ => Definitions::Ours,
        };
        complications
    }

    pub(crate) fn any(self) -> bool {
        let Self { second_cluster, rivals, by_hand, force, restore, unreadable, pointers, .. } = self;
        second_cluster || rivals || by_hand || force || restore || unreadable || pointers
    }

    /// The requests that the API server of a cluster refuses, drawn in the same way.
    pub(crate) fn refused(self, seed: u64) -> Vec<Refusal> {
        let mut random = fastrand::Rng::with_seed(seed.rotate_left(5) ^ 0x0064_656e_6965_6473);
        let count = if self.refusals { random.usize(1..4) } else { 0 };
        let mut draw = || {
            let kinds = ["secrets", "configmaps", "objectbuckets", "objectbucketclaims", "leases", "events"];
            let kind = kinds[random.usize(0..kinds.len())];
            let creates = kind != "objectbucketclaims" && random.bool();
            let reason = Reason::of(random.u8(0..4).into(), creates && kind != "objectbuckets");
            let from = Duration::from_millis(random.u64(0..60_000));
            Refusal { kind, creates, reason, time: from..from + Duration::from_millis(random.u64(1000..90_000)) }
        };
        (0..count).map(|_| draw()).collect()
    }

    pub(crate) fn clusters(self) -> usize {
        if self.second_cluster { 2 } else { 1 }
    }
}
