//! Claims of a namespace that share an account.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::fixture::{BUCKETS, CLAIMS, Fixture};
use super::refusing::refusing;
use super::store::Failure;

const THREE: [&str; 3] = ["first", "second", "third"];

fn shares(account: &str) -> Value {
    json!({"additionalConfig": {"account": account}})
}

fn rotation(number: u32) -> Value {
    json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": number.to_string()}}})
}

impl Fixture {
    /// The claims that have a key, with its id.
    fn keys_of(&self, claims: &[&str]) -> Vec<Value> {
        let secrets = claims.iter().map(|claim| self.get("secrets", claim).unwrap_or_default());
        secrets.map(|secret| secret["data"]["AWS_ACCESS_KEY_ID"].clone()).collect()
    }

    /// Whether the Secrets of all have one key, which the store knows.
    fn have_one_key(&self, claims: &[&str]) -> bool {
        let keys = self.keys_of(claims);
        keys.iter().all(|key| *key == keys[0] && key.is_string())
    }

    /// The buckets that the only account with keys may use.
    fn buckets_of_the_account(&self) -> Vec<String> {
        let state = self.store.state();
        let mut with_keys = state.users.iter().filter(|(_, keys)| !keys.is_empty());
        let (account, _) = with_keys.next().expect("an account");
        assert_eq!(with_keys.next(), None, "one account has a key");
        state.grants.iter().filter(|(_, user)| user == account).map(|(bucket, _)| bucket.clone()).collect()
    }

    async fn three(&self) {
        for claim in THREE {
            self.claim(claim, json!({"bucketName": claim, "additionalConfig": {"account": "team"}}));
        }
        for claim in THREE {
            self.bound(claim).await;
        }
        assert!(self.have_one_key(&THREE), "{:?}", self.keys_of(&THREE));
        assert_eq!(self.buckets_of_the_account(), THREE);
    }
}

#[tokio::test(start_paused = true)]
async fn z35_one_key_for_three_buckets_that_end_in_any_order() {
    for order in [["first", "second", "third"], ["second", "third", "first"], ["third", "first", "second"]] {
        for policy in ["Delete", "Retain"] {
            let fixture = Fixture::new();
            fixture.store.state().shows_keys_once = true;
            fixture.class("kept", json!({"reclaimPolicy": policy}));
            let _running = fixture.start(1);
            fixture.claim("alone", json!({"bucketName": "alone"}));
            fixture.bound("alone").await;
            fixture.delete(CLAIMS, "alone");
            fixture.gone("alone").await;
            for claim in THREE {
                let spec =
                    json!({"bucketName": claim, "additionalConfig": {"account": "team"}, "storageClassName": "kept"});
                fixture.claim(claim, spec);
            }
            for claim in THREE {
                fixture.bound(claim).await;
            }
            let key = fixture.keys_of(&THREE)[0].clone();
            assert!(fixture.have_one_key(&THREE));
            assert_eq!(fixture.buckets_of_the_account(), THREE);
            for (at, claim) in order.into_iter().enumerate() {
                fixture.delete(CLAIMS, claim);
                fixture.gone(claim).await;
                assert_eq!(fixture.store.state().buckets.contains_key(claim), policy == "Retain");
                let mut left = order[at + 1..].to_vec();
                left.sort_unstable();
                if left.is_empty() {
                    break;
                }
                assert_eq!(fixture.buckets_of_the_account(), left, "after {claim}");
                assert!(fixture.keys_of(&left).iter().all(|found| *found == key));
            }
            let state = fixture.store.state();
            assert!(state.grants.is_empty() && state.users.values().all(Vec::is_empty));
            assert!(policy == "Retain" || state.users.is_empty());
            assert_eq!((state.calls.iter().filter(|call| call.starts_with("withdraw")).count()), 2);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn z35_claims_of_other_namespaces_and_other_accounts_have_other_keys() {
    let fixture = Fixture::new();
    let _running = fixture.start(1);
    fixture.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}));
    fixture.claim("first", shares("team"));
    fixture.claim("second", shares("others"));
    // Its own user would have the same name, but for the uid.
    fixture.claim("team", shares("team"));
    fixture.claim_in("other", "first", shares("team"));
    for claim in ["first", "second", "team"] {
        fixture.bound(claim).await;
    }
    fixture.until("the other namespace's is bound", || fixture.phase("other/first") == "Bound").await;
    let [first, second, team, other] =
        ["first", "second", "team", "other/first"].map(|claim| fixture.keys_of(&[claim])[0].clone());
    assert_eq!(first, team);
    assert!(first != second && first != other && second != other);
    for claim in ["first", "second", "team", "other/first"] {
        fixture.delete(CLAIMS, claim);
    }
    for claim in ["first", "second", "team", "other/first"] {
        fixture.until("it is gone", || fixture.get(CLAIMS, claim).is_none()).await;
    }
    assert!(fixture.store.is_empty() && fixture.store.state().grants.is_empty());
}

