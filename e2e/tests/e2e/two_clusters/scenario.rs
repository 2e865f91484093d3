//! The scenario: two clusters share a backend, one of them is lost, and backups are restored.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, DynamicObject, PostParams};
use kube::core::ApiResource;
use kube::{Api, ResourceExt};
use kube_provisioner::protocol::CLUSTER_ID;
use serde_json::{Value, json};
use testbed::cluster::{TestSpace, eventually};

use super::backend::{BOTH, Backend, EAST, WEST};
use super::backup::{Backup, Volumes, list, wipe};
use super::fleet::Fleet;
use super::inventory::Inventory;

/// Every fifth claim requests a name in the backend that the claim in the other cluster also requests.
const WANTED: usize = 5;
/// Every waiting claim must report a reason within this time.
const EVENT_LIMIT: Duration = Duration::from_secs(120);

/// Runs the scenario with `E2E_CLAIMS` claims in each cluster and `E2E_KILLS` kills.
#[expect(clippy::print_stdout, reason = "figures")]
pub(crate) async fn run_scenario<B: Backend>(backend: B) -> anyhow::Result<()> {
    let (claims, kills) = (testbed::count("E2E_CLAIMS", 10_usize)?, testbed::count("E2E_KILLS", 5)?);
    let limit = Duration::from_secs(90 + 3 * claims as u64);
    let west = backend.space(WEST).cluster_api::<Namespace>().get("kube-system").await?.uid().context("no uid")?;
    let fleet = Fleet::start(&backend)?;
    let mut scenario = Scenario { backend: &backend, fleet, claims, kills, limit, west, figures: Vec::new() };
    let result = scenario.all().await;
    let figures = scenario.figures.join("\n  ");
    println!(
        "{}: {claims} claims in each of 2 clusters, {} kills\n  {figures}",
        backend.name(),
        scenario.fleet.kills()
    );
    drop(scenario);
    result?;
    backend.done().await
}

struct Scenario<'a, B> {
    backend: &'a B,
    fleet: Fleet<'a, B>,
    claims: usize,
    kills: usize,
    limit: Duration,
    /// The id of the cluster west.
    west: String,
    /// The figures to print.
    figures: Vec<String>,
}

/// The assets of both clusters in the backend.
struct Contents {
    assets: [BTreeSet<String>; 2],
    of: [Inventory; 2],
}

impl<'a, B: Backend> Scenario<'a, B> {
    async fn all(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        let journals = self.make().await?;
        self.settle().await?;
        self.record_duration("claims made and settled", start);
        let before = self.fill().await?;
        let east = Backup::of(self.space(EAST)).await?.with_journals(journals);
        let west = Backup::of(self.space(WEST)).await?;

        let start = Instant::now();
        self.lose_west(&before).await?;
        self.restore_east_into_west(&east, &before).await?;
        self.record_duration("west lost, east's backup restored into it, used there and deleted", start);

        let start = Instant::now();
        self.restore_west(&west, &before).await?;
        self.record_duration("west's own backup restored and taken over", start);

        let start = Instant::now();
        self.end(WEST).await?;
        self.backend.clean(WEST).await?;
        let now = self.is_untouched(&before, &[EAST], "west's claims were deleted").await?;
        let left = now.without_owner(&before.assets[EAST]);
        ensure!(left.is_empty(), "leftovers of west: {left:?}");
        self.end(EAST).await?;
        let now = self.backend.inventory().await?;
        let left = now.without_owner(&BTreeSet::new());
        ensure!(left.is_empty(), "leftovers of east: {left:?}");
        self.record_duration("all claims deleted, 0 things left", start);
        Ok(())
    }

