//! ObjectBuckets of an earlier version that record an account shared by several claims.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::fixture::{BUCKETS, CLAIMS, Fixture};
use super::ownership::{HOUR, told};
use super::store::Failure;

const TEAM: &str = "obc-default-team-00000000-0000-8000-8000-000000000001";

fn object(claim: &str) -> String {
    format!("obc-default-{claim}")
}

impl Fixture {
    /// Returns the user that was created for a claim.
    fn own_user(&self, claim: &str) -> String {
        let uid = self.record(claim)["claim"]["uid"].as_str().unwrap().to_owned();
        format!("obc-default-{claim}-{uid}")
    }

    fn key_id(&self, claim: &str) -> String {
        self.record(claim)["accessKeyId"].as_str().unwrap().to_owned()
    }

    fn is_in_store(&self, user: &str, key: &str) -> bool {
        self.store.state().users.get(user).is_some_and(|keys| keys.iter().any(|known| known.access_key_id == key))
    }

    /// Makes these bound claims members of one account, as the earlier version left them.
    fn share(&self, claims: &[&str]) {
        for claim in claims {
            let (mut record, own) = (self.record(claim), self.own_user(claim));
            let state = json!({"user": TEAM});
            let uid = TEAM.strip_prefix("obc-default-team-").unwrap();
            record["account"] = json!({"name": "team", "uid": uid, "generation": 1, "state": state});
            record["config"] = json!({"account": "team"});
            let metadata = json!({
                "annotations": {"kube-provisioner/bucket": record.to_string()},
                "labels": {"kube-provisioner/account": "hash-of-default-team"},
            });
            self.patch(BUCKETS, &object(claim), json!({"metadata": metadata}));
            self.patch(CLAIMS, claim, json!({"spec": {"additionalConfig": {"account": "team"}}}));
            let mut state = self.store.state();
            let keys = std::mem::take(state.users.get_mut(&own).unwrap());
            state.users.entry(TEAM.to_owned()).or_default().extend(keys);
            state.grants.insert(((*claim).to_owned(), TEAM.to_owned()));
        }
    }

    /// Creates two bound claims with one account, without a process.
    async fn with_former_account(policy: &str) -> Self {
        let fixture = Self::new();
        fixture.class("kept", json!({"reclaimPolicy": policy}));
        let running = fixture.start(1);
        for claim in ["first", "second"] {
            fixture.claim(claim, json!({"bucketName": claim, "storageClassName": "kept"}));
            fixture.bound(claim).await;
        }
        running.abort();
        fixture.share(&["first", "second"]);
        fixture
    }
}

// Rules: Z35.
#[tokio::test(start_paused = true)]
async fn revokes_a_shared_account_with_its_last_claim() {
    for policy in ["Delete", "Retain"] {
        let fixture = Fixture::with_former_account(policy).await;
        let calls = fixture.store.state().calls.len();
        let _running = fixture.start(2);
        sleep(HOUR).await;
        assert_eq!(fixture.store.state().calls.len(), calls, "a claim that has its bucket and its key stays as it is");
        let (first, second) = (fixture.own_user("first"), fixture.own_user("second"));
        let key = fixture.key_id("second");
        fixture.delete(CLAIMS, "first");
        fixture.gone("first").await;
        assert!(fixture.is_in_store(TEAM, &key), "the account is the other claim's, too");
        assert!(!fixture.store.state().users.contains_key(&first));
        fixture.store.fail("revoke", Failure::Retry);
        fixture.delete(CLAIMS, "second");
        fixture.gone("second").await;
        let state = fixture.store.state();
        assert!(![TEAM, &first, &second].into_iter().any(|user| state.users.contains_key(user)), "{policy}");
        assert_eq!(state.buckets.len(), if policy == "Retain" { 2 } else { 0 });
    }
}

// Rules: Z35.
#[tokio::test(start_paused = true)]
async fn revokes_a_shared_account_when_its_claims_end_at_once() {
    let fixture = Fixture::with_former_account("Delete").await;
    for claim in ["first", "second"] {
        fixture.delete(CLAIMS, claim);
    }
    fixture.store.state().pauses.insert("revoke", Duration::from_secs(5));
    let _running = fixture.start(2);
    for claim in ["first", "second"] {
        fixture.gone(claim).await;
    }
    assert!(fixture.store.is_empty() && fixture.store.state().grants.is_empty());
}

// Rules: Z35.
#[tokio::test(start_paused = true)]
async fn gives_a_claim_an_account_of_its_own_with_its_next_key() {
    let fixture = Fixture::with_former_account("Delete").await;
    let _running = fixture.start(2);
    let rotation = json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}});
    fixture.patch(CLAIMS, "first", rotation);
    fixture.until("it is told", || told(&fixture, "first", "has no keys that")).await;
    assert_eq!(fixture.store.calls("rotate"), 0);

    let (shared, own) = (fixture.key_id("first"), fixture.own_user("first"));
    fixture.patch(CLAIMS, "first", json!({"spec": {"additionalConfig": null}}));
    fixture.until("it has another key", || fixture.key_id("first") != shared).await;
    assert!(fixture.is_in_store(&own, &fixture.key_id("first")));
    assert!(fixture.is_in_store(TEAM, &shared) && fixture.is_in_store(TEAM, &fixture.key_id("second")));
    // A lost Secret has the same effect.
    fixture.delete("secrets", "second");
    fixture.until("it is back", || fixture.get("secrets", "second").is_some()).await;
    assert!(fixture.is_in_store(&fixture.own_user("second"), &fixture.key_id("second")));
    // From now on, the claim's keys can be rotated.
    let rotation = json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "2"}}});
    fixture.patch(CLAIMS, "first", rotation);
    fixture.until("it is rotated", || fixture.store.calls("rotate") == 1).await;
    assert!(fixture.store.state().calls.iter().all(|call| !call.starts_with("revoke")));
    for claim in ["second", "first"] {
        assert!(fixture.store.state().users.contains_key(TEAM));
        fixture.delete(CLAIMS, claim);
        fixture.gone(claim).await;
    }
    assert!(fixture.store.is_empty() && fixture.store.state().grants.is_empty());
}
