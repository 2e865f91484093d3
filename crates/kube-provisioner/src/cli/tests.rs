use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser;

use super::*;
use crate::bucket::{
    Bucket, BucketHooks, BucketProvisioner, GrantOf, Granted, GrantedAccount, ProvisionedBucket, RequestOf,
};
use crate::{
    BucketOptions, Capabilities, Coordination, DeleteError, Hooks, ProvisionError, ProvisionRequest, ProvisionedVolume,
    Provisioner, Volume,
};

#[derive(Parser, Debug)]
struct Flags {
    #[arg(long)]
    root: String,
    #[command(flatten)]
    options: Options,
}

struct Exports;

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "parsed, never read")]
struct Parameters {
    server: String,
    #[serde(default)]
    on_delete: String,
}

impl Provisioner for Exports {
    type Parameters = Parameters;
    async fn provision(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
        Ok(Volume::nfs("server", request.name))
    }
    async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> {
        Ok(())
    }
    fn capabilities() -> Capabilities {
        Capabilities::default().optional_secret("admin")
    }
}

impl Hooks for Exports {
    fn access_rules() -> Vec<crate::rbac::AccessRule> {
        let (group, resource, verbs) = ("example.com", "exports", &["watch"]);
        vec![crate::rbac::AccessRule { group, resource, verbs, names: Vec::new(), namespaced: false }]
    }
}

/// The author's own commands.
#[derive(clap::Subcommand, Debug)]
enum Own {
    Exports { place: String },
}

fn invocation(arguments: &[&str]) -> Result<Invocation<Flags, Own>, clap::Error> {
    read::<Flags, Own, (Exports, Options)>(["p"].iter().chain(arguments).map(OsString::from)).0
}

fn options(more: &[&str]) -> Options {
    match invocation(&[&["--root", "/v", "--provisioner-name", "example.com/p"], more].concat()) {
        Ok(Invocation::Run(arguments)) => arguments.options,
        Ok(_) => panic!("expected Invocation::Run"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn arguments_override_the_go_preset() {
    let plain = options(&[]);
    assert_eq!((plain.api_concurrency, plain.add_finalizer), (32, true));
    let go = options(&["--preset", "go-compat", "--api-concurrency", "9"]);
    assert_eq!((go.api_concurrency, go.add_finalizer, go.failed_provision_threshold), (9, false, 15));
    assert_eq!((go.retry_interval_start, go.retry_interval_max), (Duration::from_secs(15), Duration::from_secs(1000)));
    assert!(go.retry_on_resync && go.provision_timeout == go.delete_timeout);
    assert_eq!(go.delete_timeout, Duration::from_secs(366 * 24 * 3600));
}

#[test]
fn accepts_former_flag_names() {
    let former = ["--workers=9", "--backend-concurrency=8", "--grace-period=7s", "--volume-finalizer=false"];
    let former = options(&[&former[..], &["--admin-address=127.0.0.1:1"]].concat());
    assert_eq!((former.api_concurrency, former.max_concurrent_calls, former.add_finalizer), (9, 8, false));
    assert_eq!(former.shutdown_timeout, Duration::from_secs(7));
    for name in ["--admin-address", "--metrics-address"] {
        assert_eq!(options(&[name, "127.0.0.1:1"]).http_endpoint, "127.0.0.1:1".parse().ok());
    }
}

#[test]
fn rejects_invalid_arguments() {
    for wrong in [&["--preset", "other"][..], &["--api-concurrency", "0"], &["--provision-timeout", "5"], &["extra"]] {
        assert!(
            invocation(&[&["--root", "/v", "--provisioner-name", "example.com/p"], wrong].concat()).is_err(),
            "{wrong:?}"
        );
    }
    for wrong in [&[][..], &[CHECK_CLASS], &[RBAC], &[JOURNAL], &[JOURNAL, "drop", "--provisioner-name", "p"]] {
        assert!(invocation(wrong).is_err(), "{wrong:?}");
    }
}

/// Checks a file with this content.
fn checked(text: &str, options: &[&str]) -> (String, u8) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, text).unwrap();
    let arguments = [&[CHECK_CLASS, file.path().to_str().unwrap()], options].concat();
    match invocation(&arguments) {
        Ok(Invocation::CheckClass(check)) => check.run::<(Exports, Options)>(),
        Ok(_) => panic!("expected Invocation::CheckClass"),
        Err(error) => panic!("{error}"),
    }
}

fn class(more: &str) -> String {
    format!(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: k}}\nprovisioner: example.com/p\n{more}\n"
    )
}

