//! The project's commands: `cargo xtask --help`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program talks to its user")]

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use e2e::guard::{self, Guard, Lifetime};

mod bench;
mod book;
mod build;
mod ceph;
mod control_plane;
mod demo;
mod image;
mod manifests;
mod new;
mod nfs;
mod package;
mod rules;
mod s3;
mod signals;
mod sim;
mod suite;
mod test;

/// Commands for working on this project.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a Kubernetes control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler
    #[command(subcommand)]
    ControlPlane(control_plane::Command),

    /// Run a Ceph cluster on loopback, in memory: monitor, manager, OSD and radosgw, an object store that speaks S3
    #[command(subcommand)]
    Ceph(ceph::Command),

    /// Run an NFS server on loopback, NFS-Ganesha, that exports one directory
    #[command(subcommand)]
    Nfs(nfs::Command),

    /// Run S3 and IAM on loopback, which check every signature and every right: moto
    #[command(subcommand)]
    S3(s3::Command),

    /// Run all tests of the workspace with a control plane, and count them
    Test {
        /// Install the Debian packages that the tests of a real node need, where they are missing
        #[arg(long)]
        install_node_packages: bool,

        /// Install the Debian packages that the tests of Ceph need, where they are missing
        #[arg(long)]
        install_ceph_packages: bool,

        /// Install the Debian packages that the tests of an NFS server need, where they are missing
        #[arg(long)]
        install_nfs_packages: bool,

        /// Install moto and the Debian package that the tests of S3 need, where they are missing
        #[arg(long)]
        install_s3_packages: bool,

        #[command(flatten)]
        selection: test::Selection,
    },

    /// Show a provisioner at work, on a simulated API server: a claim is bound, and its volume goes with it
    Demo {
        /// What is shown: volumes that are directories, buckets on an object store, or exports of a real NFS server
        #[arg(value_enum, default_value_t = Shown::Volumes)]
        shown: Shown,

        /// The object store that buckets are shown on
        #[arg(long, value_enum, default_value_t = demo::Kind::Ceph)]
        backend: demo::Kind,

        /// Show the release build on a real control plane, with its figures; the first time this builds Kubernetes
        #[arg(long)]
        real: bool,

        /// Show the image on a real node: the provisioner is a pod, and a pod writes into its volume; needs root on Linux
        #[arg(long, conflicts_with_all = ["real", "keep"])]
        node: bool,

        /// Like `--real`, and leave the control plane and the provisioner running until `control-plane down`
        #[arg(long)]
        keep: bool,

        /// Show it on a cluster of yours, that of this context of the kubeconfig; asks before anything is made there
        #[arg(long, value_name = "NAME", conflicts_with_all = ["real", "node", "keep"])]
        context: Option<String>,

        /// Make what `--context` needs without asking
        #[arg(long, requires = "context")]
        yes: bool,
    },

    /// Build the container image of a provisioner, an OCI archive; needs no container engine
    Image(image::Arguments),

    /// Make the folder of a new provisioner, with its tests and manifests
    New(new::Arguments),

    /// Check whether each crate can be published, and make the archives
    Package,

    /// Install mdbook into the cache if need be, and build the guide of docs/book
    Book,

    /// Write what is generated in `deploy/`: rights, values and schemas of the charts, and what the charts render
    Manifests,

    /// Lint and render the charts, and compare them with `deploy/`; the first time this builds helm
    Charts,

    /// Check the rules of Prometheus by promtool, with their unit tests, and the dashboard with provisioners at work
    Rules {
        /// Leave Prometheus and the provisioners running until Ctrl-C, to look at the dashboard with data
        #[arg(long)]
        stay: bool,
    },

    /// Measure on a real control plane, for instance `bench burst`; `bench -- --help` lists what
    Bench {
        /// The measurement and its options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<String>,
    },

    /// Simulate crashes, faults and users' whims by the thousand, for instance `sim --seeds 10000`; `sim -- --help`
    Sim {
        /// The simulation's options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },

    /// Become another program that ends with its parent
    #[command(hide = true)]
    Guard {
        #[arg(long)]
        parent: u32,
        #[arg(long)]
        detach: bool,
        #[arg(last = true, required = true)]
        program: Vec<OsString>,
    },
}

