//! A snapshot of `--help`, which users rely on.

use kube_provisioner::CommandLine;

const PROGRAM: CommandLine = CommandLine::of(env!("CARGO_BIN_EXE_gcs-provisioner"));

#[test]
fn help_says_every_option_with_its_default_and_unit() {
    let help = PROGRAM.run(&["--help"]).1;
    // The other options are the same in each bucket provisioner. The snapshot of aws-s3-provisioner contains them.
    insta::assert_snapshot!(help.split("\nKubernetes:\n").next().unwrap_or_default());
}

#[test]
fn accepts_only_one_kind_of_credentials() {
    let both = ["--provisioner-name", "gcs.example.com/bucket", "--workload-identity", "--credentials-file", "x"];
    PROGRAM.refuses(&[(&both, "cannot be used with")]);
}

#[test]
fn exits_if_a_proxy_is_invalid() {
    for variable in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY"] {
        let environment = [(variable, "socks5://user:secret@proxy.example.com")];
        let (success, text) = PROGRAM.run_with(&["--provisioner-name", "gcs.example.com/bucket"], &environment);
        let says = format!("{} is not a valid proxy URL", variable.to_uppercase());
        assert!(!success && text.contains(&says) && !text.contains("secret"), "{text}");
    }
}
