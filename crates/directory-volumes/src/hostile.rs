//! Hostile input: paths, names, symlinks and manually created volumes. A tree outside the root is compared before and
//! after. Intended for the tests of every directory provisioner; it panics at the first violation.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kube_provisioner::conformance::Conformance;
use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume;
use kube_provisioner::protocol::PROVISIONED_BY;
use kube_provisioner::{Hooks, ProvisionRequest, ProvisionedVolume, parameters};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::deletion::Annotations;
use crate::pattern::PathPattern;
use crate::root::Root;

/// A provisioner whose classes have a `pathPattern`.
#[derive(Debug)]
pub struct Subject<P> {
    /// Starts the provisioner on a root. Its volumes refer to the same path.
    pub start: fn(&Path) -> P,
    /// Returns the sources of a volume with this path: parts of a PersistentVolume's `spec`.
    pub sources: fn(&str) -> Vec<Value>,
    /// The annotations of the provisioner's volumes.
    pub annotations: Annotations,
}

/// Declares a test of this [`Subject`] for each attack.
#[macro_export]
macro_rules! hostile_tests {
    ($subject:expr) => {
        #[test]
        fn manually_created_volumes_cannot_reach_foreign_data() {
            $crate::hostile::manually_created_volumes(&$subject);
        }

        #[test]
        fn patterns_and_names_cannot_reach_foreign_data() {
            $crate::hostile::patterns_and_names(&$subject);
        }

        #[test]
        fn symlinks_instead_of_directories_are_not_followed() {
            $crate::hostile::symlinks_instead_of_directories(&$subject);
        }

        #[test]
        fn refuses_directories_of_others() {
            $crate::hostile::directories_of_others(&$subject);
        }
    };
}

/// Path components, escapes, control characters, lookalikes of dots and slashes, and the files created below.
const NAMES: [&str; 44] = [
    "..",
    ".",
    "",
    "...",
    "..\u{0}",
    "..\n",
    " ..",
    ".. ",
    "\u{2025}",
    "．．",
    "․․",
    "%2e%2e",
    "..%2f",
    "..\\",
    "\\..",
    "a\u{0}b",
    "a\nb",
    "a\rb",
    "a\tb",
    "\u{202e}x",
    "\u{feff}",
    "∕etc",
    "⁄etc",
    "／etc",
    "~",
    "~root",
    "$HOME",
    "${HOME}",
    "`id`",
    "$(id)",
    "*",
    "?",
    "-rf",
    "--",
    ".kube-provisioner",
    ".hidden",
    "victim",
    "link-out",
    "link-up",
    "link-root",
    "link-loop",
    "link-file",
    "file",
    "é",
];

/// Creates a folder in memory if possible: ext4 avoids the inodes of files that were deleted recently, which slows down
/// tests that create and delete many.
pub fn temp_dir() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

struct Place<P> {
    outer: TempDir,
    provisioner: P,
}

impl<P: Hooks> Place<P> {
    /// Creates a root with a victim and symlinks that lead outside, next to a tree that must not change.
    fn new(subject: &Subject<P>, runtime: &tokio::runtime::Runtime) -> Self {
        let _context = runtime.enter();
        let outer = temp_dir();
        let (root, outside) = (outer.path().join("root"), outer.path().join("outside"));
        for directory in [&root, &outside, &outside.join("data"), &outside.join("closed")] {
            fs::create_dir(directory).unwrap();
            fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).unwrap();
        }
        fs::write(outside.join("precious"), "x").unwrap();
        fs::write(outside.join("data/precious"), "x").unwrap();
        symlink("data", outside.join("link")).unwrap();
        let opened = Root::open(&root).unwrap();
        opened.put_marker().unwrap();
        let place = Self { provisioner: (subject.start)(opened.path()), outer };
        let victim = ProvisionRequest::new(parameters::from_map(&BTreeMap::new()).unwrap(), 1 << 20);
        drop(runtime.block_on(place.provisioner.provision(victim)).unwrap());
        let name = ProvisionRequest::new((), 1).name;
        fs::write(root.join(&name).join("data"), "x").unwrap();
        for (link, target) in [
            ("link-out", outside.clone()),
            ("link-up", "..".into()),
            ("link-root", "/".into()),
            ("link-loop", "link-loop".into()),
            ("link-file", outside.join("precious")),
        ] {
            symlink(&target, root.join(link)).unwrap();
            symlink(&target, root.join(&name).join(link)).unwrap();
        }
        fs::write(root.join("file"), "x").unwrap();
        place
    }

    fn root(&self) -> PathBuf {
        self.outer.path().canonicalize().unwrap().join("root")
    }

    fn outside(&self) -> BTreeMap<PathBuf, String> {
        tree(&self.outer.path().join("outside"))
    }
}

