//! The author's code as the controller calls it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube_provisioner::{
    Capabilities, DeleteError, ExpandError, Hooks, Prepared, ProvisionError, ProvisionRequest, ProvisionedVolume,
    Provisioner, StartContext, StartError, Volume,
};
use serde::{Deserialize, Deserializer};

use super::{Author, Script, Turn, panics, refused};
use crate::judge::{Invariant, Kind};
use crate::plan::Nature;
use crate::process::ProcessEnvironment;
use crate::stage::{Call, Stage};

/// An author that implements only the required methods.
pub(crate) struct Plain(pub(crate) Author);

/// An author with all methods.
pub(crate) struct Whole(pub(crate) Author);

/// A class's parameters. Reading them may panic.
pub(crate) struct Parameters;

thread_local! {
    /// The run whose parameters this thread reads. Unlike the author's other code, reading parameters has no reference
    /// to its process.
    static STAGE: RefCell<Weak<Stage>> = const { RefCell::new(Weak::new()) };
}

/// Makes this thread read parameters for this run.
pub(crate) fn on_stage(stage: &Arc<Stage>) {
    STAGE.set(Arc::downgrade(stage));
}

impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::<String, String>::deserialize(deserializer)?;
        if let Some(stage) = STAGE.with_borrow(Weak::upgrade) {
            let (mut random, chances, calm) = stage.script();
            if !calm && random.f64() < chances.parse_panics {
                stage.note(|| "the author's code panics while it reads parameters".to_owned());
                panics();
            }
        }
        Ok(Self)
    }
}

impl Author {
    async fn prepare(&self, request: ProvisionRequest<Parameters>) -> Result<Prepared, ProvisionError> {
        let mut script = Script::draw(&self.stage, class_of(&request));
        match self.wait(&mut script).await {
            None => Ok(Prepared::new(&self.stage.judge().prepare())?),
            Some(Turn::Reschedule) => Err(ProvisionError::reschedule("this node is not known")),
            Some(Turn::Background) => Err(ProvisionError::in_progress("the source is not ready")),
            Some(Turn::Fail) => Err(ProvisionError::no_change("the source does not exist")),
            Some(_) => Err(ProvisionError::retry("the backend does not answer")),
        }
    }

    /// Releases the resources held for the attempt.
    async fn end_attempt(&self, attempt: ProvisionRequest<Parameters>) -> Result<(), DeleteError> {
        let name = &attempt.name;
        let call = self.stage.begin(&self.process, Kind::EndAttempt, name);
        self.goes_on(&attempt);
        let mut script = Script::draw(&self.stage, class_of(&attempt));
        let answer = refused(self.wait(&mut script).await);
        if answer.is_ok() {
            self.stage.judge().end_attempt(name);
        }
        ended(call, answer)
    }

    fn goes_on(&self, attempt: &ProvisionRequest<Parameters>) {
        let prepared = attempt.prepared.read().unwrap_or_default();
        self.record_claim(attempt);
        self.stage.judge().attempt(self.stage.now(), &self.process.name, &attempt.name, prepared);
    }

    fn record_claim(&self, request: &ProvisionRequest<Parameters>) {
        let claim = request.claim.metadata.uid.as_deref().unwrap_or_default();
        self.stage.judge().record_claim(self.stage.now(), &self.process.name, &request.name, claim);
    }

