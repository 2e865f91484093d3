//! Tests of the command lines of both modes.

use kube_provisioner::CommandLine;

const PROGRAM: CommandLine = CommandLine::of(env!("CARGO_BIN_EXE_nfs-provisioner"));

#[test]
fn each_mode_lists_its_options() {
    for (mode, options) in [
        (
            "subdir",
            &["--share", "--allow-local-directory", "--trash-max-size", "--coordination", "orphans", "check-class"][..],
        ),
        (
            "server",
            &[
                "--export-directory",
                "--server-hostname",
                "--export-subnet",
                "--export-clients",
                "--export-privileged-port",
                "--max-exports",
                "--nfs-grace-period",
                "--trash-max-size",
            ],
        ),
    ] {
        let (ok, text) = PROGRAM.run(&[mode, "--help"]);
        assert!(ok && text.starts_with("Creates a directory") | text.starts_with("Runs an NFS server"), "{text}");
        for option in options {
            assert!(text.contains(option), "{mode} {option}");
        }
    }
    let (ok, text) = PROGRAM.run(&["--help"]);
    assert!(ok && text.contains("subdir") && text.contains("server"), "{text}");
}

#[test]
fn wrong_arguments_are_one_clear_line_first() {
    PROGRAM.refuses(&[
        (&[], "subdir"),
        (&["export"], "unrecognized subcommand"),
        (&["subdir", "--provisioner-name", "a/b"], "--share"),
        (&["subdir", "--share", "server:relative=/x", "--provisioner-name", "a/b"], "SERVER:/PATH=DIR"),
        (&["subdir", "--share", "s:/a=/x", "--share", "s:/a/b=/y", "--provisioner-name", "a/b"], "overlap"),
        (&["subdir", "orphans", "--share", "s:/a=/x,t:/b=/y", "--provisioner-name", "a/b"], "one of the shares"),
        (&["server", "--provisioner-name", "a/b"], "--server-hostname"),
        (&["server", "--server-hostname", "h", "--export-subnet", "*; }", "--provisioner", "a/b"], "a subnet"),
        (
            &["server", "--server-hostname", "h", "--nfs-grace-period", "181s", "--provisioner-name", "a/b"],
            "180s at most",
        ),
        (&["server", "--server-hostname", "h", "--max-exports", "-5", "--provisioner", "a/b"], "-1..=65535"),
        (&["server", "--server-hostname", "h", "--export-directory", "/none", "--provisioner", "a/b"], "/none"),
        (&["server", "--server-hostname", "h", "--export-directory", "/", "--provisioner", "a/b"], "name a directory"),
    ]);
}

/// `check-class` notes that an adopted class uses the default of its former provisioner.
#[test]
fn check_class_notes_defaults_of_the_former_provisioner() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("class.yaml");
    let checked = |parameters: &str, more: &[&str]| {
        let class = format!(
            "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: files}}\n\
             provisioner: cluster.local/files\nparameters: {{{parameters}}}\n"
        );
        std::fs::write(&file, class).unwrap();
        PROGRAM.run(&[&["subdir", "check-class", file.to_str().unwrap()][..], more].concat())
    };
    let names = ["--provisioner-name", "example.com/nfs", "--additional-provisioner-names", "cluster.local/files"];
    let (ok, text) = checked("", &names);
    assert!(ok && text.contains("files: ok") && text.contains("note: the class sets neither onDelete nor"), "{text}");
    let (ok, text) = checked("archiveOnDelete: \"false\"", &names);
    assert!(ok && text.contains("files: ok") && !text.contains("note:"), "{text}");
}
