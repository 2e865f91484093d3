//! The command line of every provisioner: its author's arguments, and the common commands.

mod check_class;
mod journal;
mod rbac;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser};
use kube::Client;
use provisioner_runtime::client::{ConnectError, connect};

use self::check_class::CheckClass;
use self::journal::Journal;
use self::rbac::Rbac;
use crate::controller::Controller;
use crate::options::{GO_COMPAT, Options};
use crate::provisioner::Provisioner;

const PRESET: &str = "preset";
const CHECK_CLASS: &str = "check-class";
const RBAC: &str = "rbac";
const JOURNAL: &str = "journal";

type BoxError = Box<dyn Error + Send + Sync>;

/// The whole `main` of a provisioner: reads the arguments, and runs what `setup` makes of them until the process is
/// told to stop. An error is one line on stderr and exit code 1.
///
/// `--preset` sets the defaults of other options. Beside running, every provisioner has these commands:
///
/// | command | what it does |
/// |---|---|
/// | `check-class FILE…` | tells what is wrong with StorageClasses before anybody uses them; needs no cluster |
/// | `rbac` | prints the manifests of the account and its rights; needs no cluster |
/// | `journal list`, `journal drop ENTRY` | shows the attempts that are recorded, and gives one up |
///
/// ```no_run
/// # use kube_provisioner::*;
/// # struct Exports;
/// # impl Provisioner for Exports {
/// #     type Parameters = ();
/// #     async fn provision(&self, r: ProvisionRequest<()>) -> Result<Volume, ProvisionError> { Ok(Volume::nfs("server", r.name)) }
/// #     async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> { Ok(()) }
/// # }
/// #[derive(clap::Parser)]
/// struct Args {
///     #[command(flatten)]
///     options: Options,
/// }
///
/// fn main() -> std::process::ExitCode {
///     kube_provisioner::run(async |args: Args| Ok((Exports, args.options)))
/// }
/// ```
///
/// `setup` runs on the runtime of the controller; [`client`] gives it a client where it needs one.
pub fn run<A, P>(setup: impl AsyncFnOnce(A) -> Result<(P, Options), BoxError>) -> ExitCode
where
    A: Parser,
    P: Provisioner,
{
    install_crypto_provider();
    let invocation = read::<A>(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let done = match invocation {
        Invocation::CheckClass(check) => {
            let (text, code) = check.run::<P>();
            print(&text);
            return ExitCode::from(code);
        }
        Invocation::Rbac(rbac, options) => rbac.run::<P>(&options).map(|text| print(&text)),
        Invocation::Journal(journal, options) => block_on(async { journal.run(&options, print).await }),
        Invocation::Run(arguments) => block_on(async {
            let (provisioner, options) = setup(arguments).await?;
            Ok(Controller::new(provisioner, options).run().await?)
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = error.to_string();
            fail(A::command().get_name(), &text.lines().collect::<Vec<_>>().join(" "));
            ExitCode::FAILURE
        }
    }
}

/// A client of the API server that the controller would use with these options, for what an author does in the `setup` of
/// [`run`]. [`Start::client`](crate::Start::client) is one, too.
///
/// # Errors
/// When the API server cannot be used; the text says what to do.
pub async fn client(options: &Options) -> Result<Client, ConnectError> {
    Ok(connect(options.kubeconfig.as_deref()).await?.client)
}

enum Invocation<A> {
    Run(A),
    CheckClass(CheckClass),
    Rbac(Rbac, Options),
    Journal(Journal, Options),
}

fn read<A: Parser>(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation<A>, clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut command = command::<A>();
    // The preset changes the defaults of other arguments, so it is read first.
    let first_look = command.clone().ignore_errors(true).try_get_matches_from(&arguments);
    if first_look.is_ok_and(|matches| matches.get_one::<String>(PRESET).is_some_and(|preset| preset == "go-compat")) {
        for (argument, value) in GO_COMPAT {
            command = command.mut_arg(argument, |argument| argument.default_value(value));
        }
    }
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    invocation(&mut matches).map_err(|error| error.format(&mut command))
}

fn invocation<A: Parser>(matches: &mut ArgMatches) -> Result<Invocation<A>, clap::Error> {
    match matches.remove_subcommand() {
        Some((name, mut check)) if name == CHECK_CLASS => Ok(Invocation::CheckClass(CheckClass::of(&mut check)?)),
        Some((name, mut rbac)) if name == RBAC => {
            Ok(Invocation::Rbac(Rbac::from_arg_matches_mut(&mut rbac)?, Options::from_arg_matches_mut(&mut rbac)?))
        }
        Some((name, mut journal)) if name == JOURNAL => {
            // The options are those of the command below it.
            let mut of_options = journal.subcommand().map(|(_, matches)| matches.clone()).unwrap_or_default();
            let options = Options::from_arg_matches_mut(&mut of_options)?;
            Ok(Invocation::Journal(Journal::from_arg_matches_mut(&mut journal)?, options))
        }
        _ => A::from_arg_matches_mut(matches).map(Invocation::Run),
    }
}

/// The command with all its arguments and commands.
fn command<A: CommandFactory>() -> Command {
    let program = A::command();
    let preset = Arg::new(PRESET).long(PRESET).env("PRESET").value_name("NAME").value_parser(["default", "go-compat"]);
    let preset =
        preset.default_value("default").help("Defaults of the other options: ours, or those of the Go library");
    let check = Command::new(CHECK_CLASS)
        .args(options(&program, &CheckClass::OPTIONS).into_iter().map(|arg| arg.required(false)));
    let rbac = Command::new(RBAC).args(options(&program, &Rbac::OPTIONS));
    let of_journal = options(&program, &Journal::OPTIONS);
    let journal = Journal::augment_args(Command::new(JOURNAL)).mut_subcommands(|command| command.args(&of_journal));
    program
        .arg(preset)
        .subcommands([CheckClass::augment_args(check), Rbac::augment_args(rbac), journal])
        .subcommand_negates_reqs(true)
        .args_conflicts_with_subcommands(true)
}

/// The arguments of [`Options`], as the author's program has them, for a command of its own. Arguments that do not
/// matter there are hidden but allowed, so that the arguments of a Deployment can be used.
fn options(program: &Command, shown: &[&str]) -> Vec<Arg> {
    let known = Options::augment_args(Command::new(""));
    let is_option = |arg: &Arg| known.get_arguments().any(|option| option.get_id() == arg.get_id());
    let arguments = program.get_arguments().filter(|arg| is_option(arg)).cloned();
    arguments
        .map(|arg| {
            let hidden = !shown.contains(&arg.get_id().as_str());
            arg.hide(hidden)
        })
        .collect()
}

/// One thread: the controller mostly waits, and blocking work has threads of its own.
fn block_on<T>(work: impl Future<Output = Result<T, BoxError>>) -> Result<T, BoxError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    // A hanging blocking thread must not keep the process: the grace period is over.
    runtime.shutdown_background();
    done
}

/// Clients that an author makes need it, too: with several compiled-in providers rustls chooses none.
fn install_crypto_provider() {
    // An error means that a provider is installed already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[expect(clippy::print_stdout, reason = "the answer of a command")]
fn print(text: &str) {
    print!("{text}");
}

#[expect(clippy::print_stderr, reason = "the last word of a program that cannot go on")]
fn fail(program: &str, text: &str) {
    eprintln!("{program}: {text}");
}