    async fn provision(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
        self.record_claim(&request);
        let name = &request.name;
        let metadata = &request.claim.metadata;
        let claim = metadata.uid.as_deref().unwrap_or_default();
        let call = self.stage.begin(&self.process, Kind::Provision, name);
        let nature = self.stage.nature(metadata.name.as_deref().unwrap_or_default());
        let answer = match nature {
            Nature::Invalid => Err(ProvisionError::invalid("never")),
            Nature::Ignored => Err(ProvisionError::ignored("not mine")),
            Nature::Fickle if !self.stage.is_calm() => Err(ProvisionError::invalid("not yet")),
            Nature::Good | Nature::Fickle => self.make(name, claim, class_of(&request)).await,
        };
        ended(call, answer)
    }

    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        let call = self.stage.begin(&self.process, Kind::Delete, &volume.name);
        ended(call, self.remove(&volume.name, volume.class_name().unwrap_or_default()).await)
    }

    async fn clean_up(&self, attempt: ProvisionRequest<Parameters>) -> Result<(), DeleteError> {
        self.record_claim(&attempt);
        let call = self.stage.begin(&self.process, Kind::CleanUp, &attempt.name);
        ended(call, self.undo(&attempt.name, class_of(&attempt)).await)
    }

    async fn expand(&self, volume: ProvisionedVolume, bytes: u64) -> Result<(), ExpandError> {
        let call = self.stage.begin(&self.process, Kind::Expand, &volume.name);
        ended(call, self.grow(&volume.name, volume.class_name().unwrap_or_default(), bytes).await)
    }

    async fn should_delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        let (who, name) = (&self.process.name, &volume.name);
        self.stage.note(|| format!("{who}: whether {name} is to be deleted"));
        self.stage.judge().forbid(who, name);
        let answer = self.allow(volume.class_name().unwrap_or_default()).await;
        self.stage.note(|| format!("{who}: whether {name} is to be deleted: {answer:?}"));
        if answer.is_ok() {
            self.stage.judge().permit(who, name);
        }
        answer
    }

    async fn start(&self, start: StartContext) -> Result<(), StartError> {
        let (mut random, chances, calm) = self.stage.script();
        // `start` has no time limit, so it neither hangs nor fails more often than planned.
        self.wait(&mut Script { turn: None, ..Script::draw(&self.stage, "") }).await;
        if !calm && random.f64() < chances.start_fails {
            if random.bool() {
                panics();
            }
            return Err(StartError::new("the backend is not there yet"));
        }
        if random.bool() {
            let volumes = start.volumes().await?.len();
            self.stage.note(|| format!("{} starts with {volumes} volumes", self.process.name));
        }
        self.started.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn accepts(&self) -> bool {
        let (mut random, chances, calm) = self.stage.script();
        if !calm && random.f64() < chances.panics {
            panics();
        }
        true
    }

    /// Reports a violation if the controller calls the author before `start` has succeeded.
    fn expect_started(&self) {
        if !self.started.load(Ordering::Relaxed) {
            self.stage
                .report_violation(Invariant::Asked, format!("{} calls before `start` succeeds", self.process.name));
        }
    }
}

fn class_of(request: &ProvisionRequest<Parameters>) -> &str {
    request.class.metadata.name.as_deref().unwrap_or_default()
}

pub(super) fn ended<T, E: fmt::Debug>(call: Call, answer: Result<T, E>) -> Result<T, E> {
    match &answer {
        Ok(_) => call.end(format_args!("is done")),
        Err(error) => call.end(format_args!("says {error:?}")),
    }
    answer
}

impl Provisioner for Plain {
    type Parameters = Parameters;

    async fn provision(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
        self.0.provision(request).await
    }

    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        self.0.delete(volume).await
    }
}

impl Hooks for Plain {}

impl Provisioner for Whole {
    type Parameters = Parameters;

    async fn provision(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
        self.0.expect_started();
        self.0.goes_on(&request);
        self.0.provision(request).await
    }

    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        self.0.expect_started();
        self.0.delete(volume).await
    }

    async fn clean_up(&self, attempt: ProvisionRequest<Parameters>) -> Result<(), DeleteError> {
        self.0.expect_started();
        self.0.goes_on(&attempt);
        self.0.clean_up(attempt).await
    }

    async fn expand(&self, volume: ProvisionedVolume, bytes: u64) -> Result<(), ExpandError> {
        self.0.expect_started();
        self.0.expand(volume, bytes).await
    }

    fn capabilities() -> Capabilities {
        Capabilities::default().expansion().attempt_end()
    }

    async fn start(&self, start: StartContext) -> Result<(), StartError> {
        self.0.start(start).await
    }
}

impl Hooks for Whole {
    async fn prepare(&self, request: ProvisionRequest<Parameters>) -> Result<Prepared, ProvisionError> {
        self.0.expect_started();
        self.0.prepare(request).await
    }

    async fn end_attempt(&self, attempt: ProvisionRequest<Parameters>) -> Result<(), DeleteError> {
        self.0.expect_started();
        self.0.end_attempt(attempt).await
    }

    async fn should_delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        self.0.expect_started();
        self.0.should_delete(volume).await
    }

    fn accepts(&self, _: &PersistentVolumeClaim) -> bool {
        self.0.accepts()
    }
}