/// What the demo shows.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Shown {
    Volumes,
    Buckets,
    Nfs,
}

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    if let Command::Guard { parent, detach, program } = command {
        let lifetime = if detach { Lifetime::Detached } else { Lifetime::WithOwner };
        let error = guard::become_program(parent, lifetime, &program[0], &program[1..]);
        eprintln!("cannot run {}: {error}", program[0].display());
        return ExitCode::from(127);
    }
    match run(command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// One thread is enough for what waits nearly all the time.
#[tokio::main(flavor = "current_thread")]
async fn run(command: Command) -> anyhow::Result<ExitCode> {
    let guard = Guard::new(std::env::current_exe()?);
    if let Command::Demo { shown: Shown::Volumes, context: Some(context), yes, .. } = &command {
        // A signal ends it in its own way, which leaves nothing in the cluster.
        return demo::context::run(context, *yes, &guard).await;
    }
    let work = async {
        match command {
            Command::Bench { arguments } => bench::run(&arguments, &guard).await,
            Command::ControlPlane(command) => control_plane::run(command, &guard).await,
            Command::Ceph(command) => ceph::run(command, &guard).await,
            Command::S3(command) => s3::run(command, &guard).await,
            Command::Nfs(command) => nfs::run(command, &guard).await,
            Command::Test {
                install_node_packages,
                install_ceph_packages,
                install_nfs_packages,
                install_s3_packages,
                selection,
            } => {
                if install_node_packages {
                    e2e::control_plane::install_node_packages(&e2e::progress::terminal())?;
                }
                if install_ceph_packages {
                    e2e::ceph::install_packages(&e2e::progress::terminal())?;
                }
                if install_nfs_packages {
                    e2e::nfs::install_packages(&e2e::progress::terminal())?;
                }
                if install_s3_packages {
                    e2e::s3::install_packages(&e2e::progress::terminal())?;
                }
                test::run(&selection, &guard).await
            }
            Command::Sim { arguments } => sim::run(&arguments, &guard).await,
            Command::New(arguments) => new::run(&arguments).map(|()| ExitCode::SUCCESS),
            Command::Package => package::run(&guard).await,
            Command::Book => book::run(&guard).await,
            Command::Manifests => manifests::run(&guard).await,
            Command::Charts => manifests::charts(&guard).await,
            Command::Rules { stay } => rules::run(stay, &guard).await,
            Command::Image(arguments) => image::run(&arguments, &guard).await,
            Command::Demo { context: Some(_), .. } => {
                anyhow::bail!("only volumes are shown on a cluster of yours: leave --context out")
            }
            Command::Demo { shown: Shown::Buckets | Shown::Nfs, node: true, .. }
            | Command::Demo { shown: Shown::Buckets | Shown::Nfs, keep: true, .. } => {
                anyhow::bail!("this is shown without a node, and nothing is kept: leave --node and --keep out")
            }
            Command::Demo { shown: shown @ (Shown::Buckets | Shown::Nfs), real, backend, .. } => {
                let on = if real { demo::On::Real } else { demo::On::Simulated };
                match shown {
                    Shown::Nfs => demo::nfs::run(on, &guard).await,
                    _ => demo::buckets::run(on, backend, &guard).await,
                }
            }
            Command::Demo { node: true, .. } => demo::run(demo::On::Node, &guard).await,
            Command::Demo { keep: true, .. } => demo::run(demo::On::Standing, &guard).await,
            Command::Demo { real: true, .. } => demo::run(demo::On::Real, &guard).await,
            Command::Demo { .. } => demo::run(demo::On::Simulated, &guard).await,
            Command::Guard { .. } => unreachable!("handled before the runtime starts"),
        }
    };
    signals::unless_interrupted(work).await
}
