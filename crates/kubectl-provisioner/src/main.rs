//! `kubectl-provisioner`: the plugin that `kubectl provisioner` runs.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use kube::config::KubeConfigOptions;
use kube_provisioner::console::print;
use kubectl_provisioner::{Args, answer};
use provisioner_runtime::Environment;
use provisioner_runtime::client::{ConnectError, connect_as};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(&Args::parse()).await {
        Ok(text) => {
            print(&text);
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
