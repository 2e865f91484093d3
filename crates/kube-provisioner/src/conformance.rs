//! Checks a provisioner against its contract, on its own backend and a simulated cluster.
//!
//! ```
//! # use kube_provisioner::*;
//! # struct Directories(std::path::PathBuf);
//! # impl Provisioner for Directories {
//! #     type Parameters = ();
//! #     async fn provision(&self, request: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
//! #         let path = self.0.join(&request.name);
//! #         std::fs::create_dir_all(&path)?;
//! #         Ok(Volume::host_path(path.to_string_lossy()))
//! #     }
//! #     async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
//! #         match std::fs::remove_dir_all(self.0.join(&volume.name)) {
//! #             Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
//! #             _ => Ok(()),
//! #         }
//! #     }
//! # }
//! # impl Hooks for Directories {}
//! use kube_provisioner::conformance::Conformance;
//!
//! # fn list(root: &std::path::Path) -> Vec<String> {
//! #     std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path().display().to_string()).collect()
//! # }
//! let folder = tempfile::tempdir().unwrap();
//! let (root, listed) = (folder.path().to_owned(), folder.path().to_owned());
//! Conformance::new(move || Directories(root.clone()), async move || list(&listed)).check();
//! ```
//!
//! Each rule has a name and a section in `docs/book/pages/reference/conformance.md`: its text, what a broken
//! rule does in production, and how to fix it. Some rules call the provisioner alone. The others run the whole
//! [`Controller`](crate::Controller) on a simulated cluster ([`kube_sim`]): they crash it, run two copies, and inject faults.

mod assets;
mod buckets;
mod calls;
mod cancellation;
mod fixture;
mod names;
mod objects;
mod parameters;
mod report;
mod rules;
mod runs;
mod spy;
mod storm;
mod subject;
mod suite;
mod tempo;
mod unfinished;
mod verdict;

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use futures::FutureExt;

use crate::hooks::Hooks;

pub use self::buckets::{BucketClaim, BucketConformance};
pub use self::report::{Report, RuleResult};
use self::rules::RULES;
use self::subject::Subject;
use self::suite::Rules;
use self::tempo::Tempo;
pub use self::verdict::Judgement;

/// A check of a provisioner. [The module](self) has an example with the methods that every provisioner needs; the others
/// describe what a backend needs beyond them:
///
/// ```no_run
/// # use kube_provisioner::{Hooks, Provisioner};
/// # use kube_provisioner::conformance::Conformance;
/// # fn check<P: Hooks>(new: impl Fn() -> P + 'static, exports: impl AsyncFn() -> Vec<String> + 'static) {
/// Conformance::new(new, exports)
///     .parameters([("server", "nfs.example.com")]) // every class needs it
///     .refuses([("server", "nfs example com")]) // no class may have it
///     .node("node-1")
///     .real_time() // the backend is behind a network
///     .seeds([5]) // that failed
///     .check();
/// # }
/// ```
#[must_use = "nothing is checked before `check` or `run`"]
pub struct Conformance {
    subject: Subject,
    rules: Rules<Subject>,
}

impl Conformance {
    /// Checks what `start` makes.
    ///
    /// * `start` makes the provisioner as a process that starts has it. It is called many times, always for the same
    ///   backend, and what it made before may be gone in the middle of whatever it did.
    /// * `assets` names what the backend holds now, one text per asset: directories, buckets, exports.
    ///
    /// The backend should be empty, and no other program should use it.
    pub fn new<P, A>(start: impl Fn() -> P + 'static, assets: impl AsyncFn() -> A + 'static) -> Self
    where
        P: Hooks,
        A: IntoIterator<Item: ToString>,
    {
        Self::with_client(move |_| start(), assets)
    }

    /// The same for a provisioner that has a client of its own: `start` gets one of the kit's cluster. It meets the faults
    /// that the controller's meets.
    pub fn with_client<P, A>(start: impl Fn(kube::Client) -> P + 'static, assets: impl AsyncFn() -> A + 'static) -> Self
    where
        P: Hooks,
        A: IntoIterator<Item: ToString>,
    {
        Self { subject: Subject::new(start, assets), rules: Rules::new(RULES) }
    }

