//! The command line of every provisioner: its author's arguments, and the common commands.

mod check_class;
pub(crate) mod journal;
mod rbac;
mod served;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use kube::Client;
use provisioner_runtime::client::{ConnectError, connect};

use self::check_class::CheckClass;
use self::journal::Journal;
use self::rbac::Rbac;
use self::served::{Buckets, Served, Volumes};
use crate::bucket::BucketProvisioner;
use crate::controller::{BucketController, Controller};
use crate::options::{BucketOptions, GO_COMPAT, Options};
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
    run_with_commands(setup, async |command: NoCommand| match command {})
}

/// [`run`] for a program that has commands of its own beside the common ones, such as one that lists what is in the backend.
///
/// The arguments of such a command are its own: those of the program do not count for it.
pub fn run_with_commands<A, P, C>(
    setup: impl AsyncFnOnce(A) -> Result<(P, Options), BoxError>,
    carry_out: impl AsyncFnOnce(C) -> Result<(), BoxError>,
) -> ExitCode
where
    A: Parser,
    P: Provisioner,
    C: Subcommand,
{
    run_as(std::env::args_os(), setup, carry_out)
}

/// [`run_with_commands`] with these arguments instead of the process's, for a program of several modes that each have arguments
/// and a provisioner of their own. The first one is the name, such as `nfs-provisioner subdir`.
pub fn run_as<A, P, C>(
    arguments: impl IntoIterator<Item = OsString>,
    setup: impl AsyncFnOnce(A) -> Result<(P, Options), BoxError>,
    carry_out: impl AsyncFnOnce(C) -> Result<(), BoxError>,
) -> ExitCode
where
    A: Parser,
    P: Provisioner,
    C: Subcommand,
{
    program::<A, C, Volumes<P>>(
        arguments,
        async |arguments| {
            let (provisioner, options) = setup(arguments).await?;
            Ok(Controller::new(provisioner, options).run().await?)
        },
        carry_out,
    )
}

/// [`run`] for a provisioner of buckets.
///
/// ```no_run
/// # use kube_provisioner::bucket::*;
/// # use kube_provisioner::*;
/// # struct Store;
/// # impl BucketProvisioner for Store {
/// #     type Parameters = ();
/// #     type Config = ();
/// #     async fn provision(&self, _: RequestOf<Self>) -> Result<Bucket, ProvisionError> { unimplemented!() }
/// #     async fn grant(&self, _: RequestOf<Self>) -> Result<Bucket, ProvisionError> { unimplemented!() }
/// #     async fn delete(&self, _: ProvisionedBucket<()>) -> Result<(), DeleteError> { Ok(()) }
/// #     async fn revoke(&self, _: ProvisionedBucket<()>) -> Result<(), DeleteError> { Ok(()) }
/// # }
/// #[derive(clap::Parser)]
/// struct Args {
///     #[command(flatten)]
///     options: BucketOptions,
/// }
///
/// fn main() -> std::process::ExitCode {
///     kube_provisioner::run_buckets(async |args: Args| Ok((Store, args.options)))
/// }
/// ```
///
/// There is no `journal`: `kubectl get objectbuckets` shows what was begun.
pub fn run_buckets<A, B>(setup: impl AsyncFnOnce(A) -> Result<(B, BucketOptions), BoxError>) -> ExitCode
where
    A: Parser,
    B: BucketProvisioner,
{
    program::<A, NoCommand, Buckets<B>>(
        std::env::args_os(),
        async |arguments| {
            let (provisioner, options) = setup(arguments).await?;
            Ok(BucketController::new(provisioner, options).run().await?)
        },
        async |command| match command {},
    )
}

fn program<A: Parser, C: Subcommand, S: Served>(
    arguments: impl IntoIterator<Item = OsString>,
    run: impl AsyncFnOnce(A) -> Result<(), BoxError>,
    carry_out: impl AsyncFnOnce(C) -> Result<(), BoxError>,
) -> ExitCode {
    install_crypto_provider();
    let invocation = read::<A, C, S>(arguments).unwrap_or_else(|error| error.exit());
    let done = match invocation {
        Invocation::CheckClass(check) => {
            let (text, code) = check.run::<S>();
            print(&text);
            return ExitCode::from(code);
        }
        Invocation::Rbac(rbac, options) => rbac.run::<S>(&options).map(|text| print(&text)),
        Invocation::Journal(journal, options) => block_on(async { journal.run(&options, print).await }),
        Invocation::OfAuthor(command) => block_on(carry_out(command)),
        Invocation::Run(arguments) => block_on(run(arguments)),
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

/// The names of the volumes for which attempts are recorded in the provisioner's journals: their assets may be in the
/// backend although their volumes are not saved. For commands that look for assets which belong to nobody.
///
/// # Errors
/// When the journals cannot be read.
pub async fn recorded_volumes(options: &Options) -> Result<Vec<String>, Box<dyn Error + Send + Sync>> {
    journal::recorded(options).await
}

enum Invocation<A, C> {
    Run(A),
    OfAuthor(C),
    CheckClass(CheckClass),
    Rbac(Rbac, Options),
    Journal(Journal, Options),
}

/// A program without commands of its own.
enum NoCommand {}

impl FromArgMatches for NoCommand {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
        Err(clap::Error::new(clap::error::ErrorKind::InvalidSubcommand))
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}

impl Subcommand for NoCommand {
    fn augment_subcommands(command: Command) -> Command {
        command
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        command
    }

    fn has_subcommand(_: &str) -> bool {
        false
    }
}

fn read<A: Parser, C: Subcommand, S: Served>(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Invocation<A, C>, clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut command = command::<A, C, S>();
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
            // The options are those of the command below it.
            let mut of_options = journal.subcommand().map(|(_, matches)| matches.clone()).unwrap_or_default();
            let options = Options::from_arg_matches_mut(&mut of_options)?;
            Ok(Invocation::Journal(Journal::from_arg_matches_mut(&mut journal)?, options))
        }
        _ => A::from_arg_matches_mut(matches).map(Invocation::Run),
    }
}

/// The command with all its arguments and commands.
fn command<A: CommandFactory, C: Subcommand, S: Served>() -> Command {
    let program = C::augment_subcommands(A::command());
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
        .subcommands([CheckClass::augment_args(check), Rbac::augment_args(rbac)])
        .subcommands(S::HAS_JOURNAL.then_some(journal))
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
