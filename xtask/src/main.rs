//! The project's commands: `cargo xtask --help`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program talks to its user")]

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use testbed::guard::{self, Guard, Lifetime};

mod bench;
mod book;
mod build;
mod control_plane;
mod demo;
#[cfg(test)]
mod features;
#[cfg(not(feature = "full"))]
mod full_build;
mod image;
mod install;
mod manifests;
mod new;
mod package;
mod report;
#[cfg(feature = "full")]
mod rules;
mod server;
mod signals;
mod sim;
mod test;

/// Commands for working on this project
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

    /// Run an in-memory Ceph cluster on loopback: monitor, manager, OSD and radosgw, an S3-compatible object store
    #[command(subcommand)]
    Ceph(server::Command),

    /// Run an NFS server (NFS-Ganesha) on loopback that exports one directory
    #[command(subcommand)]
    Nfs(server::Command),

    /// Run moto on loopback, an S3 and IAM server that checks signatures and permissions
    #[command(subcommand)]
    S3(server::Command),

    /// Run all tests, including those on real servers, which are built on first use
    Test {
        #[command(flatten)]
        install: install::Install,

        #[command(flatten)]
        selection: test::Selection,
    },

    /// Run a demo on a simulated API server: a claim is bound, then deleted together with its volume
    Demo(demo::Arguments),

    /// Build the container image of a provisioner as an OCI archive, without a container engine
    Image(image::Arguments),

    /// Scaffold a new provisioner, with its tests and manifests
    New(new::Arguments),

    /// Check that each crate can be published, and create the archives
    Package,

    /// Build the guide in docs/book, installing mdbook into the cache if needed
    Book,

    /// Generate the files in `deploy/`: RBAC rules, values and schemas of the charts, and the rendered charts
    Manifests,

    /// Lint and render the charts, and compare them with `deploy/`; builds helm on first use
    Charts,

    /// Check the Prometheus rules with promtool and their unit tests, and the dashboard with running provisioners
    Rules {
        /// Keep Prometheus and the provisioners running until Ctrl-C, to view the dashboard with data
        #[arg(long)]
        stay: bool,
    },

    /// Measure on a real control plane, for instance `bench burst`; `bench -- --help` lists the measurements, and
    /// `bench report` takes all of the performance page
    Bench {
        /// The measurement and its options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<String>,
    },

    /// Run randomized fault-injection simulations, for instance `sim --seeds 10000`; `sim -- --help` lists the options
    Sim {
        /// The simulation's options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },

    /// Run another program that ends with its parent
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

/// One thread is enough, because commands wait nearly all the time.
#[tokio::main(flavor = "current_thread")]
async fn run(command: Command) -> anyhow::Result<ExitCode> {
    let guard = Guard::new(std::env::current_exe()?);
    if let Command::Demo(demo::Arguments { kind: None, volumes }) = &command
        && let Some(context) = &volumes.context
    {
        // The demo handles signals itself, so that it leaves nothing in the cluster.
        return demo::context::run(context, volumes.yes, &guard).await;
    }
    let work = async {
        match command {
            Command::Bench { arguments } => bench::run(&arguments, &guard).await,
            Command::ControlPlane(command) => control_plane::run(command, &guard).await,
            Command::Ceph(command) => server::run("ceph", &testbed::ceph::CEPH, command, &guard).await,
            Command::S3(command) => server::run("s3", &testbed::s3::S3_SERVER, command, &guard).await,
            Command::Nfs(command) => server::run("nfs", &testbed::nfs::GANESHA, command, &guard).await,
            Command::Test { install, selection } => test::run(install, &selection, &guard).await,
            Command::Sim { arguments } => sim::run(&arguments, &guard).await,
            Command::New(arguments) => new::run(&arguments).map(|()| ExitCode::SUCCESS),
            Command::Package => package::run(&guard).await,
            Command::Book => book::run(&guard).await,
            Command::Manifests => manifests::run(&guard).await,
            Command::Charts => manifests::charts(&guard).await,
            #[cfg(feature = "full")]
            Command::Rules { stay } => rules::run(stay, &guard).await,
            #[cfg(not(feature = "full"))]
            Command::Rules { .. } => full_build::run().await,
            Command::Image(arguments) => image::run(&arguments, &guard).await,
            Command::Demo(arguments) => demo::run(arguments, &guard).await,
            Command::Guard { .. } => unreachable!("handled before the runtime starts"),
        }
    };
    signals::unless_interrupted(work).await
}