/// Returns everything about a tree except access times.
fn tree(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(path) = waiting.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = match metadata.file_type() {
            kind if kind.is_symlink() => fs::read_link(&path).unwrap().to_string_lossy().into_owned(),
            kind if kind.is_file() => fs::read_to_string(&path).unwrap(),
            _ => {
                waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                String::new()
            }
        };
        let (mode, owner, changed) = (metadata.mode(), (metadata.uid(), metadata.gid()), metadata.ctime_nsec());
        found.insert(path, format!("{mode:o} {owner:?} {changed} {content}"));
    }
    found
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Checks that no manually created volume reaches data it does not own.
pub fn manually_created_volumes<P: Hooks>(subject: &Subject<P>) {
    let runtime = runtime();
    let place = Place::new(subject, &runtime);
    let root = place.root().to_string_lossy().into_owned();
    let before = (place.outside(), tree(&place.root()));
    let outside = place.outer.path().join("outside").to_string_lossy().into_owned();
    let mut paths =
        vec![outside.clone(), root.clone(), "/".to_owned(), "/etc".to_owned(), String::new(), "//".to_owned()];
    for name in NAMES {
        let victim = ProvisionRequest::new((), 1).name;
        paths.extend([
            name.to_owned(),
            format!("/{name}"),
            format!("{root}/{name}"),
            format!("{root}/{name}/data"),
            format!("{root}/../{name}"),
            format!("{root}/{victim}/{name}"),
            format!("{root}/x/../{name}"),
            format!("{root}//{name}"),
            format!("{outside}/{name}"),
        ]);
    }
    let mut count = 0;
    for (number, path) in paths.iter().enumerate() {
        for mut spec in (subject.sources)(path) {
            spec["claimRef"] = json!({"name": "c", "namespace": "n", "uid": "u"});
            let on_delete = ["delete", "trash", "retain"][number % 3];
            let volume: PersistentVolume = serde_json::from_value(json!({
                "metadata": {"name": format!("made-{number}"), "uid": format!("uid-{number}"),
                    "annotations": {(PROVISIONED_BY): "", (subject.annotations.on_delete): on_delete}},
                "spec": spec,
            }))
            .unwrap();
            // Any result is acceptable. Usually the call fails because the directory belongs to no volume.
            let _ = runtime.block_on(place.provisioner.delete(ProvisionedVolume::new(volume.clone())));
            let _ = runtime.block_on(place.provisioner.expand(ProvisionedVolume::new(volume), 1 << 40));
            count += 1;
        }
    }
    assert!(count >= 400, "{count}");
    assert_eq!((place.outside(), tree(&place.root())), before);
}

/// Checks that no pattern of a class and no name of a claim reaches data it does not own.
pub fn patterns_and_names<P: Hooks>(subject: &Subject<P>) {
    let runtime = runtime();
    let place = Place::new(subject, &runtime);
    let before = place.outside();
    let (mut accepted, mut count) = (0, 0);
    for name in NAMES {
        for pattern in [
            format!("{name}/${{pv.metadata.name}}"),
            format!("${{pv.metadata.name}}/{name}"),
            format!("{name}${{pv.metadata.name}}"),
            format!("a/{name}/${{pv.metadata.name}}"),
            format!("${{pv.metadata.name}}{name}"),
        ] {
            count += 1;
            let read = || parameters::from_map::<P::Parameters>(&[("pathPattern".to_owned(), pattern.clone())].into());
            if read().is_err() {
                assert!(pattern.parse::<PathPattern>().is_err(), "{pattern:?}");
                continue;
            }
            // An API server would refuse most of these names.
            for claim in ["claim", "../outside", "..", "/etc", "link-out"] {
                accepted += 1;
                let mut request = ProvisionRequest::new(read().unwrap(), 1);
                request.name = if claim == "claim" { format!("pvc-{count}") } else { claim.to_owned() };
                let _ = runtime.block_on(place.provisioner.provision(request));
            }
        }
    }
    assert!(count >= 200 && accepted >= 20, "{count} {accepted}");
    assert_eq!(place.outside(), before);
}