#[tokio::test(start_paused = true)]
async fn z35_failures_and_new_processes_leave_no_second_account() {
    let fixture = Fixture::new();
    fixture.store.state().shows_keys_once = true;
    for method in ["create_bucket", "grant", "withdraw", "revoke", "delete_bucket"] {
        fixture.store.fail(method, Failure::Retry);
        fixture.store.fail(method, Failure::Panic);
    }
    fixture.store.fail("grant", Failure::Late);
    fixture.store.fail("withdraw", Failure::Late);
    let running = fixture.start(1);
    fixture.three().await;
    running.abort();
    let _another = fixture.start(2);
    fixture.claim("fourth", json!({"bucketName": "fourth", "additionalConfig": {"account": "team"}}));
    fixture.bound("fourth").await;
    assert!(fixture.have_one_key(&["first", "second", "third", "fourth"]));
    // All at once.
    for claim in ["first", "second", "third", "fourth"] {
        fixture.delete(CLAIMS, claim);
    }
    for claim in ["first", "second", "third", "fourth"] {
        fixture.gone(claim).await;
    }
    assert!(fixture.store.is_empty() && fixture.store.state().grants.is_empty());
}

/// A bucket that several claims of the account have stays open to it.
#[tokio::test(start_paused = true)]
async fn z35_claims_with_one_bucket_and_one_account() {
    let fixture = Fixture::new();
    fixture.store.state().buckets.insert("existing".to_owned(), "somebody".to_owned());
    fixture.class("given", json!({"parameters": {"bucketName": "existing"}}));
    let _running = fixture.start(1);
    for claim in ["first", "second"] {
        let spec =
            json!({"generateBucketName": null, "storageClassName": "given", "additionalConfig": {"account": "team"}});
        fixture.claim(claim, spec);
        fixture.bound(claim).await;
    }
    assert!(fixture.have_one_key(&["first", "second"]));
    fixture.delete(CLAIMS, "first");
    fixture.gone("first").await;
    assert_eq!(fixture.buckets_of_the_account(), ["existing"]);
    fixture.delete(CLAIMS, "second");
    fixture.gone("second").await;
    assert!(fixture.store.state().users.is_empty() && fixture.store.state().grants.is_empty());
    assert!(fixture.store.state().buckets.contains_key("existing"));
}

#[tokio::test(start_paused = true)]
async fn z36_a_new_key_reaches_all_claims() {
    let fixture = Fixture::new();
    fixture.store.state().shows_keys_once = true;
    fixture.overlap("1h");
    let running = fixture.start(1);
    fixture.three().await;
    let keys = || fixture.store.state().users.values().map(Vec::len).sum::<usize>();
    let first = fixture.keys_of(&THREE)[0].clone();
    fixture.patch(CLAIMS, "second", rotation(1));
    fixture.until("all have another key", || fixture.have_one_key(&THREE) && fixture.keys_of(&THREE)[0] != first).await;
    assert_eq!(keys(), 2);
    // The one that asked for it goes before the former key does.
    fixture.delete(CLAIMS, "second");
    fixture.gone("second").await;
    let left = ["first", "third"];
    sleep(Duration::from_secs(50 * 60)).await;
    assert_eq!(keys(), 2);
    sleep(Duration::from_secs(20 * 60)).await;
    assert_eq!(keys(), 1);
    assert!(fixture.have_one_key(&left));

    // Two rotations at once, and a process that ends in the middle.
    let second = fixture.keys_of(&left)[0].clone();
    left.into_iter().for_each(|claim| fixture.patch(CLAIMS, claim, rotation(2)));
    fixture.until("a rotation has begun", || fixture.store.calls("rotate") >= 2).await;
    running.abort();
    let _another = fixture.start(2);
    fixture.until("all have another key", || fixture.have_one_key(&left) && fixture.keys_of(&left)[0] != second).await;
    sleep(Duration::from_secs(3 * 3600)).await;
    assert!(fixture.have_one_key(&left));
    assert_eq!(keys(), 1);
    let record = |claim: &str| fixture.get(BUCKETS, &format!("obc-default-{claim}")).unwrap()["metadata"].to_string();
    assert!(left.iter().all(|claim| !record(claim).contains("retireAt")));
}