    /// Objects that are in the kit's cluster from the beginning: the Secrets that the class names, the Node of
    /// [`node`](Self::node) with its labels, and what the provisioner's own client reads.
    pub fn objects(mut self, objects: impl IntoIterator<Item = serde_json::Value>) -> Self {
        self.subject.objects.0.extend(objects);
        self
    }

    /// The parameters of a good class. Without this call a class has none.
    pub fn parameters<K: Into<String>, V: Into<String>>(mut self, good: impl IntoIterator<Item = (K, V)>) -> Self {
        self.subject.parameters = map(good);
        self
    }

    /// Parameters that must be refused, beside unknown ones: malformed ones, or some that do not go together. May be
    /// called again for others.
    pub fn refuses<K: Into<String>, V: Into<String>>(mut self, bad: impl IntoIterator<Item = (K, V)>) -> Self {
        self.subject.refused.push(map(bad));
        self
    }

    /// The parameters of a class whose volumes are named after what two claims may have in common, such as the claim's name or
    /// an annotation. The kit's claims then have one name, and different uids.
    pub fn shares_names<K: Into<String>, V: Into<String>>(mut self, good: impl IntoIterator<Item = (K, V)>) -> Self {
        self.subject.shared_names = Some(map(good));
        self
    }

    /// Makes an asset as a person does, without the provisioner, where it would make one for the volume of the first name and
    /// the claim of the second. Returns it as the backend's list has it, or `None` if there is one already.
    pub fn made_by_hand(mut self, make: impl AsyncFn(String, String) -> Option<String> + 'static) -> Self {
        let make = Rc::new(make);
        self.subject.by_hand = Some(Box::new(move |volume, claim| {
            let make = Rc::clone(&make);
            async move { make(volume, claim).await }.boxed_local()
        }));
        self
    }

    /// Claims are for this node, as the scheduler chooses one for classes that wait for their first consumer.
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.subject.node = Some(name.into());
        self
    }

    /// Which storms there are. A storm that fails names its seed, and `seeds([seed])` repeats it. Without this call
    /// there are those of 0 to 7.
    pub fn seeds(mut self, seeds: impl IntoIterator<Item = u64>) -> Self {
        self.subject.seeds = seeds.into_iter().collect();
        self
    }

    /// For a backend that needs real time, such as a server behind a network. Without this call time is tokio's paused
    /// clock: hours pass in a moment, but only files and the like (`spawn_blocking`, `tokio::fs`) are waited for.
    pub fn real_time(mut self) -> Self {
        self.subject.tempo = Tempo::Real;
        self
    }

    /// The names of all rules. A slow backend is checked sooner with one run per rule, each [`only`](Self::only) for its
    /// rule and with a backend of its own, side by side.
    pub fn rules() -> impl Iterator<Item = &'static str> {
        RULES.iter().map(|rule| rule.id)
    }

    /// Only the rule of this name. May be called again for others.
    ///
    /// # Panics
    /// When there is no such rule.
    pub fn only(mut self, rule: &str) -> Self {
        self.rules.choose(rule);
        self
    }

    /// Checks every rule, prints a line for each, and panics when one is broken.
    ///
    /// # Panics
    /// When a rule is broken, and inside of a tokio runtime: there is [`run`](Self::run) for that.
    pub fn check(self) {
        self.rules.check(self.subject.name, self.subject.tempo, self.subject);
    }

    /// The same in the caller's runtime: one thread with a paused clock, or any with [`real_time`](Self::real_time).
    pub async fn run(self) -> Report {
        self.rules.judge(self.subject.name, self.subject, |_| {}).await
    }
}

impl fmt::Debug for Conformance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conformance")
            .field("of", &self.subject.name)
            .field("only", &self.rules.only)
            .finish_non_exhaustive()
    }
}

fn map<K: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (K, V)>) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
}
