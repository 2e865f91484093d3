//! The programs of a node, and their settings.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{Node, images};
use crate::control_plane::pki::Pki;
use crate::control_plane::state::{Health, Process};
use crate::packages;

pub(super) const SOCKET: &str = "/run/containerd/containerd.sock";
const METRICS_PORT: u16 = 1338;
const HEALTH_PORT: u16 = 10248;

/// containerd and the kubelet, in the order of their start.
pub(in crate::control_plane) fn components(dir: &Path, node: &Node, kubeconfig: &Path) -> anyhow::Result<[Process; 2]> {
    let own = dir.join("node");
    let containerd = write_containerd_config(&own, &own.join("containerd"), node.address, &node.network.pods())?;
    let nsenter = packages::program("nsenter")?;
    // nsenter stays outside of the namespaces as the parent. The program that it starts must not outlive it.
    let inside = |program: &Path, arguments: &[String]| {
        let mut all = node.nsenter_args();
        all.extend(["setpriv", "--pdeathsig", "KILL", "--"].map(str::to_owned));
        all.push(program.display().to_string());
        all.extend_from_slice(arguments);
        all
    };
    let process = |name: &str, url: String, arguments: Vec<String>| Process {
        health: Some(Health { url, says: String::new() }),
        ..Process::new(dir, name, &nsenter, arguments)
    };
    let address = node.address;
    Ok([
        process(
            "containerd",
            format!("http://{address}:{METRICS_PORT}/v1/metrics"),
            inside(&packages::program("containerd")?, &["--config".to_owned(), containerd.display().to_string()]),
        ),
        process(
            "kubelet",
            format!("http://{address}:{HEALTH_PORT}/healthz"),
            inside(
                &node.programs.join("kubelet"),
                &[
                    format!("--config={}", own.join("kubelet.json").display()),
                    format!("--kubeconfig={}", kubeconfig.display()),
                    format!("--hostname-override={}", node.name),
                    format!("--node-ip={address}"),
                ],
            ),
        ),
    ])
}

/// Writes the kubelet's settings.
pub(in crate::control_plane) fn write_kubelet_config(dir: &Path, node: &Node, pki: &Pki) -> anyhow::Result<()> {
    let config = kubelet_config(node.address, &pki.serving_cert, &pki.serving_key, &pki.ca);
    Ok(fs::write(dir.join("node/kubelet.json"), config.to_string())?)
}

/// The settings of a kubelet at this address, with its serving certificate and key, and the authority of its clients.
pub(super) fn kubelet_config(address: Ipv4Addr, cert: &Path, key: &Path, ca: &Path) -> serde_json::Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
        "tlsCertFile": cert,
        "tlsPrivateKeyFile": key,
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": ca },
        },
        "authorization": { "mode": "Webhook" },
        "healthzBindAddress": address,
        "healthzPort": HEALTH_PORT,
        "clusterDomain": "cluster.local",
        // The node has no name server.
        "resolvConf": "",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "maxPods": 200,
        "serializeImagePulls": false,
        "kubeAPIQPS": 500,
        "kubeAPIBurst": 500,
        // Short, because tests wait for changes that the kubelet detects.
        "syncFrequency": "10s",
        // The machine may have cgroups v1, no systemd, swap, a nearly full disk and few privileges.
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": false,
        // The node does not use iptables.
        "makeIPTablesUtilChains": false,
    })
}

/// Writes containerd's settings into the node's directory. `root` contains images and containers.
pub(super) fn write_containerd_config(
    own: &Path,
    root: &Path,
    address: Ipv4Addr,
    pods: &str,
) -> anyhow::Result<PathBuf> {
    let networks = own.join("networks");
    fs::create_dir_all(&networks)?;
    let network = json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [{
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "ranges": [[{ "subnet": pods }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        }],
    });
    fs::write(networks.join("10-pods.conflist"), network.to_string())?;
    let (root, networks, pause) = (root.display(), networks.display(), images::PAUSE);
    let runc = packages::program("runc")?;
    let runc = runc.display();
    // Without `restrict_oom_score_adj`, no pod starts on machines where even root may not lower the score.
    let config = format!(
        r#"version = 2
root = "{root}"
state = "/run/containerd"
[grpc]
  address = "{SOCKET}"
[metrics]
  address = "{address}:{METRICS_PORT}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{networks}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        BinaryName = "{runc}"
"#
    );
    let file = own.join("containerd.toml");
    fs::write(&file, config)?;
    Ok(file)
}
