//! Scripted answers that replace the driver's own.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use driver_rpc::{Code, Status};

/// The course of one call.
#[derive(Clone, Debug)]
pub struct Step {
    pub(crate) delay: Duration,
    pub(crate) works: bool,
    pub(crate) reply: Reply,
}

#[derive(Clone, Debug)]
pub(crate) enum Reply {
    FromDriver,
    Answer(Arc<dyn Any + Send + Sync>),
    Refusal(Status),
    Hang,
    BreakConnection,
    Restart,
}

impl Step {
    /// Returns whether the step reports that the driver has no space for another volume.
    pub(crate) fn is_out_of_space(&self) -> bool {
        matches!(&self.reply, Reply::Refusal(status) if matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted))
    }

    /// Does the work and returns the driver's own answer.
    pub fn work() -> Self {
        Self::new(Reply::FromDriver).working()
    }

    /// Returns this answer without doing the work. It must have the method's type.
    pub fn answer(answer: impl Any + Send + Sync) -> Self {
        Self::new(Reply::Answer(Arc::new(answer)))
    }

    /// Refuses the call without doing the work.
    pub fn refuse(code: Code, message: impl Into<String>) -> Self {
        Self::new(Reply::Refusal(Status::new(code, message)))
    }

    /// Never answers, and does not do the work.
    pub fn hang() -> Self {
        Self::new(Reply::Hang)
    }

    /// Breaks the connection without doing the work. On a socket the caller sees `Unavailable`.
    pub fn break_connection() -> Self {
        Self::new(Reply::BreakConnection)
    }

    /// Restarts the driver without doing the work: all its calls are lost.
    pub fn restart() -> Self {
        Self::new(Reply::Restart)
    }

    /// Does the work first, regardless of the answer.
    pub fn working(mut self) -> Self {
        self.works = true;
        self
    }

    /// Delays the call. The work is done after the delay, even if the caller has cancelled the call.
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    fn new(reply: Reply) -> Self {
        Self { delay: Duration::ZERO, works: false, reply }
    }
}
