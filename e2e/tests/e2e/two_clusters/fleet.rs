//! The provisioners of both clusters, which are killed at random moments.

use std::time::Duration;

use anyhow::Context;
use testbed::cluster::Program;

use super::backend::{BOTH, Backend};

/// In milliseconds. A killed provisioner's Lease lasts for three seconds, so some kills precede its successor's work.
const MAX_PAUSE: u64 = 4096;
/// The duration of most of the requested work.
const MAX_WORK: u64 = 512;

pub(crate) struct Fleet<'a, B> {
    backend: &'a B,
    programs: [Option<Program>; 2],
    random: u64,
    kills: usize,
}

impl<'a, B: Backend> Fleet<'a, B> {
    pub(crate) fn start(backend: &'a B) -> anyhow::Result<Self> {
        let mut fleet = Self { backend, programs: [None, None], random: 0x9e37_79b9_7f4a_7c15, kills: 0 };
        for side in BOTH {
            fleet.resume(side)?;
        }
        Ok(fleet)
    }

    /// Kills and restarts the provisioner of a random cluster this number of times, at random moments.
    pub(crate) async fn kill(&mut self, kills: usize) -> anyhow::Result<()> {
        for _ in 0..kills {
            self.pause().await;
            let side = self.kill_one().await?;
            self.resume(side)?;
        }
        Ok(())
    }

    /// Waits for some time, in which a started provisioner may begin to work.
    pub(crate) async fn pause(&mut self) {
        self.wait(MAX_PAUSE).await;
    }

    /// Soon kills one provisioner, during the requested work. It stays down until [`Self::resume`]. Returns its
    /// cluster.
    pub(crate) async fn kill_one(&mut self) -> anyhow::Result<usize> {
        self.wait(MAX_WORK).await;
        let side = usize::try_from(self.next() % 2)?;
        self.stop(side).await?;
        self.kills += 1;
        Ok(side)
    }

    /// Kills a provisioner to simulate a crash.
    pub(crate) async fn stop(&mut self, side: usize) -> anyhow::Result<()> {
        self.programs[side].take().context("it does not run")?.kill().await.map(drop)
    }

    pub(crate) fn resume(&mut self, side: usize) -> anyhow::Result<()> {
        self.programs[side] = Some(self.backend.spawn(side)?);
        Ok(())
    }

    pub(crate) fn kills(&self) -> usize {
        self.kills
    }

    async fn wait(&mut self, longest: u64) {
        tokio::time::sleep(Duration::from_millis(self.next() % longest)).await;
    }

    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.random >> 33
    }
}
