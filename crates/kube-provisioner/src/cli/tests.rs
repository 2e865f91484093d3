use std::time::Duration;

use super::*;
use crate::{Capabilities, Coordination, DeleteError, ProvisionError, ProvisionRequest, ProvisionedVolume, Volume};

#[derive(Parser, Debug)]
struct Program {
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
    fn access_rules() -> Vec<crate::rbac::AccessRule> {
        let (group, resource, verbs) = ("example.com", "exports", &["watch"]);
        vec![crate::rbac::AccessRule { group, resource, verbs, names: Vec::new(), namespaced: false }]
    }
}

/// Commands of the author's.
#[derive(clap::Subcommand, Debug)]
enum Own {
    Exports { place: String },
}

fn invocation(arguments: &[&str]) -> Result<Invocation<Program, Own>, clap::Error> {
    read::<Program, Own, Volumes<Exports>>(["p"].iter().chain(arguments).map(OsString::from))
}

fn options(more: &[&str]) -> Options {
    match invocation(&[&["--root", "/v", "--provisioner-name", "example.com/p"], more].concat()) {
        Ok(Invocation::Run(arguments)) => arguments.options,
        Ok(_) => panic!("no command was asked for"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_go_preset_changes_defaults_and_arguments_win() {
    let plain = options(&[]);
    assert_eq!((plain.workers, plain.volume_finalizer), (32, true));
    let go = options(&["--preset", "go-compat", "--workers", "9"]);
    assert_eq!((go.workers, go.volume_finalizer, go.failed_provision_threshold), (9, false, 15));
    assert_eq!((go.retry_interval_start, go.retry_interval_max), (Duration::from_secs(15), Duration::from_secs(1000)));
    assert!(go.retry_on_resync);
}

#[test]
fn wrong_arguments_are_errors() {
    for wrong in [&["--preset", "other"][..], &["--workers", "0"], &["--provision-timeout", "5"], &["extra"]] {
        assert!(
            invocation(&[&["--root", "/v", "--provisioner-name", "example.com/p"], wrong].concat()).is_err(),
            "{wrong:?}"
        );
    }
    for wrong in [&[][..], &[CHECK_CLASS], &[RBAC], &[JOURNAL], &[JOURNAL, "drop", "--provisioner-name", "p"]] {
        assert!(invocation(wrong).is_err(), "{wrong:?}");
    }
}

/// Checks a file of this text.
fn checked(text: &str, options: &[&str]) -> (String, u8) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, text).unwrap();
    let arguments = [&[CHECK_CLASS, file.path().to_str().unwrap()], options].concat();
    match invocation(&arguments) {
        Ok(Invocation::CheckClass(check)) => check.run::<Volumes<Exports>>(),
        Ok(_) => panic!("a check was asked for"),
        Err(error) => panic!("{error}"),
    }
}

fn class(more: &str) -> String {
    format!(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: k}}\nprovisioner: example.com/p\n{more}\n"
    )
}

const GOOD: &str = "parameters: {server: s}";

/// What is said of a class, line by line.
fn said(more: &str, options: &[&str]) -> Vec<String> {
    let (text, code) = checked(&class(more), options);
    let lines: Vec<String> =
        text.lines().map(|line| line.strip_prefix("storageclass/k: ").unwrap().to_owned()).collect();
    assert_eq!(code, u8::from(lines != ["ok"]));
    lines
}

#[test]
fn g16_a_class_is_checked_before_it_is_used() {
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

#[test]
fn x3_a_class_that_promises_growth_is_named() {
    assert_eq!(
        said("parameters: {server: s, adminSecretName: a, adminSecretNamespace: b}\nallowVolumeExpansion: true", &[]),
        ["Warning VolumeResizeFailed: volumes cannot be expanded by this provisioner; remove allowVolumeExpansion"]
    );
}

#[test]
fn what_the_server_would_refuse_is_named() {
    assert_eq!(
        said("parameters: {server: 3, onDelete: true, list: [1]}", &[]),
        [
            r#"parameter "list" is not a text"#,
            r#"parameter "onDelete" is true, not a text: put the value in quotes"#,
            r#"parameter "server" is 3, not a text: put the value in quotes"#,
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
fn a_class_must_be_of_this_provisioner_and_fit_its_coordination() {
    let other = r#"provisioner "example.com/p" is another one: this is "example.com/q""#;
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
fn several_files_documents_and_lists_are_read() {
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
            let text = rbac.run::<Volumes<Exports>>(&options).map_err(|error| error.to_string())?;
            Ok(serde_saphyr::from_multiple(&text).unwrap())
        }
        _ => panic!("manifests were asked for"),
    }
}

#[test]
fn rbac_prints_what_these_options_and_the_author_need() {
    let manifests = |options: &[&str]| manifests(options).unwrap();
    let plain = manifests(&["--namespace", "storage"]);
    let kinds: Vec<_> = plain.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]);
    assert_eq!(plain[0]["metadata"], serde_json::json!({"name": "example.com-p", "namespace": "storage"}));
    let of_cluster = plain[1]["rules"].as_array().unwrap();
    let resources: Vec<_> = of_cluster.iter().map(|rule| rule["resources"][0].as_str().unwrap()).collect();
    assert_eq!(
        resources,
        ["persistentvolumes", "persistentvolumeclaims", "storageclasses", "events", "secrets", "exports"]
    );
    assert_eq!(plain[2]["roleRef"]["name"], plain[1]["metadata"]["name"]);
    // The arguments of a Deployment are welcome, also those that do not matter here.
    let more =
        manifests(&["--namespace", "storage", "--service-account", "p", "--workers", "3", "--former-shards", "2,3"]);
    assert_eq!(more[4]["subjects"][0]["name"], "p");
    assert_eq!(more[3]["rules"][0]["resourceNames"].as_array().unwrap().len(), 1 + 2 + 3);
    let error = super::tests::manifests(&[]).unwrap_err();
    assert!(error.contains("--namespace"), "{error}");
}

#[test]
fn journal_commands_take_the_options_they_need() {
    let arguments =
        [JOURNAL, "drop", "pvc-1", "--yes", "--provisioner-name", "example.com/p", "--namespace", "storage"];
    match invocation(&arguments) {
        Ok(Invocation::Journal(_, options)) => {
            assert_eq!((&*options.provisioner_name, options.namespace.as_deref()), ("example.com/p", Some("storage")));
            assert_eq!(options.coordination, Coordination::Lease);
        }
        Ok(_) => panic!("a journal was asked for"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn an_author_has_commands_of_their_own_beside_the_common_ones() {
    match invocation(&["exports", "here"]) {
        Ok(Invocation::OfAuthor(Own::Exports { place })) => assert_eq!(place, "here"),
        Ok(_) => panic!("the author's command was asked for"),
        Err(error) => panic!("{error}"),
    }
    assert!(matches!(invocation(&[JOURNAL, "list", "--provisioner-name", "p"]), Ok(Invocation::Journal(..))));
    assert!(invocation(&["exports"]).is_err());
}
