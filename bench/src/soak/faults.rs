//! What is done to the replicas and to the control plane.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use e2e::control_plane::{self, Signal};
use e2e::progress::SharedProgress;
use fastrand::Rng;
use futures::future::join_all;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::disk::Moment;
use super::replica::{Replica, Shared};
use super::traffic::delete_claim;
use super::{LONGER_THAN_THE_LEASE, Soak};

/// How long a moment is waited for before the fault comes without it.
const MOMENT: Duration = Duration::from_secs(8);
const STOP_LIMIT: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whom {
    One,
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill(Whom),
    KillAt(Moment, Whom),
    StandStill,
    StandStillAt(Moment),
    Terminate(Whom),
    Component(&'static str),
}

impl Fault {
    fn draw(rng: &mut Rng) -> Self {
        match rng.u32(0..100) {
            0..14 => Self::Kill(Whom::One),
            14..20 => Self::Kill(Whom::Both),
            20..32 => Self::KillAt(Moment::Made, Whom::One),
            32..42 => Self::KillAt(Moment::Made, Whom::Both),
            42..46 => Self::KillAt(Moment::Removing, Whom::One),
            46..49 => Self::KillAt(Moment::Removing, Whom::Both),
            49..54 => Self::KillAt(Moment::Removed, Whom::Both),
            54..63 => Self::StandStill,
            63..72 => Self::StandStillAt(Moment::Made),
            72..80 => Self::Terminate(Whom::One),
            80..83 => Self::Terminate(Whom::Both),
            83..92 => Self::Component("kube-apiserver"),
            _ => Self::Component("etcd"),
        }
    }

    fn name(self) -> String {
        let moment = |moment| match moment {
            Moment::Made => "between making a directory and saving its volume",
            Moment::Removing => "when the removal of a directory has begun",
            Moment::Removed => "between removing a directory and saying so",
        };
        let whom = |whom| match whom {
            Whom::One => "one replica",
            Whom::Both => "both replicas",
        };
        match self {
            Self::Kill(who) => format!("kill -9 of {}", whom(who)),
            Self::KillAt(at, who) => format!("kill -9 of {} {}", whom(who), moment(at)),
            Self::StandStill => "a replica stands still for longer than its Lease".to_owned(),
            Self::StandStillAt(at) => format!("the same, begun {}", moment(at)),
            Self::Terminate(who) => format!("SIGTERM and restart of {}", whom(who)),
            Self::Component(name) => format!("kill -9 of {name}"),
        }
    }
}

/// What was done, and what it met.
#[derive(Default)]
pub(super) struct Inflicted {
    pub(super) by_kind: BTreeMap<String, usize>,
    /// Of the faults that met the making of a directory: those whose volume was not there a moment later.
    pub(super) met_the_gap: usize,
    /// Claims that were deleted while those who knew of them were gone or stood still.
    pub(super) orphaned: usize,
    /// Asked to end in good order, and did not in time.
    pub(super) too_slow: usize,
}

struct Hand {
    soak: Arc<Soak>,
    inflicted: Arc<std::sync::Mutex<Inflicted>>,
    components: BTreeMap<&'static str, Arc<Mutex<()>>>,
    /// What comes back later.
    recovering: JoinSet<anyhow::Result<()>>,
}

/// Inflicts so many faults, and waits until everything is back.
pub(super) async fn run(
    soak: &Arc<Soak>,
    replicas: &[Shared; 2],
    count: usize,
    pace: Duration,
    progress: &SharedProgress,
) -> anyhow::Result<Inflicted> {
    let components = ["kube-apiserver", "etcd"].map(|name| (name, Arc::default()));
    let mut hand = Hand {
        soak: soak.clone(),
        inflicted: Arc::default(),
        components: components.into(),
        recovering: JoinSet::new(),
    };
    for number in 0..count {
        let mut rng = soak.chance("fault", number);
        sleep(pace.mul_f64(2.0 * rng.f64())).await;
        hand.inflict(Fault::draw(&mut rng), number, replicas, &mut rng).await?;
        while let Some(recovered) = hand.recovering.try_join_next() {
            recovered??;
        }
        let broken = soak.ledger().lost.len() + soak.ledger().double.len();
        progress.status(&format!("{} of {count} faults, {broken} promises broken", number + 1));
    }
    while let Some(recovered) = hand.recovering.join_next().await {
        recovered??;
    }
    let inflicted = std::mem::take(&mut *lock(&hand.inflicted));
    Ok(inflicted)
}

impl Hand {
    async fn inflict(
        &mut self,
        fault: Fault,
        number: usize,
        replicas: &[Shared; 2],
        rng: &mut Rng,
    ) -> anyhow::Result<()> {
        let mut kind = fault.name();
        match fault {
            Fault::Component(name) => self.component(name, number).await,
            Fault::Kill(whom) => {
                let victims = seize(replicas, whom, rng).await;
                self.soak.log.say(format_args!("fault {number}: {kind}"));
                victims.iter().for_each(|victim| victim.signal(Signal::KILL));
                self.come_back(victims, whom, rng);
            }
            Fault::KillAt(moment, whom) => {
                let victims = seize(replicas, whom, rng).await;
                self.soak.log.say(format_args!("fault {number}: {kind}"));
                match self.at(moment, Signal::KILL, &victims).await {
                    Some(volume) => self.met(moment, &volume, whom == Whom::Both && rng.bool()).await,
                    None => {
                        kind = Fault::Kill(whom).name();
                        victims.iter().for_each(|victim| victim.signal(Signal::KILL));
                    }
                }
                self.come_back(victims, whom, rng);
            }
            Fault::StandStill | Fault::StandStillAt(_) => {
                let mut victims = seize(replicas, Whom::One, rng).await;
                self.soak.log.say(format_args!("fault {number}: {kind}"));
                if let Fault::StandStillAt(moment) = fault
                    && let Some(volume) = self.at(moment, Signal::STOP, &victims).await
                {
                    self.met(moment, &volume, rng.bool()).await;
                } else {
                    kind = Fault::StandStill.name();
                    victims.iter().for_each(|victim| victim.signal(Signal::STOP));
                }
                let pause = LONGER_THAN_THE_LEASE + Duration::from_millis(rng.u64(0..4000));
                self.recovering.spawn(async move {
                    sleep(pause).await;
                    victims.drain(..).for_each(|victim| victim.signal(Signal::CONT));
                    Ok(())
                });
            }
            Fault::Terminate(whom) => {
                let victims = seize(replicas, whom, rng).await;
                self.soak.log.say(format_args!("fault {number}: {kind}"));
                victims.iter().for_each(|victim| victim.signal(Signal::TERM));
                self.come_back(victims, whom, rng);
            }
        }
        *lock(&self.inflicted).by_kind.entry(kind).or_insert(0) += 1;
        Ok(())
    }

    /// Sends the signal the moment that is waited for; the directory that it came with, or nothing in a long time.
    async fn at(&self, moment: Moment, signal: Signal, victims: &[OwnedMutexGuard<Replica>]) -> Option<String> {
        let targets = victims.iter().filter_map(|victim| victim.id()).collect();
        let sprung = self.soak.disk.set_trap(moment, signal, targets);
        let volume = timeout(MOMENT, sprung).await.ok().and_then(Result::ok);
        self.soak.disk.disarm();
        let text = volume.as_deref().unwrap_or("that did not come");
        self.soak.log.say(format_args!("{signal:?} at {moment:?} of {text}"));
        volume
    }

    /// Looks whether the volume had been saved, and may leave the directory to those who come later.
    async fn met(&mut self, moment: Moment, volume: &str, orphan: bool) {
        if moment != Moment::Made {
            return;
        }
        if matches!(self.soak.cluster.volumes().get_metadata_opt(volume).await, Ok(None)) {
            self.soak.log.say(format_args!("{volume} had not been saved"));
            lock(&self.inflicted).met_the_gap += 1;
        }
        let uid = volume.strip_prefix("pvc-").filter(|uid| orphan && self.soak.ledger().lives(uid));
        if let Some(uid) = uid.map(str::to_owned) {
            lock(&self.inflicted).orphaned += 1;
            let soak = self.soak.clone();
            self.recovering.spawn(async move { delete_claim(&soak, &uid).await });
        }
    }

    /// Starts them again, each after a pause of its own.
    fn come_back(&mut self, victims: Vec<OwnedMutexGuard<Replica>>, whom: Whom, rng: &mut Rng) {
        for mut victim in victims {
            let longest = if whom == Whom::Both { 6000 } else { 3000 };
            let pause = Duration::from_millis(rng.u64(0..longest));
            let inflicted = self.inflicted.clone();
            self.recovering.spawn(async move {
                if !victim.ended(STOP_LIMIT).await? {
                    lock(&inflicted).too_slow += 1;
                }
                sleep(pause).await;
                victim.start()
            });
        }
    }

    /// The control plane's owner starts it again; until then the next fault of its kind waits.
    async fn component(&mut self, name: &'static str, number: usize) {
        let turn = self.components[name].clone().lock_owned().await;
        self.soak.log.say(format_args!("fault {number}: kill -9 of {name}"));
        let soak = self.soak.clone();
        self.recovering.spawn(async move {
            let back = control_plane::restart(soak.cluster.state(), name, Signal::KILL).await;
            match back {
                Ok(_) => soak.log.say(format_args!("{name} is back")),
                // The other one may be away, too; in the end both must be there.
                Err(error) => soak.log.say(format_args!("{name}: {error:#}")),
            }
            drop(turn);
            Ok(())
        });
    }
}

/// One of the replicas or both, once they are up.
async fn seize(replicas: &[Shared; 2], whom: Whom, rng: &mut Rng) -> Vec<OwnedMutexGuard<Replica>> {
    match whom {
        Whom::Both => join_all(replicas.iter().map(|replica| replica.clone().lock_owned())).await,
        Whom::One => vec![replicas[rng.usize(0..replicas.len())].clone().lock_owned().await],
    }
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
