//! Answers to single calls, instead of those that the driver would give.

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
    Own,
    Answer(Arc<dyn Any + Send + Sync>),
    Refusal(Status),
    Never,
    Lost,
    Restart,
}

impl Step {
    /// Whether it says that there is no room for another volume.
    pub(crate) fn says_no_room(&self) -> bool {
        matches!(&self.reply, Reply::Refusal(status) if matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted))
    }

    /// As usual.
    pub fn work() -> Self {
        Self::new(Reply::Own).working()
    }

    /// Nothing is done, and this is the answer. It must be of the method's type.
    pub fn answer(answer: impl Any + Send + Sync) -> Self {
        Self::new(Reply::Answer(Arc::new(answer)))
    }

    /// Nothing is done, and the call is refused.
    pub fn refuse(code: Code, message: impl Into<String>) -> Self {
        Self::new(Reply::Refusal(Status::new(code, message)))
    }

    /// Nothing is done, and there is never an answer.
    pub fn hang() -> Self {
        Self::new(Reply::Never)
    }

    /// Nothing is done, and the connection breaks. On a socket the caller sees `Unavailable`.
    pub fn lose() -> Self {
        Self::new(Reply::Lost)
    }

    /// Nothing is done, and the driver restarts: all calls on it are lost.
    pub fn restart() -> Self {
        Self::new(Reply::Restart)
    }

    /// The work is done first, whatever the answer is.
    pub fn working(mut self) -> Self {
        self.works = true;
        self
    }

    /// After this time. Work is done at its end, even if the caller has given up.
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    fn new(reply: Reply) -> Self {
        Self { delay: Duration::ZERO, works: false, reply }
    }
}
