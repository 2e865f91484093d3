//! The outcome of a decision. `report` says what it means for users, metrics and the queue.

use std::time::Duration;

use provisioner_runtime::call::CallError;
use provisioner_runtime::controller::CallAborted;
use provisioner_runtime::journal::JournalError;
use provisioner_runtime::limiter::Flow;

use super::decision::{NoAction, Refusal};
use super::object::TemplateError;
use crate::error::{DeleteVerdict, ExpandVerdict, ProvisionVerdict};

/// What the author's code needs and does not get.
#[derive(Debug)]
pub(crate) enum MissingInput {
    /// The selected node does not exist.
    Node(String),
    /// A Secret that the class names does not exist.
    Secret { namespace: String, name: String },
    /// The class's parameters do not give the name of a Secret. The text says why.
    SecretName(String),
}

/// Why the replica of the selected node makes no volume, as far as another node's replica can see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeSilence {
    /// The node is not ready.
    NotReady,
    /// No replica has ever written its journal there.
    NoReplica,
    /// The node does not exist or lacks the driver, and the replica there may have begun to create the volume.
    Begun,
    /// A replica has run there. It has sent an event with the reason, or has stopped.
    Replica,
}

/// The outcome of one decision.
pub(crate) type Outcome = Result<Done, Stopped>;

/// What was done.
#[derive(Debug)]
pub(crate) enum Done {
    /// Another replica has to act. The key runs again after this time.
    LooksAgain { after: Duration },
    /// The asset is made and its volume is saved.
    Provisioned { took: Duration },
    /// What an attempt may have left is removed.
    CleanedUp,
    /// The asset is deleted, and the object is deleted or has no finalizer of ours.
    Deleted { took: Duration },
    /// The asset has the new size, and volume and claim say so.
    Expanded { took: Duration },
    /// Our finalizer was added or removed.
    ProtectionSet,
}

/// Why the decision was not carried out.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// Nothing was to be done.
    NoAction(NoAction),
    /// The claim gets no volume, or the volume is not deleted, until something changes.
    Refused(Refusal),
    /// As many attempts as allowed are under way for this namespace, in this class or altogether.
    AwaitsPermit(Flow),
    /// The facts were out of date. The cache has the current ones.
    Changed,
    /// The API server has a change that the watch has not shown yet.
    Behind,
    /// The selected node does not exist or lacks the CSI driver, and nothing was made there. The scheduler was asked for another one.
    NodeLeft { node: String, exists: bool },
    /// Our node has no room for the volume of a claim that waits for no pod.
    NoRoom { after: Duration },
    /// The node that the scheduler has chosen exists, and its replica has not made the volume in time.
    NodeSilent { node: String, why: NodeSilence },
    /// The API server rejects a write.
    Rejected { doing: &'static str, error: CallError },
    /// The attempt could not be recorded, or this replica may not begin it.
    NotJournaled(JournalError),
    /// What the author's code needs is not there: a Secret or the selected node.
    NotReady(MissingInput),
    /// The author's `provision` returned an error. `rescheduled`: the scheduler was asked for another node.
    NotProvisioned { verdict: ProvisionVerdict, message: String, retry_after: Option<Duration>, rescheduled: bool },
    /// The author's code gave no answer to a call for a claim.
    ProvisionAborted { method: &'static str, aborted: CallAborted },
    /// The author's `provision` returned what cannot be a volume.
    BadTemplate(TemplateError),
    /// The asset is made; its volume could not be saved yet.
    NotSaved(CallError),
    /// The asset is made, but a foreign volume has its name.
    NameTakenMeanwhile,
    /// The author's `clean_up` failed, or its `delete` of a surplus asset.
    NotCleanedUp { verdict: DeleteVerdict, message: String, retry_after: Option<Duration> },
    /// The volume is released, and the claim that it names exists.
    ClaimLives,
    /// The author's `delete` or `should_delete` returned an error.
    NotDeleted { verdict: DeleteVerdict, message: String, retry_after: Option<Duration> },
    /// The author's code gave no answer to a call for a volume.
    DeleteAborted { method: &'static str, aborted: CallAborted },
    /// The author's `expand` returned an error.
    NotExpanded { verdict: ExpandVerdict, message: String, retry_after: Option<Duration> },
    /// The author's `expand` gave no answer.
    ExpandAborted { aborted: CallAborted },
    /// A call to the API server failed on the way.
    CallFailed { doing: &'static str, error: CallError },
}
