//! Named readiness checks of this process.

use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;

use super::probe::Probe;

/// Named checks; clones share the list. Without checks, the process is ready.
#[derive(Clone, Default)]
pub struct Checks {
    checks: Arc<Mutex<Vec<Check>>>,
    probes: Arc<Mutex<Vec<Probe>>>,
}

impl Checks {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check: a closure that returns at once. Its error explains the problem to an administrator. A non-empty
    /// success text informs administrators about a problem that does not affect readiness.
    pub fn add(&self, name: impl Into<String>, check: impl Fn() -> Result<String, String> + Send + Sync + 'static) {
        crate::sync::lock(&self.checks).push(Check { name: name.into(), ask: Arc::new(check) });
    }

    /// Adds a check that takes some time: it runs only when a report is requested, has a time limit, and its answer is
    /// cached for a few seconds. A panic is a failure.
    pub fn add_probe(
        &self,
        name: impl Into<String>,
        ask: impl Fn() -> BoxFuture<'static, Result<String, String>> + Send + Sync + 'static,
    ) {
        crate::sync::lock(&self.probes).push(Probe::new(name.into(), Arc::new(ask)));
    }

    /// Returns true if all checks pass, and one line about each.
    pub(super) async fn report(&self) -> (bool, String) {
        // Run the checks without the lock: a check may use this list.
        let checks = crate::sync::lock(&self.checks).clone();
        let ask = |check: Check| {
            let result = catch_unwind(AssertUnwindSafe(|| (check.ask)()));
            (check.name, result.unwrap_or_else(|_| Err("the check itself failed".to_owned())))
        };
        let mut results: Vec<_> = checks.into_iter().map(ask).collect();
        let probes = crate::sync::lock(&self.probes).clone();
        for probe in probes {
            let answer = probe.answer().await;
            results.push((probe.name, answer));
        }
        let ready = results.iter().all(|(_, result)| result.is_ok());
        let mut text = String::new();
        for (name, result) in results {
            // Writing to a String cannot fail.
            let _ = match result {
                Ok(note) if note.is_empty() => writeln!(text, "[+] {name}: ok"),
                Ok(note) => writeln!(text, "[+] {name}: {note}"),
                Err(reason) => writeln!(text, "[-] {name}: {reason}"),
            };
        }
        text.push_str(if ready { "ready\n" } else { "not ready\n" });
        (ready, text)
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = crate::sync::lock(&self.checks).iter().map(|check| check.name.clone()).collect::<Vec<_>>();
        f.debug_struct("Checks").field("names", &names).finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Check {
    name: String,
    ask: Arc<dyn Fn() -> Result<String, String> + Send + Sync>,
}
