//! Runs the conformance kit on a correct provisioner and on faulty ones.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube_provisioner::conformance::{Conformance, Report, RuleVerdict};
use kube_provisioner::{
    AccessMode, Capabilities, DeleteError, Hooks, Prepared, ProvisionError, ProvisionRequest, ProvisionedVolume,
    Provisioner, Volume,
};
use serde_json::{Value, json};

use crate::toy::{Flaw, TidyToy, Toy, ToyBackend};

fn check(flaw: Flaw) -> Conformance {
    let backend = ToyBackend::default();
    let (assets, hand) = (backend.clone(), backend.clone());
    Conformance::new(move || Toy::new(backend.clone(), flaw), async move || assets.ids())
        .parameters([("tier", "fast")])
        .refuses([("tier", "faster")])
        .refuses([("tier", "fast"), ("colour", "red")])
        .shares_names([("tier", "fast"), ("named", "claim")])
        .manually_created(async move |_, claim| hand.create_manually(claim))
}

/// Returns the same check for a toy with `clean_up`.
fn check_tidy(flaw: Flaw) -> Conformance {
    check_of(flaw, TidyToy).parameters([("tier", "fast")]).refuses([("tier", "faster")])
}

/// Returns a check of a provisioner that wraps a toy.
fn check_of<P: Hooks>(flaw: Flaw, new: fn(Toy) -> P) -> Conformance {
    let backend = ToyBackend::default();
    let assets = backend.clone();
    Conformance::new(move || new(Toy::new(backend.clone(), flaw)), async move || assets.ids())
}

/// Checks one rule.
fn run(check: Conformance, rule: &str) -> Report {
    runtime().block_on(check.only(rule).run())
}

/// Returns the first broken rule, and the observation.
fn first_broken(report: &Report) -> Option<(&'static str, &str)> {
    report.results().iter().find_map(|result| match result.verdict() {
        RuleVerdict::Broken(seen) => Some((result.rule(), seen.as_str())),
        _ => None,
    })
}

#[test]
fn correct_provisioner_passes() {
    check(Flaw::Nothing).seeds(0..20).check();
    check_tidy(Flaw::Nothing).check();
}

#[test]
fn finds_each_flaw_for_the_right_reason() {
    let cases = [
        (Flaw::RandomNames, "idempotent", "the second call of `provision` returned another volume"),
        (Flaw::OnePlace, "separate", "have the same source"),
        (Flaw::DeletesByPrefix, "separate", "after deleting only pvc-"),
        (Flaw::FailsOnMissingAsset, "delete-missing", "`delete` failed 60 times in a row"),
        (Flaw::RemembersInProcess, "delete-missing", "in a process that did not provision"),
        (Flaw::LeavesPartialAssets, "cancel-provision", ".part-"),
        (Flaw::LabelsLate, "cancel-provision", "2 new assets"),
        (Flaw::ForgetsTrash, "cancel-delete", "trash-"),
        (Flaw::TooSmall, "capacity", "the claim asks for 1"),
        (Flaw::DeletesByPath, "foreign-volume", "assets that existed before are missing"),
        (Flaw::SharesNames, "one-name", "and 2 of them got a volume, the backend holds 1 new assets"),
        (Flaw::TakesOver, "manually-created", "the deletion of the claim removed claim-of-pvc-"),
        (Flaw::RetriesBadParameters, "refused-parameters", "can never succeed"),
        (Flaw::ReadyWhenItWorks, "standby", "`probe` before `start`: nothing is set up"),
        (Flaw::ChecksThenCreates, "two-replicas", "not every claim has one volume and one asset"),
        (Flaw::Panics, "provision", "panicked: no way to delete"),
        (Flaw::CleansUpWithoutParts, "abandoned", ".part"),
        (Flaw::CleansUpByTrash, "clean-up", "trash-"),
        (Flaw::StopsHalfway, "fencing-token", "scratch-"),
        (Flaw::ExpandsFromMemory, "expand", "in a new process: `expand` failed 60 times in a row"),
        (Flaw::RefusesLate, "nothing-left", "has said NothingLeft"),
    ];
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/book/pages/reference/conformance.md"))
            .unwrap();
    let rules: Vec<String> = page.lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_owned).collect();
    for (flaw, rule, text) in cases {
        // The flaw may also break later rules.
        let simpler = rules.iter().map(String::as_str).take_while(|known| *known != rule).chain([rule]);
        let tidy = matches!(flaw, Flaw::CleansUpWithoutParts | Flaw::CleansUpByTrash | Flaw::ExpandsFromMemory);
        let check = if tidy { check_tidy(flaw) } else { check(flaw) };
        let check = simpler.fold(check, |check, rule| check.only(rule));
        let report = runtime().block_on(check.run());
        let (first, seen) = first_broken(&report).unwrap_or_else(|| panic!("{flaw:?} was not found"));
        assert_eq!(first, rule, "{flaw:?}: {seen}");
        assert!(seen.contains(text), "{flaw:?}: {seen}");
        assert!(!report.is_kept());
    }
}

