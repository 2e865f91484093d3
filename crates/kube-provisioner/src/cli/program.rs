//! The `main` of every provisioner.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use futures::future::LocalBoxFuture;
use jiff::Timestamp;
use provisioner_runtime::error_chain;
use serde_json::json;

use super::console::print;
use super::served::Served;
use super::{BoxError, Invocation, read};
use crate::options::{LogStyle, Options};
use crate::rbac::AccessRule;

type Call<I, O> = Box<dyn FnOnce(I) -> LocalBoxFuture<'static, Result<O, BoxError>>>;

/// The complete `main` of a provisioner: parses the arguments, and runs the provisioner that `setup` returns until
/// SIGTERM or SIGINT. An error is printed as one line on stderr, in the format of the log, with exit code 1, or 2 for
/// invalid arguments.
///
/// ```no_run
/// # use kube_provisioner::*;
/// # struct Exports;
/// # impl Provisioner for Exports {
/// #     type Parameters = ();
/// #     async fn provision(&self, r: ProvisionRequest<()>) -> Result<Volume, ProvisionError> { Ok(Volume::nfs("server", r.name)) }
/// #     async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> { Ok(()) }
/// # }
/// # impl Hooks for Exports {}
/// #[derive(clap::Parser)]
/// struct Args {
///     #[command(flatten)]
///     options: Options,
/// }
///
/// fn main() -> std::process::ExitCode {
///     Program::new(async |args: Args| Ok((Exports, args.options))).run()
/// }
/// ```
///
/// A bucket provisioner is returned with its [`BucketOptions`](crate::BucketOptions):
///
/// ```no_run
/// # use kube_provisioner::bucket::*;
/// # use kube_provisioner::*;
/// # struct Store;
/// # impl BucketProvisioner for Store {
/// #     type Parameters = ();
/// #     type Config = ();
/// #     async fn create_bucket(&self, _: RequestOf<Self>) -> Result<Bucket, ProvisionError> { unimplemented!() }
/// #     async fn delete_bucket(&self, _: ProvisionedBucket<()>) -> Result<(), DeleteError> { Ok(()) }
/// #     async fn grant(&self, _: GrantOf<Self>) -> Result<Granted, ProvisionError> { unimplemented!() }
/// #     async fn revoke(&self, _: GrantedAccount<()>) -> Result<(), DeleteError> { Ok(()) }
/// # }
/// # impl BucketHooks for Store {}
/// #[derive(clap::Parser)]
/// struct Args {
///     #[command(flatten)]
///     options: BucketOptions,
/// }
///
/// fn main() -> std::process::ExitCode {
///     Program::new(async |args: Args| Ok((Store, args.options))).run()
/// }
/// ```
///
/// `--preset` sets the defaults of other options. In addition to running, every provisioner has these commands, and may
/// add [its own](Self::commands):
///
/// | command | what it does |
/// |---|---|
/// | `check-class FILE…` | validates StorageClasses in files; needs no cluster |
/// | `orphans` | lists and removes assets without an ObjectBucket; for bucket provisioners with [`list_assets`] |
/// | `rbac` | prints the ServiceAccount and the RBAC rules as YAML; needs no cluster |
/// | `journal list`, `journal accept ENTRY`, `journal drop ENTRY` | lists, accepts or drops attempts in the journal; for volumes only |
///
/// The attempts for buckets are listed by `kubectl get objectbuckets`.
///
/// [`list_assets`]: crate::bucket::BucketHooks::list_assets
#[must_use = "nothing happens before `run`"]
pub struct Program<A, S, C = Infallible> {
    arguments: Vec<OsString>,
    setup: Call<A, S>,
    execute: Call<C, ()>,
    sidecar: Option<Vec<AccessRule>>,
}

impl<A: Parser + 'static, S: Served> Program<A, S> {
    /// Creates a program with the arguments of the process. `setup` receives the parsed arguments, and returns a
    /// [`Provisioner`](crate::Provisioner) with its [`Options`](crate::Options), or a
    /// [`BucketProvisioner`](crate::bucket::BucketProvisioner) with its [`BucketOptions`](crate::BucketOptions).
    ///
    /// `setup` runs on the controller's runtime; [`client`](crate::client) returns a client for it.
    pub fn new(setup: impl AsyncFnOnce(A) -> Result<S, BoxError> + 'static) -> Self {
        Self {
            arguments: std::env::args_os().collect(),
            setup: Box::new(|arguments| Box::pin(async { setup(arguments).await })),
            execute: Box::new(|command| match command {}),
            sidecar: None,
        }
    }
}