/// The claim `second` has another key than its Secret, and no process runs.
async fn in_the_middle_of_a_rotation() -> Fixture {
    let (refused, fixture) = refusing(|request| request.resource.plural == "secrets");
    fixture.store.state().shows_keys_once = true;
    fixture.overlap("1h");
    let running = fixture.start(1);
    fixture.three().await;
    refused.store(u32::MAX, Ordering::Relaxed);
    fixture.patch(CLAIMS, "second", rotation(1));
    let record = || fixture.get(BUCKETS, "obc-default-second").unwrap()["metadata"].to_string();
    fixture.until("a key is made that the Secret does not get", || record().contains("newKey")).await;
    running.abort();
    refused.store(0, Ordering::Relaxed);
    fixture
}

#[tokio::test(start_paused = true)]
async fn z36_a_claim_that_was_removed_by_force_holds_up_no_other() {
    let fixture = in_the_middle_of_a_rotation().await;
    fixture.patch(CLAIMS, "second", json!({"metadata": {"finalizers": null}}));
    fixture.delete(CLAIMS, "second");
    fixture.delete("secrets", "second");
    let _another = fixture.start(2);
    let left = ["first", "third"];
    let key = fixture.keys_of(&left)[0].clone();
    fixture.claim("fourth", shares("team"));
    fixture.bound("fourth").await;
    fixture.patch(CLAIMS, "first", rotation(1));
    fixture.until("all have another key", || fixture.have_one_key(&left) && fixture.keys_of(&left)[0] != key).await;
    sleep(Duration::from_secs(2 * 3600)).await;
    assert!(fixture.have_one_key(&["first", "third", "fourth"]));
    assert_eq!(fixture.store.state().users.values().map(Vec::len).sum::<usize>(), 1);
}

#[tokio::test(start_paused = true)]
async fn z36_a_claim_whose_object_bucket_was_deleted_removes_former_keys_too() {
    let fixture = in_the_middle_of_a_rotation().await;
    fixture.delete(CLAIMS, "second");
    for other in ["first", "third"] {
        fixture.delete(BUCKETS, &format!("obc-default-{other}"));
    }
    let _another = fixture.start(2);
    fixture.gone("second").await;
    sleep(Duration::from_secs(2 * 3600)).await;
    assert!(fixture.have_one_key(&["first", "third"]));
    assert_eq!(fixture.store.state().users.values().map(Vec::len).sum::<usize>(), 1);
}

#[tokio::test(start_paused = true)]
async fn z36_a_lost_secret_gets_the_key_of_the_others() {
    let fixture = Fixture::new();
    fixture.store.state().shows_keys_once = true;
    let _running = fixture.start(1);
    fixture.three().await;
    let key = fixture.keys_of(&["first"])[0].clone();
    for claim in ["first", "third"] {
        fixture.delete("secrets", claim);
        fixture.until("it is back", || fixture.get("secrets", claim).is_some()).await;
        assert_eq!(fixture.keys_of(&[claim])[0], key);
    }
    // Where none is left, all get another one.
    THREE.into_iter().for_each(|claim| fixture.delete("secrets", claim));
    fixture.until("all have a key", || fixture.have_one_key(&THREE)).await;
    assert_ne!(fixture.keys_of(&["first"])[0], key);
    assert_eq!(fixture.store.state().users.values().map(Vec::len).sum::<usize>(), 1);
    // An edited Secret is no source of keys.
    let edited = json!({"stringData": {"AWS_SECRET_ACCESS_KEY": "stolen"}});
    fixture.patch("secrets", "first", edited);
    fixture.claim("fourth", shares("team"));
    fixture.bound("fourth").await;
    let secret = |claim: &str| fixture.get("secrets", claim).unwrap()["data"]["AWS_SECRET_ACCESS_KEY"].clone();
    fixture.until("it is mended", || secret("first") == secret("second")).await;
    assert_eq!(secret("fourth"), secret("second"));
}

