//! `adopt` assigns a directory to one volume, and never takes it from another.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use kube_sim::{After, Before, Interceptor, Request, Status, Verb};
use serde_json::{Value, json};

use super::world::*;

const CLAIM: &str = "uid-of-pv-1";

#[test]
fn refuses_a_directory_of_several_volumes() {
    let world = World::new();
    for path in ["shared/inner", "alone", "outer/inner"] {
        world.unmarked(path);
    }
    for (name, path) in
        [("pv-1", "shared"), ("pv-2", "shared"), ("pv-3", "shared/inner"), ("pv-4", "alone"), ("pv-5", "outer/inner")]
    {
        world.volume(name, &world.source(path));
    }
    for (name, others) in
        [("pv-1", &["pv-2 also names it", "pv-3 names a directory below"][..]), ("pv-3", &["pv-1", "pv-2"])]
    {
        let (ok, text) = world.run(&["adopt", "--volume", name], "");
        assert!(!ok && others.iter().all(|other| text.contains(other)) && !text.contains("pv-4"), "{name}: {text}");
    }
    let new = ["--claim", "shop/new", "--size", "1Mi", "--storage-class", "class", "--name", "pv-new"];
    for path in ["shared", "outer"] {
        let (ok, text) = world.run(&[&["adopt", path][..], &new].concat(), "");
        assert!(!ok && text.contains("does not belong to one volume only"), "{path}: {text}");
        assert!(world.mark(path).is_none());
    }
    let (ok, text) = world.run(&["adopt", "--volume", "pv-4"], "");
    assert!(ok && world.mark("alone").is_some_and(|owner| owner.cluster.as_deref() == Some(HERE)), "{text}");
}

#[test]
fn commands_suggested_by_events_work() {
    let world = World::new();
    world.unmarked("shop");
    world.unmarked("teams");
    world.volume("pv-shop", &world.source("shop"));
    let (ok, text) = world.run(&["adopt", "shop"], "");
    assert!(ok && world.mark("shop").is_some_and(|owner| owner.volume == "pv-shop"), "{text}");
    // The annotation makes the controller retry a deletion that failed because the directory had no mark.
    let adopted = || {
        let volume = world.cluster.get("", "persistentvolumes", "", "pv-shop").unwrap();
        volume["metadata"]["annotations"]["kube-provisioner/adopted"].as_str().unwrap().to_owned()
    };
    let first = adopted();
    assert!(world.run(&["adopt", "--volume", "pv-shop"], "").0 && adopted() != first);
    let (ok, text) = world.run(&["adopt", "teams"], "");
    assert!(ok && text.contains("volumes may be created in it"), "{text}");
    world.directory("teams/team", &owner("pv-2"), false);
    world.unmarked("shared");
    for name in ["pv-a", "pv-b"] {
        world.volume(name, &world.source("shared"));
    }
    assert!(!world.run(&["adopt", "shared"], "").0);
    // Without --size the command cannot create the volume.
    let (ok, text) = world.run(&["adopt", "shared", "--claim", "shop/new"], "");
    assert!(!ok && text.contains("--size"), "{text}");
}

fn annotation(world: &World, volume: &str) -> Value {
    let volume = world.cluster.get("", "persistentvolumes", "", volume).unwrap();
    volume["metadata"]["annotations"]["kube-provisioner/cluster-id"].clone()
}

#[test]
fn adopts_the_directory_of_a_restored_volume() {
    let world = World::new();
    world.directory("pv-1", &owner("pv-1"), false);
    world.volume_for("pv-1", &world.source("pv-1"), Some("new"));
    let (ok, text) = world.run(&["orphans"], "");
    assert!(ok && line(&text, "pv-1").contains("`adopt --volume pv-1`"), "{text}");
    // The directory belongs to its former claim while that claim exists.
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": "shop", "name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}});
    world.cluster.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})).unwrap();
    let uid = world.cluster.create(&claim).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let mut live = owner("pv-2");
    live.claim.as_mut().unwrap().uid = uid;
    world.directory("pv-2", &live, false);
    world.volume_for("pv-2", &world.source("pv-2"), Some("new"));
    let (ok, text) = world.run(&["adopt", "--volume", "pv-2"], "");
    assert!(!ok && text.contains("which exists") && world.mark("pv-2") == Some(live), "{text}");
    let (ok, text) = world.run(&["adopt", "--volume", "pv-1"], "");
    let uid = world.mark("pv-1").and_then(|owner| owner.claim).map(|claim| claim.uid);
    assert!(ok && uid.as_deref() == Some("new") && annotation(&world, "pv-1") == HERE, "{text}");
    assert!(world.run(&["adopt", "--volume", "pv-1"], "").0, "twice");
}