impl<A: Parser, S: Served, C: Subcommand> Program<A, S, C> {
    /// Adds commands to the common ones, such as one that lists the content of the backend. These commands do not
    /// accept the program's own arguments.
    ///
    /// ```no_run
    /// # use kube_provisioner::*;
    /// # struct Exports;
    /// # impl Provisioner for Exports {
    /// #     type Parameters = ();
    /// #     async fn provision(&self, r: ProvisionRequest<()>) -> Result<Volume, ProvisionError> { Ok(Volume::nfs("server", r.name)) }
    /// #     async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> { Ok(()) }
    /// # }
    /// # impl Hooks for Exports {}
    /// # #[derive(clap::Parser)]
    /// # struct Args {
    /// #     #[command(flatten)]
    /// #     options: Options,
    /// # }
    /// #[derive(clap::Subcommand)]
    /// enum Commands {
    ///     /// List the exports
    ///     Exports { server: String },
    /// }
    ///
    /// fn main() -> std::process::ExitCode {
    ///     Program::new(async |args: Args| Ok((Exports, args.options)))
    ///         .commands(async |Commands::Exports { server }| {
    ///             println!("the exports of {server}: ...");
    ///             Ok(())
    ///         })
    ///         .run()
    /// }
    /// ```
    pub fn commands<D: Subcommand + 'static>(
        self,
        execute: impl AsyncFnOnce(D) -> Result<(), BoxError> + 'static,
    ) -> Program<A, S, D> {
        let Self { arguments, setup, sidecar, .. } = self;
        Program { arguments, setup, execute: Box::new(|command| Box::pin(async { execute(command).await })), sidecar }
    }

    /// Configures the program as the replacement of a CSI sidecar: its commands use
    /// [`Options::sidecar_rbac`](crate::Options::sidecar_rbac), and `rbac` also prints these rules, which are optional
    /// for the program.
    pub fn sidecar(self, rules: impl IntoIterator<Item = AccessRule>) -> Self {
        Self { sidecar: Some(rules.into_iter().collect()), ..self }
    }

    /// Uses these arguments instead of the process's, for a program with several modes that each have their own
    /// arguments and provisioner. The first argument is the name, such as `nfs-provisioner subdir`.
    pub fn arguments(self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { arguments: arguments.into_iter().map(Into::into).collect(), ..self }
    }

    /// Runs the program.
    pub fn run(self) -> ExitCode {
        let Self { arguments, setup, execute, sidecar } = self;
        let in_its_place = |mut options: Options| {
            options.sidecar_rbac = sidecar.is_some();
            options
        };
        let others = sidecar.clone().unwrap_or_default();
        install_crypto_provider();
        let program = A::command();
        let (invocation, style) = read::<A, C, S>(arguments);
        let invocation = invocation.unwrap_or_else(|error| match style {
            LogStyle::Json if error.use_stderr() => {
                style.fatal(program.get_name(), &error.to_string());
                std::process::exit(error.exit_code())
            }
            _ => error.exit(),
        });
        let done = match invocation {
            Invocation::CheckClass(check) => {
                let (text, code) = check.run::<S>();
                print(&text);
                return ExitCode::from(code);
            }
            Invocation::Rbac(rbac, options) => rbac.run::<S>(&in_its_place(options), others).map(|text| print(&text)),
            Invocation::Journal(journal, options) => {
                block_on(async { journal.run(&in_its_place(options), print).await })
            }
            Invocation::Orphans(orphans, arguments) => {
                block_on(async { setup(arguments).await?.orphans(&orphans).await })
            }
            Invocation::OfAuthor(command) => block_on(execute(command)),
            Invocation::Run(arguments) => block_on(async { Ok(setup(arguments).await?.run().await?) }),
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                style.fatal(program.get_name(), &error_chain(&*error));
                ExitCode::FAILURE
            }
        }
    }
}

impl<A, S, C> fmt::Debug for Program<A, S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("arguments", &self.arguments).finish_non_exhaustive()
    }
}

/// Uses one thread: the controller mostly waits, and blocking work has its own threads.
fn block_on<T>(work: impl Future<Output = Result<T, BoxError>>) -> Result<T, BoxError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    // A blocked thread must not keep the process alive: the grace period is over.
    runtime.shutdown_background();
    done
}

/// Installs the crypto provider. A provisioner's own clients also need it: with several compiled-in providers, rustls
/// selects none.
fn install_crypto_provider() {
    // An error means that a provider is already installed, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

impl LogStyle {
    /// Writes the error that ends a program to stderr, as one line. Programs whose `main` is a [`Program`] need not
    /// call it.
    pub fn fatal(self, program: &str, text: &str) {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = match self {
            Self::Text => format!("{program}: {text}"),
            Self::Json => {
                let time = Timestamp::now().to_string();
                json!({"timestamp": time, "level": "ERROR", "message": text, "target": program}).to_string()
            }
        };
        // `eprintln!` would panic if stderr is full.
        let _ = writeln!(io::stderr(), "{line}");
    }
}
