//! Flags of external-provisioner that have no effect here.

use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

/// The name of each flag, and whether its value is optional because it is a switch.
const FLAGS: [(&str, bool); 30] = [
    ("add_dir_header", true),
    ("alsologtostderr", true),
    ("automaxprocs", true),
    ("cloning-protection-threads", false),
    ("connection-timeout", false),
    ("enable-pprof", true),
    ("kube-api-burst", false),
    ("kube-api-capacity-burst", false),
    ("kube-api-capacity-qps", false),
    ("kube-api-qps", false),
    ("leader-election-type", false),
    ("log-flush-frequency", false),
    ("log-json-info-buffer-size", false),
    ("log-json-split-stream", true),
    ("log-text-info-buffer-size", false),
    ("log-text-split-stream", true),
    ("log_backtrace_at", false),
    ("log_dir", false),
    ("log_file", false),
    ("log_file_max_size", false),
    ("logtostderr", true),
    ("metrics-path", false),
    ("one_output", true),
    ("provisioner", false),
    ("skip_headers", true),
    ("skip_log_headers", true),
    ("snapshot-orphan-sweep-interval", false),
    ("stderrthreshold", false),
    ("v", false),
    ("vmodule", false),
];

/// The ignored flags that are set.
#[derive(Clone, Debug)]
pub(super) struct Ignored(pub(super) Vec<&'static str>);

impl Args for Ignored {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.map(|(name, is_switch)| {
            let flag = Arg::new(name).long(name).hide(true);
            let flag = if name == "v" { flag.short('v') } else { flag };
            if is_switch { flag.num_args(0..=1).require_equals(true).default_missing_value("true") } else { flag }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Ignored {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let set = FLAGS.into_iter().filter(|(name, _)| matches.contains_id(name));
        Ok(Self(set.map(|(name, _)| name).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
