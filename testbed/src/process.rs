//! Commands that run to completion, and processes identified by their PID and start time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The recorded state of a server that outlives the command that started it.
pub(crate) fn standing<T: DeserializeOwned>(dir: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(dir.join("state.json")).ok()?).ok()
}

/// Ends a long-running process and removes its data; returns `false` if there is none.
pub(crate) async fn end_standing(id: Option<ProcessId>, limit: Duration, dir: &Path) -> anyhow::Result<bool> {
    if let Some(id) = &id {
        id.stop(limit).await;
    }
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(id.is_some()),
    }
}

/// Runs a command to completion, and returns its standard output. If it fails, the error contains all of its output.
pub fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{command:?}: {said}{complained}");
    Ok(output.stdout)
}

/// The size of this machine's memory in bytes.
pub fn machine_memory() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let kilobytes = text.split_whitespace().nth(1).context("/proc/meminfo is empty")?;
    Ok(kilobytes.parse::<u64>()? * 1024)
}

/// A field of `/proc/PID/status` in kB, such as `VmRSS` or `VmHWM`.
pub fn memory(pid: u32, field: &str) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let text = line.with_context(|| format!("no {field} in the process status"))?;
    Ok(text.trim().trim_end_matches(" kB").parse()?)
}

/// The number of a process, and its start time, which distinguishes it from another process that reuses the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// The process id.
    pub pid: u32,
    /// Start time in clock ticks since boot, from `/proc/<pid>/stat`.
    pub started: u64,
}

impl ProcessId {
    /// The process that currently has this number.
    pub fn of(pid: u32) -> io::Result<Self> {
        let stat = Stat::read(pid)?;
        Ok(Self { pid, started: stat.started })
    }

    /// True if the process still runs. A zombie counts as ended only when all of its threads have ended: until then it
    /// keeps its ports.
    pub fn is_running(&self) -> bool {
        let ends = |stat: &Stat| stat.state == 'Z' && stat.threads <= 1;
        Stat::read(self.pid).is_ok_and(|stat| stat.started == self.started && !ends(&stat))
    }

    /// The process's program, if it can be read.
    pub fn program(&self) -> Option<PathBuf> {
        let exe = fs::read_link(format!("/proc/{}/exe", self.pid)).ok()?;
        // Linux marks a program whose file has been replaced.
        let text = exe.to_str()?;
        Some(PathBuf::from(text.strip_suffix(" (deleted)").unwrap_or(text)))
    }

    /// True if the process still runs `program`.
    pub fn runs(&self, program: &Path) -> bool {
        let wanted = fs::canonicalize(program).unwrap_or_else(|_| program.to_owned());
        self.is_running() && self.program().is_some_and(|exe| exe == wanted || exe == program)
    }

    /// Sends a signal; returns `false` if the process no longer runs.
    pub fn signal(&self, signal: Signal) -> bool {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return false;
        };
        self.is_running() && kill_process(pid, signal).is_ok()
    }

    /// Waits for the end; returns `false` if the process still runs after `limit`.
    pub async fn ended_within(&self, limit: Duration) -> bool {
        let start = Instant::now();
        while self.is_running() {
            if start.elapsed() > limit {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        true
    }

    /// Sends SIGTERM, and SIGKILL if the process still runs after `limit`. Returns `false` if it had to be killed.
    pub async fn stop(&self, limit: Duration) -> bool {
        self.signal(Signal::TERM);
        if self.ended_within(limit).await {
            return true;
        }
        self.signal(Signal::KILL);
        self.ended_within(Duration::from_secs(2)).await;
        false
    }

    /// The running children of the process.
    pub fn children(&self) -> Vec<Self> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let pids = children.flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        pids.filter_map(|pid| Self::of(pid.parse().ok()?).ok()).collect()
    }

    /// True if a signal has stopped all threads. They stop one after the other, some time after the signal.
    pub fn is_stopped(&self) -> io::Result<bool> {
        for task in fs::read_dir(format!("/proc/{}/task", self.pid))? {
            // A thread may have ended in the meantime.
            let stat = fs::read_to_string(task?.path().join("stat")).ok().and_then(|text| Stat::parse(&text));
            if stat.is_some_and(|stat| stat.state != 'T') {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Resident memory in bytes.
    pub fn resident_memory(&self) -> anyhow::Result<u64> {
        Ok(memory(self.pid, "VmRSS")? * 1024)
    }
}

struct Stat {
    state: char,
    threads: u32,
    started: u64,
}

impl Stat {
    fn read(pid: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Self::parse(&text).ok_or_else(|| io::Error::other(format!("cannot read /proc/{pid}/stat")))
    }

    /// The command in parentheses may contain any text, so count the fields from its end. See proc_pid_stat(5).
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let threads = fields.nth(16)?.parse().ok()?;
        let started = fields.nth(1)?.parse().ok()?;
        Some(Self { state, threads, started })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_runs_this_program() {
        let me = ProcessId::of(std::process::id()).unwrap();
        assert!(me.is_running());
        assert!(me.runs(&std::env::current_exe().unwrap()));
        assert!(me.resident_memory().unwrap() > 100_000);
    }

    #[test]
    fn reused_pid_is_another_process() {
        let mut other = ProcessId::of(std::process::id()).unwrap();
        other.started += 1;
        assert!(!other.is_running());
        assert!(!other.signal(Signal::KILL));
    }

    #[test]
    fn parses_command_names_with_parentheses_and_spaces() {
        let text = "12 (a) R b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.state, stat.threads, stat.started), ('S', 17, 4711));
    }
}