    /// Creates all claims in both clusters at the same time, and some that one cluster soon deletes, while provisioners
    /// are killed. Returns east's journals from the moment at which its killed provisioner had the most attempts in
    /// progress.
    async fn make(&mut self) -> anyhow::Result<Vec<Value>> {
        let steps = self.steps();
        let mut journals = Vec::new();
        for step in 0..steps {
            let numbers = self.claims * step / steps..self.claims * (step + 1) / steps;
            self.fleet.pause().await;
            let names = numbers.map(|number| (format!("claim-{number}"), number, number % WANTED == WANTED - 1));
            for (name, number, wanted) in names.chain([(format!("gone-{step}"), step, false)]) {
                let claim = self.backend.claim(&name, number, wanted);
                let claim: DynamicObject = serde_json::from_value(claim)?;
                let made = BOTH.map(|side| {
                    let (claims, claim) = (self.claims_of(side), claim.clone());
                    async move { claims.create(&PostParams::default(), &claim).await }
                });
                try_join_all(made).await?;
            }
            let killed = self.fleet.kill_one().await?;
            if killed == EAST {
                journals = longer(journals, self.journals().await?);
            }
            self.fleet.resume(killed)?;
            let gone = format!("gone-{step}");
            self.claims_of(step % 2).delete(&gone, &DeleteParams::default()).await?;
        }
        // The journals of buckets are empty because ObjectBuckets contain the record.
        if entries(&journals) > 0 {
            self.figures.push(format!("east's journal in its backup has {} attempts under way", entries(&journals)));
        }
        Ok(journals)
    }

    /// Waits until all claims are bound. Of two claims with one name, one is bound, and the other reports a reason and
    /// is deleted.
    async fn settle(&self) -> anyhow::Result<()> {
        let is_wanted = |number: &usize| number % WANTED == WANTED - 1;
        let own: BTreeSet<_> =
            (0..self.claims).filter(|number| !is_wanted(number)).map(|at| format!("claim-{at}")).collect();
        for side in BOTH {
            self.wait_bound(side, |claim| own.contains(claim) || claim.starts_with("gone-")).await?;
        }
        for claim in (0..self.claims).filter(is_wanted).map(|at| format!("claim-{at}")) {
            let loser = eventually(self.limit, async || {
                let mut bound = [false; 2];
                for side in BOTH {
                    bound[side] = B::is_bound(&json!(self.claims_of(side).get(&claim).await?));
                }
                ensure!(bound != [true; 2], "both clusters received the name that {claim} requests");
                Ok(bound.iter().position(|bound| *bound).map(|winner| 1 - winner))
            });
            let loser = loser.await?.with_context(|| format!("neither cluster received the name of {claim}"))?;
            self.wait_for_event(loser, &B::claims().kind, &claim, "ProvisioningFailed").await?;
            self.claims_of(loser).delete(&claim, &DeleteParams::default()).await?;
        }
        let names = async |side| -> anyhow::Result<BTreeSet<String>> {
            Ok(list(self.space(side), &B::claims()).await?.iter().map(ResourceExt::name_any).collect())
        };
        // One of each pair that requests a name, and of each pair that was deleted in one cluster.
        let expected = self.claims + own.len() + self.steps();
        let settled = eventually(self.limit, async || {
            let mut records = 0;
            for side in BOTH {
                records += list(self.space(side), &B::records()).await?.len();
            }
            let claims = names(EAST).await?.len() + names(WEST).await?.len();
            Ok((claims == expected && records == expected).then_some(()))
        });
        let settled = settled.await?;
        ensure!(settled.is_some(), "expected {expected} claims: {:?}", [names(EAST).await?, names(WEST).await?]);
        Ok(())
    }

    /// Writes to each asset. Returns the resulting contents of the backend.
    async fn fill(&mut self) -> anyhow::Result<Contents> {
        let mut texts = Vec::new();
        for side in BOTH {
            for claim in list(self.space(side), &B::claims()).await? {
                let text = format!("cluster {side}, {}", claim.name_any());
                self.backend.write(side, &claim.name_any(), "data", text.clone()).await?;
                texts.push(text);
            }
        }
        let (inventory, assets) =
            (self.backend.inventory().await?, [self.assets(EAST).await?, self.assets(WEST).await?]);
        let both: Vec<_> = assets[EAST].intersection(&assets[WEST]).collect();
        ensure!(both.is_empty(), "assets of both clusters: {both:?}");
        let left = inventory.without_owner(&assets[EAST].union(&assets[WEST]).cloned().collect());
        ensure!(left.is_empty(), "without an owner: {left:?}");
        let missing: Vec<_> = texts.iter().filter(|text| !inventory.holds(text)).collect();
        ensure!(missing.is_empty(), "missing data: {missing:?}");
        let of = [inventory.of(&assets[EAST]), inventory.of(&assets[WEST])];
        self.figures.push(format!(
            "on the backend: east has {} assets, {} things; west {} assets, {} things; with data of {} claims",
            assets[EAST].len(),
            of[EAST].len(),
            assets[WEST].len(),
            of[WEST].len(),
            texts.len()
        ));
        let whole = Contents { assets, of };
        self.backend.clean(EAST).await?;
        self.is_untouched(&whole, &BOTH, "east's administrator removed orphans").await?;
        Ok(whole)
    }

