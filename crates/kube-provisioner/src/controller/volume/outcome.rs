//! The outcome of a decision. `report` maps it to events, metrics and retries.

use std::time::Duration;

use provisioner_runtime::controller::CallAborted;
use provisioner_runtime::{CallError, Flow, JournalError};

use super::decision::{NoAction, Refusal};
use super::object::TemplateError;
use crate::error::{DeleteVerdict, ExpandVerdict, ProvisionVerdict};

/// A missing input of the author's code.
#[derive(Debug)]
pub(crate) enum MissingInput {
    /// The selected node does not exist.
    Node(String),
    /// A Secret that the class names does not exist.
    Secret { namespace: String, name: String },
    /// The class's parameters do not result in a valid Secret name. The text contains the reason.
    SecretName(String),
}

/// The reason why the replica on the selected node does not create a volume, as observed by a replica on another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeInactivity {
    /// The node is not ready.
    NotReady,
    /// No replica has ever written its journal there.
    NoReplica,
    /// The node does not exist or lacks the driver, and the replica there may have begun to create the volume.
    MayHaveBegun,
    /// Same as `Begun`, for replicas that do not record their attempts.
    Unrecorded,
    /// A replica has run there. It has emitted an event with the reason, or has stopped.
    Replica,
}

pub(crate) type Outcome = Result<Done, Stopped>;

#[derive(Debug)]
pub(crate) enum Done {
    /// Another replica has to act. The key runs again after this time.
    CheckAgain { after: Duration },
    /// The asset was created and its volume was saved.
    Provisioned { took: Duration },
    /// Leftovers of an attempt were removed.
    CleanedUp,
    /// The asset was deleted, and the object was deleted or no longer has our finalizer.
    Deleted { took: Duration },
    /// The asset has the new size, and volume and claim show it.
    Expanded { took: Duration },
    /// Our finalizer was added or removed.
    ProtectionSet,
}

/// The reason why the decision was not executed.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The decision required no action.
    NoAction(NoAction),
    /// The claim does not receive a volume, or the volume is not deleted, until something changes.
    Refused(Refusal),
    /// The limit of concurrent attempts is reached for this namespace, for this class or in total.
    AwaitsPermit(Flow),
    /// The facts were out of date. The cache contains the current ones.
    Changed,
    /// The API server has a change that the watch has not delivered yet.
    WatchBehind,
    /// The selected node does not exist or lacks the CSI driver, and no attempt was begun there. The scheduler was
    /// asked for another node.
    OtherNodeRequested { node: String, exists: bool },
    /// Our node has no room for the volume of a claim that does not wait for a pod.
    NoRoom { after: Duration },
    /// The selected node exists, but its replica has not created the volume in time.
    NodeInactive { node: String, why: NodeInactivity },
    /// The API server rejects a write.
    Rejected { doing: &'static str, error: CallError },
    /// The attempt could not be recorded, or this replica may not begin it.
    NotJournaled(JournalError),
    /// An input of the author's code is missing: a Secret or the selected node.
    NotReady(MissingInput),
    /// The author's `provision` returned an error. `rescheduled`: the scheduler was asked for another node.
    NotProvisioned { verdict: ProvisionVerdict, message: String, retry_after: Option<Duration>, rescheduled: bool },
    /// The author's code did not answer a call for a claim.
    ProvisionAborted { method: &'static str, aborted: CallAborted },
    /// The author's `provision` returned an invalid volume.
    BadTemplate(TemplateError),
    /// The asset exists, but its volume could not be saved yet.
    NotSaved(CallError),
    /// The asset exists, but a foreign volume has its name.
    NameTakenMeanwhile,
    /// The author's `clean_up` failed, or its `delete` of a surplus asset.
    NotCleanedUp { verdict: DeleteVerdict, message: String, retry_after: Option<Duration> },
    /// The volume is released, and the claim that it names exists.
    ClaimExists,
    /// The author's `delete` or `should_delete` returned an error.
    NotDeleted { verdict: DeleteVerdict, message: String, retry_after: Option<Duration> },
    /// The author's code did not answer a call for a volume.
    DeleteAborted { method: &'static str, aborted: CallAborted },
    /// The author's `expand` returned an error.
    NotExpanded { verdict: ExpandVerdict, message: String, retry_after: Option<Duration> },
    /// The author's `expand` did not answer.
    ExpandAborted { aborted: CallAborted },
    /// A call to the API server failed.
    CallFailed { doing: &'static str, error: CallError },
}

impl Stopped {
    pub(crate) fn call_failed(doing: &'static str) -> impl FnOnce(CallError) -> Self {
        move |error| Self::CallFailed { doing, error }
    }

    /// Returns the outcome of a failed write. Another writer may have changed the object, or a policy rejects it.
    pub(crate) fn by_write(doing: &'static str, error: CallError) -> Self {
        match error {
            CallError::Conflict | CallError::Invalid(_) => Self::Rejected { doing, error },
            error => Self::CallFailed { doing, error },
        }
    }
}
