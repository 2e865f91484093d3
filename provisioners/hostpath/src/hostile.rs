//! The hostile corpus of all provisioners of directories.

use directory_volumes::hostile::{self, Subject};
use directory_volumes::{Root, Worker};
use serde_json::json;

use crate::hostpath::HostPath;
use crate::placement::ANNOTATIONS;

const SUBJECT: Subject<HostPath> = Subject {
    start: |root| HostPath::new(Worker::new(Root::open(root).unwrap()), None),
    sources: |path| vec![json!({"hostPath": {"path": path}}), json!({"local": {"path": path}})],
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
