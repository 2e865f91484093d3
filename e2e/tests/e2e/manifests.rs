//! Compares `deploy/` with the code. These tests need no control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Command, Stdio};

use anyhow::Context;
use regex::Regex;
use serde_json::Value;
use testbed::cluster::provisioner_program;
use testbed::manifests::{PROVISIONERS, compare, is_up_to_date, parse, project, rules};

fn read(path: &str) -> String {
    fs::read_to_string(project().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn charts_match_the_permissions_and_options_of_their_programs() -> anyhow::Result<()> {
    for provisioner in &PROVISIONERS {
        compare(&provisioner.chart_files(&provisioner_program)?)?;
    }
    Ok(())
}

#[test]
fn charts_have_metadata_and_consistent_defaults() -> anyhow::Result<()> {
    for provisioner in &PROVISIONERS {
        let file = |name: &str| anyhow::Ok(parse(&read(&provisioner.chart().join(name).to_string_lossy()))?.remove(0));
        let chart = file("Chart.yaml")?;
        // A release adds `home` and `sources`, which contain the address of its repository.
        for field in ["icon", "keywords", "maintainers"] {
            assert!(chart[field].is_string() || chart[field][0] != Value::Null, "{}: no {field}", provisioner.name);
        }
        let level = chart["annotations"]["kube-provisioner/pod-security"].as_str();
        let namespace =
            &parse(&read(&format!("deploy/{}/{}/namespace.yaml", provisioner.folder, provisioner.variants[0].folder)))?
                [0];
        assert_eq!(
            namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"].as_str(),
            level,
            "{}",
            provisioner.name
        );
        let readme = read(&provisioner.chart().join("README.md").to_string_lossy());
        assert!(
            readme.contains(&format!("pod-security.kubernetes.io/enforce={}", level.unwrap_or_default())),
            "{}",
            provisioner.name
        );
        let values = file("values.yaml")?;
        assert!(
            values["provisionerName"].as_str().unwrap_or_default().starts_with("kube-provisioner/"),
            "{}",
            provisioner.name
        );
        assert_eq!(values["priorityClassName"], "", "{}", provisioner.name);
    }
    Ok(())
}

#[test]
fn plain_manifests_are_rendered_from_the_charts() -> anyhow::Result<()> {
    for provisioner in &PROVISIONERS {
        for variant in provisioner.variants {
            let current = is_up_to_date(provisioner, variant)?;
            assert!(current, "{}/{}: run `cargo xtask manifests`", provisioner.folder, variant.folder);
        }
    }
    Ok(())
}

/// The charts themselves set the names in the permissions and the variables of the pods.
#[test]
fn cosi_manifests_match_the_permissions_and_options_of_their_programs() -> anyhow::Result<()> {
    let mut count = 0;
    for provisioner in PROVISIONERS.iter().filter(|provisioner| provisioner.has_cosi()) {
        let folder = format!("deploy/{}/cosi", provisioner.folder);
        let program = provisioner_program(provisioner.package)?;
        let deployment = parse(&read(&format!("{folder}/deployment.yaml")))?.remove(0);
        let variables = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array();
        let variables = variables.with_context(|| format!("{folder}: no variables"))?;
        let help = Command::new(&program).args(provisioner.mode).arg("--help").env_clear().output()?.stdout;
        let help = String::from_utf8(help)?;
        let value = |name: &str| variables.iter().find(|variable| variable["name"] == name)?["value"].as_str();
        for variable in variables.iter().filter_map(|variable| variable["name"].as_str()) {
            assert!(help.contains(&format!("[env: {variable}=")), "{folder}: the program does not know {variable}");
        }
        assert_eq!(value("COSI_CONTROLLER"), Some("true"), "{folder}");
        let name = value("PROVISIONER_NAME").with_context(|| format!("{folder}: no name"))?;
        let roles = parse(&read(&format!("{folder}/rbac.yaml")))?;
        let expected = rules(&program, provisioner.mode, name, &["--cosi-controller"])?;
        for (kind, expected) in ["ClusterRole", "Role"].into_iter().zip(expected) {
            let role =
                roles.iter().find(|role| role["kind"] == kind).with_context(|| format!("{folder}: no {kind}"))?;
            assert_eq!(role["rules"], expected, "{folder}: {kind}");
        }
        assert!(!project().join(&folder).join("storageclasses.yaml").exists(), "{folder} has a StorageClass");
        count += 1;
    }
    assert!(count > 3, "{count}");
    Ok(())
}

#[test]
fn programs_accept_their_storage_classes() -> anyhow::Result<()> {
    let mut count = 0;
    for provisioner in &PROVISIONERS {
        for variant in provisioner.variants {
            let file =
                project().join("deploy").join(provisioner.folder).join(variant.folder).join("storageclasses.yaml");
            if !file.is_file() {
                continue;
            }
            let name = parse(&fs::read_to_string(&file)?)?[0]["provisioner"].as_str().unwrap_or_default().to_owned();
            let mut check = Command::new(provisioner_program(provisioner.package)?);
            check.args(provisioner.mode).args(["check-class", "--provisioner-name", &name]).arg(&file).env_clear();
            let output = check.stdin(Stdio::null()).output()?;
            let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.contains(": ok"), "{}: {said}", file.display());
            count += 1;
        }
    }
    assert!(count >= PROVISIONERS.len());
    Ok(())
}

/// Rows with resources and verbs, in the format of the table in docs/book/pages/operate/rights.md.
fn granted(rights: &Value) -> BTreeSet<String> {
    let words = |value: &Value| {
        let words: Vec<_> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        words.join(" ")
    };
    let scopes = rights
        .as_object()
        .into_iter()
        .flat_map(|modes| modes.values())
        .flat_map(|mode| [("cluster", &mode["cluster"]), ("own", &mode["namespace"])]);
    let row = |scope: &str, rule: &Value| {
        let named = if rule["resourceNames"].is_array() { ", by name" } else { "" };
        format!("| `{}` | `{}` | {scope}{named} |", words(&rule["resources"]), words(&rule["verbs"]))
    };
    scopes.flat_map(|(scope, rules)| rules.as_array().into_iter().flatten().map(move |rule| row(scope, rule))).collect()
}

#[test]
fn every_permission_is_documented() -> anyhow::Result<()> {
    let mut rows = BTreeSet::new();
    for provisioner in &PROVISIONERS {
        let file = provisioner.chart().join("files/rights.yaml");
        rows.extend(granted(&parse(&read(&file.to_string_lossy()))?[0]));
    }
    assert!(rows.len() > 10, "{rows:?}");
    let page = read("docs/book/pages/operate/rights.md");
    let (_, section) =
        page.split_once("## Permissions\n").expect("docs/book/pages/operate/rights.md has a section about permissions");
    let section = section.split("\n## ").next().unwrap_or_default();
    let explained = Regex::new(r"(?m)^(\| `[^|]*` \| `[^|]*` \| [^|]* \|) .+\|$")?;
    let explained: BTreeSet<String> = explained.captures_iter(section).map(|row| row[1].to_owned()).collect();
    assert_eq!(rows.difference(&explained).collect::<Vec<_>>(), Vec::<&String>::new(), "undocumented permissions");
    assert_eq!(explained.difference(&rows).collect::<Vec<_>>(), Vec::<&String>::new(), "not granted by any chart");
    Ok(())
}

/// The metrics in the code, with their descriptions, by the calls that register them.
fn metrics() -> anyhow::Result<BTreeMap<String, &'static str>> {
    let files = [
        ("crates/provisioner-runtime/src/metrics.rs", "page", "provisioner_"),
        ("crates/kube-provisioner/src/controller/volume/metrics.rs", "go", "controller_"),
        ("crates/kube-provisioner/src/controller/shared/metrics.rs", "ours", "provisioner_"),
        ("crates/kube-provisioner/src/controller/volume/metrics.rs", "gauge", "provisioner_"),
        ("crates/kube-provisioner/src/controller/shared/metrics.rs", "ours", "bucket_provisioner_"),
        ("crates/kube-provisioner/src/controller/bucket/metrics.rs", "gauge", "bucket_provisioner_"),
        ("crates/kube-provisioner/src/controller/shared/metrics.rs", "ours", "cosi_controller_"),
        ("provisioners/hostpath/src/metrics.rs", "gauge", "provisioner_"),
    ];
    let mut found = BTreeMap::new();
    for (file, receiver, prefix) in files {
        let text = read(file);
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let call = Regex::new(&format!(r#"\b{receiver}(?:\.(gauges|counters|register))?\(\s*"([a-z_]+)""#))?;
        let before = found.len();
        for call in call.captures_iter(code) {
            let kind = match call.get(1).map(|method| method.as_str()) {
                Some("counters") => "counter",
                Some("register") if call[2].ends_with("_seconds") => "histogram",
                Some("register") => "counter",
                _ => "gauge",
            };
            found.insert(format!("{prefix}{}", &call[2]), kind);
        }
        assert!(found.len() > before, "{file}: {receiver} registers no metric");
    }
    Ok(found)
}

#[test]
fn every_metric_is_documented() -> anyhow::Result<()> {
    let page = read("docs/book/pages/reference/metrics.md");
    let row = Regex::new(r"(?m)^\| `([a-z_]+)` \| ([a-z]+) \|")?;
    let explained: BTreeSet<_> = row.captures_iter(&page).map(|row| format!("{} {}", &row[1], &row[2])).collect();
    let suffix = |kind: &str| if kind == "counter" { "_total" } else { "" };
    let made = metrics()?.into_iter().map(|(name, kind)| format!("{name}{} {kind}", suffix(kind)));
    assert_eq!(explained, made.collect());
    Ok(())
}

#[test]
fn rules_and_dashboard_use_existing_metrics() -> anyhow::Result<()> {
    let metrics = metrics()?;
    let word = Regex::new(r"\b(?:provisioner|bucket_provisioner|controller)_[a-z_]+\b")?;
    for file in ["rules.yaml", "rules_test.yaml", "dashboard.json"] {
        let text = read(&format!("deploy/monitoring/{file}"));
        let used: BTreeSet<_> = word.find_iter(&text).map(|found| found.as_str()).collect();
        assert!(used.len() > 10, "{file}: {used:?}");
        for name in used {
            let exists = metrics.iter().any(|(metric, kind)| match *kind {
                "counter" => name == format!("{metric}_total"),
                "histogram" => ["bucket", "sum", "count"].iter().any(|part| name == format!("{metric}_{part}")),
                _ => name == metric,
            });
            assert!(exists, "{file} uses {name}, which no program exports: {metrics:?}");
        }
    }
    Ok(())
}

/// `cargo xtask rules` evaluates the panels' expressions; these checks need no Prometheus.
#[test]
fn panels_are_described_and_do_not_overlap() -> anyhow::Result<()> {
    let dashboard: Value = serde_json::from_str(&read("deploy/monitoring/dashboard.json"))?;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let (mut ids, mut titles, mut places) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        let title = panel["title"].as_str().context("a panel has no title")?;
        assert!(
            ids.insert(panel["id"].as_u64()) && titles.insert(title),
            "{title}: two panels have the same id or title"
        );
        let place = |name: &str| panel["gridPos"][name].as_u64().with_context(|| format!("{title} has no {name}"));
        let (x, y, width, height) = (place("x")?, place("y")?, place("w")?, place("h")?);
        assert!(x + width <= 24, "{title} is too wide");
        for place in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            assert!(places.insert(place), "{title} overlaps another panel");
        }
        if panel["type"] == "row" {
            continue;
        }
        let field = &panel["fieldConfig"]["defaults"];
        assert!(!panel["description"].as_str().unwrap_or_default().is_empty(), "{title} has no description");
        assert!(field["unit"].is_string(), "{title} has no unit");
        // Grafana's default thresholds color every value from 80 red.
        assert!(panel["type"] != "stat" || field["thresholds"].is_object(), "{title} has no thresholds");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let targets = panel["targets"].as_array().with_context(|| format!("{title} has no queries"))?;
        for target in targets {
            let text = |name: &str| target[name].as_str().unwrap_or_default();
            let expression = text("expr");
            let chosen = expression.matches(r#"{namespace=~"$namespace", job=~"$job"}"#).count();
            assert!(chosen == 1 && expression.matches('{').count() == 1, "{title}: {expression}");
            assert!(!text("legendFormat").is_empty(), "{title}: {expression} has no legend");
        }
        let letters: BTreeSet<_> = targets.iter().map(|target| target["refId"].as_str()).collect();
        assert!(!targets.is_empty() && letters.len() == targets.len(), "{title}: {letters:?}");
    }
    assert!(panels.len() > 10);
    Ok(())
}

#[test]
fn every_alert_is_tested_and_documented() {
    let (rules, tests, page) = (
        read("deploy/monitoring/rules.yaml"),
        read("deploy/monitoring/rules_test.yaml"),
        read("docs/book/pages/operate/monitoring.md"),
    );
    let alerts: Vec<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10);
    for alert in &alerts {
        assert!(tests.contains(&format!("- name: {alert}\n")), "{alert} is not tested");
        assert!(
            page.contains(&format!("\n### {alert}\n")),
            "docs/book/pages/operate/monitoring.md does not explain {alert}"
        );
        assert!(
            rules.contains(&format!("docs/book/pages/operate/monitoring.md#{}\n", alert.to_lowercase())),
            "{alert} has no link to its documentation"
        );
    }
    let told = page.lines().filter_map(|line| line.strip_prefix("### Provisioner")).count();
    assert_eq!(told, alerts.len(), "docs/book/pages/operate/monitoring.md explains alerts that do not exist");
}