#[test]
#[should_panic(expected = ".only(\"storm\").seeds([")]
fn failed_storm_reports_how_to_repeat_it() {
    check(Flaw::RandomNames).only("storm").seeds(0..20).check();
}

#[test]
#[should_panic(expected = "see docs/book/pages/reference/conformance.md#capacity")]
fn failure_links_to_the_documentation_of_the_rule() {
    check(Flaw::TooSmall).only("capacity").check();
}

#[test]
#[should_panic(expected = "there is no rule \"idempotence\"")]
fn rejects_unknown_rule_names() {
    drop(check(Flaw::Nothing).only("idempotence"));
}

#[test]
fn rules_that_do_not_apply_report_the_reason() {
    let report = run(check_of(Flaw::Nothing, |toy| toy), "refused-parameters");
    let why = "`.refuses(..)` names no bad parameters".to_owned();
    assert_eq!(report.results()[0].verdict(), &RuleVerdict::NotApplicable(why));
}

/// A provisioner that declares one of two capabilities, but implements neither method.
struct Declared<const EXPANSION: bool>(Toy);

impl<const EXPANSION: bool> Provisioner for Declared<EXPANSION> {
    type Parameters = <Toy as Provisioner>::Parameters;

    async fn provision(&self, request: ProvisionRequest<Self::Parameters>) -> Result<Volume, ProvisionError> {
        self.0.provision(request).await
    }

    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        self.0.delete(volume).await
    }

    fn capabilities() -> Capabilities {
        if EXPANSION { Capabilities::default().expansion() } else { Capabilities::default().attempt_end() }
    }
}

impl<const EXPANSION: bool> Hooks for Declared<EXPANSION> {}

/// A provisioner that implements `end_attempt`, but does not declare it.
struct Undeclared(Toy);

impl Provisioner for Undeclared {
    type Parameters = <Toy as Provisioner>::Parameters;

    async fn provision(&self, request: ProvisionRequest<Self::Parameters>) -> Result<Volume, ProvisionError> {
        self.0.provision(request).await
    }

    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        self.0.delete(volume).await
    }
}

impl Hooks for Undeclared {
    async fn end_attempt(&self, _: ProvisionRequest<<Toy as Provisioner>::Parameters>) -> Result<(), DeleteError> {
        Ok(())
    }
}

/// A provisioner whose volumes have only one of the access modes that it declares.
struct OneMode(Toy);

impl Provisioner for OneMode {
    type Parameters = <Toy as Provisioner>::Parameters;

    async fn provision(&self, request: ProvisionRequest<Self::Parameters>) -> Result<Volume, ProvisionError> {
        Ok(self.0.provision(request).await?.access_modes([AccessMode::ReadWriteMany]))
    }

    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        self.0.delete(volume).await
    }

    fn capabilities() -> Capabilities {
        Capabilities::default().access_modes([AccessMode::ReadWriteMany, AccessMode::ReadWriteOnce])
    }
}

impl Hooks for OneMode {}

fn check_declared<const EXPANSION: bool>(rule: &str) -> Report {
    run(check_of(Flaw::Nothing, Declared::<EXPANSION>).parameters([("tier", "fast")]), rule)
}