    /// Deletes all objects of the west while no provisioner runs, and restarts its provisioner.
    async fn lose_west(&mut self, before: &Contents) -> anyhow::Result<()> {
        self.fleet.stop(WEST).await?;
        wipe(self.space(WEST)).await?;
        self.fleet.resume(WEST)?;
        self.fleet.kill(self.kills / 10).await?;
        self.is_untouched(before, &BOTH, "the west was lost").await.map(drop)
    }

    /// Restores east's objects into west, misuses and deletes them there, and checks that this changes nothing.
    async fn restore_east_into_west(&mut self, backup: &Backup, before: &Contents) -> anyhow::Result<()> {
        let space = self.space(WEST);
        backup.restore(space, Volumes::EverySecondReleased).await?;
        self.fleet.kill(self.kills / 10).await?;
        let mut told = 0;
        for record in list(space, &B::records()).await? {
            if self.must_be_reported(&record) {
                self.wait_for_event(WEST, &B::records().kind, &record.name_any(), "belongs to the cluster").await?;
                told += 1;
            }
        }
        ensure!(told > 0, "no event reports another cluster's object");
        self.is_untouched(before, &BOTH, "east's backup was restored into the west").await?;
        self.backend.misuse_objects(WEST).await?;
        self.fleet.kill(self.kills / 10).await?;
        let mut left = Vec::new();
        let gone = eventually(self.limit, async || {
            left = list(space, &B::claims()).await?.iter().map(ResourceExt::name_any).collect();
            Ok(left.is_empty().then_some(()))
        });
        ensure!(gone.await?.is_some(), "these claims are not deleted in the wrong cluster: {left:?}");
        self.is_untouched(before, &BOTH, "the objects restored into the west were deleted").await?;
        self.figures.push(format!(
            "{told} objects of the wrong cluster say so; untouched there: {} of {} things of east, {} of {} of west",
            before.of[EAST].len(),
            before.of[EAST].len(),
            before.of[WEST].len(),
            before.of[WEST].len()
        ));
        Ok(())
    }

    /// Restores the west's own backup into it, and checks that its claims have their data again.
    async fn restore_west(&mut self, backup: &Backup, before: &Contents) -> anyhow::Result<()> {
        self.fleet.stop(WEST).await?;
        wipe(self.space(WEST)).await?;
        let there = backup.restore(self.space(WEST), Volumes::Bindable).await?;
        ensure!(there == 0, "{there} objects already existed before the restore");
        self.fleet.resume(WEST)?;
        let done = self.backend.take_over(WEST).await?;
        self.figures.push(format!("for west's own restore a person did: {done}"));
        self.wait_bound(WEST, |_| true).await?;
        let now = self.is_untouched(before, &[EAST], "the west was restored").await?;
        before.of[WEST].data().is_untouched_in(&now, "the west was restored")?;
        ensure!(self.assets(WEST).await? == before.assets[WEST], "the assets of the west have changed");
        for claim in list(self.space(WEST), &B::claims()).await? {
            self.backend.write(WEST, &claim.name_any(), "more", "after the restore".to_owned()).await?;
        }
        Ok(())
    }

    /// Deletes all claims of a cluster regularly, in batches, while both provisioners are killed.
    async fn end(&mut self, side: usize) -> anyhow::Result<()> {
        let claims = list(self.space(side), &B::claims()).await?;
        let rest = self.kills.saturating_sub(self.fleet.kills());
        let kills = if side == WEST { rest / 2 } else { rest };
        for (number, some) in claims.chunks(claims.len().div_ceil(kills.max(1))).enumerate() {
            self.fleet.pause().await;
            for claim in some {
                self.claims_of(side).delete(&claim.name_any(), &DeleteParams::default()).await?;
            }
            if number < kills {
                let killed = self.fleet.kill_one().await?;
                self.fleet.resume(killed)?;
            }
        }
        let mut left = Vec::new();
        let gone = eventually(self.limit, async || {
            left.clear();
            for kind in [B::claims(), B::records()] {
                left.extend(list(self.space(side), &kind).await?.iter().map(ResourceExt::name_any));
            }
            Ok(left.is_empty().then_some(()))
        });
        ensure!(gone.await?.is_some(), "cluster {side} still has {left:?}");
        Ok(())
    }

