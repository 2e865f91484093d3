//! Trees designed to exhaust the memory of the process that removes them.

use std::os::fd::OwnedFd;

use rustix::fs::FileType;

use super::*;
use crate::names::Budget;
use crate::remove;

/// Environment variable of the process whose memory is measured.
const MEASURED: &str = "DIRECTORY_VOLUMES_MEASURED";

/// Creates nested directories, each with many siblings that have long names, and other kinds of files that a tenant can
/// create.
fn fill(top: &OwnedFd, depth: usize, width: usize) {
    let mut directory = top.try_clone().unwrap();
    for _ in 0..depth {
        for kind in [FileType::Fifo, FileType::Socket, FileType::RegularFile] {
            let name = format!("{:?}-{}", kind, "n".repeat(230));
            rustix::fs::mknodat(&directory, &*name, kind, Mode::RUSR, 0).unwrap();
        }
        for number in 0..width {
            rustix::fs::mkdirat(&directory, long(number), Mode::RWXU).unwrap();
        }
        // Continue in a sibling in the middle, because the removal may enter the siblings in any order.
        directory = rustix::fs::openat(&directory, long(width / 2), OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
}

fn long(number: usize) -> String {
    format!("{number:0>245}")
}

fn open(path: &Path) -> OwnedFd {
    rustix::fs::openat(CWD, path, OFlags::DIRECTORY, Mode::empty()).unwrap()
}

#[test]
fn removal_finishes_without_memory_for_names() {
    for (bytes, depth, width) in [(0, 70, 60), (0, 1, 3000), (100_000, 70, 60)] {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tree")).unwrap();
        fill(&open(&dir.path().join("tree")), depth, width);
        let budget = Budget::new(bytes);
        let token = FencingToken::unlimited();
        remove::tree_within(&budget, &open(dir.path()), "tree", "pvc-1", &token).unwrap();
        assert_eq!((entries(dir.path()), budget.free()), (0, bytes));
    }
}

/// Removes two hostile trees at once, in a separate process, because memory is measured per process.
#[test]
fn hostile_trees_take_little_memory() {
    const LEVELS: usize = 64;
    const WIDTH: usize = 512;
    if std::env::var_os(MEASURED).is_none() {
        let test = format!("{}::hostile_trees_take_little_memory", module_path!().split_once("::").unwrap().1);
        let mut command = Command::new(std::env::current_exe().unwrap());
        let output = command.args(["--exact", &test, "--nocapture"]).env(MEASURED, "").output().unwrap();
        return assert!(output.status.success(), "{output:?}");
    }
    // On a disk, so many directories take half a minute.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let root = Root::open(dir.path()).unwrap();
    root.put_marker().unwrap();
    for volume in ["pvc-1", "pvc-2"] {
        fill(&open(&root.make(volume, &FencingToken::unlimited()).unwrap()), LEVELS, WIDTH);
    }
    let before = memory("VmRSS");
    // Reset the peak.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    std::thread::scope(|scope| {
        for volume in ["pvc-1", "pvc-2"] {
            scope.spawn(|| root.remove_pv(volume, &FencingToken::unlimited()).unwrap());
        }
    });
    let grown = memory("VmHWM").saturating_sub(before);
    assert_empty(dir.path());
    assert!(grown < 12 << 10, "{grown} KiB for {} KiB of names", 2 * LEVELS * WIDTH * 245 / 1024);
}

/// Returns a value in KiB.
fn memory(what: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