/// The added capabilities and the kinds of volumes of a folder's pods.
fn asked_for(folder: &str) -> anyhow::Result<[BTreeSet<String>; 2]> {
    let (mut capabilities, mut volumes) = (BTreeSet::new(), BTreeSet::new());
    for entry in fs::read_dir(project().join("deploy").join(folder))? {
        for object in parse(&fs::read_to_string(entry?.path())?)? {
            let pod = &object["spec"]["template"]["spec"];
            for container in pod["containers"].as_array().into_iter().flatten() {
                let added = container["securityContext"]["capabilities"]["add"].as_array();
                capabilities.extend(added.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
            }
            let kinds = pod["volumes"].as_array().into_iter().flatten().filter_map(Value::as_object);
            volumes.extend(kinds.flat_map(|volume| volume.keys().filter(|key| *key != "name").cloned()));
            let has_claims = object["spec"]["volumeClaimTemplates"].is_array();
            volumes.extend(has_claims.then(|| "persistentVolumeClaim".to_owned()));
        }
    }
    Ok([capabilities, volumes])
}

#[test]
fn openshift_constraints_allow_exactly_what_pods_request() -> anyhow::Result<()> {
    for (folder, pods, account) in [
        ("hostpath/openshift", "hostpath/per-node", "hostpath-provisioner"),
        ("nfs/subdir-openshift", "nfs/subdir", "nfs-subdir-provisioner"),
        ("nfs/server-openshift", "nfs/server", "nfs-server-provisioner"),
    ] {
        let constraints = &parse(&read(&format!("deploy/{folder}/securitycontextconstraints.yaml")))?[0];
        let listed = |field: &str| -> BTreeSet<String> {
            let texts = constraints[field].as_array().into_iter().flatten().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        };
        let [capabilities, volumes] = asked_for(pods)?;
        assert!(!capabilities.is_empty() && !volumes.is_empty(), "{pods}");
        assert_eq!(listed("allowedCapabilities"), capabilities, "{folder}");
        // OpenShift adds a `projected` volume with a token to every pod. A share may be named in the pod or by a claim.
        let allowed = listed("volumes");
        assert!(volumes.is_subset(&allowed) && allowed.contains("projected"), "{folder}: {volumes:?}, not {allowed:?}");
        assert_eq!(listed("users"), BTreeSet::from([format!("system:serviceaccount:{account}:{account}")]), "{folder}");
    }
    Ok(())
}
