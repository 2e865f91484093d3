//! The replicas' root directory, its surroundings, and a thread that observes the creation and removal of every
//! directory.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use testbed::control_plane::Signal;
use testbed::process::ProcessId;
use tokio::sync::oneshot;

use super::log::Log;

/// A file in each claim's directory that contains the claim's UID.
const MARKER: &str = "marker";
/// The directory to which the hostPath provisioner moves what it removes.
const REMOVING: &str = ".kube-provisioner/deleting";

pub(super) struct Disk {
    root: PathBuf,
    /// Everything next to the root as it was at the start.
    around: BTreeMap<PathBuf, String>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    made: HashMap<String, usize>,
    trap: Option<Trap>,
}

/// A moment in the life cycle of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// Created, while its volume is not saved yet.
    Created,
    /// Its removal has begun.
    Removing,
    /// Removed, while the PersistentVolume still exists.
    Removed,
}

/// Sends a signal when any directory reaches a moment of its life cycle.
struct Trap {
    moment: Moment,
    /// Number of earlier moments to skip.
    skip: usize,
    signal: Signal,
    targets: Vec<ProcessId>,
    sprung: oneshot::Sender<String>,
}

impl Trap {
    fn springs_at(&mut self, moment: Moment) -> bool {
        let passes = self.moment == moment && self.skip > 0;
        self.skip -= usize::from(passes);
        self.moment == moment && !passes
    }
}

