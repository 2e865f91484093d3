//! `rbac`: prints the manifests of a provisioner's account.

use clap::Args;
use provisioner_runtime::lease::lease_name;

use super::BoxError;
use super::served::Served;
use crate::options::Options;
use crate::rbac::{AccessRule, Account, manifests};

/// Print the ServiceAccount and the RBAC rules as YAML; needs no cluster
#[derive(Args, Clone, Debug)]
pub(super) struct Rbac {
    /// Name of the ServiceAccount and its roles [default: derived from the provisioner's name]
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,

    /// Former values of --shards, separated by commas; adds the permissions for their journals
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=256))]
    former_shards: Vec<u32>,

    /// Print the rules for a COSI driver, a program with --cosi-endpoint
    #[arg(long)]
    cosi: bool,

    /// Print the rules for a program with --cosi-controller
    #[arg(long, conflicts_with = "cosi")]
    cosi_controller: bool,

    /// Value of the provisioner's --cosi-driver-name
    #[arg(long, env, value_name = "NAME")]
    cosi_driver_name: Option<String>,
}

impl Rbac {
    pub(super) const OPTIONS: [&'static str; 5] =
        ["provisioner_name", "namespace", "node_name", "coordination", "shards"];

    /// The options of COSI drivers and controllers.
    pub(super) const COSI: [&'static str; 3] = ["cosi", "cosi_controller", "cosi_driver_name"];

    /// Returns the manifests as YAML documents.
    pub(super) fn run<S: Served>(&self, options: &Options, others: Vec<AccessRule>) -> Result<String, BoxError> {
        let Some(namespace) = options.namespace.as_deref() else {
            return Err("rbac needs --namespace: the namespace that the provisioner runs in".into());
        };
        let name = self.service_account.clone().unwrap_or_else(|| lease_name(&options.provisioner_name));
        let rules = match (self.cosi, self.cosi_controller) {
            (true, _) => S::cosi_rules(options).ok_or("--cosi is only for bucket provisioners")?,
            (_, true) => S::cosi_controller_rules(options, self.cosi_driver_name.as_deref())?
                .ok_or("--cosi-controller is only for bucket provisioners")?,
            (false, false) => S::rules(options, &self.former_shards),
        };
        let rules = [rules, others].concat();
        Ok(serde_saphyr::to_string_multiple(&manifests(&Account { name: &name, namespace }, &rules))?)
    }
}
