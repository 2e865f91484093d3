//! Faults of the replicas and of the control plane.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures::future::join_all;
use testbed::control_plane::{self, Signal};
use testbed::progress::SharedProgress;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::disk::Moment;
use super::replica::{Replica, Shared};
use super::traffic::{burst, delete_claim};
use super::view::View;
use super::{LONGER_THAN_THE_LEASE, Soak};

/// Time limit for a moment, after which the fault happens without it.
const MOMENT: Duration = Duration::from_secs(8);
const STOP_LIMIT: Duration = Duration::from_secs(15);
const BURST: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Targets {
    One,
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill(Targets),
    KillAt(Moment, Targets),
    Pause,
    PauseAt(Moment),
    Terminate(Targets),
    Component(&'static str),
}

impl Fault {
    fn draw(rng: &mut Rng) -> Self {
        match rng.u32(0..100) {
            0..14 => Self::Kill(Targets::One),
            14..20 => Self::Kill(Targets::Both),
            20..32 => Self::KillAt(Moment::Created, Targets::One),
            32..42 => Self::KillAt(Moment::Created, Targets::Both),
            42..46 => Self::KillAt(Moment::Removing, Targets::One),
            46..49 => Self::KillAt(Moment::Removing, Targets::Both),
            49..54 => Self::KillAt(Moment::Removed, Targets::Both),
            54..63 => Self::Pause,
            63..72 => Self::PauseAt(Moment::Created),
            72..80 => Self::Terminate(Targets::One),
            80..83 => Self::Terminate(Targets::Both),
            83..92 => Self::Component("kube-apiserver"),
            _ => Self::Component("etcd"),
        }
    }

    fn name(self) -> String {
        let moment = |moment| match moment {
            Moment::Created => "between creating a directory and saving its volume",
            Moment::Removing => "when the removal of a directory has begun",
            Moment::Removed => "between removing a directory and reporting it",
        };
        let targets = |targets| match targets {
            Targets::One => "one replica",
            Targets::Both => "both replicas",
        };
        match self {
            Self::Kill(who) => format!("kill -9 of {}", targets(who)),
            Self::KillAt(at, who) => format!("kill -9 of {} {}", targets(who), moment(at)),
            Self::Pause => "a replica is paused for longer than its Lease".to_owned(),
            Self::PauseAt(at) => format!("a replica is paused for longer than its Lease, from {}", moment(at)),
            Self::Terminate(who) => format!("SIGTERM and restart of {}", targets(who)),
            Self::Component(name) => format!("kill -9 of {name}"),
        }
    }
}

/// The faults, and the situations in which they happened.
#[derive(Default)]
pub(super) struct InjectedFaults {
    pub(super) by_kind: BTreeMap<String, usize>,
    /// Number of faults during the creation of a directory that left one without a volume.
    pub(super) without_volume: usize,
    /// Number of directories left without a volume.
    pub(super) unsaved: usize,
    /// Number of claims deleted while the replicas that knew of them were stopped or paused.
    pub(super) orphaned: usize,
    /// Number of replicas that were asked to stop and did not do so in time.
    pub(super) too_slow: usize,
    /// Claims created for a fault, which continue to exist.
    pub(super) bursts: JoinSet<anyhow::Result<()>>,
}

struct FaultInjector {
    soak: Arc<Soak>,
    injected: Arc<std::sync::Mutex<InjectedFaults>>,
    components: BTreeMap<&'static str, Arc<Mutex<()>>>,
    /// Recoveries in progress.
    recovering: JoinSet<anyhow::Result<()>>,
    bursts: JoinSet<anyhow::Result<()>>,
}

/// Injects this number of faults, and waits until everything has recovered.
pub(super) async fn run(
    soak: &Arc<Soak>,
    replicas: &[Shared; 2],
    count: usize,
    pace: Duration,
    progress: &SharedProgress,
) -> anyhow::Result<InjectedFaults> {
    let components = ["kube-apiserver", "etcd"].map(|name| (name, Arc::default()));
    let mut injector = FaultInjector {
        soak: soak.clone(),
        injected: Arc::default(),
        components: components.into(),
        recovering: JoinSet::new(),
        bursts: JoinSet::new(),
    };
    for number in 0..count {
        let mut rng = soak.chance("fault", number);
        sleep(pace.mul_f64(2.0 * rng.f64())).await;
        injector.inject(Fault::draw(&mut rng), number, replicas, &mut rng).await?;
        while let Some(recovered) = injector.recovering.try_join_next() {
            recovered??;
        }
        let broken = soak.ledger().broken();
        progress.status(&format!("{} of {count} faults, {broken} promises broken", number + 1));
    }
    while let Some(recovered) = injector.recovering.join_next().await {
        recovered??;
    }
    let injected = std::mem::take(&mut *lock(&injector.injected));
    Ok(InjectedFaults { bursts: injector.bursts, ..injected })
}

impl FaultInjector {
    async fn inject(
        &mut self,
        fault: Fault,
        number: usize,
        replicas: &[Shared; 2],
        rng: &mut Rng,
    ) -> anyhow::Result<()> {
        let mut kind = fault.name();
        match fault {
            Fault::Component(name) => self.component(name, number).await,
            Fault::Kill(targets) => {
                let victims = lock_running(replicas, targets, rng).await;
                self.soak.log.write_line(format_args!("fault {number}: {kind}"));
                victims.iter().for_each(|victim| victim.signal(Signal::KILL));
                self.restart_all(victims, targets, rng);
            }
            Fault::KillAt(moment, targets) => {
                let victims = lock_running(replicas, targets, rng).await;
                self.soak.log.write_line(format_args!("fault {number}: {kind}"));
                match self.at(moment, number, Signal::KILL, &victims, rng).await {
                    Some(volume) => self.record_unsaved(moment, volume, targets, rng).await,
                    None => {
                        kind = Fault::Kill(targets).name();
                        victims.iter().for_each(|victim| victim.signal(Signal::KILL));
                    }
                }
                self.restart_all(victims, targets, rng);
            }
            Fault::Pause | Fault::PauseAt(_) => {
                let mut victims = lock_running(replicas, Targets::One, rng).await;
                self.soak.log.write_line(format_args!("fault {number}: {kind}"));
                if let Fault::PauseAt(moment) = fault
                    && let Some(volume) = self.at(moment, number, Signal::STOP, &victims, rng).await
                {
                    self.record_unsaved(moment, volume, Targets::One, rng).await;
                } else {
                    kind = Fault::Pause.name();
                    victims.iter().for_each(|victim| victim.signal(Signal::STOP));
                }
                let pause = LONGER_THAN_THE_LEASE + Duration::from_millis(rng.u64(0..4000));
                self.recovering.spawn(async move {
                    sleep(pause).await;
                    victims.drain(..).for_each(|victim| victim.signal(Signal::CONT));
                    Ok(())
                });
            }
            Fault::Terminate(targets) => {
                let victims = lock_running(replicas, targets, rng).await;
                self.soak.log.write_line(format_args!("fault {number}: {kind}"));
                victims.iter().for_each(|victim| victim.signal(Signal::TERM));
                self.restart_all(victims, targets, rng);
            }
        }
        *lock(&self.injected).by_kind.entry(kind).or_insert(0) += 1;
        Ok(())
    }

    /// Sends the signal at this moment; returns the directory concerned, or nothing at the time limit.
    async fn at(
        &mut self,
        moment: Moment,
        number: usize,
        signal: Signal,
        victims: &[OwnedMutexGuard<Replica>],
        rng: &mut Rng,
    ) -> Option<String> {
        let targets = victims.iter().filter_map(|victim| victim.id()).collect();
        let mut skip = 0;
        if moment == Moment::Created {
            // Many claims at once make the moment likely.
            self.bursts.spawn(burst(self.soak.clone(), number, BURST));
            skip = rng.usize(0..BURST / 2);
        }
        let sprung = self.soak.disk.set_trap(moment, skip, signal, targets);
        let volume = timeout(MOMENT, sprung).await.ok().and_then(Result::ok);
        self.soak.disk.disarm();
        let text = volume.as_deref().unwrap_or("that did not come");
        self.soak.log.write_line(format_args!("{} at {moment:?} of {text}", name_of(signal)));
        volume
    }

    /// Records the volumes that were not saved, and deletes some of their claims before the replicas return.
    async fn record_unsaved(&mut self, moment: Moment, volume: String, targets: Targets, rng: &mut Rng) {
        if moment != Moment::Created {
            return;
        }
        // The other replica continues if it is running, and may save its own volume a moment later.
        let made = if targets == Targets::Both { self.soak.disk.names().unwrap_or_default() } else { vec![volume] };
        let Ok(view) = View::read(&self.soak.cluster).await else { return };
        let living = |name: &&String| self.soak.ledger().is_alive(name.strip_prefix("pvc-").unwrap_or_default());
        let unsaved: Vec<_> = made.iter().filter(|name| !view.volumes.contains_key(*name)).filter(living).collect();
        self.soak.log.write_line(format_args!("not saved: {unsaved:?}"));
        let mut injected = lock(&self.injected);
        injected.without_volume += usize::from(!unsaved.is_empty());
        injected.unsaved += unsaved.len();
        for uid in unsaved.into_iter().filter_map(|name| name.strip_prefix("pvc-")).filter(|_| rng.bool()) {
            injected.orphaned += 1;
            let (soak, uid) = (self.soak.clone(), uid.to_owned());
            self.recovering.spawn(async move { delete_claim(&soak, &uid).await });
        }
    }

    /// Restarts the replicas, each after its own pause.
    fn restart_all(&mut self, victims: Vec<OwnedMutexGuard<Replica>>, targets: Targets, rng: &mut Rng) {
        for mut victim in victims {
            let longest = if targets == Targets::Both { 6000 } else { 3000 };
            let pause = Duration::from_millis(rng.u64(0..longest));
            let injected = self.injected.clone();
            self.recovering.spawn(async move {
                if !victim.ended(STOP_LIMIT).await? {
                    lock(&injected).too_slow += 1;
                }
                sleep(pause).await;
                victim.start()
            });
        }
    }

    /// Stops a component, which the control plane's owner restarts; until then the next fault of its kind waits.
    async fn component(&mut self, name: &'static str, number: usize) {
        let turn = self.components[name].clone().lock_owned().await;
        self.soak.log.write_line(format_args!("fault {number}: kill -9 of {name}"));
        let soak = self.soak.clone();
        self.recovering.spawn(async move {
            let back = control_plane::restart(soak.cluster.state(), name, Signal::KILL).await;
            match back {
                Ok(_) => soak.log.write_line(format_args!("{name} is back")),
                // The other component may also be down; at the end both must be running.
                Err(error) => soak.log.write_line(format_args!("{name}: {error:#}")),
            }
            drop(turn);
            Ok(())
        });
    }
}

/// Locks one of the replicas or both, once they are running.
async fn lock_running(replicas: &[Shared; 2], targets: Targets, rng: &mut Rng) -> Vec<OwnedMutexGuard<Replica>> {
    match targets {
        Targets::Both => join_all(replicas.iter().map(|replica| replica.clone().lock_owned())).await,
        Targets::One => vec![replicas[rng.usize(0..replicas.len())].clone().lock_owned().await],
    }
}

/// The usual name of the signal.
pub(super) fn name_of(signal: Signal) -> &'static str {
    match signal {
        Signal::KILL => "SIGKILL",
        Signal::TERM => "SIGTERM",
        Signal::STOP => "SIGSTOP",
        Signal::CONT => "SIGCONT",
        _ => "a signal",
    }
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
