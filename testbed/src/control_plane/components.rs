//! The arguments of the control plane's programs.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::binaries::Binaries;
use super::node::{self, Network, Node};
use super::pki::write_secret;
use super::pki::{Identity, Pki};
use super::state::{Health, Process};
use super::{Settings, kubeconfig};
use crate::ports::{check_port, free_ports};

/// The loopback ports for one attempt to start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    etcd: u16,
    etcd_peer: u16,
    api_server: u16,
    controller_manager: u16,
    scheduler: u16,
    /// The network of a real node, with the API server's address and the services' range.
    network: Option<Network>,
}

impl Ports {
    /// Chooses unused ports. Another program may take one before the component does; then the start fails.
    pub(super) fn choose(api_server: Option<u16>, node: Option<&Node>) -> anyhow::Result<Self> {
        check_port(api_server, "the API server")?;
        let free = free_ports(5)?;
        Ok(Self {
            etcd: free[0],
            etcd_peer: free[1],
            // The address in a node's network is not used by any other program.
            api_server: if node.is_some() { 443 } else { api_server.unwrap_or(free[2]) },
            controller_manager: free[3],
            scheduler: free[4],
            network: node.map(|node| node.network),
        })
    }

    pub(super) fn server(&self) -> String {
        format!("https://{}:{}", self.address(), self.api_server)
    }

    /// The API server's address.
    fn address(&self) -> Ipv4Addr {
        self.network.map_or(Ipv4Addr::LOCALHOST, Network::api_server)
    }

    /// The addresses at which clients reach the components.
    pub(super) fn addresses(&self, node: Option<&Node>) -> Vec<Ipv4Addr> {
        // The kubelet uses the same certificate.
        let more = node.map_or(vec![SERVICE], |node| vec![self.address(), node.address]);
        [vec![Ipv4Addr::LOCALHOST], more].concat()
    }
}

/// The first service address, which the `kubernetes` service receives. Without a node, it has no clients.
const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// The limit of the controller manager and of the scheduler. With their defaults of 20 and 50, every measurement would
/// only measure these limits.
const REQUESTS_PER_SECOND: u32 = 5000;

/// The components in the order of their start, and the path of the administrator's kubeconfig.
pub(super) struct Plan {
    pub(super) components: Vec<Process>,
    pub(super) kubeconfig: PathBuf,
    pub(super) audit_log: Option<PathBuf>,
}

/// Writes all files that the components read, and decides their arguments.
pub(super) fn plan(
    dir: &Path,
    pki: &Pki,
    ports: Ports,
    binaries: &Binaries,
    node: Option<&Node>,
    settings: &Settings,
) -> anyhow::Result<Plan> {
    let kubeconfig_of = |name: &str, identity: &Identity| {
        let path = dir.join(format!("{name}.kubeconfig"));
        kubeconfig::write_for(&path, &ports.server(), &pki.ca_pem, identity).map(|()| path)
    };
    let audit_log = settings.audit.then(|| dir.join("audit.log"));
    let process = |name: &str, program: &Path, health: Health, arguments: Vec<String>| Process {
        health: Some(health),
        ..Process::new(dir, name, program, arguments)
    };
    let answers = |url: String| Health { url, says: String::new() };
    let mut plan = Plan {
        components: vec![
            process("etcd", &binaries.etcd, answers(format!("{}/health", http(ports.etcd))), etcd(dir, ports)),
            process(
                "kube-apiserver",
                &binaries.api_server,
                answers(format!("{}/readyz", ports.server())),
                api_server(dir, pki, ports, audit_log.as_deref())?,
            ),
            process(
                "kube-controller-manager",
                &binaries.controller_manager,
                // It answers before its controllers run; the response lists the running ones.
                Health {
                    url: format!("{}/healthz?verbose", https(ports.controller_manager)),
                    says: "persistentvolume-binder-controller ok".to_owned(),
                },
                controller_manager(pki, ports, &kubeconfig_of("controller-manager", &pki.controller_manager)?),
            ),
            process(
                "kube-scheduler",
                &binaries.scheduler,
                answers(format!("{}/readyz", https(ports.scheduler))),
                scheduler(dir, pki, ports, &kubeconfig_of("scheduler", &pki.scheduler)?)?,
            ),
        ],
        kubeconfig: kubeconfig_of("admin", &pki.admin)?,
        audit_log,
    };
    if let Some(node) = node {
        node::write_kubelet_config(dir, node, pki)?;
        let kubeconfig = kubeconfig_of("kubelet", &pki.kubelet)?;
        plan.components.extend(node::components(dir, node, &kubeconfig)?);
    }
    Ok(plan)
}

fn etcd(dir: &Path, ports: Ports) -> Vec<String> {
    let client = http(ports.etcd);
    let peer = http(ports.etcd_peer);
    vec![
        flag("data-dir", dir.join("etcd").display()),
        flag("listen-client-urls", &client),
        flag("advertise-client-urls", &client),
        flag("listen-peer-urls", &peer),
        flag("initial-advertise-peer-urls", &peer),
        flag("initial-cluster", format!("default={peer}")),
        // The data need not survive a crash of the machine.
        flag("unsafe-no-fsync", true),
        flag("quota-backend-bytes", 8_u64 << 30),
        flag("log-level", "warn"),
    ]
}

