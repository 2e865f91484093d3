//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// Explain why PersistentVolumeClaims and ObjectBucketClaims are pending, and list their provisioners
#[derive(Clone, Debug, Parser)]
#[command(name = "kubectl-provisioner", bin_name = "kubectl provisioner", version)]
pub struct Args {
    /// The command.
    #[command(subcommand)]
    pub command: Command,

    /// Namespace of the claim [default: the context's]
    #[arg(short, long, global = true, value_name = "NAMESPACE", value_parser = name)]
    pub namespace: Option<String>,

    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,

    /// Kubeconfig file [default: $KUBECONFIG, or ~/.kube/config]
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Output format
    #[arg(short, long, global = true, value_enum, default_value_t)]
    pub output: Format,

    /// Namespace of the provisioners, for users who cannot read all namespaces
    #[arg(long, global = true, value_name = "NAMESPACE", value_parser = name)]
    pub provisioner_namespace: Option<String>,

    /// Value of the provisioner's --identity [default: its namespace, or its node]
    #[arg(long, global = true, value_name = "NAME")]
    pub identity: Option<String>,

    /// Value of the provisioner's --cluster-id [default: the uid of the namespace kube-system]
    #[arg(long, global = true, value_name = "ID")]
    pub cluster_id: Option<String>,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Explain the state of a PersistentVolumeClaim or PersistentVolume
    #[command(subcommand)]
    Explain(Explain),
    /// Explain the state of an ObjectBucketClaim
    Bucket {
        /// The ObjectBucketClaim
        #[arg(value_parser = name)]
        name: String,
    },
    /// List provisioners, their shards, and the replica that holds each shard
    List,
    /// List attempts in progress
    Journal,
    /// List attempts, buckets and volumes without a running provisioner
    Orphans,
}

/// The kinds of objects that `explain` accepts.
#[derive(Clone, Debug, Subcommand)]
pub enum Explain {
    /// A PersistentVolumeClaim
    #[command(visible_alias = "persistentvolumeclaim")]
    Pvc {
        /// The PersistentVolumeClaim
        #[arg(value_parser = name)]
        name: String,
    },
    /// A PersistentVolume
    #[command(visible_alias = "persistentvolume")]
    Pv {
        /// The PersistentVolume
        #[arg(value_parser = name)]
        name: String,
    },
}

/// The output format of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Human-readable text
    #[default]
    Text,
    /// JSON
    Json,
}

/// Rejects texts that cannot be object names, because names become parts of URL paths.
fn name(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    if !text.is_empty() && text.len() <= 253 && text.chars().all(allowed) && !text.starts_with('.') {
        Ok(text.to_owned())
    } else {
        Err("names may contain only lowercase letters, digits, `-` and `.`".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        Args::command().debug_assert();
    }

    #[test]
    fn accepts_options_after_the_command() {
        let args = Args::parse_from(["k", "explain", "pvc", "data", "-n", "shop", "-o", "json", "--context", "c"]);
        assert_eq!((args.namespace.as_deref(), args.output), (Some("shop"), Format::Json));
        assert!(matches!(args.command, Command::Explain(Explain::Pvc { name }) if name == "data"));
    }

    #[test]
    fn rejects_invalid_object_names() {
        for bad in ["../secrets", "a/b", "a?b", "", "..", "A"] {
            assert!(Args::try_parse_from(["k", "bucket", bad]).is_err(), "{bad}");
        }
    }
}
