//! The assets created for one claim, and their state.

use std::collections::{BTreeMap, BTreeSet};

use kube::Client;

use super::super::console::table;
use super::cosi;
use crate::bucket::{Account, Asset, AssetKind, ClaimName, MarkedCluster};
use crate::controller::bucket::recorded_assets::RecordedAssets;

/// The bucket and the account of one claim, which are removed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AssetSet {
    /// The StorageClass through which they were found.
    pub(super) class: String,
    pub(super) owner: Account,
    pub(super) assets: Vec<Asset>,
}

/// The assets that objects represent.
#[derive(Debug, Default)]
pub(super) struct ClusterRecords {
    pub(super) objects: RecordedAssets,
    /// True if the cluster serves ObjectBucketClaims and ObjectBuckets.
    pub(super) are_served: bool,
    /// The COSI accounts, if the cluster serves COSI.
    pub(super) cosi_accounts: Option<BTreeSet<String>>,
}

impl ClusterRecords {
    pub(super) async fn read(client: &Client) -> kube::Result<Self> {
        let (objects, are_served) = match RecordedAssets::read(client).await {
            // A cluster with COSI does not need the CRDs of ObjectBucketClaims.
            Err(kube::Error::Api(status)) if status.code == 404 => (RecordedAssets::default(), false),
            read => (read?, true),
        };
        Ok(Self { objects, are_served, cosi_accounts: cosi::accounts(client).await? })
    }
}

/// The state of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// An ObjectBucket or a BucketAccess represents them.
    Used,
    /// The claim exists.
    InProgress,
    /// The assets were not created for an ObjectBucketClaim.
    Foreign,
    /// The CRD of ObjectBucketClaims or of ObjectBuckets is not installed.
    Unserved,
    OtherCluster(String),
    NoCluster,
    /// The reclaim policy was Retain.
    Retained,
    /// An ObjectBucket cannot be read.
    Unreadable,
    Orphan,
}

impl State {
    fn text(&self) -> String {
        match self {
            Self::Used => "in use".to_owned(),
            Self::InProgress => "kept: its claim exists".to_owned(),
            Self::Foreign => "kept: it does not belong to an ObjectBucketClaim".to_owned(),
            Self::Unserved => "kept: the CRDs of ObjectBucketClaims are not installed".to_owned(),
            Self::OtherCluster(id) => format!("kept: it belongs to the cluster {id}"),
            Self::NoCluster => "kept: no ObjectBucket, and the mark names no cluster".to_owned(),
            Self::Retained => "kept: released, and the reclaim policy was Retain".to_owned(),
            Self::Unreadable => "kept: an ObjectBucket cannot be read".to_owned(),
            Self::Orphan => "no ObjectBucket or BucketAccess".to_owned(),
        }
    }
}

/// Groups assets by the claim that they were created for.
pub(super) fn sets(found: Vec<(String, Asset)>) -> Vec<AssetSet> {
    let mut sets: BTreeMap<(String, String), AssetSet> = BTreeMap::new();
    for (class, asset) in found {
        let owner = asset.owner.clone();
        let key = (owner.claim.uid.clone(), owner.name.clone());
        let set = sets.entry(key).or_insert_with(|| AssetSet { class, owner, assets: Vec::new() });
        set.assets.push(asset);
        set.assets.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
    }
    sets.into_values().collect()
}

impl AssetSet {
    /// Returns the state of the set. An asset that must be kept also keeps the other one.
    pub(super) fn state(&self, recorded: &ClusterRecords) -> State {
        let ClusterRecords { objects: recorded, are_served, cosi_accounts } = recorded;
        let access = self.owner.claim.cosi_account().zip(cosi_accounts.as_ref());
        let of_other = self.assets.iter().find_map(|asset| match &asset.cluster {
            MarkedCluster::Other(id) => Some(id.clone()),
            MarkedCluster::This | MarkedCluster::Unknown => None,
        });
        let any = |is: &dyn Fn(&Asset) -> bool| self.assets.iter().any(is);
        match of_other {
            Some(id) => State::OtherCluster(id),
            None if access.is_some_and(|(name, known)| known.contains(name)) => State::Used,
            None if access.is_none() && !is_of_claim(&self.owner.claim) => State::Foreign,
            None if access.is_none() && !are_served => State::Unserved,
            None if any(&|asset| recorded.names(asset)) => State::Used,
            None if recorded.has_claim(&self.owner.claim) => State::InProgress,
            None if any(&|asset| asset.retained) => State::Retained,
            None if any(&|asset| asset.cluster == MarkedCluster::Unknown) => State::NoCluster,
            None if !recorded.unreadable.is_empty() => State::Unreadable,
            None => State::Orphan,
        }
    }

    /// Describes the set in a question and its answer.
    pub(super) fn text(&self) -> String {
        let text = |asset: &Asset| format!("{} {}", kind(asset.kind), asset.name);
        format!("{} of {}", self.assets.iter().map(text).collect::<Vec<_>>().join(" and "), self.owner.name)
    }
}

/// Returns true for the owner of an ObjectBucketClaim's assets. Other owners have no namespace, or their name as uid.
fn is_of_claim(claim: &ClaimName) -> bool {
    let is_uuid = claim.uid.len() == 36
        && claim.uid.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    is_uuid && !claim.namespace.is_empty()
}

/// Returns the output of the command.
pub(super) fn report(sets: &[AssetSet], recorded: &ClusterRecords, problems: &[String]) -> String {
    let mut rows = vec![["KIND", "NAME", "ACCOUNT", "CLASS", "STATE"].map(str::to_owned)];
    let (mut used, mut orphans) = (0, 0);
    for set in sets {
        let state = set.state(recorded);
        match state {
            State::Used => used += 1,
            State::Orphan => orphans += 1,
            _ => {}
        }
        if matches!(state, State::Used | State::Foreign) {
            continue;
        }
        let row = |asset: &Asset| {
            let (kind, owner) = (kind(asset.kind).to_owned(), set.owner.name.clone());
            [kind, asset.name.clone(), owner, set.class.clone(), state.text()]
        };
        rows.extend(set.assets.iter().map(row));
    }
    let mut text = if rows.len() == 1 { String::new() } else { table(&rows) };
    problems.iter().for_each(|problem| text.push_str(&format!("{problem}\n")));
    for name in &recorded.objects.unreadable {
        text.push_str(&format!("the ObjectBucket {name} cannot be read, so its bucket is unknown\n"));
    }
    let noun = if orphans == 1 { "orphan" } else { "orphans" };
    text.push_str(&format!("{used} in use, {orphans} {noun}\n"));
    text
}

fn kind(kind: AssetKind) -> &'static str {
    match kind {
        AssetKind::Bucket => "bucket",
        AssetKind::Account => "account",
    }
}
