//! The output of `--help` and `rbac` is stable: a change requires new snapshots.

use std::process::Command;

fn said(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_csi-provisioner")).args(arguments).env_clear().output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

#[test]
fn help_says_every_option_with_its_default_and_unit() {
    insta::assert_snapshot!(said(&["--help"]).1);
}

#[test]
fn rbac_has_the_rights_of_external_provisioner() {
    let arguments = ["rbac", "--provisioner-name", "ebs.csi.example.com", "--namespace", "kube-system"];
    insta::assert_snapshot!(said(&arguments).1);
}

#[test]
fn check_class_reports_what_provisioning_refuses() {
    let check = |parameters: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let class = format!(
            "{{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {{name: c}}, provisioner: ebs.csi.example.com, \
             parameters: {parameters}}}"
        );
        std::fs::write(file.path(), class).unwrap();
        said(&["check-class", file.path().to_str().unwrap()])
    };
    assert_eq!(check("{csi.storage.k8s.io/fstype: xfs, type: gp3}").0, Some(0));
    for (parameters, problem) in [
        ("{csi.storage.k8s.io/fstyp: xfs}", "the unknown parameter csi.storage.k8s.io/fstyp"),
        ("{csi.storage.k8s.io/fstype: xfs, fstype: xfs}", "names the file system twice"),
        ("{csi.storage.k8s.io/provisioner-secret-name: a}", "or neither"),
    ] {
        let (status, text) = check(parameters);
        assert!(status == Some(1) && text.contains(problem), "{text}");
    }
}

#[test]
fn features_determine_the_permissions() {
    let rules = |more: &[&str]| {
        let arguments = ["rbac", "--provisioner-name", "ebs.csi.example.com", "--namespace", "kube-system"];
        let (status, text) = said(&[&arguments, more].concat());
        assert_eq!(status, Some(0), "{text}");
        text
    };
    let rule = "- apiGroups:\n  - gateway.networking.k8s.io\n  resources:\n  - referencegrants\n  verbs:\n  - list\n  - watch\n";
    let with = rules(&["--feature-gates=Topology=false,CrossNamespaceVolumeDataSource=true"]);
    assert_eq!(with.replacen(rule, "", 1), rules(&["--feature-gates=Topology=false"]));
    assert!(with.contains(rule), "{with}");
    assert_eq!(rules(&["--feature-gates", "CrossNamespaceVolumeDataSource=false"]), rules(&[]));
    let objects = "  - csistoragecapacities\n  verbs:\n  - list\n  - watch\n  - create\n  - update\n  - delete\n";
    assert!(rules(&["--enable-capacity"]).contains(objects) && !rules(&[]).contains(objects));
    let nodes =
        ["nodes", "csinodes"].map(|name| format!("  resources:\n  - {name}\n  verbs:\n  - get\n  - list\n  - watch\n"));
    assert!(nodes.iter().all(|rule| rules(&[]).contains(rule) && !with.contains(rule)), "{with}");
}

#[test]
fn wrong_arguments_are_one_clear_line_first() {
    for (arguments, status, says) in [
        (&["--unknown"][..], 2, "unexpected argument '--unknown'"),
        (&["--csi-address=tcp://localhost:1"], 2, "write an absolute path or unix:///path"),
        (&["--volume-name-prefix="], 2, "--volume-name-prefix"),
        (&["--leader-election-labels=team"], 2, "expected a label such as team:storage"),
        (&["--feature-gates=CrossNamespaceVolumeDataSource"], 2, "expected a feature such as Topology=false"),
        (&["rbac", "--feature-gates=Topology=maybe"], 2, "expected a feature such as Topology=false"),
        (&["--enable-capacity"], 1, "set it from metadata.namespace"),
        (&["--node-deployment"], 1, "NODE_NAME; set it from the pod's field spec.nodeName"),
        (&["--node-deployment", "--leader-election"], 1, "works without --leader-election"),
        (&["--enable-capacity", "--logging-format=json"], 1, "\"level\":\"ERROR\""),
    ] {
        let (code, text) = said(arguments);
        assert!(code == Some(status) && text.contains(says), "{says}: {code:?} {text}");
    }
}
