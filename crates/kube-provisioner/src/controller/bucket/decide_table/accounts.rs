//! Claims that share an account.

use super::*;
use crate::controller::bucket::accounts::AccountProblem;

#[test]
fn z37_claims_that_share_an_account() {
    let account = |uid: &str, generation: u64| json!({"name": "team", "uid": uid, "generation": generation});
    let asks = json!({"spec": {"additionalConfig": {"account": "team"}}});
    let with = |fixture: Fixture, change: Value, record: Value| {
        let record_of_first = merged(json!({"account": account("a", 1), "parameters": {}}), record);
        let rules =
            Rules { capabilities: BucketCapabilities::default().rotation().multiple_buckets(), ..fixture.rules };
        Fixture { rules, others: vec![first(json!({})), of_first(change, record_of_first)], ..fixture }
    };
    let new = |change, record| with(Fixture::new().claim(asks.clone()), change, record);
    let bound = |change, record| {
        let recorded = json!({"account": account("a", 1), "config": {"account": "team"}});
        with(Fixture::bound().claim(asks.clone()).record(recorded), change, record)
    };
    let refused = |account: &str, problem| Refuse(Refusal::Account { account: account.to_owned(), problem });
    let rotating = || refused("team", AccountProblem::Rotating { claim: "first".to_owned() });
    let (same, nothing) = (|| json!({}), Value::Null);
    let named = |name: &str| json!({"spec": {"additionalConfig": {"account": name}}});
    let other_class = AccountProblem::OtherClass { class: "gold".to_owned() };
    let new_key = json!({"newKey": {"accessKeyId": "next"}});
    let cluster = json!({"metadata": {"annotations": {"kube-provisioner/cluster-id": "that"}}});
    let rotates = json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}});
    let retires = json!({"retireAt": "2024-01-01T00:00:00Z"});
    let (newer, older) = (json!({"account": account("a", 2)}), json!({"account": account("a", 0)}));
    let unable = Fixture { rules: Fixture::new().rules, ..new(same(), same()) };
    check([
        ("another claim has it", new(same(), same()), Attempt(Reason::New)),
        ("the author's accounts are for one bucket", unable, refused("team", AccountProblem::Unsupported)),
        ("a bad name", new(same(), same()).claim(named("A")), refused("A", AccountProblem::BadName)),
        ("of another class", new(json!({"spec": {"storageClassName": "gold"}}), same()), refused("team", other_class)),
        (
            "another cluster's",
            new(merged(cluster, json!({"spec": {"storageClassName": "gold"}})), same()),
            Attempt(Reason::New),
        ),
        (
            "of other parameters",
            new(same(), json!({"parameters": {"a": "b"}})),
            refused("team", AccountProblem::OtherParameters),
        ),
        ("about to be rotated", new(same(), new_key.clone()), rotating()),
        ("it has its bucket", bound(same(), same()), rest(NoAction::Bound)),
        ("its account is about to be rotated", bound(same(), new_key.clone()), rest(NoAction::Bound)),
        (
            "and its Secret is gone",
            bound(same(), new_key.clone()).delivered(Delivered::Absent, Delivered::Intact),
            rotating(),
        ),
        ("and it asks for a rotation, too", bound(same(), new_key).claim(rotates.clone()), rotating()),
        ("its key is older", bound(same(), newer.clone()), Attempt(Reason::Secret)),
        (
            "another account of this name has more keys",
            bound(same(), json!({"account": account("b", 2)})),
            rest(NoAction::Bound),
        ),
        ("the other claim is unfinished", bound(same(), merged(newer, json!({"made": false}))), rest(NoAction::Bound)),
        ("a rotation", bound(same(), same()).claim(rotates.clone()), Rotate),
        ("the other claim's key is older", bound(same(), older.clone()).claim(rotates), rotating()),
        ("old keys", bound(same(), same()).record(retires.clone()), Retire),
        ("old keys that another claim has", bound(same(), older).record(retires), rest(NoAction::Bound)),
        ("it asks for another account", bound(same(), same()).claim(named("b")), refused("b", AccountProblem::Changed)),
        (
            "it asks for none",
            bound(same(), same()).claim(json!({"spec": {"additionalConfig": {"account": nothing}}})),
            refused("", AccountProblem::Changed),
        ),
        ("deleted", bound(same(), same()).deleted(), Release(Ending::Delete)),
        (
            "unfinished, and wanted no more",
            bound(same(), same()).record(json!({"made": false})).claim(named("b")),
            Release(Ending::CleanUp),
        ),
    ]);
}

fn merged(mut one: Value, other: Value) -> Value {
    merge_patch(&mut one, other);
    one
}
