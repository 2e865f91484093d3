//! Labels of volumes under a kernel that enforces SELinux: `labels MOUNT_POINT`. Panics at the first violation. The
//! tests run it inside user-mode Linux, whose kernel has SELinux and whose binaries need no distribution policy.
#![allow(clippy::print_stdout, reason = "a program talks to its user")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use directory_volumes::{Owner, Permissions, Root, SeLinuxLabel, VolumePath};
use kube_provisioner::FencingToken;

const POLICY: &str = include_str!("policy.conf");
const SELINUX: &str = "/sys/fs/selinux";
const LABEL: &str = "system_u:object_r:volume_t";
const UNKNOWN: &str = "system_u:object_r:nobody_t";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [mount_point] => hold(&Path::new(mount_point).join("volumes")),
        // Run with fewer capabilities, as in a container.
        [place, "unknown"] => {
            let error = label(&Root::open(Path::new(place)).unwrap(), "pvc-1", UNKNOWN).unwrap_err();
            assert!(error.contains("the node's policy does not know it"), "{error}");
        }
        _ => panic!("labels MOUNT_POINT"),
    }
}

fn hold(place: &Path) {
    fs::create_dir(place).unwrap();
    fs::set_permissions(place, fs::Permissions::from_mode(0o700)).unwrap();
    let root = Root::open(place).unwrap();
    root.put_marker().unwrap();
    let (labelled, other) = (make(&root, "pvc-1"), make(&root, "pvc-2"));
    println!("before a policy is loaded, SELinux is not enabled");
    let error = label(&root, "pvc-1", LABEL).unwrap_err();
    assert!(error.contains("SELinux is not enabled on this node"), "{error}");
    enforce();
    println!("a pod writes into the volume with the label, and into no other");
    label(&root, "pvc-1", LABEL).unwrap();
    label(&root, "pvc-1", LABEL).unwrap();
    assert!(pod_writes(&labelled) && !pod_writes(&other));
    let listed = Command::new("ls").arg("-Z").arg(&labelled).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains(LABEL), "a new file lacks the label: {listed}");
    println!("a label that the policy does not know is refused");
    let unknown = Command::new("setpriv")
        .args(["--bounding-set=-mac_admin", "--inh-caps=-mac_admin"])
        .arg(std::env::current_exe().unwrap())
        .args([place.to_str().unwrap(), "unknown"])
        .status();
    assert!(unknown.unwrap().success());
}

fn make(root: &Root, volume: &str) -> PathBuf {
    let open = Permissions { mode: 0o777, uid: None, gid: None };
    root.create(&at(volume), &owner(volume), false, &open, None, &FencingToken::unlimited()).unwrap()
}

fn label(root: &Root, volume: &str, text: &str) -> Result<(), String> {
    let label: SeLinuxLabel = text.parse().unwrap();
    root.label(&at(volume), &owner(volume), &label).map_err(|error| error.to_string())
}

fn at(volume: &str) -> VolumePath {
    volume.to_owned().try_into().unwrap()
}

fn owner(volume: &str) -> Owner {
    let provisioner = "example.com/p".to_owned();
    Owner { volume: volume.to_owned(), uid: None, claim: None, provisioner, cluster: None }
}

/// Loads the policy and enforces it.
fn enforce() {
    for (kind, place) in [("sysfs", "/sys"), ("selinuxfs", SELINUX)] {
        run(Command::new("mount").args(["-t", kind, kind, place]));
    }
    let folder = std::env::temp_dir();
    let (text, policy) = (folder.join("policy.conf"), folder.join("policy"));
    fs::write(&text, POLICY).unwrap();
    run(Command::new("checkpolicy").args(["-U", "allow", "-c", "33", "-o"]).args([&policy, &text]));
    fs::write(format!("{SELINUX}/load"), fs::read(policy).unwrap()).unwrap();
    fs::write(format!("{SELINUX}/enforce"), "1").unwrap();
}

/// Writes like a container. It enters the directory beforehand, because the root is closed to other users.
fn pod_writes(volume: &Path) -> bool {
    let script = "echo -n system_u:system_r:pod_t > /proc/self/attr/current && touch file";
    Command::new("sh").args(["-c", script]).current_dir(volume).status().unwrap().success()
}

fn run(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}
