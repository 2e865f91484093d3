//! Volumes on a disk that loses power: `power_cut record MOUNT_POINT DEVICE`, and afterwards `power_cut check START LOG
//! KIND`.
//!
//! `record` creates and removes volumes on a dm-log-writes device, which logs every write and flush. `check` rebuilds
//! the image as it was after each flush, and after every few writes between two flushes: once with all earlier writes,
//! and once without some of the unflushed ones. `EVERY=1` uses all writes. It mounts each image, lets the provisioner
//! begin again, and panics at the first violation. The tests run both inside user-mode Linux.
#![allow(clippy::print_stdout, reason = "a program talks to its user")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use directory_volumes::{Claim, DirectoryError, Owner, Permissions, Root, VolumePath};
use kube_provisioner::FencingToken;
use rustix::mount::UnmountFlags;

const OPEN: Permissions = Permissions { mode: 0o777, uid: None, gid: None };
const SIZE: u64 = 4 << 20;
/// Number of writes between two cuts when there is no flush.
const EVERY: usize = 16;
/// The directory where `check` mounts the image.
const LEFT: &str = "/mnt/left";

/// The operations on the volumes. The log contains a mark for the beginning and the end of each operation.
const STEPS: [(Step, &str); 15] = [
    (Step::Make, "pvc-1"),
    (Step::Make, "shop/data"),
    (Step::Remove, "pvc-1"),
    (Step::Make, "pvc-2"),
    (Step::Trash, "pvc-2"),
    (Step::Remove, "shop/data"),
    (Step::Make, "pvc-3"),
    (Step::Make, "pvc-4"),
    (Step::Remove, "pvc-3"),
    (Step::Make, "pvc-5"),
    (Step::Make, "shop/more"),
    (Step::Make, "pvc-6"),
    (Step::Make, "pvc-7"),
    (Step::Make, "pvc-8"),
    (Step::Make, "pvc-9"),
];
/// Number of operations that run one after the other, before all others run concurrently.
const IN_ORDER: usize = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Make,
    Remove,
    Trash,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &*arguments.iter().map(String::as_str).collect::<Vec<_>>() {
        ["record", mount_point, device] => record(Path::new(mount_point), device),
        ["check", start, log, kind] => check(start, Path::new(log), kind),
        _ => panic!("power_cut record MOUNT_POINT DEVICE, or power_cut check START LOG KIND"),
    }
}

fn record(mount_point: &Path, device: &str) {
    let mark = |text: &str| run("dmsetup", &["message", device, "0", "mark", text]);
    let place = mount_point.join("volumes");
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).unwrap();
    let root = Root::open(&place).unwrap();
    root.put_marker().unwrap();
    File::open(mount_point).unwrap().sync_all().unwrap();
    mark("ready");
    let take = |number: usize| {
        let (step, path) = STEPS[number];
        mark(&format!("begin-{number}"));
        step.take(&root, path).unwrap();
        mark(&format!("done-{number}"));
    };
    for number in 0..IN_ORDER {
        take(number);
    }
    std::thread::scope(|scope| {
        for number in IN_ORDER..STEPS.len() {
            let take = &take;
            scope.spawn(move || take(number));
        }
    });
}

impl Step {
    fn take(self, root: &Root, path: &str) -> Result<(), DirectoryError> {
        let (at, owner, token) = (at(path), owner(path), FencingToken::unlimited());
        match self {
            Self::Make => {
                let size = root.why_unlimited()?.is_none().then_some(SIZE);
                let made = root.create(&at, &owner, false, &OPEN, size, &token)?;
                // Written by a pod, and never synced.
                fs::write(made.join("data"), path).unwrap();
                Ok(())
            }
            Self::Remove => root.remove(&at, &owner, &token),
            Self::Trash => root.move_to_trash(&at, &owner, None, serde_json::Value::Null, &token),
        }
    }
}