    /// Fails if assets of these clusters have changed in the backend. Returns its contents.
    async fn is_untouched(&self, before: &Contents, sides: &[usize], when: &str) -> anyhow::Result<Inventory> {
        let now = self.backend.inventory().await?;
        for side in sides {
            before.of[*side].is_untouched_in(&now, &format!("cluster {side}, after {when}"))?;
        }
        Ok(now)
    }

    async fn wait_bound(&self, side: usize, counts: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        let mut waiting = Vec::new();
        let bound = eventually(self.limit, async || {
            let claims = list(self.space(side), &B::claims()).await?;
            let is_waiting =
                |claim: &&DynamicObject| claim.metadata.deletion_timestamp.is_none() && !B::is_bound(&json!(claim));
            let named = claims.iter().filter(|claim| counts(&claim.name_any())).filter(is_waiting);
            waiting = named.map(|claim| format!("{}: {}", claim.name_any(), claim.data["status"])).collect();
            Ok(waiting.is_empty().then_some(()))
        });
        ensure!(bound.await?.is_some(), "in cluster {side} these claims are not bound: {waiting:#?}");
        Ok(())
    }

    /// Waits for an event whose reason or message contains this text.
    async fn wait_for_event(&self, side: usize, kind: &str, name: &str, part: &str) -> anyhow::Result<()> {
        let has_part = |text: &Option<String>| text.as_ref().is_some_and(|text| text.contains(part));
        let told = eventually(EVENT_LIMIT, async || {
            let events = self.space(side).events_about(kind, name).await?;
            Ok(events.iter().any(|event| has_part(&event.reason) || has_part(&event.message)).then_some(()))
        });
        ensure!(told.await?.is_some(), "no event about {kind} {name} in cluster {side} says {part:?}");
        Ok(())
    }

    /// True if another cluster created the object, so that an event must report it.
    fn must_be_reported(&self, record: &DynamicObject) -> bool {
        let made_here = record.annotations().get(CLUSTER_ID).is_none_or(|cluster| *cluster == self.west);
        // A volume that is bound to a restored claim is in use and needs no event.
        let waits = B::records().kind == "ObjectBucket" || record.data["status"]["phase"] == "Released";
        !made_here && waits
    }

    async fn assets(&self, side: usize) -> anyhow::Result<BTreeSet<String>> {
        let records = list(self.space(side), &B::records()).await?;
        Ok(records.iter().flat_map(|record| self.backend.assets(&json!(record))).collect())
    }

    /// The ConfigMaps of east's journals.
    async fn journals(&self) -> anyhow::Result<Vec<Value>> {
        let mut maps = list(self.space(EAST), &ApiResource::erase::<ConfigMap>(&())).await?;
        maps.retain(|map| {
            map.labels().get("app.kubernetes.io/component").is_some_and(|component| component == "journal")
        });
        Ok(maps.iter().map(|map| json!(map)).collect())
    }

    /// The number of kills while claims are created.
    fn steps(&self) -> usize {
        (self.kills * 3 / 5).max(1)
    }

    fn space(&self, side: usize) -> &'a TestSpace {
        self.backend.space(side)
    }

    fn claims_of(&self, side: usize) -> Api<DynamicObject> {
        Api::namespaced_with(self.space(side).client(), self.space(side).namespace(), &B::claims())
    }

    fn record_duration(&mut self, what: &str, start: Instant) {
        self.figures.push(format!("{what} in {:.1?}", start.elapsed()));
    }
}

/// The number of attempts in progress.
fn entries(journals: &[Value]) -> usize {
    journals.iter().filter_map(|journal| journal["data"]["entries"].as_str()).map(|text| text.lines().count()).sum()
}

fn longer(one: Vec<Value>, other: Vec<Value>) -> Vec<Value> {
    if entries(&one) > entries(&other) { one } else { other }
}