const GOOD: &str = "parameters: {server: s}";

/// Returns the output for a class, line by line.
fn said(more: &str, options: &[&str]) -> Vec<String> {
    let (text, code) = checked(&class(more), options);
    let lines: Vec<String> =
        text.lines().map(|line| line.strip_prefix("storageclass/k: ").unwrap().to_owned()).collect();
    assert_eq!(code, u8::from(lines != ["ok"]));
    lines
}

// Rules: G16.
#[test]
fn check_class_reports_the_events_of_a_rejected_class() {
    assert_eq!(said(GOOD, &[]), ["ok"]);
    assert_eq!(said("parameters: {server: s, adminSecretName: a, adminSecretNamespace: b}", &[]), ["ok"]);
    assert_eq!(
        said("parameters: {sever: s, onDelte: x}", &[]),
        [
            r#"Warning ProvisioningFailed: the claim's StorageClass cannot be used: unknown parameter "onDelte" (did you mean "onDelete"?); unknown parameter "sever" (did you mean "server"?); parameter "server" is required"#
        ]
    );
    assert_eq!(
        said("parameters: {server: s, adminSecretName: a}\nmountOptions: [ro]", &[]),
        [
            "Warning ProvisioningFailed: mountOptions are not supported by this provisioner; remove them",
            r#"Warning ProvisioningFailed: the claim's StorageClass cannot be used: parameter "adminSecretNamespace" is required"#,
        ]
    );
}

// Rules: X3.
#[test]
fn check_class_reports_a_class_that_allows_expansion() {
    assert_eq!(
        said("parameters: {server: s, adminSecretName: a, adminSecretNamespace: b}\nallowVolumeExpansion: true", &[]),
        ["Warning VolumeResizeFailed: volumes cannot be expanded by this provisioner; remove allowVolumeExpansion"]
    );
}

#[test]
fn check_class_reports_what_the_api_server_rejects() {
    assert_eq!(
        said("parameters: {server: 3, onDelete: true, list: [1]}", &[]),
        [
            r#"parameter "list" is not a string"#,
            r#"parameter "onDelete" is true, not a string: put the value in quotes"#,
            r#"parameter "server" is 3, not a string: put the value in quotes"#,
        ]
    );
    assert_eq!(
        said("parametres: {server: s}\nreclaimpolicy: Retain\nspec: {}", &[]),
        [
            r#"unknown field "parametres" (did you mean "parameters"?)"#,
            r#"unknown field "reclaimpolicy" (did you mean "reclaimPolicy"?)"#,
            r#"unknown field "spec""#,
        ]
    );
    assert_eq!(
        said("reclaimPolicy: Keep\nvolumeBindingMode: Later", &[]),
        [
            r#"reclaimPolicy "Keep" is not one of Delete, Retain"#,
            r#"volumeBindingMode "Later" is not one of Immediate, WaitForFirstConsumer"#,
        ]
    );
    let old = checked(&class(GOOD).replace("/v1", "/v1beta1"), &[]);
    assert_eq!(old, ("storageclass/k: apiVersion must be storage.k8s.io/v1\n".to_owned(), 1));
    assert_eq!(checked(&class(GOOD).replace("example.com", "kubernetes.io"), &[]).1, 1);
}

