//! Compares the answers in many situations with `tests/situations.txt`. `UPDATE_SITUATIONS=1` rewrites the file.

mod buckets;
mod claims;
mod cluster;
mod fleets;
mod volumes;

use std::path::Path;

use self::cluster::answer;

/// A cluster, and the command to run in it.
#[derive(Clone)]
pub(crate) struct Situation {
    title: &'static str,
    command: &'static str,
    /// Objects as YAML. `UID(name)` stands for the uid of an earlier object.
    objects: Vec<String>,
    /// The resources that the user may not read.
    denied: &'static [&'static str],
}

pub(crate) fn situation(title: &'static str, command: &'static str, objects: &[&str]) -> Situation {
    let objects = objects.iter().map(|object| (*object).to_owned()).collect();
    Situation { title, command, objects, denied: &[] }
}

impl Situation {
    pub(crate) fn without(self, denied: &'static [&'static str]) -> Self {
        Self { denied, ..self }
    }
}

#[tokio::test(start_paused = true)]
async fn answers_match_the_recorded_situations() {
    let situations = [claims::all(), volumes::all(), buckets::all(), fleets::all()].concat();
    assert!(situations.len() >= 40, "{}", situations.len());
    let (mut text, mut broken) = (String::new(), String::new());
    for situation in &situations {
        let answer = answer(situation).await.unwrap_or_else(|problem| {
            broken.push_str(&problem);
            problem
        });
        text.push_str(&format!("# {}\n$ kubectl provisioner {}\n{answer}\n", situation.title, situation.command));
    }
    assert!(broken.is_empty(), "the API server rejects these objects:\n{broken}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/situations.txt");
    if std::env::var_os("UPDATE_SITUATIONS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    for (now, before) in text.split("# ").zip(known.split("# ")) {
        assert_eq!(now, before, "run the test with UPDATE_SITUATIONS=1 if the change is intended");
    }
    assert_eq!(text.len(), known.len(), "situations were added or removed; run the test with UPDATE_SITUATIONS=1");
    for secret in ["sesame", "c2VzYW1l"] {
        assert!(!text.contains(secret), "the answers contain a Secret's data");
    }
}

/// Situations that do not resolve themselves, as title, problem and remedy. `Do (administrator):` addresses the
/// cluster's administrator, `Do:` the claim's owner.
const STUCK: [(&str, &str, &str); 20] = [
    ("A claim that does not exist", "does not exist", "Do: create it, or correct the name or the namespace (-n)"),
    ("A claim that a quota refuses", "a quota refuses it", "Do (administrator): or raise the ResourceQuota"),
    (
        "A class that does not exist",
        "There is no StorageClass \"gold\"",
        "Do: delete the claim and create it with another class",
    ),
    ("No class, and no default class", "names no class", "Do (administrator): or set a default class"),
    (
        "kube-controller-manager does not run",
        "its Lease was renewed 60 min ago",
        "Do (administrator): check kube-controller-manager",
    ),
    (
        "The provisioner is not installed",
        "No running instance of example.com/p was found",
        "Do (administrator): check whether example.com/p is installed",
    ),
    (
        "All replicas are dead",
        "No replica of example.com/p works on it",
        "Do (administrator): check the pods of example.com/p in namespace storage",
    ),
    (
        "A shard without a holder",
        "No replica of example.com/p works on it: its shard has no holder",
        "Do (administrator): check the pods of example.com/p",
    ),
    (
        "Permissions were revoked while the provisioner runs",
        "storage/pod-1 is not ready (for 10 min)",
        "Do (administrator): read the reason with `kubectl logs -n storage pod-1`",
    ),
    (
        "A permission is missing",
        "The API server does not allow this",
        "Do (administrator): grant the provisioner's account the permission",
    ),
    (
        "The class is wrong",
        "parameter \"pool\" is missing",
        "an administrator has to delete the class and create it with correct parameters",
    ),
    (
        "A class for buckets",
        "provisions buckets for ObjectBucketClaims",
        "Do: delete the claim and create it with a StorageClass for volumes",
    ),
    (
        "The provisioner has given up",
        "pool is full (gave up after 15 attempts",
        "Do: fix the cause, then delete the claim and create it again",
    ),
    (
        "The selected node does not exist",
        "The selected node n9 does not exist",
        "otherwise remove the claim's annotation",
    ),
    (
        "The selected node has no replica",
        "No replica of example.com/p has run on the selected node n2",
        "Do (administrator): or let the provisioner's pods run on that node",
    ),
    (
        "A bound claim whose volume is missing",
        "does not exist. Kubernetes never binds it",
        "Do: delete the claim and create it again",
    ),
    ("A bucket has failed permanently", "maxObjects must be a number", "Do: correct the claim as the message says"),
    (
        "A bucket's class is for volumes",
        "provisions volumes for PersistentVolumeClaims",
        "Do: delete the claim and create it with a StorageClass for buckets",
    ),
    (
        "A bucket's class does not exist",
        "The claim's StorageClass does not exist",
        "or let an administrator create this one",
    ),
    (
        "A bucket's provisioner lost its permissions",
        "storage/pod-1 is not ready (for 10 min)",
        "Do (administrator): read the reason",
    ),
];

#[test]
fn stuck_situations_name_problem_and_remedy() {
    let all = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/situations.txt")).unwrap();
    for (title, wrong, remedy) in STUCK {
        let (_, from) = all.split_once(&format!("# {title}\n")).unwrap_or_else(|| panic!("no situation {title:?}"));
        let answer = from.split("\n# ").next().unwrap_or_default();
        assert!(answer.contains(wrong) && answer.contains(remedy), "{title}:\n{answer}");
        assert!(!answer.contains("Kubernetes is not blocking this claim"), "{title}:\n{answer}");
    }
}
