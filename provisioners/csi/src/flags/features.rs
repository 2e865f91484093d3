//! The flags that determine which permissions the program needs.

use std::ffi::OsString;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args, Parser};

const GATES: &str = "--feature-gates";
const FLAGS: [&str; 2] = [GATES, "--enable-capacity"];
const TOPOLOGY: &str = "Topology";
const CROSS_NAMESPACE: &str = "CrossNamespaceVolumeDataSource";
/// Sets all alpha features that are not set individually.
const ALL_ALPHA: &str = "AllAlpha";

#[derive(Args, Clone, Debug)]
pub(crate) struct Features {
    /// Features of external-provisioner, such as Topology=false or CrossNamespaceVolumeDataSource=true
    #[arg(long, value_name = "NAME=BOOL", value_parser = gates)]
    feature_gates: Vec<Gates>,

    /// Publish the driver's free capacity as CSIStorageCapacity objects, for the scheduler
    #[arg(long, help_heading = "Storage capacity", value_name = "BOOL", value_parser = BoolishValueParser::new(), num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = ArgAction::Set)]
    pub(super) enable_capacity: bool,
}

/// The features of one flag.
#[derive(Clone, Debug)]
struct Gates(Vec<(String, bool)>);

impl Features {
    /// Parses these flags from the arguments of a command, and returns the other arguments.
    pub(crate) fn split(arguments: impl IntoIterator<Item = OsString>) -> (Self, Vec<OsString>) {
        #[derive(Parser)]
        struct OnlyFeatures {
            #[command(flatten)]
            features: Features,
        }
        let mut arguments = arguments.into_iter();
        let mut others: Vec<_> = arguments.next().into_iter().collect();
        let mut own = others.clone();
        while let Some(argument) = arguments.next() {
            let text = argument.to_string_lossy();
            if text == GATES {
                own.push(argument);
                own.extend(arguments.next());
            } else if FLAGS.contains(&text.split('=').next().unwrap_or_default()) {
                own.push(argument);
            } else {
                others.push(argument);
            }
        }
        (OnlyFeatures::parse_from(own).features, others)
    }

    pub(crate) fn has_capacity(&self) -> bool {
        self.enable_capacity
    }

    pub(crate) fn has_topology(&self) -> bool {
        self.get(TOPOLOGY).unwrap_or(true)
    }

    pub(crate) fn has_cross_namespace_data_sources(&self) -> bool {
        self.get(CROSS_NAMESPACE).or_else(|| self.get(ALL_ALPHA)).unwrap_or(false)
    }

    /// Returns the names of the feature gates that have no effect.
    pub(super) fn ignored_gates(&self) -> impl Iterator<Item = &str> {
        let names = self.gates().map(|(name, _)| &**name);
        names.filter(|name| ![CROSS_NAMESPACE, ALL_ALPHA, TOPOLOGY].contains(name))
    }

    /// Returns the last value set for a feature.
    fn get(&self, name: &str) -> Option<bool> {
        self.gates().rev().find(|(of, _)| of == name).map(|(_, is_on)| *is_on)
    }

    fn gates(&self) -> impl DoubleEndedIterator<Item = &(String, bool)> {
        self.feature_gates.iter().flat_map(|Gates(gates)| gates)
    }
}

/// Parses features as Go does, which ignores spaces and empty entries.
fn gates(text: &str) -> Result<Gates, String> {
    let all = text.split(',').map(str::trim).filter(|text| !text.is_empty());
    all.map(gate).collect::<Result<_, _>>().map(Gates)
}

fn gate(text: &str) -> Result<(String, bool), String> {
    let parsed = text.split_once('=').and_then(|(name, value)| Some((name.trim().to_owned(), boolean(value.trim())?)));
    parsed.ok_or_else(|| format!("expected a feature such as Topology=false, not {text:?}"))
}

/// Parses a boolean as Go does.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(arguments: &[&str]) -> (Features, Vec<OsString>) {
        Features::split(["csi-provisioner"].iter().chain(arguments).map(OsString::from))
    }

    #[test]
    fn last_value_wins_and_a_gate_overrides_its_stage() {
        for (arguments, is_on) in [
            (&[][..], false),
            (&["--feature-gates=CrossNamespaceVolumeDataSource=true"], true),
            (&["--feature-gates", "Topology=false,CrossNamespaceVolumeDataSource=true"], true),
            (&["--feature-gates=CrossNamespaceVolumeDataSource=true,CrossNamespaceVolumeDataSource=false"], false),
            (&["--feature-gates=AllAlpha=true"], true),
            (&["--feature-gates=Topology=true, CrossNamespaceVolumeDataSource = true,"], true),
            (&["--feature-gates="], false),
            (&["--feature-gates=AllAlpha=T"], true),
            (&["--feature-gates=AllAlpha=1"], true),
            (&["--feature-gates=AllAlpha=False"], false),
            (&["--feature-gates=CrossNamespaceVolumeDataSource=false", "--feature-gates=AllAlpha=true"], false),
        ] {
            assert_eq!(split(arguments).0.has_cross_namespace_data_sources(), is_on, "{arguments:?}");
        }
        assert!(split(&[]).0.has_topology() && !split(&["--feature-gates=Topology=false"]).0.has_topology());
        assert!(!split(&["--feature-gates=VolumeAttributesClass=false, Topology=false"]).0.has_topology());
    }

    #[test]
    fn returns_other_arguments_unchanged() {
        let (features, others) = split(&[
            "rbac",
            "--enable-capacity",
            "--feature-gates",
            "Topology=false",
            "--namespace",
            "storage",
            "--feature-gates=AllAlpha=true",
        ]);
        assert!(features.has_capacity() && !split(&["--enable-capacity=false"]).0.has_capacity());
        assert_eq!(others, ["csi-provisioner", "rbac", "--namespace", "storage"]);
    }
}
