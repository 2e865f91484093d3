//! What comes of a decision. What it means for users, metrics and the queue is `report`'s.

use std::sync::Arc;
use std::time::Duration;

use provisioner_runtime::call::CallError;
use provisioner_runtime::controller::NoAnswer;
use provisioner_runtime::journal::JournalError;

use super::decide::{NoAction, Refusal};
use super::object::TemplateError;
use crate::error::{DeleteVerdict, Verdict};

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

/// What came of one decision.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Nothing was to be done.
    NoAction(NoAction),
    /// The claim gets no volume as it is.
    Refused(Refusal),
    /// As many attempts as allowed are under way in this class or altogether.
    AwaitsPermit(Arc<str>),
    /// What was known is out of date; what is known now is in the cache.
    Changed,
    /// The API server knows what the watch has not told yet.
    Behind,
    /// Somebody else is to act, who is given that time.
    LooksAgain { after: Duration },
    /// The API server does not take what was made of what is known.
    Rejected { doing: &'static str, error: CallError },
    /// The asset is made and its volume is saved.
    Provisioned { took: Duration },
    /// Another process is at work for it.
    Locked { by: String, look_again: Duration },
    /// What is to be begun could not be recorded, or this replica may not begin it.
    NotJournaled(JournalError),
    /// What the author's code needs is not there: a Secret or the selected node.
    NotReady(MissingInput),
    /// The author's `provision` said no. `rescheduled`: the scheduler was asked for another node.
    NotProvisioned { verdict: Verdict, message: String, retry_after: Option<Duration>, rescheduled: bool },
    /// The author's code gave no answer about a claim.
    ProvisionBroke { method: &'static str, no_answer: NoAnswer },
    /// The author's `provision` returned what cannot be a volume.
    BadTemplate(TemplateError),
    /// The asset is made; its volume could not be saved yet.
    NotSaved(CallError),
    /// The asset is made; a volume of somebody else has its name.
    NameTakenMeanwhile,
    /// What an attempt may have left is removed.
    CleanedUp,
    /// The author's `clean_up` said no, or its `delete` of what nobody needs.
    NotCleanedUp { verdict: DeleteVerdict, message: String, retry_after: Option<Duration> },
    /// The claim records no attempt any more.
    ClaimReleased,
    /// The volume is released, and the claim that it names exists.
    ClaimLives,
    /// The asset is gone and its object too, or as good as.
    Deleted { took: Duration },
    /// The author's `delete` or `should_delete` said no.
    NotDeleted { verdict: DeleteVerdict, message: String, retry_after: Option<Duration> },
    /// The author's code gave no answer about a volume.
    DeleteBroke { method: &'static str, no_answer: NoAnswer },
    /// Our finalizer was added or removed.
    ProtectionSet,
    /// A call to the API server failed on the way.
    CallFailed { doing: &'static str, error: CallError },
}