impl Disk {
    pub(super) fn create(dir: &Path, log: Log) -> anyhow::Result<Self> {
        let root = dir.join("root");
        // The provisioner would create it at startup, and must not find a root that others can write to.
        fs::create_dir_all(root.join(REMOVING))?;
        for directory in [root.clone(), root.join(".kube-provisioner"), root.join(REMOVING)] {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
        }
        for beside in ["outside/deep", "root-neighbour"] {
            fs::create_dir_all(dir.join(beside))?;
            fs::write(dir.join(beside).join("precious"), beside)?;
        }
        let around = around(&root)?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        watch(&root, seen.clone(), log)?;
        Ok(Self { root, around, seen })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Sends `signal` to the targets at this moment, after skipping earlier ones. Returns a receiver for the
    /// directory's name.
    pub(super) fn set_trap(
        &self,
        moment: Moment,
        skip: usize,
        signal: Signal,
        targets: Vec<ProcessId>,
    ) -> oneshot::Receiver<String> {
        let (sprung, answer) = oneshot::channel();
        self.seen().trap = Some(Trap { moment, skip, signal, targets, sprung });
        answer
    }

    pub(super) fn disarm(&self) {
        self.seen().trap = None;
    }

    /// Number of times that each directory was created.
    pub(super) fn made(&self) -> HashMap<String, usize> {
        self.seen().made.clone()
    }

    /// Writes the marker of a claim, and files that must not mislead a removal.
    pub(super) fn mark(&self, volume: &str, uid: &str) -> std::io::Result<()> {
        let dir = self.root.join(volume);
        fs::write(dir.join(MARKER), uid)?;
        fs::create_dir_all(dir.join("a/b"))?;
        fs::write(dir.join("a/b/file"), uid)?;
        let way_out = dir.join("way-out");
        if !way_out.is_symlink() {
            std::os::unix::fs::symlink("../../outside", way_out)?;
        }
        Ok(())
    }

    /// Checks that a claim's data exists, or returns the problem.
    pub(super) fn check_marker(&self, volume: &str, uid: &str) -> Result<(), String> {
        let path = self.root.join(volume).join(MARKER);
        match fs::read_to_string(&path) {
            Ok(text) if text == uid => Ok(()),
            Ok(text) => Err(format!("{} says {text:?} instead of {uid}", path.display())),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    pub(super) fn names(&self) -> anyhow::Result<Vec<String>> {
        let entries = fs::read_dir(&self.root)?.chain(fs::read_dir(self.root.join(REMOVING))?);
        let name = |entry: std::io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
        let names: anyhow::Result<Vec<String>> = entries.map(name).collect();
        Ok(names?.into_iter().filter(|name| !name.starts_with('.')).collect())
    }

    /// The changes next to the root.
    pub(super) fn changes_around(&self) -> anyhow::Result<Vec<String>> {
        let now = around(&self.root)?;
        let all: std::collections::BTreeSet<_> = self.around.keys().chain(now.keys()).collect();
        let changed = all.into_iter().filter(|path| self.around.get(*path) != now.get(*path));
        Ok(changed.map(|path| format!("{} is no longer as it was", path.display())).collect())
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything next to `root`, with attributes that would show a change.
fn around(root: &Path) -> anyhow::Result<BTreeMap<PathBuf, String>> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.parent().context("the root has no parent")?.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let stat = path.symlink_metadata()?;
            // The root's times are left out, because they change with its content.
            if path == root {
                found.insert(path, format!("{:o} {}", stat.mode(), stat.uid()));
                continue;
            }
            let time = (stat.mtime(), stat.mtime_nsec(), stat.ctime(), stat.ctime_nsec());
            let text = if stat.is_file() { fs::read_to_string(&path)? } else { String::new() };
            if stat.is_dir() {
                open.push(path.clone());
            }
            found.insert(path, format!("{:o} {} {time:?} {text}", stat.mode(), stat.uid()));
        }
    }
    Ok(found)
}

/// A separate thread is needed to act fast enough between two steps of a replica.
fn watch(root: &Path, seen: Arc<Mutex<Seen>>, log: Log) -> anyhow::Result<()> {
    let events = inotify::init(CreateFlags::CLOEXEC)?;
    let wanted = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::ONLYDIR;
    inotify::add_watch(&events, root, wanted)?;
    let removing = inotify::add_watch(&events, root.join(REMOVING), wanted)?;
    std::thread::spawn(move || {
        let mut buffer = vec![MaybeUninit::uninit(); 64 * 1024];
        let mut reader = Reader::new(&events, &mut buffer);
        while let Ok(event) = reader.next() {
            let name = event.file_name().map(CStr::to_string_lossy).unwrap_or_default();
            let Some(moment) = moment(event.events(), &name, event.wd() == removing) else { continue };
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(trap) = seen.trap.take_if(|trap| trap.springs_at(moment)) {
                for target in &trap.targets {
                    target.signal(trap.signal);
                }
                // The receiver may no longer exist.
                let _ = trap.sprung.send(name.clone().into_owned());
            }
            if moment == Moment::Created {
                *seen.made.entry(name.clone().into_owned()).or_insert(0) += 1;
            }
            log.write_line(format_args!("disk: {name} {moment:?}"));
        }
    });
    Ok(())
}

fn moment(events: ReadFlags, name: &str, removing: bool) -> Option<Moment> {
    match removing {
        true if events.contains(ReadFlags::CREATE) => Some(Moment::Removing),
        true if events.contains(ReadFlags::DELETE) => Some(Moment::Removed),
        false if events.contains(ReadFlags::CREATE) && !name.starts_with('.') => Some(Moment::Created),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_system_events_mark_creation_and_removal() {
        let cases = [
            (ReadFlags::CREATE, "pvc-1", false, Some(Moment::Created)),
            (ReadFlags::CREATE, "pvc-1", true, Some(Moment::Removing)),
            (ReadFlags::DELETE, "pvc-1", true, Some(Moment::Removed)),
            (ReadFlags::CREATE, ".kube-provisioner", false, None),
            (ReadFlags::DELETE, "pvc-1", false, None),
        ];
        for (events, name, removing, expected) in cases {
            assert_eq!(moment(events, name, removing), expected, "{name}");
        }
    }

    #[test]
    fn trap_skips_earlier_moments() {
        let (sprung, _answer) = oneshot::channel();
        let (moment, signal) = (Moment::Created, Signal::KILL);
        let mut trap = Trap { moment, skip: 1, signal, targets: Vec::new(), sprung };
        let springs = [Moment::Removed, Moment::Created, Moment::Created].map(|moment| trap.springs_at(moment));
        assert_eq!(springs, [false, false, true]);
    }
}
