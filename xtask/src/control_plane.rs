//! `cargo xtask control-plane`

use std::process::ExitCode;
use std::time::Instant;

use anyhow::bail;
use clap::Subcommand;
use testbed::control_plane::{self, ComponentStatus, NODE, Settings, State, Status, Up};
use testbed::guard::Guard;
use testbed::progress::{self, seconds};

use crate::install::Install;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start a control plane that runs until `down`
    Up {
        /// Port of the API server [default: a free port]
        #[arg(long)]
        port: Option<u16>,

        /// Add a real node, on which pods run: kubelet, containerd and runc. Needs root on Linux
        #[arg(long, conflicts_with = "port")]
        node: bool,

        #[command(flatten)]
        install: Install,
    },
    /// Stop the control plane, and what is still running with it
    Down,
    /// Show the control plane; fails if it is not healthy
    Status,
}

pub(crate) async fn run(command: Command, guard: &Guard) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up { port, node, install } => {
            if node {
                install.prepare(&NODE, "control-plane up --node", &progress::terminal())?;
            }
            up(port, node, guard).await
        }
        Command::Down => down().await,
        Command::Status => status().await,
    }
}

async fn up(port: Option<u16>, node: bool, guard: &Guard) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    let settings = Settings {
        port,
        node,
        // Tests that use the audit log may run against it.
        audit: true,
        ..Settings::default()
    };
    let progress = progress::terminal();
    let state = match control_plane::up(&settings, guard, &progress).await? {
        Up::Started(state) => {
            progress.line(&format!("the control plane is up after {}", seconds(start.elapsed())));
            state
        }
        Up::Already(state) => {
            progress.line("the control plane is already up");
            if port.is_some() && port != state.port() {
                progress.line(&format!("its port is not the requested one, but {}", state.server));
            }
            if node && state.node.is_none() {
                bail!("it has no node: run `cargo xtask control-plane down` first");
            }
            state
        }
    };
    print_use(&state);
    Ok(ExitCode::SUCCESS)
}

async fn down() -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    if control_plane::down(&progress::terminal()).await? {
        println!("the control plane is down after {}", seconds(start.elapsed()));
    } else {
        println!("no control plane is up");
    }
    Ok(ExitCode::SUCCESS)
}

async fn status() -> anyhow::Result<ExitCode> {
    let Some(state) = State::standing()? else {
        println!("no control plane is up");
        return Ok(ExitCode::FAILURE);
    };
    let asked = Status::of(&state);
    let status = progress::during(&progress::terminal(), "asking the components", asked).await?;
    println!("{:<25} {:<8} {:>8} {:>6} {:>10}  VERSION", "COMPONENT", "STATE", "PID", "PORT", "MEMORY");
    for component in &status.components {
        println!("{}", line(component));
    }
    print_use(&state);
    if !status.is_healthy() {
        println!("not healthy; `cargo xtask control-plane up` starts it again. Logs: {}", state.dir.display());
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn line(component: &ComponentStatus) -> String {
    let condition = match (component.pid, component.ready) {
        (None, _) => "stopped",
        (Some(_), false) => "unready",
        (Some(_), true) => "ready",
    };
    let pid = component.pid.map_or("-".to_owned(), |pid| pid.to_string());
    let port = component.port.map_or("-".to_owned(), |port| port.to_string());
    let memory = component.memory.map_or("-".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
    let version = component.version.as_deref().unwrap_or("-");
    format!("{:<25} {condition:<8} {pid:>8} {port:>6} {memory:>10}  {version}", component.name)
}

fn print_use(state: &State) {
    match &state.node {
        Some(node) => println!("node:       {} ({})", node.name, node.address),
        None => println!("node:       none; `up --node` adds one"),
    }
    println!("kubeconfig: {}", state.kubeconfig.display());
    if let Some(kubectl) = &state.kubectl {
        println!("kubectl:    {}", kubectl.display());
    }
    println!("export KUBECONFIG={}", state.kubeconfig.display());
}
