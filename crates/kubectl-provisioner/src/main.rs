//! `kubectl-provisioner`: the plugin that `kubectl provisioner` runs.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use kube::config::KubeConfigOptions;
use kubectl_provisioner::{Args, answer};
use provisioner_runtime::Environment;
use provisioner_runtime::client::{ConnectError, connect_as};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(&Args::parse()).await {
        Ok(text) => {
            // If this fails, the reader has closed the pipe.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "kubectl-provisioner: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<String, ConnectError> {
    let choice = KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
    let connection = connect_as(args.kubeconfig.as_deref(), &choice).await?;
    Ok(answer(args, connection.client, &connection.namespace, Environment::default()).await)
}
