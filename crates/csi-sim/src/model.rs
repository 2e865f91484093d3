//! The driver's volumes and snapshots, and the work of its calls.

mod identity;
mod node;
mod publish;
mod snapshots;
mod volumes;

use std::collections::BTreeMap;

use driver_rpc::Status;
use driver_rpc::csi::{Snapshot, Topology, TopologyRequirement, Volume};
use tokio::time::Instant;

use self::snapshots::StoredSnapshot;
use self::volumes::StoredVolume;
use crate::data::Data;
use crate::{Capability, Machine, Pool, Settings};

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) settings: Settings,
    started: Instant,
    /// Number of IDs that have been assigned.
    ids: u64,
    /// By id.
    volumes: BTreeMap<String, StoredVolume>,
    /// By id.
    snapshots: BTreeMap<String, StoredSnapshot>,
}

impl Model {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, started: Instant::now(), ids: 0, volumes: BTreeMap::new(), snapshots: BTreeMap::new() }
    }

    pub(crate) fn has(&self, capability: Capability) -> bool {
        self.settings.capabilities.contains(&capability)
    }

    /// Returns the data directory, if there is one.
    fn data(&self) -> Option<Data> {
        match &self.settings.machine {
            Machine::Data(folder) => Some(Data(folder.clone())),
            Machine::Untouched | Machine::TargetPaths => None,
        }
    }

    pub(crate) fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.volumes.values().map(|stored| &stored.volume)
    }

    /// Returns whether a volume with this name exists.
    pub(crate) fn has_volume_of(&self, name: &str) -> bool {
        self.volumes.values().any(|stored| stored.name() == name)
    }

    pub(crate) fn snapshots(&self) -> impl Iterator<Item = &Snapshot> {
        self.snapshots.values().map(|stored| &stored.snapshot)
    }

    /// Returns a new ID. IDs sort in the order of assignment.
    fn next_id(&mut self, kind: &str) -> String {
        self.ids += 1;
        format!("{kind}-{:08}", self.ids)
    }

    fn volume(&self, id: &str) -> Result<&StoredVolume, Status> {
        self.volumes.get(id).ok_or_else(|| no_volume(id))
    }

    fn volume_mut(&mut self, id: &str) -> Result<&mut StoredVolume, Status> {
        self.volumes.get_mut(id).ok_or_else(|| no_volume(id))
    }

    fn free(&self, pool: &Pool) -> i64 {
        let volumes = self.volumes.values().filter(|stored| stored.pool == pool.name);
        let snapshots = self.snapshots.values().filter(|stored| stored.pool == pool.name);
        let volumes: i64 = volumes.map(|stored| stored.volume.capacity_bytes).sum();
        let snapshots: i64 = snapshots.map(|stored| stored.snapshot.size_bytes).sum();
        pool.size - volumes - snapshots
    }

    /// Returns a pool with enough space, in the order of the requirement's terms if the driver has topology.
    fn pool_for(
        &self,
        size: i64,
        requirement: Option<&TopologyRequirement>,
        topology: Capability,
    ) -> Result<&Pool, Status> {
        let all = self.settings.pools.iter();
        let requirement = requirement.filter(|_| self.has(topology));
        let candidates: Vec<&Pool> = match requirement {
            None => all.collect(),
            Some(requirement) => {
                let wished = requirement.preferred.iter().chain(&requirement.requisite);
                let mut pools: Vec<_> =
                    wished.flat_map(|term| all.clone().filter(|pool| pool.is_within(term))).collect();
                if requirement.requisite.is_empty() {
                    pools.extend(all);
                }
                pools
            }
        };
        if candidates.is_empty() {
            return Err(Status::resource_exhausted("no pool is accessible from there"));
        }
        let roomy = candidates.into_iter().find(|pool| self.free(pool) >= size);
        roomy.ok_or_else(|| Status::resource_exhausted(format!("no pool has {size} bytes")))
    }

    fn topology_of(&self, pool: &Pool, topology: Capability) -> Vec<Topology> {
        let segments = Some(pool.segments.clone()).filter(|segments| !segments.is_empty() && self.has(topology));
        segments.map(|segments| Topology { segments }).into_iter().collect()
    }
}

impl Pool {
    fn is_within(&self, term: &Topology) -> bool {
        self.segments.iter().all(|(key, value)| term.segments.get(key) == Some(value))
    }
}

pub(crate) fn required(field: &str, value: &str) -> Result<(), Status> {
    match value {
        "" => Err(Status::invalid_argument(format!("{field} is missing"))),
        _ => Ok(()),
    }
}

fn no_volume(id: &str) -> Status {
    Status::not_found(format!("there is no volume {id}"))
}

/// Returns at most `max_entries` entries after a token, and the next token. A token is the last ID of a page.
fn page<'a, T>(
    all: impl Iterator<Item = (&'a String, T)>,
    kind: &str,
    token: &str,
    max_entries: i32,
) -> Result<(Vec<T>, String), Status> {
    if !token.is_empty() && !token.starts_with(kind) {
        return Err(Status::aborted(format!("{token:?} is not a token of this driver")));
    }
    let max = match usize::try_from(max_entries) {
        Ok(0) => usize::MAX,
        Ok(max) => max,
        Err(_) => return Err(Status::invalid_argument("max_entries is negative")),
    };
    let mut rest = all.filter(|(id, _)| id.as_str() > token).peekable();
    let (mut entries, mut last) = (Vec::new(), "");
    while let Some((id, entry)) = rest.next_if(|_| entries.len() < max) {
        (last, _) = (id.as_str(), entries.push(entry));
    }
    let next = if rest.peek().is_some() { last.to_owned() } else { String::new() };
    Ok((entries, next))
}
