//! Operations on one root, in threads: a disk or a server that hangs blocks only a few of them, and no other root.

mod deletion;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use kube_provisioner::kube::Client;
use kube_provisioner::{ExpandError, FencingToken, ProvisionError, StartError};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::timeout;

use crate::capacity::Reserve;
use crate::deletion::Size;
use crate::error::DirectoryError;
use crate::mark::Owner;
use crate::path::VolumePath;
use crate::root::Root;
use crate::state::State;
use crate::volumes::{NewVolume, Permissions};

/// Maximum number of threads that work on one root. A call that never returns keeps its thread.
const THREADS: usize = 16;
/// Maximum number of threads that remove trees, which may take hours.
pub(crate) const REMOVALS: usize = THREADS / 2;
/// Time limit for checking the root's marker, which takes milliseconds.
const LIMIT: Duration = Duration::from_secs(10);

/// A root, and the threads that work on it.
#[derive(Clone)]
pub struct Worker {
    root: Arc<Root>,
    threads: Arc<Semaphore>,
    /// A removal also needs one of these permits.
    removals: Arc<Semaphore>,
    /// An additional thread, to check whether the root responds while all others are busy.
    probe_thread: Arc<Semaphore>,
    /// Held by the deletion that lists all volumes of the cluster.
    lists: Arc<Semaphore>,
    turn: Duration,
    /// The cluster in which the provisioner runs, once known.
    pub(crate) cluster: Arc<OnceLock<String>>,
    /// A client of that cluster, once known.
    pub(crate) client: Arc<OnceLock<Client>>,
    pub(crate) created: Arc<Created>,
    /// True after a removal failed that no deletion will request again.
    pub(crate) is_unfinished: Arc<AtomicBool>,
}

/// Volumes created by this process whose marks do not contain their UIDs yet.
#[derive(Default)]
pub(crate) struct Created {
    paths: Mutex<BTreeMap<String, VolumePath>>,
    pub(crate) notify: Notify,
}

