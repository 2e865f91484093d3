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
//! Each rule has a name and a section in `docs/book/pages/reference/conformance.md`: its text, the consequences of
//! breaking it in production, and how to fix it. Some rules only call the provisioner. The others run the whole
//! [`Controller`](crate::Controller) on a simulated cluster ([`kube_sim`]): they crash it, run two copies, and inject
//! faults.

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
use self::suite::{Rules, run_methods};
use self::tempo::Tempo;
pub use self::verdict::RuleVerdict;

/// A check of a provisioner. [The module](self) has an example with the methods that every provisioner needs; the other
/// methods describe special needs of a backend:
///
/// ```no_run
/// # use kube_provisioner::{Hooks, Provisioner};
/// # use kube_provisioner::conformance::Conformance;
/// # fn check<P: Hooks>(new: impl Fn() -> P + 'static, exports: impl AsyncFn() -> Vec<String> + 'static) {
/// Conformance::new(new, exports)
///     .parameters([("server", "nfs.example.com")]) // required in every class
///     .refuses([("server", "nfs example com")]) // rejected in every class
///     .node("node-1")
///     .real_time() // the backend is behind a network
///     .seeds([5]) // the seed of a storm that failed
///     .check();
/// # }
/// ```
#[must_use = "nothing is checked before `check` or `run`"]
pub struct Conformance {
    subject: Subject,
    rules: Rules<Subject>,
}

impl Conformance {
    /// Creates a check of the provisioner that `start` returns.
    ///
    /// * `start` creates the provisioner in the state of a newly started process. It is called many times, always for
    ///   the same backend, and earlier provisioners may have been dropped in the middle of any work.
    /// * `assets` lists the current content of the backend, one string per asset: directories, buckets, exports.
    ///
    /// The backend should be empty and not used by any other program.
    pub fn new<P, A>(start: impl Fn() -> P + 'static, assets: impl AsyncFn() -> A + 'static) -> Self
    where
        P: Hooks,
        A: IntoIterator<Item: ToString>,
    {
        Self::with_client(move |_| start(), assets)
    }

    /// Creates a check of a provisioner with its own client: `start` receives a client of the kit's cluster. It
    /// experiences the same faults as the controller's client.
    pub fn with_client<P, A>(start: impl Fn(kube::Client) -> P + 'static, assets: impl AsyncFn() -> A + 'static) -> Self
    where
        P: Hooks,
        A: IntoIterator<Item: ToString>,
    {
        Self { subject: Subject::new(start, assets), rules: Rules::new(RULES) }
    }

    /// Adds objects that exist in the kit's cluster from the beginning: the Secrets that the class names, the Node of
    /// [`node`](Self::node) with its labels, and other objects that the provisioner's client reads.
    pub fn objects(mut self, objects: impl IntoIterator<Item = serde_json::Value>) -> Self {
        self.subject.objects.0.extend(objects);
        self
    }

    /// Sets the parameters of a valid class. Without this call the class has none.
    pub fn parameters<K: Into<String>, V: Into<String>>(mut self, good: impl IntoIterator<Item = (K, V)>) -> Self {
        self.subject.parameters = map(good);
        self
    }

    /// Adds parameters that must be rejected, in addition to unknown ones: malformed values, or invalid combinations.
    /// Can be called repeatedly.
    pub fn refuses<K: Into<String>, V: Into<String>>(mut self, bad: impl IntoIterator<Item = (K, V)>) -> Self {
        self.subject.refused.push(map(bad));
        self
    }

    /// Sets the parameters of a class whose volumes are named after something that two claims can share, such as the
    /// claim's name or an annotation. The kit's claims then have one name, and different uids.
    pub fn shares_names<K: Into<String>, V: Into<String>>(mut self, good: impl IntoIterator<Item = (K, V)>) -> Self {
        self.subject.shared_names = Some(map(good));
        self
    }

    /// Sets a function that creates an asset like an administrator, without the provisioner, at the location of the
    /// asset for the volume of the first name and the claim of the second. It returns the asset as `assets` lists it,
    /// or `None` if it already exists.
    pub fn manually_created(mut self, make: impl AsyncFn(String, String) -> Option<String> + 'static) -> Self {
        let make = Rc::new(make);
        self.subject.manually_created = Some(Box::new(move |volume, claim| {
            let make = Rc::clone(&make);
            async move { make(volume, claim).await }.boxed_local()
        }));
        self
    }

    /// Selects this node for claims, as the scheduler does for classes that wait for their first consumer.
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.subject.node = Some(name.into());
        self
    }

    run_methods!();
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