/// Checks that no volume is created in a foreign directory, whatever its mode.
pub fn directories_of_others<P: Hooks>(subject: &Subject<P>) {
    let runtime = runtime();
    let place = Place::new(subject, &runtime);
    let shop = place.root().join("shop");
    fs::create_dir(&shop).unwrap();
    fs::write(shop.join("precious"), "x").unwrap();
    let class = [("pathPattern".to_owned(), "shop/${pv.metadata.name}".to_owned())].into();
    for mode in [0o777, 0o1777, 0o775, 0o711, 0o700] {
        fs::set_permissions(&shop, fs::Permissions::from_mode(mode)).unwrap();
        let before = tree(&shop);
        let request = ProvisionRequest::new(parameters::from_map::<P::Parameters>(&class).unwrap(), 1);
        let refused = runtime.block_on(place.provisioner.provision(request)).unwrap_err().to_string();
        assert!(refused.contains("`adopt shop`"), "{mode:o}: {refused}");
        assert_eq!(tree(&shop), before, "{mode:o}");
    }
    // Without that directory, the volume is created.
    fs::remove_dir_all(&shop).unwrap();
    let request = ProvisionRequest::new(parameters::from_map::<P::Parameters>(&class).unwrap(), 1);
    drop(runtime.block_on(place.provisioner.provision(request)).unwrap());
}

/// Checks that symlinks are not followed, while directories are replaced with symlinks as fast as possible.
pub fn symlinks_instead_of_directories<P: Hooks>(subject: &Subject<P>) {
    const ROUNDS: usize = 10_000;
    let runtime = runtime();
    let place = Place::new(subject, &runtime);
    let (root, before) = (place.root(), place.outside());
    let class = [("pathPattern".to_owned(), "shop/${pv.metadata.name}".to_owned())].into();
    let (stop, swaps) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (mut made, mut rounds) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let outside = place.outer.path().join("outside");
            let away = place.outer.path().join("away");
            while !stop.load(Ordering::Relaxed) {
                for name in ["shop", "shop/swapped"] {
                    let path = root.join(name);
                    if fs::rename(&path, &away).is_ok() {
                        let _ = symlink(&outside, &path);
                        std::thread::yield_now();
                        let _ = fs::remove_file(&path);
                        // The provisioner may have created another directory in the meantime.
                        if fs::rename(&away, &path).is_err() {
                            let _ = fs::remove_dir_all(&away);
                        }
                        swaps.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        // If the swaps nearly always win the race, run more rounds until the provisioner has won often enough as well.
        while rounds < ROUNDS || made <= ROUNDS / 100 && rounds < 10 * ROUNDS {
            rounds += 1;
            let mut request = ProvisionRequest::new(parameters::from_map::<P::Parameters>(&class).unwrap(), 1);
            request.name = "swapped".to_owned();
            let mut spec = (subject.sources)(&root.join("shop/swapped").to_string_lossy()).swap_remove(0);
            spec["claimRef"] = json!({"name": "claim", "namespace": "test", "uid": request.claim.metadata.uid});
            let volume: PersistentVolume = serde_json::from_value(json!({
                "metadata": {"name": "swapped", "annotations": {(PROVISIONED_BY): ""}}, "spec": spec,
            }))
            .unwrap();
            match runtime.block_on(place.provisioner.provision(request)) {
                Ok(_) => made += 1,
                // The provisioner refuses a directory that reappeared after its volumes were removed. Remove it, as an
                // administrator would.
                Err(error) if error.to_string().contains("`adopt shop`") => drop(fs::remove_dir_all(root.join("shop"))),
                Err(_) => {}
            }
            let _ = runtime.block_on(place.provisioner.delete(ProvisionedVolume::new(volume)));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(made > ROUNDS / 100 && swaps.into_inner() > ROUNDS / 100, "{made} volumes were created");
    assert_eq!(place.outside(), before);
}

/// Runs the conformance suite on `root`, with a class whose volumes are named after their claims. Also checks that a
/// directory that a user created at the path of such a volume remains, with its contents.
pub fn contract(kit: Conformance, root: &Path) {
    let made = Arc::new(Mutex::new(Vec::new()));
    let (root, makes) = (root.to_owned(), Arc::clone(&made));
    kit.shares_names([("pathPattern", "${pvc.metadata.namespace}_${pvc.metadata.name}")])
        .manually_created(async move |_, claim| {
            let name = format!("default_{claim}");
            let directory = root.join(&name);
            // The provisioner may have created it first.
            fs::create_dir(&directory).ok()?;
            fs::write(directory.join("precious"), "x").unwrap();
            makes.lock().unwrap().push(directory);
            Some(name)
        })
        .check();
    let made = made.lock().unwrap();
    assert!(!made.is_empty(), "the suite created no asset manually");
    let gone: Vec<_> = made.iter().filter(|directory| !directory.join("precious").exists()).collect();
    assert!(gone.is_empty(), "removed: {gone:?}");
}

/// Lists the volumes below a root, including marks and data that is being removed, for [`Conformance::new`].
pub fn entries(root: &Path) -> Vec<String> {
    let own = root.join(".kube-provisioner");
    let places = [root.to_owned(), own.join("volumes"), own.join("deleting")];
    let names = places.iter().filter_map(|place| place.read_dir().ok()).flatten();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != ".kube-provisioner");
    names.sort();
    names.dedup();
    names
}