fn check(start: &str, log: &Path, kind: &str) {
    let entries = entries(log);
    fs::create_dir_all(LEFT).unwrap();
    let image = File::options().write(true).open(start).unwrap();
    let (mut begun, mut done, mut is_ready) = (BTreeSet::new(), BTreeSet::new(), false);
    // Writes since the last flush.
    let mut unflushed: Vec<&Entry> = Vec::new();
    let (mut cuts, mut chance) = (0, 1_u32);
    let every = std::env::var("EVERY").map_or(EVERY, |every| every.parse().unwrap());
    for (number, entry) in entries.iter().enumerate() {
        match &entry.mark {
            Some(mark) => {
                is_ready |= mark == "ready";
                begun.extend(mark.strip_prefix("begin-").map(|number| number.parse::<usize>().unwrap()));
                done.extend(mark.strip_prefix("done-").map(|number| number.parse::<usize>().unwrap()));
            }
            None if entry.flush => {
                unflushed.drain(..).for_each(|entry| entry.apply(&image));
                entry.apply(&image);
            }
            None => unflushed.push(entry),
        }
        if !is_ready || !entry.flush && entry.mark.is_none() && number % every != 0 {
            continue;
        }
        for without_some in [false, true] {
            if without_some && unflushed.len() < 2 {
                continue;
            }
            cuts += 1;
            let (ended, all) = (done.len(), begun.len());
            let cut = format!("{kind}, cut {cuts} (some writes lost: {without_some}) after {ended} of {all} steps");
            // Use a new file, because the loop device of the previous one may still exist.
            run("cp", &["--sparse=always", "--remove-destination", start, "/mnt/cut"]);
            let left = File::options().write(true).open("/mnt/cut").unwrap();
            for entry in &unflushed {
                // Pseudorandom numbers that are the same in each run.
                chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if !without_some || chance >> 31 == 0 {
                    entry.apply(&left);
                }
            }
            drop(left);
            mount("/mnt/cut");
            recover(&begun, &done, cuts % 2 == 0, &cut);
            // Unlike umount(8), which fails if the loop device detaches first.
            rustix::mount::unmount(LEFT, UnmountFlags::empty()).unwrap();
        }
    }
    assert_eq!((begun.len(), done.len()), (STEPS.len(), STEPS.len()), "the log is not complete");
    println!("{kind}: {cuts} cuts in {} writes and flushes", entries.len());
}

fn mount(image: &str) {
    run("mount", &["-o", "loop,prjquota", image, LEFT]);
}

