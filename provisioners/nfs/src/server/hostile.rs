//! The hostile corpus that all directory provisioners share.

use directory_volumes::Root;
use directory_volumes::hostile::Subject;
use serde_json::json;

use super::provisioner::Server;
use super::tests::{Fake, server};
use crate::source::ANNOTATIONS;

const SUBJECT: Subject<Server<Fake>> = Subject {
    start: |root| server(Root::open(root).unwrap(), Fake::default()),
    sources: |path| vec![json!({"nfs": {"server": "server", "path": path}})],
    annotations: ANNOTATIONS,
};

directory_volumes::hostile_tests!(SUBJECT);