#[test]
fn keeps_the_mark_of_another_volume_or_cluster() {
    let world = World::new();
    world.directory("pv-1", &owner("pv-1"), false);
    world.volume_for("pv-9", &world.source("pv-1"), Some("new"));
    let (ok, text) = world.run(&["adopt", "--volume", "pv-9"], "");
    assert!(!ok && text.contains("is the directory of the volume pv-1"), "{text}");
    let theirs = in_cluster("pv-2", Some(ELSEWHERE));
    world.directory("pv-2", &theirs, false);
    world.volume_for("pv-2", &world.source("pv-2"), Some("new"));
    for more in [&[][..], &["--from-cluster", "cluster-3"]] {
        let (ok, text) = world.run(&[&["adopt", "--volume", "pv-2"], more].concat(), "");
        assert!(
            !ok && text.contains("--from-cluster cluster-2") && world.mark("pv-2").as_ref() == Some(&theirs),
            "{text}"
        );
    }
    let (ok, text) = world.run(&["adopt", "--volume", "pv-2", "--from-cluster", ELSEWHERE], "");
    assert!(ok && world.mark("pv-2").and_then(|owner| owner.cluster).as_deref() == Some(HERE), "{text}");
}

#[test]
fn adopts_all_restored_volumes_with_one_command() {
    let world = World::new();
    for name in ["pv-1", "pv-2", "pv-3"] {
        world.directory(name, &owner(name), false);
        world.volume_for(name, &world.source(name), Some(&format!("new-{name}")));
    }
    // These are a volume from before cluster ids, an adopted one, and one from another cluster.
    world.directory("pv-4", &in_cluster("pv-4", None), false);
    world.volume_for("pv-4", &world.source("pv-4"), Some("new-pv-4"));
    world.directory("pv-5", &owner("pv-5"), false);
    world.volume_for("pv-5", &world.source("pv-5"), Some("uid-of-pv-5"));
    world.directory("pv-6", &in_cluster("pv-6", Some(ELSEWHERE)), false);
    world.volume_for("pv-6", &world.source("pv-6"), Some("new-pv-6"));
    let uid = |name: &str| world.mark(name).and_then(|owner| owner.claim).unwrap().uid;
    let (ok, text) = world.run(&["adopt", "--restored"], "no\n");
    assert!(!ok && text.contains("mark directories (4 in total)?") && uid("pv-1") == CLAIM, "{text}");
    assert!(line(&text, "pv-1").contains("uid-of-pv-1") && line(&text, "pv-1").contains("new-pv-1"), "{text}");
    assert!(line(&text, "pv-6").contains("--from-cluster cluster-2") && line(&text, "pv-5").is_empty(), "{text}");
    let (ok, text) = world.run(&["adopt", "--restored", "--yes"], "");
    assert!(!ok && text.contains("directories were not changed (1 in total)"), "{text}");
    for name in ["pv-1", "pv-2", "pv-3", "pv-4"] {
        assert_eq!((uid(name), annotation(&world, name)), (format!("new-{name}"), json!(HERE)));
    }
    assert_eq!(uid("pv-6"), "uid-of-pv-6");
    let (ok, text) = world.run(&["adopt", "--restored", "--from-cluster", ELSEWHERE], "y\n");
    assert!(ok && uid("pv-6") == "new-pv-6", "{text}");
    assert!(world.run(&["adopt", "--restored"], "").1.contains("no directory is marked for an earlier volume"));
}

