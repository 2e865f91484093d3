//! The output of `--help` is stable: a change requires a change of this file's snapshot.

use std::process::Command;

use kube_provisioner::CommandLine;

const PROGRAM: CommandLine = CommandLine::of(env!("CARGO_BIN_EXE_hostpath-provisioner"));

#[test]
fn help_says_every_option_with_its_default_and_unit() {
    insta::assert_snapshot!(PROGRAM.run(&["--help"]).1);
}

#[test]
fn wrong_arguments_are_one_clear_line_first() {
    PROGRAM.refuses(&[
        (&["--root", "/"], "--provisioner-name"),
        (&["--root", "/", "--provisioner-name", "Upper/case"], "lower case"),
        (&["--root", "/", "--provisioner-name", "a/b", "--provision-timeout", "5"], "unit"),
        (&["check-class", "/no/such/file"], "cannot read"),
    ]);
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
        PROGRAM.run(&["check-class", file.to_str().unwrap()])
    };
    for (metadata, parameters, says) in [
        (
            "annotations: {cas.openebs.io/config: x}",
            "",
            "annotation \"cas.openebs.io/config\" is for another provisioner",
        ),
        ("annotations: {defaultVolumeType: local}", "", "use the parameter volumeType"),
        ("", "csi.storage.k8s.io/fstype: ext4", "parameter \"csi.storage.k8s.io/fstype\" is ignored"),
        ("", "trashTtl: 30d", "parameter \"trashTtl\" is ignored"),
    ] {
        let (ok, text) = checked(metadata, parameters);
        assert!(!ok && text.contains(says) && !text.contains("k: ok"), "{says}: {text}");
    }
    assert_eq!(checked("annotations: {other: x}", ""), (true, "storageclass/k: ok\n".to_owned()));
}

#[test]
fn an_empty_environment_variable_counts_as_unset() {
    let empty = ["HTTP_ENDPOINT", "TRASH_MAX_SIZE", "SHARDS", "NODE_NAME", "PRESET"].map(|name| (name, ""));
    let (_, text) = PROGRAM.run_with(&["--provisioner-name", "a/b", "--root", "/no/such/root"], &empty);
    assert!(text.contains("/no/such/root") && !text.contains("invalid value"), "{text}");
}

#[test]
fn an_error_that_ends_the_program_has_the_format_of_the_log() {
    let name = ["--provisioner-name", "a/b"];
    for (arguments, code, says) in [
        (&["--root", "/no/such/root"][..], 1, "/no/such/root"),
        (&[], 2, "--root"),
        (&["--root", "/", "--log-format", "json", "--shards", "0"], 2, "--shards"),
    ] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_hostpath-provisioner"));
        program.args(name).args(arguments).env_clear().env("LOG_FORMAT", "json");
        let output = program.output().unwrap();
        let lines = String::from_utf8(output.stderr).unwrap();
        let line: serde_json::Value = serde_json::from_str(&lines).unwrap_or_else(|_| panic!("{lines}"));
        assert_eq!((output.status.code(), lines.lines().count()), (Some(code), 1), "{lines}");
        assert_eq!((&line["level"], &line["target"]), (&"ERROR".into(), &"hostpath-provisioner".into()), "{lines}");
        assert!(line["message"].as_str().unwrap().contains(says), "{lines}");
    }
    let (_, text) = PROGRAM.run_with(&["check-class"], &[("LOG_FORMAT", "json")]);
    assert!(text.starts_with("error: "), "commands print text for users");
}
