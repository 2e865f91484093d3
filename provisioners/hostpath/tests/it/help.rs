//! What `--help` says is a promise: a change of it is a change of this file's snapshot.

use std::process::Command;

#[test]
fn help_says_every_option_with_its_default_and_unit() {
    let output = Command::new(env!("CARGO_BIN_EXE_hostpath-provisioner")).arg("--help").env_clear().output().unwrap();
    assert!(output.status.success());
    let help = String::from_utf8(output.stdout).unwrap();
    insta::assert_snapshot!(help);
}

#[test]
fn wrong_arguments_are_one_clear_line_first() {
    for (arguments, says) in [
        (&["--root", "/"][..], "--provisioner-name"),
        (&["--root", "/", "--provisioner-name", "Upper/case"], "lower case"),
        (&["--root", "/", "--provisioner-name", "a/b", "--provision-timeout", "5"], "unit"),
        (&["check-class", "/no/such/file"], "cannot read"),
    ] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_hostpath-provisioner")).args(arguments).env_clear().output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(says), "{says}: {text}");
    }
}

#[test]
fn check_class_names_the_settings_of_other_provisioners() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("class.yaml");
    let checked = |metadata: &str, parameters: &str| {
        let class = format!(
            "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: k, {metadata}}}\n\
             provisioner: example.com/p\nparameters: {{{parameters}}}\n"
        );
        std::fs::write(&file, class).unwrap();
        let mut program = Command::new(env!("CARGO_BIN_EXE_hostpath-provisioner"));
        let output = program.arg("check-class").arg(&file).env_clear().output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    for (metadata, parameters, says) in [
        (
            "annotations: {cas.openebs.io/config: x}",
            "",
            "annotation \"cas.openebs.io/config\" is for another provisioner",
        ),
        ("annotations: {defaultVolumeType: local}", "", "use the parameter volumeType"),
        ("", "csi.storage.k8s.io/fstype: ext4", "parameter \"csi.storage.k8s.io/fstype\" is ignored"),
        ("", "pathPattern: '${pvc.metadata.namespace}-${pvc.metadata.name}'", "the claims a/b-c and a-b/c"),
        ("", "pathPattern: '{{ .PVC.Namespace }}'", "Go templates are not supported"),
        ("", "mode: '504'", "write \"0770\""),
    ] {
        let (ok, text) = checked(metadata, parameters);
        assert!(!ok && text.contains(says) && !text.contains("k: ok"), "{says}: {text}");
    }
    assert_eq!(checked("annotations: {other: x}", ""), (true, "storageclass/k: ok\n".to_owned()));
}

#[test]
fn an_empty_environment_variable_counts_as_unset() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_hostpath-provisioner"));
    program.args(["--provisioner-name", "a/b", "--root", "/no/such/root"]).env_clear();
    for name in ["HTTP_ENDPOINT", "TRASH_MAX_SIZE", "SHARDS", "NODE_NAME", "PRESET"] {
        program.env(name, "");
    }
    let text = String::from_utf8_lossy(&program.output().unwrap().stderr).into_owned();
    assert!(text.contains("/no/such/root") && !text.contains("invalid value"), "{text}");
}