#[test]
fn a_damaged_mark_does_not_stop_a_restore() {
    let world = World::new();
    for name in ["pv-1", "pv-2"] {
        world.directory(name, &owner(name), false);
        world.volume_for(name, &world.source(name), Some("new"));
    }
    std::fs::write(world.path(".kube-provisioner/volumes/pv-1"), "{").unwrap();
    let (ok, text) = world.run(&["adopt", "--restored", "--yes"], "");
    assert!(!ok && line(&text, "pv-1 is skipped").contains("cannot be read"), "{text}");
    assert_eq!(world.mark("pv-2").and_then(|owner| owner.claim).unwrap().uid, "new", "{text}");
}

/// Refuses the first update of a volume.
#[derive(Default)]
struct RefusesUpdate(AtomicU32);

impl Interceptor for RefusesUpdate {
    fn before<'a>(&'a self, request: &'a Request) -> Pin<Box<dyn Future<Output = Before> + Send + 'a>> {
        let is_refused = request.verb == Verb::Patch
            && request.resource.plural == "persistentvolumes"
            && self.0.fetch_add(1, Ordering::Relaxed) == 0;
        let status = Status::new(403, "Forbidden", "no");
        Box::pin(async move { if is_refused { Before::Refuse(status) } else { Before::Handle } })
    }
}

#[test]
fn a_repeated_adoption_permits_the_deletion() {
    let world = World::behind(Arc::new(RefusesUpdate::default()));
    world.unmarked("data");
    let uid = world.volume("pv-1", &world.source("data"))["metadata"]["uid"].clone();
    let release = || {
        let volume = world.cluster.get("", "persistentvolumes", "", "pv-1").unwrap();
        volume["metadata"]["annotations"]["kube-provisioner/release"].clone()
    };
    let (ok, text) = world.run(&["adopt", "--volume", "pv-1"], "");
    assert!(!ok && world.mark("data").is_some() && release().is_null(), "{text}");
    let (ok, text) = world.run(&["adopt", "--volume", "pv-1"], "");
    assert!(ok && release() == uid, "{text}");
}

/// A backup from before the first adoption does not contain the cluster's id.
#[test]
fn a_repeated_adoption_of_a_restored_volume_does_not_permit_the_deletion() {
    let world = World::behind(Arc::new(RefusesUpdate::default()));
    world.directory("data", &owner("pv-1"), false);
    // Creation times are in whole seconds.
    std::thread::sleep(std::time::Duration::from_secs(1));
    world.volume_for("pv-1", &world.source("data"), Some("new"));
    assert!(!world.run(&["adopt", "--volume", "pv-1"], "").0);
    assert!(world.mark("data").is_some_and(|owner| owner.uid.is_some()));
    let (ok, text) = world.run(&["adopt", "--volume", "pv-1"], "");
    let volume = world.cluster.get("", "persistentvolumes", "", "pv-1").unwrap();
    assert!(ok && volume["metadata"]["annotations"]["kube-provisioner/release"].is_null(), "{text}");
}

const NEW: [&str; 6] = ["--claim", "shop/data", "--size", "1Mi", "--storage-class", "class"];

