//! Snapshots.

use driver_rpc::Status;
use driver_rpc::csi::plugin_capability::service::Type as Plugin;
use driver_rpc::csi::*;
use prost_types::Timestamp;

use super::{Model, page, required};
use crate::Capability;

const TOPOLOGY: Capability = Capability::Plugin(Plugin::SnapshotAccessibilityConstraints);
const KIND: &str = "snapshot-";
/// Start time of the driver in seconds since 1970. It is fixed, so that each run has the same times.
const EPOCH: i64 = 1_700_000_000;

#[derive(Debug)]
pub(super) struct StoredSnapshot {
    pub(super) snapshot: Snapshot,
    name: String,
    pub(super) pool: String,
}

impl Model {
    pub(crate) fn create_snapshot(
        &mut self,
        request: &CreateSnapshotRequest,
    ) -> Result<CreateSnapshotResponse, Status> {
        required("source_volume_id", &request.source_volume_id)?;
        let existing = self.snapshots.values().find(|stored| stored.name == request.name);
        if let Some(StoredSnapshot { snapshot, .. }) = existing.filter(|_| self.settings.is_idempotent) {
            if snapshot.source_volume_id != request.source_volume_id {
                return Err(Status::already_exists(format!("there is another snapshot {}", request.name)));
            }
            return Ok(CreateSnapshotResponse { snapshot: Some(snapshot.clone()) });
        }
        let size_bytes = self.volume(&request.source_volume_id)?.volume.capacity_bytes;
        let pool = self.pool_for(size_bytes, request.accessibility_requirements.as_ref(), TOPOLOGY)?;
        let (pool, accessible_topology) = (pool.name.clone(), self.topology_of(pool, TOPOLOGY));
        let elapsed = self.started.elapsed();
        let seconds = EPOCH + i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX - EPOCH);
        let nanos = i32::try_from(elapsed.subsec_nanos()).unwrap_or_default();
        let snapshot = Snapshot {
            size_bytes,
            snapshot_id: self.next_id("snapshot"),
            source_volume_id: request.source_volume_id.clone(),
            creation_time: Some(Timestamp { seconds, nanos }),
            ready_to_use: true,
            group_snapshot_id: String::new(),
            accessible_topology,
        };
        if let Some(data) = self.data() {
            data.copy(&snapshot.snapshot_id, &request.source_volume_id)?;
        }
        let stored = StoredSnapshot { snapshot: snapshot.clone(), name: request.name.clone(), pool };
        self.snapshots.insert(snapshot.snapshot_id.clone(), stored);
        Ok(CreateSnapshotResponse { snapshot: Some(snapshot) })
    }

    pub(crate) fn delete_snapshot(
        &mut self,
        request: &DeleteSnapshotRequest,
    ) -> Result<DeleteSnapshotResponse, Status> {
        if let (Some(data), Some(stored)) = (self.data(), self.snapshots.get(&request.snapshot_id)) {
            data.remove(&stored.snapshot.snapshot_id)?;
        }
        if self.snapshots.remove(&request.snapshot_id).is_none() && !self.settings.is_idempotent {
            return Err(no_snapshot(&request.snapshot_id));
        }
        Ok(DeleteSnapshotResponse {})
    }

    pub(crate) fn list_snapshots(&mut self, request: &ListSnapshotsRequest) -> Result<ListSnapshotsResponse, Status> {
        let wanted = |wanted: &str, id: &str| wanted.is_empty() || wanted == id;
        let all = self.snapshots.iter().filter(|(id, stored)| {
            wanted(&request.snapshot_id, id) && wanted(&request.source_volume_id, &stored.snapshot.source_volume_id)
        });
        let all =
            all.map(|(id, stored)| (id, list_snapshots_response::Entry { snapshot: Some(stored.snapshot.clone()) }));
        let (entries, next_token) = page(all, KIND, &request.starting_token, request.max_entries)?;
        Ok(ListSnapshotsResponse { entries, next_token })
    }

    pub(crate) fn get_snapshot(&mut self, request: &GetSnapshotRequest) -> Result<GetSnapshotResponse, Status> {
        required("snapshot_id", &request.snapshot_id)?;
        Ok(GetSnapshotResponse { snapshot: Some(self.snapshot(&request.snapshot_id)?.clone()) })
    }

    pub(super) fn snapshot(&self, id: &str) -> Result<&Snapshot, Status> {
        self.snapshots.get(id).map(|stored| &stored.snapshot).ok_or_else(|| no_snapshot(id))
    }
}

fn no_snapshot(id: &str) -> Status {
    Status::not_found(format!("there is no snapshot {id}"))
}
