//! The hostile corpus that all directory provisioners share.

use directory_volumes::hostile::Subject;
use directory_volumes::{Root, Worker};
use serde_json::json;

use crate::hostpath::HostPath;
use crate::placement::ANNOTATIONS;

const SUBJECT: Subject<HostPath> = Subject {
    start: |root| HostPath::new(Worker::new(Root::open(root).unwrap()), None),
    sources: |path| vec![json!({"hostPath": {"path": path}}), json!({"local": {"path": path}})],
    annotations: ANNOTATIONS,
};

directory_volumes::hostile_tests!(SUBJECT);
