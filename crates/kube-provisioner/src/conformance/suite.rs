//! The parts that both kits share: a table of rules, the selection among them, and the run that reports on each.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Instant;

use futures::FutureExt;
use futures::future::LocalBoxFuture;

use super::report::{Report, RuleResult};
use super::tempo::Tempo;
use super::verdict::{CheckResult, RuleVerdict, Violation};

pub(super) struct Rule<S: 'static> {
    /// Its permanent name: tests select rules by it, and it is a section of `docs/book/pages/reference/conformance.md`.
    pub(super) id: &'static str,
    description: &'static str,
    check: Check<S>,
}

type Check<S> = for<'a> fn(&'a S) -> LocalBoxFuture<'a, CheckResult>;

/// The table of these rules: the id of each, the `async fn` that checks it, and its text.
macro_rules! rules {
    ($($id:literal ($check:path): $description:literal;)*) => {
        &[$($crate::conformance::suite::Rule::new($id, $description, |subject| Box::pin($check(subject)))),*]
    };
}
pub(super) use rules;

/// The methods of both kits that select the rules and check them.
macro_rules! run_methods {
    () => {
        /// Selects the storms. A storm that fails prints its seed, and `seeds([seed])` repeats it. Without this call
        /// the seeds are 0 to 7.
        pub fn seeds(mut self, seeds: impl IntoIterator<Item = u64>) -> Self {
            self.subject.seeds = seeds.into_iter().collect();
            self
        }

        /// Uses real time, for a backend that needs it, such as a server on a network. Without this call the clock is
        /// tokio's paused clock: hours pass in a moment, but the check only waits for files and similar work
        /// (`spawn_blocking`, `tokio::fs`).
        pub fn real_time(mut self) -> Self {
            self.subject.tempo = Tempo::Real;
            self
        }

        /// Returns the names of all rules. To check a slow backend faster, run the rules in parallel, each with
        /// [`only`](Self::only) and its own backend.
        pub fn rules() -> impl Iterator<Item = &'static str> {
            RULES.iter().map(|rule| rule.id)
        }

        /// Checks only the rule of this name. Can be called repeatedly to add others.
        ///
        /// # Panics
        /// If there is no such rule.
        pub fn only(mut self, rule: &str) -> Self {
            self.rules.choose(rule);
            self
        }

        /// Checks every rule, prints a line for each, and panics if one is broken.
        ///
        /// # Panics
        /// If a rule is broken, or if called inside a tokio runtime, where [`run`](Self::run) must be used instead.
        pub fn check(self) {
            self.rules.check(self.subject.name, self.subject.tempo, self.subject);
        }

        /// Checks every rule in the caller's runtime: one thread with a paused clock, or any runtime with
        /// [`real_time`](Self::real_time).
        pub async fn run(self) -> Report {
            self.rules.judge(self.subject.name, self.subject, |_| {}).await
        }
    };
}
pub(super) use run_methods;

/// The rules to check: a whole table, or a selection.
pub(super) struct Rules<S: 'static> {
    /// Simpler rules come first: a bug that breaks one of them usually breaks later ones as well.
    all: &'static [Rule<S>],
    pub(super) only: Vec<String>,
}

impl<S> Rules<S> {
    pub(super) fn new(all: &'static [Rule<S>]) -> Self {
        Self { all, only: Vec::new() }
    }

    /// Selects a rule. Panics if there is no such rule.
    pub(super) fn choose(&mut self, id: &str) {
        let ids: Vec<&str> = self.all.iter().map(|rule| rule.id).collect();
        assert!(ids.contains(&id), "there is no rule {id:?}; there are {}", ids.join(", "));
        self.only.push(id.to_owned());
    }

    /// Checks every rule in a new runtime, prints a line for each, and panics if one is broken.
    #[expect(clippy::print_stdout, reason = "a test shows what it did, and the test runner catches only this")]
    pub(super) fn check(self, name: &'static str, tempo: Tempo, subject: S) {
        let runtime = tempo.runtime();
        println!("{name}");
        let report = runtime.block_on(self.judge(name, subject, |result| println!("{result}")));
        // A killed process may have left a running thread, which must not outlive the provisioner's directory.
        drop(runtime);
        assert!(report.is_kept(), "{}", report.broken_text());
    }

    pub(super) async fn judge(self, name: &'static str, subject: S, mut each: impl FnMut(&RuleResult)) -> Report {
        let mut results = Vec::new();
        for (at, rule) in self.all.iter().enumerate() {
            if !self.only.is_empty() && !self.only.iter().any(|only| only == rule.id) {
                continue;
            }
            let result = rule.judge(&subject).await;
            each(&result);
            let is_hopeless = at == 0 && matches!(result.verdict(), RuleVerdict::Broken(_));
            results.push(result);
            if is_hopeless {
                // Every other rule depends on the first one.
                break;
            }
        }
        Report::new(name, results)
    }
}

impl<S> Rule<S> {
    pub(super) const fn new(id: &'static str, description: &'static str, check: Check<S>) -> Self {
        Self { id, description, check }
    }

    async fn judge(&self, subject: &S) -> RuleResult {
        let start = Instant::now();
        let verdict = match AssertUnwindSafe((self.check)(subject)).catch_unwind().await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(Violation(seen))) => RuleVerdict::Broken(seen),
            Err(panic) => RuleVerdict::Broken(format!("panicked: {}", panic_text(&*panic))),
        };
        RuleResult::new(self.id, self.description, verdict, start.elapsed())
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::super::{buckets, rules};

    #[test]
    fn the_page_has_a_section_for_each_rule() {
        let page = std::fs::read_to_string(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/book/pages/reference/conformance.md"
        ))
        .unwrap();
        let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        let volumes = rules::RULES.iter().map(|rule| rule.id);
        let ids: Vec<&str> = volumes.chain(buckets::RULES.iter().map(|rule| rule.id)).collect();
        assert_eq!(sections, ids);
    }
}
