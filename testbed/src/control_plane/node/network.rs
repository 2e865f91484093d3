//! The network between this machine and a node.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::packages;
use crate::process::output;

/// The addresses of a control plane with a node: each uses a separate /16, so that several can run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::control_plane) struct Network {
    second: u8,
}

/// The candidates for x in 10.x.0.0/16.
const CHOICE: std::ops::Range<u8> = 160..224;

impl Network {
    /// Creates the pair of interfaces between this machine and the network namespace of a process. The kernel removes
    /// both together with the namespace.
    pub(super) fn create(init: u32) -> anyhow::Result<Self> {
        let routes = fs::read_to_string("/proc/net/route").context("cannot read this machine's routes")?;
        let all = CHOICE.map(|second| Self { second });
        for network in all.filter(|network| !network.is_routed(&routes)) {
            let made = ip(&format!("link add {} type veth peer name eth0 netns {init}", network.interface()));
            match made {
                Ok(()) => return network.connect(init).map(|()| network),
                // Another control plane took these addresses first.
                Err(_) if fs::exists(format!("/sys/class/net/{}", network.interface()))? => {}
                Err(error) => return Err(error),
            }
        }
        bail!("every network from 10.{}.0.0/16 to 10.{}.0.0/16 is in use", CHOICE.start, CHOICE.end - 1)
    }

    /// The API server's address: this machine's end of the pair, and the first service address.
    pub(in crate::control_plane) fn api_server(self) -> Ipv4Addr {
        self.address(0, 1)
    }

    /// The range of service addresses.
    pub(in crate::control_plane) fn services(self) -> String {
        format!("{}/18", self.address(0, 0))
    }

    /// The address of the node's end of the pair.
    pub(super) fn node(self) -> Ipv4Addr {
        self.address(64, 2)
    }

    /// The range of pod addresses.
    pub(super) fn pods(self) -> String {
        format!("{}/17", self.address(128, 0))
    }

    fn connect(self, init: u32) -> anyhow::Result<()> {
        let (here, there, interface) = (self.api_server(), self.node(), self.interface());
        ip(&format!("address add {here}/32 peer {there}/32 dev {interface}"))?;
        ip(&format!("link set {interface} up"))?;
        ip(&format!("route add {} via {there} dev {interface}", self.pods()))?;
        for command in [
            "link set lo up".to_owned(),
            format!("address add {there}/32 peer {here}/32 dev eth0"),
            "link set eth0 up".to_owned(),
            format!("route add default via {here}"),
        ] {
            inside(init, &command)?;
        }
        Ok(())
    }

    /// The interface's name, which may have at most 15 bytes.
    fn interface(self) -> String {
        format!("kpnode{}", self.second)
    }

    fn address(self, third: u8, fourth: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, self.second, third, fourth)
    }

    /// True if this machine has a route into the network other than the default route. See proc_net(5): the numbers are
    /// hexadecimal, in the machine's byte order.
    fn is_routed(self, routes: &str) -> bool {
        routes.lines().skip(1).any(|line| {
            let number = |at: usize| u32::from_str_radix(line.split_whitespace().nth(at)?, 16).ok();
            let (Some(to), Some(mask)) = (number(1), number(7)) else { return false };
            let (to, mask) = (u32::from_be_bytes(to.to_ne_bytes()), u32::from_be_bytes(mask.to_ne_bytes()));
            let own = u32::from(self.address(0, 0));
            let shared = mask & 0xffff_0000;
            mask != 0 && (to & shared) == (own & shared)
        })
    }
}

fn ip(command: &str) -> anyhow::Result<()> {
    output(Command::new(packages::program("ip")?).args(command.split(' '))).map(drop)
}

fn inside(init: u32, command: &str) -> anyhow::Result<()> {
    let mut nsenter = Command::new(packages::program("nsenter")?);
    nsenter.arg(format!("--target={init}")).arg("--net").arg("--").arg(packages::program("ip")?);
    output(nsenter.args(command.split(' '))).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_networks_with_routes() {
        let routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                      eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                      eth0\t0005A10A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        assert!(Network { second: 161 }.is_routed(routes));
        assert!(!Network { second: 160 }.is_routed(routes));
    }

    #[test]
    fn divides_a_network_into_distinct_ranges() {
        let network = Network { second: 160 };
        assert_eq!(network.services(), "10.160.0.0/18");
        assert_eq!(network.api_server().to_string(), "10.160.0.1");
        assert_eq!(network.node().to_string(), "10.160.64.2");
        assert_eq!(network.pods(), "10.160.128.0/17");
    }
}