#[test]
fn finds_declarations_that_the_methods_contradict() {
    for (report, rule, text) in [
        (check_declared::<true>("expand"), "expand", "declares `expansion`, but there is no method `expand`"),
        (check_declared::<false>("provision"), "provision", "declares `attempt_end`, but there is no method"),
        (run(check_of(Flaw::Nothing, Undeclared), "provision"), "provision", "does not declare `attempt_end`"),
        (run(check_of(Flaw::Nothing, OneMode), "provision"), "provision", "for a claim with ReadWriteOnce: "),
    ] {
        let (first, seen) = first_broken(&report).unwrap_or_else(|| panic!("{rule}: {report}"));
        assert!(first == rule && seen.contains(text), "{first}: {seen}");
    }
}

#[test]
fn supports_backends_that_need_real_time() {
    std::thread::scope(|scope| {
        for rule in Conformance::rules() {
            scope.spawn(move || check(Flaw::Nothing).real_time().seeds(0..2).only(rule).check());
        }
    });
}

/// A provisioner that needs a ConfigMap, a Secret of the class, and the zone of a node.
struct Connected {
    client: kube::Client,
    toy: Toy,
}

impl Provisioner for Connected {
    type Parameters = <Toy as Provisioner>::Parameters;

    async fn provision(&self, request: ProvisionRequest<Self::Parameters>) -> Result<Volume, ProvisionError> {
        let settings: Api<ConfigMap> = Api::namespaced(self.client.clone(), "default");
        let server = settings.get("settings").await?.data.and_then(|data| data.get("server").cloned());
        let zone: Option<String> = request.prepared.read()?;
        match (server, request.secrets.text("admin", "password"), zone.as_deref()) {
            (Some(_), Some("open sesame"), Some("a")) => self.toy.provision(request).await,
            other => Err(ProvisionError::invalid(format!("the objects are not there: {other:?}"))),
        }
    }

    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        if volume.secrets.has("admin") {
            self.toy.delete(volume).await
        } else {
            Err(DeleteError::retry("the Secret is not there"))
        }
    }

    fn capabilities() -> Capabilities {
        Capabilities::default().node_labels().secret("admin")
    }
}

impl Hooks for Connected {
    async fn prepare(
        &self,
        request: ProvisionRequest<<Toy as Provisioner>::Parameters>,
    ) -> Result<Prepared, ProvisionError> {
        Ok(Prepared::new(&request.zone())?)
    }
}

fn connected(objects: Vec<Value>) -> Conformance {
    let backend = ToyBackend::default();
    let assets = backend.clone();
    let start = move |client| Connected { client, toy: Toy::new(backend.clone(), Flaw::Nothing) };
    Conformance::with_client(start, async move || assets.ids())
        .parameters([("adminSecretName", "admin"), ("adminSecretNamespace", "default")])
        .node("node-a")
        .objects(objects)
}

#[test]
fn supports_provisioners_that_need_a_client_and_objects() {
    let zone = json!({"topology.kubernetes.io/zone": "a"});
    let objects = vec![
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a", "labels": zone}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "default"},
            "data": {"server": "s"}}),
        // The password is `open sesame`.
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "admin", "namespace": "default"},
            "data": {"password": "b3BlbiBzZXNhbWU="}}),
    ];
    connected(objects.clone()).seeds(0..3).check();
    let report = runtime().block_on(connected(objects[..2].to_vec()).run());
    let (first, seen) = first_broken(&report).unwrap();
    assert_eq!(first, "provision");
    assert!(seen.contains("has no Secret default/admin"), "{seen}");
}

/// A provisioner that needs the node's zone in every call.
struct AsksAgain(Toy);

impl Provisioner for AsksAgain {
    type Parameters = <Toy as Provisioner>::Parameters;

    async fn provision(&self, request: ProvisionRequest<Self::Parameters>) -> Result<Volume, ProvisionError> {
        if request.zone().is_none() {
            return Err(ProvisionError::invalid("no zone is known"));
        }
        self.0.provision(request).await
    }

    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        self.0.delete(volume).await
    }

    fn capabilities() -> Capabilities {
        Capabilities::default().node_labels()
    }
}

impl Hooks for AsksAgain {}

#[test]
fn finds_provisioners_that_need_the_node_in_every_call() {
    let labels = json!({"topology.kubernetes.io/zone": "a"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a", "labels": labels}});
    let report = run(check_of(Flaw::Nothing, AsksAgain).node("node-a").objects([node]), "abandoned");
    let (rule, seen) = first_broken(&report).unwrap();
    assert!(rule == "abandoned" && seen.contains("claim, with its node, was deleted"), "{rule}: {seen}");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}
