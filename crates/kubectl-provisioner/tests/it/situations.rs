//! Situations and the answers to them, as one file: `tests/situations.txt`. With `UPDATE_SITUATIONS=1` it is written.

mod buckets;
mod claims;
mod cluster;
mod fleets;
mod volumes;

use std::path::Path;

use self::cluster::answer;

/// A cluster, and what somebody asks.
#[derive(Clone)]
pub(crate) struct Situation {
    title: &'static str,
    command: &'static str,
    /// Objects as YAML. `UID(name)` stands for the uid of an object before.
    objects: Vec<String>,
    /// What who asks may not read.
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
async fn every_situation_has_its_answer() {
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
    assert!(broken.is_empty(), "objects that no API server takes:\n{broken}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/situations.txt");
    if std::env::var_os("UPDATE_SITUATIONS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    for (now, before) in text.split("# ").zip(known.split("# ")) {
        assert_eq!(now, before, "run the test with UPDATE_SITUATIONS=1 if this is better");
    }
    assert_eq!(text.len(), known.len(), "situations came or went; run the test with UPDATE_SITUATIONS=1");
    for secret in ["sesame", "c2VzYW1l"] {
        assert!(!text.contains(secret), "a Secret's data are shown");
    }
}
