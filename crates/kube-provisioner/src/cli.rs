//! The command line of every provisioner: the provisioner's own arguments, and the common commands.

mod check_class;
#[cfg(feature = "conformance")]
mod command_line;
pub mod console;
#[cfg_attr(not(feature = "unstable-explain"), expect(unreachable_pub, reason = "public in `explain`"))]
pub(crate) mod journal;
mod orphans;
mod program;
mod rbac;
mod served;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::ffi::{OsStr, OsString};

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum as _};
use kube::Client;
use provisioner_runtime::client::ConnectError;

use self::check_class::CheckClass;
#[cfg(feature = "conformance")]
pub use self::command_line::CommandLine;
use self::journal::Journal;
pub use self::journal::NodeJournals;
use self::orphans::Orphans;
pub use self::program::Program;
use self::rbac::Rbac;
use self::served::Served;
use crate::controller::shared::program::connection;
use crate::options::{BucketOptions, Coordination, GO_COMPAT, LogStyle, Options};

const PRESET: &str = "preset";
const CHECK_CLASS: &str = "check-class";
const RBAC: &str = "rbac";
const JOURNAL: &str = "journal";
const ORPHANS: &str = "orphans";

type BoxError = Box<dyn Error + Send + Sync>;

/// Creates the API client that the controller would use with these options, for the `setup` of a [`Program`].
/// [`StartContext::client`](crate::StartContext::client) provides the same client.
///
/// ```no_run
/// # use kube_provisioner::*;
/// # #[derive(clap::Parser)]
/// # struct Args {
/// #     #[command(flatten)]
/// #     options: Options,
/// # }
/// # fn main_<P: Hooks>(new: impl Fn(kube::Client) -> P + 'static) -> std::process::ExitCode {
/// Program::new(async move |args: Args| {
///     let client = kube_provisioner::client(&args.options).await?;
///     Ok((new(client), args.options))
/// })
/// .run()
/// # }
/// ```
///
/// # Errors
/// If the API server cannot be used; the message says what to do.
pub async fn client(options: &Options) -> Result<Client, ConnectError> {
    Ok(connection(options).await?.client)
}

/// Returns the names of the volumes whose attempts are recorded in the provisioner's journals: their assets may exist
/// in the backend although their volumes have not been saved. For commands that search for orphaned assets.
///
/// # Errors
/// If the journals cannot be read.
pub async fn recorded_volumes(options: &Options) -> Result<Vec<String>, Box<dyn Error + Send + Sync>> {
    journal::recorded_keys(options).await
}

enum Invocation<A, C> {
    Run(A),
    OfAuthor(C),
    CheckClass(CheckClass),
    Rbac(Rbac, Options),
    Journal(Journal, Options),
    Orphans(Orphans, A),
}

/// Parses the invocation, and returns the format for the error if that fails.
fn read<A: Parser, C: Subcommand, S: Served>(
    arguments: impl IntoIterator<Item = OsString>,
) -> (Result<Invocation<A, C>, clap::Error>, LogStyle) {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut command = without_empty_variables(command::<A, C, S>());
    // The preset changes the defaults of other arguments, and their errors need the format, so both are parsed first.
    let first_look = command.clone().ignore_errors(true).try_get_matches_from(&arguments).ok();
    if first_look.as_ref().and_then(|first| first.get_one::<String>(PRESET)).is_some_and(|preset| preset == "go-compat")
    {
        for (argument, value) in GO_COMPAT {
            command = command.mut_arg(argument, |argument| argument.default_value(value));
        }
    }
    // The output of commands is for humans, so it is always text.
    let of_program = first_look.as_ref().filter(|first| first.subcommand_name().is_none());
    let style = of_program.and_then(|first| first.try_get_one::<LogStyle>("log_format").ok().flatten());
    let read = parsed::<A, C, S>(&mut command, arguments);
    (read.map_err(|error| error.format(&mut command)), style.copied().unwrap_or_default())
}

fn parsed<A: Parser, C: Subcommand, S: Served>(
    command: &mut Command,
    arguments: Vec<OsString>,
) -> Result<Invocation<A, C>, clap::Error> {
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    let is_given = |id: &&&str| matches.value_source(id) == Some(ValueSource::CommandLine);
    if let Some(id) = S::ABSENT.iter().find(is_given) {
        let text = format!("unexpected argument '--{}' found: this program has no such option\n", id.replace('_', "-"));
        return Err(clap::Error::raw(ErrorKind::UnknownArgument, text));
    }
    invocation(&mut matches)
}

