//! Clients access their data even while the API server or the controller is unavailable.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use k8s_openapi::api::storage::v1::StorageClass;
use testbed::cluster::{Program, TestSpace, eventually};
use testbed::control_plane::Signal;
use testbed::http::ask;
use testbed::uml::{Guest, Link, Machine};

use super::super::fixture::*;
use super::{keeps_writing, writer, written};

/// The time from the provisioner's restart until a client can write.
const BACK: Duration = Duration::from_secs(3);
/// The time between the end of the processes and their restart.
const SETTLE: Duration = Duration::from_millis(500);
/// The time during which the controller is unready.
const UNREADY: Duration = Duration::from_secs(150);

/// A provisioner, its connection to the API server, and a client that writes.
struct Fixture {
    space: TestSpace,
    server: Server,
    gate: Gate,
    guest: Guest,
    admin: u16,
    _link: Link,
}

impl Fixture {
    async fn new(name: &str) -> anyhow::Result<(Self, Program, StorageClass)> {
        let (space, link) = (TestSpace::new(name).await?, Link::new()?);
        let gate = Gate::at(Ipv4Addr::LOCALHOST, &space, &account(&space).await?).await?;
        let server = Server::at(link.host_address())?;
        let guest = Guest::start(Machine::with(&link), &writer(server.client.port)).await?;
        let fixture = Self { space, server, gate, guest, admin: testbed::ports::free_port()?, _link: link };
        let program = fixture.start()?;
        fixture.server.ready(None).await?;
        let class = fixture.space.create_class_and_claim("claim").await?;
        let (_, volume) = fixture.space.wait_bound("claim").await?;
        fixture.guest.send_file("volume", &place(&volume))?;
        keeps_writing(&fixture.guest, "mounted").await?;
        Ok((fixture, program, class))
    }

    /// Starts it with a Lease that outlives the test of a restart.
    fn start(&self) -> anyhow::Result<Program> {
        let admin = format!("--http-endpoint=127.0.0.1:{}", self.admin);
        let times = ["--lease-duration", "20s", "--lease-renew-deadline", "10s", "--lease-retry-period", "2s"];
        self.server.start(&self.space, &self.gate.access, &[&[admin.as_str()][..], &times].concat())
    }

    /// Kills the server and its provisioner at the same moment. The client's previous writes arrive.
    async fn kill(&self, mut program: Program) -> anyhow::Result<()> {
        self.server.ganesha()?.signal(Signal::KILL);
        program.kill().await?;
        tokio::time::sleep(SETTLE).await;
        Ok(())
    }

    /// Waits until the server's port answers and the client writes. The client's time is less precise because it
    /// retries a refused connection after three seconds.
    #[expect(clippy::print_stdout, reason = "figures")]
    async fn is_back(&self, what: &str) -> anyhow::Result<()> {
        let (start, before) = (Instant::now(), written(&self.guest));
        let address = (self.server.address, self.server.client.port);
        let answers = eventually(BACK, async || Ok(std::net::TcpStream::connect(address).ok())).await?;
        let served = start.elapsed();
        answers.with_context(|| format!("{what}: the server does not answer"))?;
        let more = eventually(10 * BACK, async || Ok((written(&self.guest) > before).then_some(()))).await?;
        more.with_context(|| format!("{what}: the client does not continue:\n{}", self.guest.text()))?;
        let wrote = start.elapsed();
        println!("{what}: the server answers {served:.1?} after the restart, and a client writes after {wrote:.1?}");
        ensure!(wrote < BACK, "{what}: a client writes after {wrote:?}");
        Ok(())
    }

    /// The HTTP status of a probe.
    async fn probe(&self, path: &str) -> anyhow::Result<String> {
        let answer = ask(self.admin, &format!("GET {path}"), "").await?;
        Ok(answer.split_whitespace().nth(1).unwrap_or_default().to_owned())
    }

    async fn done(self) -> anyhow::Result<()> {
        self.guest.send_file("end", "")?;
        let outcome = self.guest.ended().await?;
        ensure!(outcome.status == 0, "it ended with {}:\n{}", outcome.status, outcome.output);
        self.space.done().await
    }
}

/// Neither the Lease of a dead replica nor an unreachable API server delays an export.
#[tokio::test]
async fn ganesha_serves_exports_without_a_lease_or_api_server() -> anyhow::Result<()> {
    let (fixture, program, class) = Fixture::new("ganesha-d1").await?;
    fixture.kill(program).await?;
    let program = fixture.start()?;
    fixture.is_back("a dead replica holds the Lease").await?;

    fixture.kill(program).await?;
    fixture.gate.set_open(false);
    let program = fixture.start()?;
    fixture.is_back("the API server is unreachable").await?;
    program.wait_for_output("the API server is unavailable, trying again", SOON).await?;
    assert_eq!((fixture.probe("/livez").await?, fixture.probe("/readyz").await?), ("200".to_owned(), "500".to_owned()));
    ensure!(program.output().matches("ready shard").count() == 1, "it has acquired the Lease:\n{}", program.output());

    fixture.gate.set_open(true);
    fixture.space.create_claim(fixture.space.claim("later", &class)).await?;
    let bound = eventually(3 * SOON, async || Ok(fixture.space.wait_bound("later").await.ok())).await?;
    bound.context("no new export")?;
    fixture.done().await
}

/// The readiness of the Service's endpoints depends on the server's port.
#[tokio::test]
#[expect(clippy::print_stdout, reason = "figures")]
async fn ganesha_clients_do_not_notice_an_unready_controller() -> anyhow::Result<()> {
    let (fixture, _program, _) = Fixture::new("ganesha-d2").await?;
    let (start, mut last, mut longest) = (Instant::now(), written(&fixture.guest), Duration::ZERO);
    let mut since = start;
    fixture.gate.set_open(false);
    while start.elapsed() < UNREADY {
        tokio::time::sleep(Duration::from_millis(100)).await;
        tokio::net::TcpStream::connect((fixture.server.address, fixture.server.client.port)).await?;
        let now = written(&fixture.guest);
        if now > last {
            longest = longest.max(since.elapsed());
            (last, since) = (now, Instant::now());
        }
    }
    ensure!(fixture.probe("/readyz").await? == "500", "the controller is ready");
    assert_eq!(fixture.probe("/livez").await?, "200");
    println!("the controller was unready for {UNREADY:?}; a client stood still for {longest:.1?} at most");
    ensure!(longest.max(since.elapsed()) < BACK, "a client stood still for {longest:?}");
    fixture.done().await
}
