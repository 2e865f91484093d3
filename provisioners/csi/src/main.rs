//! `csi-provisioner`: provisions volumes for the CSI driver behind a socket.

mod flags;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches, Parser};
use csi_provisioner::{CsiProvisioner, DriverError, DriverInfo, OwnNode};
use driver_rpc::Client;
use driver_rpc::csi::{Operations, wait_until_ready};
use kube_provisioner::rbac::AccessRule;
use kube_provisioner::{Controller, Options, Program, error_chain, without_empty_variables};
use provisioner_runtime::shutdown;

use crate::flags::{Features, Flags, identity};

/// The commands of every provisioner. They do not connect to the driver.
const COMMANDS: [&str; 3] = ["check-class", "journal", "rbac"];

#[derive(Parser)]
#[command(name = "csi-provisioner", version)]
struct Common {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|command| COMMANDS.contains(&&*command)) {
        let setup = async |Common { options }| {
            let problem = format!("{} runs without a command", options.provisioner_name);
            Err::<(CsiProvisioner<Client>, Options), _>(problem.into())
        };
        let (features, arguments) = Features::split(std::env::args_os());
        return Program::new(setup).arguments(arguments).sidecar(rights(&features)).run();
    }
    let mut matches = without_empty_variables(Flags::command()).get_matches();
    let flags = Flags::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.exit());
    let style = flags.logging_format;
    // One thread suffices: the controller mostly waits.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(flags)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            style.fatal("csi-provisioner", &error_chain(&*error));
            ExitCode::FAILURE
        }
    }
}

/// Returns the permissions that charts of drivers grant in addition, depending on the driver's features.
fn rights(features: &Features) -> Vec<AccessRule> {
    let rule = |group, resource, verbs| AccessRule { group, resource, verbs, names: Vec::new(), namespaced: false };
    const SNAPSHOTS: &str = "snapshot.storage.k8s.io";
    const STORAGE: &str = "storage.k8s.io";
    let mut rules = vec![
        rule("", "persistentvolumeclaims", &["update"]),
        rule("", "secrets", &["get"]),
        rule(STORAGE, "storageclasses", &["get"]),
        rule(STORAGE, "volumeattachments", &["list", "watch"]),
        rule(STORAGE, "volumeattributesclasses", &["get"]),
        rule(SNAPSHOTS, "volumesnapshots", &["get", "list", "watch", "update"]),
        rule(SNAPSHOTS, "volumesnapshotcontents", &["get"]),
    ];
    if features.has_topology() || features.has_capacity() {
        rules.push(rule("", "nodes", &["get", "list", "watch"]));
        rules.push(rule(STORAGE, "csinodes", &["get", "list", "watch"]));
    }
    if features.has_capacity() {
        let own = |group, resource, verbs| AccessRule { namespaced: true, ..rule(group, resource, verbs) };
        rules.push(own(STORAGE, "csistoragecapacities", &["list", "watch", "create", "update", "delete"]));
        // These permissions are for looking up the owner of the objects.
        rules.push(own("", "pods", &["get"]));
        rules.push(own("apps", "replicasets", &["get"]));
    }
    if features.has_cross_namespace_data_sources() {
        rules.push(rule("gateway.networking.k8s.io", "referencegrants", &["list", "watch"]));
    }
    rules
}

async fn run(flags: Flags) -> Result<(), Box<dyn Error + Send + Sync>> {
    flags.options("").start_log();
    let mut settings = flags.settings()?;
    let node = flags.node_name(std::env::var("NODE_NAME").ok())?;
    let ignored = flags.ignored();
    if !ignored.is_empty() {
        tracing::info!(flags = ignored.join(" "), "these flags have no effect in this program");
    }
    let operations = Operations::default();
    let client = Client::new(flags.csi_address.clone()).with_timeout(flags.timeout).with_observer(operations.clone());
    let asking = async {
        wait_until_ready(&client).await?;
        let reconnected = client.reconnected();
        let driver = DriverInfo::query(&client).await?;
        let own_node = own_node(&client, &driver, node.as_deref()).await?;
        Ok::<_, Box<dyn Error + Send + Sync>>((reconnected, driver, own_node))
    };
    let (reconnected, driver, own_node) = tokio::select! {
        biased;
        ended = shutdown::received() => return Ok(ended?),
        answer = asking => answer?,
    };
    operations.set_driver_name(driver.name());
    if settings.capacity.is_some() && !driver.can_get_capacity() {
        tracing::warn!("--enable-capacity has no effect: the CSI driver does not have the capability GET_CAPACITY");
    }
    settings.own_node = own_node;
    let options = match &settings.own_node {
        Some(node) => flags.options_on(node, driver.name()),
        None => flags.options(driver.name()),
    };
    let identity = identity(&driver, settings.own_node.as_ref());
    let another = driver_changed(client.clone(), driver.clone(), settings.own_node.clone(), reconnected);
    let provisioner = CsiProvisioner::new(client, driver, settings, identity).with_metrics(operations);
    tokio::select! {
        ended = Controller::new(provisioner, options).run() => Ok(ended?),
        problem = another => Err(problem.into()),
    }
}

/// Returns the node that the driver runs on if the program provisions only for the node with this name.
async fn own_node(client: &Client, driver: &DriverInfo, name: Option<&str>) -> Result<Option<OwnNode>, DriverError> {
    match name {
        Some(_) if !driver.has_topology() => Err(DriverError::NoTopologyCapability),
        Some(name) => OwnNode::query(client, name).await.map(Some),
        None => Ok(None),
    }
}

/// Returns when the driver behind the socket identifies itself or its node differently than at the start. The program
/// then exits, and the kubelet restarts it.
async fn driver_changed(
    client: Client,
    known: DriverInfo,
    node: Option<OwnNode>,
    reconnected: impl Future<Output = ()>,
) -> String {
    reconnected.await;
    loop {
        let reconnected = client.reconnected();
        let found = async {
            let driver = DriverInfo::query(&client).await?;
            // A driver that has lost its topology is different in any case.
            let name = node.as_ref().map(OwnNode::name).filter(|_| driver == known);
            let node = own_node(&client, &driver, name).await?;
            Ok::<_, DriverError>((driver, node))
        };
        match found.await {
            Ok((driver, _)) if driver.name() != known.name() => {
                return format!("the CSI driver at the socket is {} now, and was {}", driver.name(), known.name());
            }
            Ok((driver, _)) if driver != known => {
                return format!("the CSI driver {} has other capabilities now than at the start", known.name());
            }
            Ok((_, on)) if on != node => {
                return format!(
                    "the CSI driver {} reports another topology of its node now than at the start",
                    known.name()
                );
            }
            Ok(_) => reconnected.await,
            Err(error) => {
                tracing::info!("the CSI driver is back, but it cannot be identified: {}", error_chain(&error));
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}
