//! The hostile corpus of all provisioners of directories.

use directory_volumes::Root;
use directory_volumes::hostile::{self, Subject};
use serde_json::json;

use super::provisioner::Subdir;
use super::share::ANNOTATIONS;

const SUBJECT: Subject<Subdir> = Subject {
    start: |root| {
        let name = format!("server:{0}={0}", root.display()).parse().unwrap();
        Subdir::of_root(name, Root::open_shared(root).unwrap())
    },
    sources: |path| {
        let attributes = json!({"server": "server", "share": "/", "subdir": path});
        vec![
            json!({"nfs": {"server": "server", "path": path}}),
            json!({"csi": {"driver": "nfs.csi.k8s.io", "volumeHandle": path, "volumeAttributes": attributes}}),
        ]
    },
    annotations: ANNOTATIONS,
};

#[test]
fn no_hand_made_volume_reaches_what_is_not_its_own() {
    hostile::volumes_made_by_hand(&SUBJECT);
}

#[test]
fn no_pattern_and_no_name_reaches_what_is_not_its_own() {
    hostile::patterns_and_names(&SUBJECT);
}

#[test]
fn links_that_take_the_place_of_directories_lead_nowhere() {
    hostile::links_in_the_place_of_directories(&SUBJECT);
}

#[test]
fn no_volume_is_made_in_a_directory_of_others() {
    hostile::directories_of_others(&SUBJECT);
}
