//! The provisioners of both clusters, and who kills them.

use std::time::Duration;

use anyhow::Context;
use testbed::cluster::Program;

use super::backend::{BOTH, Backend};

/// A killed provisioner's Lease runs for three seconds: some kills come before the next one works.
const LONGEST_PAUSE: u64 = 4096;
/// How long most of what was just asked for takes.
const LONGEST_WORK: u64 = 512;

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

    /// Kills the provisioner of either cluster so often, each time at another moment.
    pub(crate) async fn kill(&mut self, kills: usize) -> anyhow::Result<()> {
        for _ in 0..kills {
            self.pause().await;
            let side = self.kill_one().await?;
            self.resume(side)?;
        }
        Ok(())
    }

    /// Waits for some time, in which a provisioner that was started may begin to work.
    pub(crate) async fn pause(&mut self) {
        self.wait(LONGEST_PAUSE).await;
    }

    /// Kills one at a moment soon, amid what was just asked for. It stays down until [`Self::resume`]. Returns whose it was.
    pub(crate) async fn kill_one(&mut self) -> anyhow::Result<usize> {
        self.wait(LONGEST_WORK).await;
        let side = usize::try_from(self.next() % 2)?;
        self.stop(side).await?;
        self.kills += 1;
        Ok(side)
    }

    /// Ends a provisioner as a crash does.
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