/// Where the only claim that has the account cannot be read, another one must not found it anew.
#[tokio::test(start_paused = true)]
async fn z37_an_account_that_cannot_be_read_is_waited_for() {
    let fixture = Fixture::new();
    let _running = fixture.start(1);
    fixture.claim("first", shares("team"));
    fixture.bound("first").await;
    let object = "obc-default-first";
    let annotation = "kube-provisioner/bucket";
    let record = fixture.get(BUCKETS, object).unwrap()["metadata"]["annotations"][annotation].clone();
    let write = |record: Value| {
        fixture.patch(BUCKETS, object, json!({"metadata": {"annotations": {annotation: record}}}));
    };
    write(json!("{\"source\": 7}"));
    fixture.claim("second", shares("team"));
    let says =
        || fixture.events("second").iter().any(|event| event.contains("cannot be read; correct it, or delete it"));
    fixture.until("it says what it waits for", says).await;
    assert_eq!(fixture.phase("second"), "Pending");
    write(record);
    fixture.bound("second").await;
    assert!(fixture.have_one_key(&["first", "second"]));
    for claim in ["first", "second"] {
        fixture.delete(CLAIMS, claim);
        fixture.gone(claim).await;
    }
    assert!(fixture.store.is_empty() && fixture.store.state().grants.is_empty());
}

#[tokio::test(start_paused = true)]
async fn z37_claims_that_are_refused_do_not_wake_each_other() {
    let fixture = Fixture::new();
    fixture.class("another", json!({}));
    fixture.store.state().buckets.extend(THREE.map(|name| (name.to_owned(), "somebody".to_owned())));
    let _running = fixture.start(1);
    for (claim, class) in THREE.into_iter().zip(["another", "class", "class"]) {
        let spec = json!({"bucketName": claim, "storageClassName": class, "additionalConfig": {"account": "team"}});
        fixture.claim(claim, spec);
    }
    for claim in THREE {
        fixture.until("it is refused", || fixture.phase(claim) == "Failed").await;
    }
    sleep(Duration::from_secs(3600)).await;
    let calls = fixture.store.calls("create_bucket");
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(fixture.store.calls("create_bucket"), calls, "after {calls} calls");
    assert!(calls < 10, "{calls} calls");
}

#[tokio::test(start_paused = true)]
async fn z37_what_cannot_be_shared_is_refused() {
    let fixture = Fixture::new();
    fixture.class("another", json!({}));
    let _running = fixture.start(1);
    fixture.claim("first", shares("team"));
    fixture.bound("first").await;
    let says = async |claim: &str, text: &str| {
        fixture.until(text, || fixture.events(claim).iter().any(|event| event.contains(text))).await;
    };
    let other = json!({"storageClassName": "another", "additionalConfig": {"account": "team"}});
    fixture.claim("second", other);
    says("second", "claims that share an account need the same class").await;
    fixture.claim("third", shares("No Name"));
    says("third", "cannot be the name of an account").await;
    fixture.patch(CLAIMS, "first", json!({"spec": {"additionalConfig": {"account": "others"}}}));
    says("first", "account of the claim's additionalConfig cannot change").await;
    fixture.patch(CLAIMS, "first", json!({"spec": {"additionalConfig": null}}));
    sleep(Duration::from_secs(900)).await;
    assert_eq!(fixture.phase("first"), "Bound");
    assert_eq!(fixture.store.calls("create_bucket"), 1);
    // The class is the account's as long as it has claims.
    fixture.delete(CLAIMS, "first");
    fixture.bound("second").await;
    for claim in ["second", "third"] {
        fixture.delete(CLAIMS, claim);
        fixture.gone(claim).await;
    }
    assert!(fixture.store.is_empty() && fixture.store.state().grants.is_empty());
}