#[test]
fn a_new_volume_has_the_name_and_the_provisioner_in_the_mark() {
    let world = World::new();
    world.directory("shop/data", &owner("pvc-1"), false);
    let theirs = directory_volumes::Owner { provisioner: RANCHER.to_owned(), ..owner("pvc-2") };
    world.directory("shop/theirs", &theirs, false);
    world.root.keep(&at("shop/theirs"), &theirs).unwrap();
    let (ok, text) = world.run(&[&["adopt", "shop/data"][..], &NEW].concat(), "");
    assert!(ok && text.contains("pvc-1 is the volume of"), "{text}");
    let adopt = [&["adopt", "shop/theirs"][..], &NEW].concat();
    let (ok, text) = world.run(&adopt, "");
    assert!(!ok && text.contains("\"shop/theirs\" is the directory of"), "{text}");
    let (ok, text) = world.run(&[&adopt[..], &["--additional-provisioner-names", RANCHER]].concat(), "");
    let volume = world.cluster.get("", "persistentvolumes", "", "pvc-2");
    assert!(ok && volume.unwrap()["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] == RANCHER, "{text}");
}

#[test]
fn refuses_arguments_of_a_new_volume_without_a_claim() {
    let world = World::new();
    world.unmarked("data");
    world.volume("pv-1", &world.source("other"));
    for arguments in [
        &["adopt", "data", "--size", "1Mi", "--storage-class", "class"][..],
        &["adopt", "data", "--name", "pv-2"],
        &["adopt", "data", "--access-mode", "ReadWriteMany"],
        &["adopt", "--volume", "pv-1", "--reclaim-policy", "Delete"],
    ] {
        let (ok, text) = world.run(arguments, "");
        assert!(!ok && text.contains("--claim"), "{arguments:?}: {text}");
    }
    assert_eq!(std::fs::read_dir(world.path(".kube-provisioner/volumes")).unwrap().count(), 0);
    assert!(annotation(&world, "pv-1").is_null());
}

/// Earlier versions adopted shared directories on request.
#[test]
fn keeps_a_shared_directory_that_an_earlier_version_adopted() {
    let world = World::new();
    for (path, name) in [("shared", "pv-1"), ("alone", "pv-3")] {
        world.unmarked(path);
        let mut volume = world.volume_for(name, &world.source(path), Some("uid"));
        volume["metadata"]["annotations"]["kube-provisioner/identity"] = json!("default");
        let mut volume = world.cluster.update(&volume).unwrap();
        volume["status"] = json!({"phase": "Released"});
        let uid = world.cluster.update_status(&volume).unwrap()["metadata"]["uid"].as_str().map(str::to_owned);
        let mut owner = owner(name);
        owner.claim.as_mut().unwrap().uid = "uid".to_owned();
        world.root.adopt(&at(path), &directory_volumes::Owner { uid, ..owner }, false).unwrap();
    }
    world.volume("pv-2", &world.source("shared"));
    let _program = world.start(&[]);
    world.eventually("the unshared directory is removed", |_| !world.is_there("alone"));
    world.eventually("an event explains the reason", |cluster| {
        let events = cluster.list("", "events", None).unwrap();
        let told = |event: &Value| {
            event["involvedObject"]["name"] == "pv-1"
                && event["message"].as_str().is_some_and(|text| text.contains("the volume pv-2 also names it"))
        };
        events.iter().any(told)
    });
    assert!(world.is_there("shared"));
}

/// Replaces the answer to the second creation, which follows the dry run.
#[derive(Default)]
struct LosesAnswer(AtomicU32);

impl Interceptor for LosesAnswer {
    fn after<'a>(&'a self, request: &'a Request, _: u16) -> Pin<Box<dyn Future<Output = After> + Send + 'a>> {
        let is_lost = request.verb == Verb::Create
            && request.resource.plural == "persistentvolumes"
            && self.0.fetch_add(1, Ordering::Relaxed) == 1;
        let answer = if is_lost { After::Replace(Status::internal("the answer is lost")) } else { After::Deliver };
        Box::pin(async move { answer })
    }
}

#[test]
fn keeps_the_mark_if_the_response_is_lost() {
    let world = World::behind(Arc::new(LosesAnswer::default()));
    world.unmarked("data");
    let new = ["adopt", "data", "--claim", "shop/new", "--size", "1Mi", "--storage-class", "class", "--name", "pv-new"];
    let (ok, text) = world.run(&new, "");
    assert!(!ok && text.contains("run `adopt data`"), "{text}");
    assert!(world.cluster.get("", "persistentvolumes", "", "pv-new").is_ok());
    assert!(world.mark("data").is_some_and(|owner| owner.volume == "pv-new"));
    let (ok, text) = world.run(&["adopt", "data"], "");
    assert!(ok && world.mark("data").is_some_and(|owner| owner.uid.is_some()), "{text}");
}