#[test]
fn check_class_verifies_provisioner_name_and_binding_mode() {
    let other = r#"the class names provisioner "example.com/p", but this program serves "example.com/q""#;
    assert_eq!(said(GOOD, &["--provisioner-name", "example.com/q"]), [other]);
    let names = ["--provisioner-name", "example.com/q", "--additional-provisioner-names", "example.com/p"];
    assert_eq!(said(GOOD, &names), ["ok"]);
    let waits = format!("{GOOD}\nvolumeBindingMode: WaitForFirstConsumer");
    let per_node = ["--coordination", "per-node"];
    assert_eq!(said(&waits, &per_node), ["ok"]);
    let problem =
        "with --coordination per-node the scheduler must choose the node: set volumeBindingMode: WaitForFirstConsumer";
    assert_eq!(said(GOOD, &per_node), [problem]);
}

#[test]
fn check_class_reads_files_documents_and_lists() {
    let list = r#"{"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "a"}, "provisioner": "p", "parameters": {"server": "s"}},
        {"apiVersion": "v1", "kind": "Secret"},
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "b"}, "provisioner": "p"}]}"#;
    let (text, code) = checked(list, &[]);
    assert_eq!((text.lines().next(), text.lines().count(), code), (Some("storageclass/a: ok"), 2, 1));
    assert_eq!(checked(&format!("{}---\n{}", class(GOOD), class(GOOD)), &[]).0, "storageclass/k: ok\n".repeat(2));
    let (text, code) = checked(&class(GOOD), &["/no/such/file"]);
    assert_eq!((text.lines().count(), code), (2, 2));
    assert!(text.lines().nth(1).unwrap().starts_with("cannot read /no/such/file: "), "{text}");
    assert_eq!(checked("kind: Secret", &[]).1, 2);
    assert_eq!(checked("a: [", &[]).1, 2);
}

fn manifests(options: &[&str]) -> Result<Vec<serde_json::Value>, String> {
    match invocation(&[&[RBAC, "--provisioner-name", "example.com/p"], options].concat()) {
        Ok(Invocation::Rbac(rbac, options)) => {
            let text = rbac.run::<(Exports, Options)>(&options, Vec::new()).map_err(|error| error.to_string())?;
            Ok(serde_saphyr::from_multiple(&text).unwrap())
        }
        _ => panic!("expected Invocation::Rbac"),
    }
}

#[test]
fn rbac_includes_permissions_of_options_and_hooks() {
    let manifests = |options: &[&str]| manifests(options).unwrap();
    let plain = manifests(&["--namespace", "storage"]);
    let kinds: Vec<_> = plain.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]);
    assert_eq!(plain[0]["metadata"], serde_json::json!({"name": "example.com-p", "namespace": "storage"}));
    let of_cluster = plain[1]["rules"].as_array().unwrap();
    let resources: Vec<_> = of_cluster.iter().map(|rule| rule["resources"][0].as_str().unwrap()).collect();
    assert_eq!(
        resources,
        ["persistentvolumes", "persistentvolumeclaims", "storageclasses", "events", "secrets", "namespaces", "exports"]
    );
    assert_eq!(plain[2]["roleRef"]["name"], plain[1]["metadata"]["name"]);
    // The arguments of a Deployment are accepted, including irrelevant ones.
    let more = manifests(&[
        "--namespace",
        "storage",
        "--service-account",
        "p",
        "--api-concurrency",
        "3",
        "--former-shards",
        "2,3",
    ]);
    assert_eq!(more[4]["subjects"][0]["name"], "p");
    assert_eq!(more[3]["rules"][0]["resourceNames"].as_array().unwrap().len(), 1 + 2 + 3);
    let error = super::tests::manifests(&[]).unwrap_err();
    assert!(error.contains("--namespace"), "{error}");
}