fn invocation<A: Parser, C: Subcommand>(matches: &mut ArgMatches) -> Result<Invocation<A, C>, clap::Error> {
    if matches.subcommand_name().is_some_and(C::has_subcommand) {
        return C::from_arg_matches_mut(matches).map(Invocation::OfAuthor);
    }
    match matches.remove_subcommand() {
        Some((name, mut check)) if name == CHECK_CLASS => Ok(Invocation::CheckClass(CheckClass::of(&mut check)?)),
        Some((name, mut rbac)) if name == RBAC => {
            Ok(Invocation::Rbac(Rbac::from_arg_matches_mut(&mut rbac)?, Options::from_arg_matches_mut(&mut rbac)?))
        }
        Some((name, mut journal)) if name == JOURNAL => {
            // The subcommand holds the options.
            let mut of_options = journal.subcommand().map(|(_, matches)| matches.clone()).unwrap_or_default();
            let options = Options::from_arg_matches_mut(&mut of_options)?;
            Ok(Invocation::Journal(Journal::from_arg_matches_mut(&mut journal)?, options))
        }
        Some((name, mut orphans)) if name == ORPHANS => {
            let of_command = Orphans::from_arg_matches_mut(&mut orphans)?;
            Ok(Invocation::Orphans(of_command, A::from_arg_matches_mut(&mut orphans)?))
        }
        _ => A::from_arg_matches_mut(matches).map(Invocation::Run),
    }
}

/// Treats an empty environment variable as unset, because manifest templates produce empty values.
pub fn without_empty_variables(command: Command) -> Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    command
        .mut_subcommands(without_empty_variables)
        .mut_args(|arg| if arg.get_env().is_some_and(is_empty) { arg.env(None::<&'static str>) } else { arg })
}

/// Builds the command with all its arguments and subcommands.
fn command<A: CommandFactory, C: Subcommand, S: Served>() -> Command {
    let program = C::augment_subcommands(A::command()).mut_args(adapted::<S>);
    let preset = Arg::new(PRESET).long(PRESET).env("PRESET").value_name("NAME").value_parser(["default", "go-compat"]);
    let preset = preset
        .default_value("default")
        .help("Set of default values for the other flags; go-compat uses the Go library's defaults");
    // Commands accept the arguments of the program.
    let unused = preset.clone().hide(true);
    let check = Command::new(CHECK_CLASS)
        .arg(&unused)
        .args(options(&program, &CheckClass::OPTIONS).into_iter().map(|arg| arg.required(false)));
    let rbac = Command::new(RBAC).arg(&unused).args(options(&program, &Rbac::OPTIONS));
    let mut of_journal = options(&program, &Journal::OPTIONS);
    of_journal.push(unused.clone());
    let journal = Journal::augment_args(Command::new(JOURNAL)).mut_subcommands(|command| command.args(&of_journal));
    let orphans = Orphans::augment_args(Command::new(ORPHANS).arg(unused).args(arguments(&program, &Orphans::OPTIONS)));
    program
        .arg(preset)
        .subcommands([
            CheckClass::augment_args(check),
            Rbac::COSI
                .into_iter()
                .fold(Rbac::augment_args(rbac), |rbac, name| rbac.mut_arg(name, |arg| arg.hide(!S::HAS_COSI))),
        ])
        .subcommands(S::HAS_JOURNAL.then_some(journal))
        .subcommands(S::lists_assets().then_some(orphans))
        .subcommand_negates_reqs(true)
        .args_conflicts_with_subcommands(true)
}

/// Returns the program's arguments for a command of its own. Irrelevant options of the controller are hidden but
/// allowed, so that the arguments of a Deployment can be reused.
fn arguments(program: &Command, shown: &[&str]) -> impl Iterator<Item = Arg> {
    let known = BucketOptions::augment_args(Command::new(""));
    program.get_arguments().map(move |arg| {
        let is_shown = shown.contains(&arg.get_id().as_str()) || !includes(&known, arg);
        arg.clone().hide(arg.is_hide_set() || !is_shown)
    })
}

/// Returns the arguments of [`Options`], as [`arguments`] does.
fn options(program: &Command, shown: &[&str]) -> Vec<Arg> {
    let known = Options::augment_args(Command::new(""));
    arguments(program, shown).filter(|arg| includes(&known, arg)).collect()
}

fn includes(known: &Command, arg: &Arg) -> bool {
    known.get_arguments().any(|option| option.get_id() == arg.get_id())
}

/// Adapts the argument to this kind of provisioner. Clap cannot remove an argument, so it is hidden, and [`read`]
/// rejects it.
fn adapted<S: Served>(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        id if S::ABSENT.contains(&id) => arg.hide(true).env(None::<&'static str>),
        "coordination" if S::ABSENT.contains(&"node_name") => {
            let modes = Coordination::value_variants().iter().filter(|mode| **mode != Coordination::PerNode);
            let modes = PossibleValuesParser::new(modes.filter_map(Coordination::to_possible_value));
            arg.value_parser(modes.try_map(|mode| Coordination::from_str(&mode, false)))
        }
        _ => arg,
    }
}
