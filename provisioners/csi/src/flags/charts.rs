//! Checks that the arguments of the charts in `charts.tsv` parse, and whether the program starts with them.

use clap::Parser;
use kube_provisioner::rbac::rules;
use kube_provisioner::{Capabilities, Options};

use super::Flags;

/// Returns the store that records attempts if the account has these permissions for Leases.
fn journal(verbs: &str) -> &'static str {
    let mut options = Options::new("driver");
    options.sidecar_rbac = true;
    options.coordination = kube_provisioner::Coordination::None;
    let rules = rules(&options, &Capabilities::default(), &[]);
    let needed = rules.iter().find(|rule| rule.resource == "leases").expect("a rule of the journal").verbs;
    if needed.iter().all(|verb| verbs.split(',').any(|granted| granted == *verb)) { "Lease" } else { "none" }
}

/// Returns `yes`, or the reason why the program refuses to start.
fn starts(flags: &Flags) -> String {
    let variable = |name: &str| ["NAMESPACE", "POD_NAME"].contains(&name).then(|| name.to_lowercase());
    let problem = flags.node_name(Some("node-1".to_owned())).err().map(str::to_owned);
    problem.or(flags.capacity(variable).err()).unwrap_or_else(|| "yes".to_owned())
}

#[test]
fn chart_arguments_and_permissions_match_the_table() {
    let lines = include_str!("charts.tsv").lines().filter(|line| !line.starts_with('#'));
    let rows: Vec<Vec<&str>> = lines.skip(1).map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.len(), 53);
    for row in &rows {
        let [driver, _, _, leases, of_journal, of_start, arguments] = row[..] else { panic!("{row:?}") };
        let flags = Flags::try_parse_from(["csi-provisioner"].into_iter().chain(arguments.split(' ')));
        let flags = flags.unwrap_or_else(|error| panic!("{driver}: {error}"));
        assert_eq!(journal(leases), of_journal, "{driver}");
        assert_eq!(starts(&flags), of_start, "{driver}");
    }
    let starting = rows.iter().filter(|row| row[5] == "yes").count();
    assert_eq!(starting, 53, "the guide states how many charts start");
}