fn api_server(dir: &Path, pki: &Pki, ports: Ports, audit_log: Option<&Path>) -> anyhow::Result<Vec<String>> {
    let mut flags = vec![
        flag("etcd-servers", http(ports.etcd)),
        flag("bind-address", ports.address()),
        flag("advertise-address", ports.address()),
        flag("secure-port", ports.api_server),
        flag("tls-cert-file", pki.serving_cert.display()),
        flag("tls-private-key-file", pki.serving_key.display()),
        flag("client-ca-file", pki.ca.display()),
        flag("authorization-mode", "Node,RBAC"),
        flag("enable-admission-plugins", "NodeRestriction"),
        flag("allow-privileged", true),
        flag("service-cluster-ip-range", ports.network.map_or("10.0.0.0/16".to_owned(), Network::services)),
        flag("service-account-issuer", "https://kubernetes.default.svc.cluster.local"),
        flag("service-account-signing-key-file", pki.service_account_key.display()),
        flag("service-account-key-file", pki.service_account_public_key.display()),
        // By default, an orderly stop waits a minute for clients that watch.
        flag("shutdown-watch-termination-grace-period", "1s"),
        // Tests create claims with sources in other namespaces.
        flag("feature-gates", "CrossNamespaceVolumeDataSource=true"),
        // It taints new nodes until the node lifecycle controller, which is disabled, finds them ready.
        flag("disable-admission-plugins", "TaintNodesByCondition"),
    ];
    if ports.network.is_none() {
        // The API server refuses a loopback address as an endpoint of the `kubernetes` service.
        flags.push(flag("endpoint-reconciler-type", "none"));
    } else {
        let (cert, key) = (dir.join("pki/kubelet-client.crt"), dir.join("pki/kubelet-client.key"));
        fs::write(&cert, &pki.kubelet_client.cert_pem)?;
        write_secret(&key, &pki.kubelet_client.key_pem)?;
        flags.push(flag("kubelet-client-certificate", cert.display()));
        flags.push(flag("kubelet-client-key", key.display()));
        flags.push(flag("kubelet-certificate-authority", pki.ca.display()));
        flags.push(flag("kubelet-preferred-address-types", "InternalIP"));
    }
    if let Some(log) = audit_log {
        let policy = dir.join("audit-policy.json");
        fs::write(&policy, audit_policy().to_string())?;
        flags.push(flag("audit-policy-file", policy.display()));
        flags.push(flag("audit-log-path", log.display()));
        // Readers expect the whole log in one file.
        flags.push(flag("audit-log-maxsize", 4096));
    }
    Ok(flags)
}

/// Logs each request of a service account outside of the control plane: watches at their start, all others at their
/// response.
fn audit_policy() -> serde_json::Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "rules": [
            { "level": "None", "userGroups": ["system:serviceaccounts:kube-system"] },
            {
                "level": "Metadata",
                "userGroups": ["system:serviceaccounts"],
                "verbs": ["watch"],
                "omitStages": ["RequestReceived", "ResponseComplete"],
            },
            {
                "level": "Metadata",
                "userGroups": ["system:serviceaccounts"],
                "omitStages": ["RequestReceived", "ResponseStarted"],
            },
            { "level": "None" },
        ],
    })
}

fn controller_manager(pki: &Pki, ports: Ports, kubeconfig: &Path) -> Vec<String> {
    vec![
        flag("kubeconfig", kubeconfig.display()),
        flag("bind-address", Ipv4Addr::LOCALHOST),
        flag("secure-port", ports.controller_manager),
        flag("tls-cert-file", pki.serving_cert.display()),
        flag("tls-private-key-file", pki.serving_key.display()),
        flag("authentication-skip-lookup", true),
        flag("leader-elect", false),
        flag("use-service-account-credentials", true),
        flag("service-account-private-key-file", pki.service_account_key.display()),
        flag("root-ca-file", pki.ca.display()),
        flag("kube-api-qps", REQUESTS_PER_SECOND),
        flag("kube-api-burst", REQUESTS_PER_SECOND),
        // Nodes exist only as objects: no kubelet renews their leases, and they must not be considered lost.
        flag("controllers", "*,-node-lifecycle-controller"),
    ]
}

fn scheduler(dir: &Path, pki: &Pki, ports: Ports, kubeconfig: &Path) -> anyhow::Result<Vec<String>> {
    let config = dir.join("scheduler.json");
    let text = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": { "leaderElect": false },
        "clientConnection": {
            "kubeconfig": kubeconfig,
            "qps": REQUESTS_PER_SECOND,
            "burst": REQUESTS_PER_SECOND,
        },
    });
    fs::write(&config, text.to_string())?;
    Ok(vec![
        flag("config", config.display()),
        flag("bind-address", Ipv4Addr::LOCALHOST),
        flag("secure-port", ports.scheduler),
        flag("tls-cert-file", pki.serving_cert.display()),
        flag("tls-private-key-file", pki.serving_key.display()),
        flag("authentication-skip-lookup", true),
    ])
}

fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}

fn http(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn https(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}