impl Created {
    fn add(&self, volume: String, path: VolumePath) {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner).insert(volume, path);
        self.notify.notify_one();
    }

    fn create(
        &self,
        root: &Root,
        state: &State,
        volume: &NewVolume<'_>,
        token: &FencingToken,
    ) -> Result<PathBuf, ProvisionError> {
        match root.create_within(state, volume, token) {
            // The directory does not belong to this volume, so none of its attempts has left anything there.
            Err(error @ (DirectoryError::Taken { .. } | DirectoryError::NotOurs { .. })) => {
                Err(ProvisionError::nothing_left(error.for_claim_of(volume.owner)))
            }
            made => {
                let made = made?;
                self.add(volume.owner.volume.clone(), volume.path.clone());
                Ok(made)
            }
        }
    }

    pub(crate) fn take(&self) -> BTreeMap<String, VolumePath> {
        std::mem::take(&mut self.paths.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The reason why a volume was not created.
#[derive(Debug)]
pub struct NotCreated {
    /// The error.
    pub error: ProvisionError,
    /// False if the call has changed nothing.
    pub has_begun: bool,
}

impl From<DirectoryError> for NotCreated {
    fn from(error: DirectoryError) -> Self {
        Self { error: error.into(), has_begun: false }
    }
}

impl From<JoinError> for NotCreated {
    fn from(error: JoinError) -> Self {
        Self { error: error.into(), has_begun: true }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Worker {
    /// Creates a worker without threads.
    pub fn new(root: Root) -> Self {
        Self {
            root: Arc::new(root),
            threads: Arc::new(Semaphore::new(THREADS)),
            removals: Arc::new(Semaphore::new(REMOVALS)),
            probe_thread: Arc::new(Semaphore::new(1)),
            lists: Arc::new(Semaphore::new(1)),
            turn: deletion::TURN,
            cluster: Arc::default(),
            client: Arc::default(),
            created: Arc::default(),
            is_unfinished: Arc::default(),
        }
    }

    /// Returns the root, for operations that do not access the file system.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Runs an operation in a thread. It first checks the marker; if that does not finish, the operation is abandoned
    /// and never begins.
    ///
    /// # Errors
    /// Returns the operation's error, or that the root does not respond.
    pub async fn run<T, E>(&self, work: impl FnOnce(&Root) -> Result<T, E> + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DirectoryError> + From<JoinError> + Send + 'static,
    {
        self.run_after(Root::check_marker, |root, ()| work(root)).await
    }

    /// Same as [`run`](Self::run), but with another check, for example for a root that may have no marker yet. `work`
    /// receives the result of the check, such as the open root.
    pub(crate) async fn run_after<L, T, E>(
        &self,
        look: fn(&Root) -> Result<L, DirectoryError>,
        work: impl FnOnce(&Root, L) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        L: 'static,
        T: Send + 'static,
        E: From<DirectoryError> + From<JoinError> + Send + 'static,
    {
        let thread = self.thread::<E>().await?;
        self.attempt(thread, look, work).await
    }

    /// Waits for a free thread.
    async fn thread<E>(&self) -> Result<OwnedSemaphorePermit, E>
    where
        E: From<DirectoryError> + From<JoinError> + Send + 'static,
    {
        match timeout(LIMIT, self.threads.clone().acquire_owned()).await {
            Ok(Ok(thread)) => Ok(thread),
            _ => Err(self
                .check_responsive::<E>(Root::check)
                .await
                .map_or_else(|error| error, |()| self.occupied().into())),
        }
    }

    /// Checks that the root responds.
    async fn check_responsive<E>(&self, check: fn(&Root) -> Result<(), DirectoryError>) -> Result<(), E>
    where
        E: From<DirectoryError> + From<JoinError> + Send + 'static,
    {
        match timeout(LIMIT, self.probe_thread.clone().acquire_owned()).await {
            Ok(Ok(thread)) => self.attempt(thread, check, |_, ()| Ok(())).await,
            _ => Err(self.hangs().into()),
        }
    }

    fn hangs(&self) -> DirectoryError {
        DirectoryError::Hangs { path: self.root.path().to_owned(), threads: THREADS + 1 }
    }

    fn occupied(&self) -> DirectoryError {
        let removals = REMOVALS - self.removals.available_permits().min(REMOVALS);
        let others = (THREADS - removals).saturating_sub(self.threads.available_permits());
        DirectoryError::Occupied { path: self.root.path().to_owned(), removals, others }
    }

    async fn attempt<L, T, E>(
        &self,
        permit: OwnedSemaphorePermit,
        look: fn(&Root) -> Result<L, DirectoryError>,
        work: impl FnOnce(&Root, L) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        L: 'static,
        T: Send + 'static,
        E: From<DirectoryError> + From<JoinError> + Send + 'static,
    {
        let (root, decision) = (self.root.clone(), Decision::default());
        let (answers, answered) = oneshot::channel();
        let thread = spawn_blocking({
            let decision = decision.clone();
            move || {
                let _permit = permit;
                let looked = look(&root);
                let begins = decision.try_decide();
                let _ = answers.send(());
                if begins {
                    looked.map_err(E::from).and_then(|found| work(&root, found))
                } else {
                    looked.map_err(E::from).and(Err(DirectoryError::Fenced(String::new()).into()))
                }
            }
        });
        // Dropping this future also abandons work that has not begun.
        let abandon_on_drop = AbandonOnDrop(decision);
        if timeout(LIMIT, answered).await.is_err() && abandon_on_drop.0.try_decide() {
            return Err(self.hangs().into());
        }
        thread.await?
    }

    /// Creates the directory of a volume, see [`Root::create`]. `enforced` is the class's setting for its size, and
    /// `reserve` the space that the class keeps free.
    ///
    /// # Errors
    /// Same as [`Root::create`]; also fails if the root has no room, or cannot enforce sizes although the class
    /// requires it. If the directory belongs to another volume, this volume leaves nothing behind.
    pub async fn create(
        &self,
        path: VolumePath,
        owner: Owner,
        retain: bool,
        permissions: Permissions,
        (bytes, enforced, reserve): (u64, Option<bool>, Option<Reserve>),
        token: FencingToken,
    ) -> Result<(PathBuf, Size), NotCreated> {
        let created = self.created.clone();
        self.run_after(Root::enter, move |root, state| {
            let size = Size::of(bytes, enforced, root, &state)?;
            // A size that is not enforced may exceed the free space, unless the class reserves space.
            if size.limit.is_some() || reserve.is_some() {
                root.check_room(&state, &path, bytes, reserve.unwrap_or_default())?;
            }
            let volume = NewVolume { path: &path, owner: &owner, retain, permissions: &permissions, size: size.limit };
            match created.create(root, &state, &volume, &token) {
                Ok(path) => Ok((path, size)),
                Err(error) => Err(NotCreated { error, has_begun: true }),
            }
        })
        .await
    }

    /// Changes the size of a volume. Succeeds without a change if its size is not enforced.
    ///
    /// # Errors
    /// See [`Root::resize`].
    pub async fn resize(&self, path: VolumePath, owner: Owner, bytes: u64) -> Result<(), ExpandError> {
        self.run(move |root| Ok(root.resize(&path, &owner, bytes).map(drop)?)).await
    }

    /// Checks that volumes can be created and removed now.
    ///
    /// # Errors
    /// Returns the problem.
    pub async fn probe(&self) -> Result<(), StartError> {
        match self.client.get() {
            Some(_) => self.check_responsive(Root::check).await,
            // The provisioner marks a new root when it begins. Until then, for example while it cannot write its
            // journal, a missing marker does not mean that the wrong file system is mounted.
            None => self.check_responsive(Root::check_before_begin).await,
        }
    }

    /// Marks a new root.
    pub(crate) async fn put_marker(&self) -> Result<(), StartError> {
        self.run_after(Root::has_marker, |root, _| Ok(root.put_marker()?)).await
    }
}

/// The decision whether work begins or is abandoned, made by the first caller.
#[derive(Clone, Default)]
struct Decision(Arc<AtomicBool>);

impl Decision {
    fn try_decide(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }
}

/// Abandons the work of a thread, unless it has begun.
struct AbandonOnDrop(Decision);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.try_decide();
    }
}