#[test]
fn journal_commands_accept_the_options_they_need() {
    let arguments =
        [JOURNAL, "drop", "pvc-1", "--yes", "--provisioner-name", "example.com/p", "--namespace", "storage"];
    match invocation(&arguments) {
        Ok(Invocation::Journal(_, options)) => {
            assert_eq!((&*options.provisioner_name, options.namespace.as_deref()), ("example.com/p", Some("storage")));
            assert_eq!(options.coordination, Coordination::Lease);
        }
        Ok(_) => panic!("expected Invocation::Journal"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn parses_custom_commands_in_addition_to_common_ones() {
    match invocation(&["exports", "here"]) {
        Ok(Invocation::OfAuthor(Own::Exports { place })) => assert_eq!(place, "here"),
        Ok(_) => panic!("expected Invocation::OfAuthor"),
        Err(error) => panic!("{error}"),
    }
    assert!(matches!(invocation(&[JOURNAL, "list", "--provisioner-name", "p"]), Ok(Invocation::Journal(..))));
    assert!(invocation(&["exports"]).is_err());
}

#[derive(Parser, Debug)]
struct BucketFlags {
    #[command(flatten)]
    options: BucketOptions,
}

struct Store;

impl BucketProvisioner for Store {
    type Parameters = ();
    type Config = ();
    async fn create_bucket(&self, _: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        Err(ProvisionError::invalid("never called"))
    }
    async fn delete_bucket(&self, _: ProvisionedBucket<()>) -> Result<(), DeleteError> {
        Ok(())
    }
    async fn grant(&self, _: GrantOf<Self>) -> Result<Granted, ProvisionError> {
        Err(ProvisionError::invalid("never called"))
    }
    async fn revoke(&self, _: GrantedAccount<()>) -> Result<(), DeleteError> {
        Ok(())
    }
}

impl BucketHooks for Store {}

#[test]
fn a_bucket_program_runs_custom_commands() {
    let listed = Arc::new(Mutex::new(String::new()));
    let list = listed.clone();
    let code = super::Program::new(async |flags: BucketFlags| Ok((Store, flags.options)))
        .commands(async move |Own::Exports { place }| {
            *list.lock().unwrap() = place;
            Ok(())
        })
        .arguments(["p", "exports", "here"])
        .run();
    assert_eq!((code, &**listed.lock().unwrap()), (ExitCode::SUCCESS, "here"));
    let fails = super::Program::new(async |_: BucketFlags| Err::<(Store, BucketOptions), _>("no store".into()));
    assert_eq!(fails.arguments(["p", "--provisioner-name", "example.com/p"]).run(), ExitCode::FAILURE);
}

#[test]
fn rbac_prints_the_permissions_of_the_cosi_controller() {
    let rights = |arguments: &[&str]| {
        let base = ["p", "rbac", "--provisioner-name", "example.com/s3", "--namespace", "n", "--cosi-controller"];
        match read::<BucketFlags, Own, (Store, BucketOptions)>(base.iter().chain(arguments).map(Into::into)).0 {
            Ok(Invocation::Rbac(rbac, options)) => rbac.run::<(Store, BucketOptions)>(&options, Vec::new()),
            Ok(_) => panic!("expected Invocation::Rbac"),
            Err(error) => Err(error.into()),
        }
        .map_err(|error| error.to_string())
    };
    let text = rights(&[]).unwrap();
    // No permissions for a controller of ObjectBucketClaims with the same name.
    for part in ["- cosi-sidecar-leader-s3.example.com\n", "- s3.example.com-journal\n", "bucketaccesses/status"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for part in ["objectbucket", "bucketclaims", "classes", "example.com-s3-journal"] {
        assert!(!text.contains(part), "{part}: {text}");
    }
    assert!(
        rights(&["--cosi-driver-name", "aws.example.com"]).unwrap().contains("cosi-sidecar-leader-aws.example.com")
    );
    assert!(rights(&["--cosi-driver-name", "a_b"]).unwrap_err().contains("--cosi-driver-name"));
    assert!(rights(&["--cosi"]).unwrap_err().contains("cannot be used with"));
    let run = |arguments: &[&str]| {
        let base = ["p", "--provisioner-name", "example.com/s3", "--cosi-controller"];
        let read = read::<BucketFlags, Own, (Store, BucketOptions)>(base.iter().chain(arguments).map(Into::into));
        read.0.map(|invocation| matches!(invocation, Invocation::Run(flags) if flags.options.cosi_controller))
    };
    assert!(run(&[]).unwrap());
    assert!(run(&["--cosi-endpoint", "unix:///a"]).is_err());
}

#[test]
fn programs_reject_options_without_effect() {
    let run = |arguments: &[&str]| {
        let base = ["p", "--provisioner-name", "example.com/s3"];
        read::<BucketFlags, Own, (Store, BucketOptions)>(base.iter().chain(arguments).map(Into::into)).0.map(drop)
    };
    assert!(run(&["--coordination", "none"]).is_ok());
    assert_eq!(run(&["--help"]).unwrap_err().kind(), ErrorKind::DisplayHelp);
    for wrong in [&["--node-name", "n"][..], &["--add-finalizer=true"], &["--volume-finalizer", "false"]] {
        let error = run(wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownArgument, "{error}");
        assert!(error.to_string().contains("this program has no such option"), "{error}");
    }
    let error = run(&["--coordination", "per-node"]).unwrap_err().to_string();
    assert!(error.contains("[possible values: lease, none]"), "{error}");
    let mut program = command::<BucketFlags, Own, (Store, BucketOptions)>();
    let mut helps = vec![program.render_long_help().to_string()];
    for name in [RBAC, CHECK_CLASS] {
        helps.push(program.find_subcommand_mut(name).unwrap().render_long_help().to_string());
    }
    for absent in ["node-name", "add-finalizer", "per-node", "NODE_NAME", "ADD_FINALIZER"] {
        assert!(helps.iter().all(|help| !help.contains(absent)), "{absent}");
    }
    let help = command::<Flags, Own, (Exports, Options)>().render_long_help().to_string();
    for present in ["--node-name", "--add-finalizer", "- per-node", "Replicas:", "Calls and retries:"] {
        assert!(help.contains(present), "{present}: {help}");
    }
}

/// `UPDATE_FLAGS=1` writes the table.
#[test]
fn the_flags_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/book/pages/reference/flags.md");
    let page = std::fs::read_to_string(path).unwrap();
    let program = command::<Flags, Own, (Exports, Options)>();
    let of_buckets = BucketOptions::augment_args(Command::new("p"));
    let of_buckets = of_buckets.get_arguments().filter(|flag| {
        ["allowed_additional_config", "cosi_endpoint", "cosi_controller", "cosi_driver_name"]
            .contains(&flag.get_id().as_str())
    });
    let flags = program.get_arguments().filter(|flag| flag.get_id() != "root").chain(of_buckets).map(row_of);
    let (intro, _) = page.split_once("| flag |").expect("the page has a table");
    let expected =
        format!("{intro}| flag | environment | default | meaning |\n|---|---|---|---|\n{}", String::from_iter(flags));
    if std::env::var_os("UPDATE_FLAGS").is_some() {
        return std::fs::write(path, expected).unwrap();
    }
    assert!(page == expected, "docs/book/pages/reference/flags.md is not up to date; UPDATE_FLAGS=1 writes it");
}

fn row_of(flag: &Arg) -> String {
    let code = |text: &dyn std::fmt::Display| format!("`{text}`");
    let environment = flag.get_env().map(|name| code(&name.display())).unwrap_or_default();
    let default = flag.get_default_values().first().map(|value| code(&value.display())).unwrap_or_default();
    let mut meaning = flag.get_help().map(ToString::to_string).unwrap_or_default();
    for value in flag.get_possible_values() {
        meaning += &value.get_help().map(|help| format!("<br>`{}`: {help}", value.get_name())).unwrap_or_default();
    }
    format!("| `--{}` | {environment} | {default} | {meaning} |\n", flag.get_long().unwrap_or_default())
}

#[tokio::test]
async fn a_client_uses_the_configured_api_server() {
    let mut options = Options::new("example.com/exports");
    options.api_server = Some("http://127.0.0.1:1".parse().unwrap());
    let error = super::client(&options).await.err().unwrap().to_string();
    assert!(error.contains("127.0.0.1:1"), "{error}");
}

#[test]
fn commands_accept_the_preset_option() {
    for command in [&["rbac"][..], &["journal", "list"]] {
        let arguments = [command, &["--preset", "go-compat", "--provisioner-name", "example.com/p"]].concat();
        assert!(invocation(&arguments).is_ok(), "{arguments:?}");
    }
}