/// Checks the state that the provisioner finds, lets it recover, and checks the result. With `give_up`, the claims of
/// unfinished attempts no longer exist.
fn recover(begun: &BTreeSet<usize>, done: &BTreeSet<usize>, give_up: bool, cut: &str) {
    let root = Root::open(&Path::new(LEFT).join("volumes")).unwrap();
    assert!(root.has_marker().unwrap(), "{cut}");
    let survey = root.survey().unwrap();
    assert!(survey.unmarked.is_empty(), "{cut}: directories without a mark: {:?}", survey.unmarked);
    // The state of the cluster, by path.
    let mut served = BTreeMap::new();
    for number in done {
        let (step, path) = STEPS[*number];
        served.insert(path, step);
    }
    let unfinished: Vec<(Step, &str)> = begun.difference(done).map(|number| STEPS[*number]).collect();
    // A mark is synced at the end of its attempt.
    let is_of_attempt = |error: &DirectoryError| match error {
        DirectoryError::Damaged { name, .. } => {
            unfinished.iter().any(|(step, path)| *step == Step::Make && name.strip_prefix("volumes/") == Some(*path))
        }
        _ => false,
    };
    assert!(survey.damaged.len() <= unfinished.len(), "{cut}: {:?}", survey.damaged);
    assert!(survey.damaged.iter().all(is_of_attempt), "{cut}: {:?}", survey.damaged);
    let is_served = |path: &str, step: Step| step == Step::Make && unfinished.iter().all(|(_, other)| *other != path);
    for (path, _) in served.iter().filter(|(path, step)| is_served(path, **step)) {
        let metadata = fs::metadata(root.path().join(path));
        let mode = metadata.unwrap_or_else(|error| panic!("{cut}: {path} is missing: {error}")).permissions().mode();
        assert_eq!(mode & 0o7777, 0o777, "{cut}: {path}");
        assert!(root.is_marked_for(&at(path), &owner(path)).unwrap(), "{cut}: {path} has no mark");
        if root.why_unlimited().unwrap().is_none() {
            let stat = rustix::fs::statvfs(root.path().join(path)).unwrap();
            assert_eq!(stat.f_blocks * stat.f_frsize, SIZE, "{cut}: {path}");
        }
    }
    root.finish_removals(&FencingToken::unlimited()).unwrap();
    for &(step, path) in &unfinished {
        match step {
            Step::Make if give_up => Step::Remove.take(&root, path).unwrap(),
            step => step.take(&root, path).unwrap_or_else(|error| panic!("{cut}: {step:?} {path} again: {error}")),
        }
        served.insert(path, if step == Step::Make && give_up { Step::Remove } else { step });
    }
    let survey = root.survey().unwrap();
    let marked: Vec<_> = survey.marked.iter().map(|found| (found.path.as_str(), found.has_directory)).collect();
    let of = |wanted: Step| served.iter().filter(move |(_, step)| **step == wanted).map(|(path, _)| *path);
    assert_eq!(marked, of(Step::Make).map(|path| (path, true)).collect::<Vec<_>>(), "{cut}: marks");
    assert_eq!((survey.deleting.len(), survey.trash.len()), (0, of(Step::Trash).count()), "{cut}");
    assert!(survey.unmarked.is_empty() && survey.damaged.is_empty(), "{cut}: {survey:?}");
    let projects = fs::read_dir(root.path().join(".kube-provisioner/projects")).unwrap().count();
    let limited =
        if root.why_unlimited().unwrap().is_none() { of(Step::Make).chain(of(Step::Trash)).count() } else { 0 };
    assert_eq!(projects, limited, "{cut}: projects");
}

/// One record of the log, in the format of the kernel's `Documentation/admin-guide/device-mapper/log-writes.rst` and
/// `replay-log`.
struct Entry {
    sector: u64,
    data: Vec<u8>,
    /// True if this write and all earlier ones are on disk.
    flush: bool,
    mark: Option<String>,
}

impl Entry {
    fn apply(&self, image: &File) {
        image.write_all_at(&self.data, self.sector * 512).unwrap();
    }
}

fn entries(log: &Path) -> Vec<Entry> {
    const MAGIC: u64 = 0x006a_7366_7773_6872;
    let (flush, fua, discard, is_mark) = (1, 2, 4, 8);
    let log = File::open(log).unwrap();
    let bytes = |at: u64, count: u64| {
        let mut bytes = vec![0; usize::try_from(count).unwrap()];
        log.read_exact_at(&mut bytes, at).unwrap();
        bytes
    };
    let number = |at: u64| u64::from_le_bytes(bytes(at, 8).try_into().unwrap());
    assert_eq!((number(0), number(8)), (MAGIC, 1), "the log's magic number and version");
    let (count, mut at, mut entries) = (number(16), 512, Vec::new());
    for _ in 0..count {
        let (sector, sectors, flags, length) = (number(at), number(at + 8), number(at + 16), number(at + 24));
        let mark = (flags & is_mark != 0).then(|| String::from_utf8(bytes(at + 32, length)).unwrap());
        at += 512;
        let sectors = if flags & (discard | is_mark) == 0 { sectors } else { 0 };
        entries.push(Entry { sector, data: bytes(at, sectors * 512), flush: flags & (flush | fua) != 0, mark });
        at += sectors * 512;
    }
    entries
}

fn at(path: &str) -> VolumePath {
    path.to_owned().try_into().unwrap()
}

fn owner(path: &str) -> Owner {
    let volume = path.replace('/', "-");
    let claim = Claim { namespace: "shop".to_owned(), name: volume.clone(), uid: format!("uid-of-{volume}") };
    let provisioner = "example.com/p".to_owned();
    Owner { volume, uid: None, claim: Some(claim), provisioner, cluster: None }
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}: {status}");
}
