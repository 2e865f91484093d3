//! The hostile corpus that all directory provisioners share.

use directory_volumes::Root;
use directory_volumes::hostile::Subject;
use serde_json::json;

use super::provisioner::Subdir;
use crate::source::ANNOTATIONS;

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

directory_volumes::hostile_tests!(SUBJECT);
