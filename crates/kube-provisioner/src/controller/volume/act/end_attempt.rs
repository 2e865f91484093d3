//! Calls the provisioner at the end of an attempt. The attempt stays recorded until that call succeeds.

use std::sync::Arc;

use provisioner_runtime::controller::{Call, CallPermit, JournalRecord};
use provisioner_runtime::limiter::Purpose;

use super::clean_up::not_cleaned_up;
use super::context::ActContext;
use super::{Step, answered, typed};
use crate::controller::volume::facts::{Pending, Progress};
use crate::controller::volume::outcome::Stopped;

impl ActContext {
    /// Ends an attempt that has left nothing behind, or whose volume is known.
    pub(super) async fn finish(&self, pending: &Pending, step: &Step<'_>) -> Result<(), Stopped> {
        self.end_attempt(pending, step).await?;
        self.cache().set_progress(step.key(), Progress::None);
        Ok(())
    }

    pub(super) async fn end_attempt(&self, pending: &Pending, step: &Step<'_>) -> Result<(), Stopped> {
        if !self.rules.capabilities.attempt_end {
            return Ok(());
        }
        let claim = Arc::new(typed(&pending.claim)?.ok_or(Stopped::Behind)?);
        let parameters = self.parameters_of(pending)?.parsed;
        let (fencing_token, _guard) = step.token();
        let request = self.request_of(pending, claim, parameters, step.key(), &fencing_token);
        let (flow, limit) = (pending.flow(Purpose::Remove), self.limits.delete);
        let call = Call { permit: CallPermit::Of(&flow), limit, token: &fencing_token, record: JournalRecord::Exists };
        let answer = answered(step.call(call, |_| true, || self.backend.end_attempt(request)).await);
        answer.map_err(|failure| not_cleaned_up(failure, "end_attempt", step))
    }
}
