//! Preparing an attempt, and releasing its resources at its end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_provisioner::{
    Capabilities, DeleteError, Hooks, Prepared, ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner,
    Volume,
};
use serde_json::json;
use tokio::time::sleep;

use super::fixture::{CLAIMS, Fixture, Script, VOLUMES, volume};

type Failure = fn() -> ProvisionError;

/// A provisioner that prepares a number for each attempt, and whose calls fail as the test requests.
#[derive(Clone, Default)]
struct Author(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    prepared: u32,
    /// The number of processes that run `while_leading`.
    leaders: u32,
    /// The calls, with the number that each received.
    calls: Vec<String>,
    /// The next failures of each method.
    failures: Vec<(&'static str, Failure)>,
}

impl Author {
    fn fails(self, method: &'static str, error: Failure) -> Self {
        self.0.lock().unwrap().failures.push((method, error));
        self
    }

    fn calls(&self) -> Vec<String> {
        self.0.lock().unwrap().calls.clone()
    }

    fn call(&self, method: &str, number: Option<u32>) -> Result<(), ProvisionError> {
        let mut state = self.0.lock().unwrap();
        state.calls.push(number.map_or_else(|| method.to_owned(), |number| format!("{method} {number}")));
        match state.failures.iter().position(|(of, _)| *of == method) {
            Some(at) => Err(state.failures.remove(at).1()),
            None => Ok(()),
        }
    }
}

impl Provisioner for Author {
    type Parameters = ();

    async fn provision(&self, request: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
        self.call("provision", Some(request.prepared.read()?))?;
        Ok(volume(&request.name))
    }

    async fn clean_up(&self, attempt: ProvisionRequest<()>) -> Result<(), DeleteError> {
        self.call("clean_up", Some(attempt.prepared.read()?)).map_err(|error| DeleteError::retry(error.to_string()))
    }

    async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> {
        Ok(())
    }

    fn capabilities() -> Capabilities {
        Capabilities::default().attempt_end()
    }
}

impl Hooks for Author {
    async fn prepare(&self, _: ProvisionRequest<()>) -> Result<Prepared, ProvisionError> {
        self.call("prepare", None)?;
        let mut state = self.0.lock().unwrap();
        state.prepared += 1;
        Ok(Prepared::new(&state.prepared)?)
    }

    async fn end_attempt(&self, attempt: ProvisionRequest<()>) -> Result<(), DeleteError> {
        self.call("end", Some(attempt.prepared.read()?)).map_err(|error| DeleteError::retry(error.to_string()))
    }

    fn take_over(&self, name: &str, prepared: &Prepared) {
        assert!(name.starts_with("pvc-"), "{name}");
        drop(self.call("take_over", prepared.read().unwrap()));
    }

    async fn while_leading(&self) {
        struct Leads(Author);
        impl Drop for Leads {
            fn drop(&mut self) {
                self.0.0.lock().unwrap().leaders -= 1;
            }
        }
        self.0.lock().unwrap().leaders += 1;
        let _leads = Leads(self.clone());
        sleep(Duration::from_secs(30)).await;
        panic!("a bug of the author");
    }
}

fn fixture() -> Fixture {
    Fixture::new(Script::default())
}

async fn until_calls(fixture: &Fixture, author: &Author, calls: &[&str]) {
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(author.calls(), calls);
    assert_eq!(fixture.entries(), [""; 0]);
}

// Rules: G66.
#[tokio::test(start_paused = true)]
async fn every_call_of_an_attempt_receives_the_same_prepared_value() {
    let fixture = fixture();
    let author = Author::default()
        .fails("provision", || ProvisionError::retry("the answer is lost"))
        .fails("provision", || ProvisionError::retry("the answer is lost again"));
    let first = fixture.start_author(1, author.clone());
    let name = fixture.claim("a", "class");
    fixture.until("a call", || author.calls().len() == 2).await;
    first.abort();
    let _second = fixture.start_author(2, author.clone());
    let calls = ["prepare", "provision 1", "take_over 1", "provision 1", "provision 1", "end 1"];
    until_calls(&fixture, &author, &calls).await;
    assert!(fixture.is_bound("a") && fixture.get(VOLUMES, &name).is_some());
    // Deleting a claim during its attempt cleans up the attempt.
    let author = author.fails("provision", || ProvisionError::in_progress("the copy is at 5 %"));
    fixture.claim("b", "class");
    fixture.until("the first call", || author.calls().len() == 8).await;
    fixture.delete(CLAIMS, "b");
    fixture.until("the end", || author.calls().len() == 10).await;
    assert_eq!(author.calls()[6..], ["prepare", "provision 2", "clean_up 2", "end 2"]);
}

// Rules: G67.
#[tokio::test(start_paused = true)]
async fn an_attempt_begins_only_after_it_is_prepared() {
    let fixture = fixture();
    let author = Author::default()
        .fails("prepare", || ProvisionError::retry("the snapshot is not ready"))
        .fails("prepare", || ProvisionError::invalid("there is no such snapshot"));
    let _running = fixture.start_author(1, author.clone());
    fixture.claim("a", "class");
    fixture.until("an event", || fixture.events("a").iter().any(|text| text.contains("is not ready"))).await;
    assert_eq!(fixture.entries(), [""; 0]);
    fixture.until("an event", || fixture.events("a").iter().any(|text| text.contains("no such snapshot"))).await;
    fixture.delete(CLAIMS, "a");
    until_calls(&fixture, &author, &["prepare", "prepare"]).await;
}

// Rules: G68.
#[tokio::test(start_paused = true)]
async fn call_without_changes_neither_begins_nor_ends_an_attempt() {
    neither_begins_nor_ends_an_attempt(|| ProvisionError::no_change("the Secret is missing")).await;
    neither_begins_nor_ends_an_attempt(|| ProvisionError::already_exists("the volume is on another disk")).await;
}

async fn neither_begins_nor_ends_an_attempt(no_change: fn() -> ProvisionError) {
    let fixture = fixture();
    let author = Author::default().fails("provision", no_change);
    let _running = fixture.start_author(1, author.clone());
    fixture.claim("a", "class");
    fixture.until("the first call", || author.calls().len() == 3).await;
    fixture.delete(CLAIMS, "a");
    // No attempt was begun, so there is nothing to clean up.
    until_calls(&fixture, &author, &["prepare", "provision 1", "end 1"]).await;

    let author = author.fails("provision", || ProvisionError::retry("the answer is lost"));
    (0..100).for_each(|_| drop(author.clone().fails("provision", no_change)));
    fixture.claim("b", "class");
    fixture.until("more calls", || author.calls().len() > 5).await;
    fixture.delete(CLAIMS, "b");
    fixture.until("the end", || author.calls().last().is_some_and(|call| call == "end 2")).await;
    assert_eq!(author.calls().iter().filter(|call| *call == "clean_up 2").count(), 1);
}

// Rules: G69.
#[tokio::test(start_paused = true)]
async fn attempt_ends_only_after_end_attempt_succeeds() {
    let fixture = fixture();
    let lost = || ProvisionError::retry("the source cannot be released");
    let author = (0..3).fold(Author::default(), |author, _| author.fails("end", lost));
    let first = fixture.start_author(1, author.clone());
    let name = fixture.claim("a", "class");
    fixture.until("bound", || fixture.is_bound("a")).await;

    fixture.until("failures", || author.calls().len() == 4).await;
    first.abort();
    assert_eq!(fixture.entries(), [name]);
    assert!(fixture.events("a").iter().any(|text| text.contains("the source cannot be released")));
    let _second = fixture.start_author(2, author.clone());
    let calls = ["prepare", "provision 1", "end 1", "end 1", "take_over 1", "end 1", "end 1"];
    until_calls(&fixture, &author, &calls).await;
    // An attempt that leaves nothing ends, and `prepare` is called again for the next one.
    let author = author.fails("provision", || ProvisionError::nothing_left("the pool is full"));
    fixture.claim_with("b", "class", json!({}));
    fixture.until("bound", || fixture.is_bound("b")).await;
    fixture.until("the end", || author.calls().len() == 13).await;
    assert_eq!(author.calls()[7..], ["prepare", "provision 2", "end 2", "prepare", "provision 3", "end 3"]);
}

// Rules: G72.
#[tokio::test(start_paused = true)]
async fn take_over_receives_all_attempts_before_any_continues() {
    let fixture = fixture();
    let author = (0..4).fold(Author::default(), |author, _| {
        author.fails("provision", || ProvisionError::in_progress("the copy is at 5 %"))
    });
    let first = fixture.start_author(1, author.clone());
    for claim in ["a", "b"] {
        fixture.claim(claim, "class");
    }
    fixture.until("both have begun", || fixture.entries().len() == 2 && author.calls().len() >= 4).await;
    first.abort();
    let before = author.calls().len();
    let _second = fixture.start_author(2, author.clone());
    fixture.until("bound", || fixture.is_bound("a") && fixture.is_bound("b")).await;
    let mut calls = author.calls().split_off(before);
    calls[..2].sort();
    assert_eq!(calls[..2], ["take_over 1", "take_over 2"]);
    assert_eq!(calls.iter().filter(|call| call.starts_with("take_over")).count(), 2, "{calls:?}");
}

// Rules: G73.
#[tokio::test(start_paused = true)]
async fn one_process_leads_and_a_panic_while_leading_blocks_no_claim() {
    let (fixture, author) = (fixture(), Author::default());
    let leaders = || author.0.lock().unwrap().leaders;
    let first = fixture.start_author(1, author.clone());
    fixture.until("a leader", || leaders() == 1).await;
    let _second = fixture.start_author(2, author.clone());
    sleep(Duration::from_secs(5)).await;
    assert_eq!(leaders(), 1);
    first.abort();
    fixture.until("no leader", || leaders() == 0).await;
    fixture.until("the next leader", || leaders() == 1).await;
    // `while_leading` panics in the meantime.
    sleep(Duration::from_secs(60)).await;
    assert_eq!(leaders(), 0);
    fixture.claim("a", "class");
    fixture.until("bound", || fixture.is_bound("a")).await;
}
