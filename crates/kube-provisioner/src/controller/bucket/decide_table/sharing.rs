//! Claims that use the bucket of another claim.

use super::*;

#[test]
fn decides_about_a_claim_that_requests_a_shared_bucket() {
    let asking = || {
        let asks = json!({"spec": {"bucketName": null, "additionalConfig": {"bucketClaimName": "first"}}});
        Fixture { others: vec![first(json!({})), of_first(json!({}), json!({}))], ..Fixture::new().claim(asks) }
    };
    let with = |claim: Value, bucket: Value, record: Value| {
        let others = if bucket.is_null() { vec![first(claim)] } else { vec![first(claim), of_first(bucket, record)] };
        Fixture { others, ..asking() }
    };
    let refused = |problem| Refuse(Refusal::BucketClaim { claim: "first".to_owned(), problem });
    let deleted = json!({"metadata": {"deletionTimestamp": "2024-01-01T00:00:00Z"}});
    let (same, nothing) = (|| json!({}), Value::Null);
    let annotated = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
    let is_itself = asking().claim(json!({"spec": {"additionalConfig": {"bucketClaimName": "photos"}}}));
    let itself = BucketClaimProblem::SameClaim;
    let other_name = BucketClaimProblem::OtherName { bucket: "of-first".to_owned() };
    let other_class = BucketClaimProblem::OtherClass { class: "gold".to_owned() };
    let gold = || json!({"spec": {"storageClassName": "gold"}});
    let named = |name: &str| asking().claim(json!({"spec": {"bucketName": name}}));
    check([
        ("the bucket exists", asking(), Attempt(Reason::New)),
        ("it also names the bucket", named("of-first"), Attempt(Reason::New)),
        ("it names another bucket", named("mine"), refused(other_name)),
        ("the other claim is absent", Fixture { others: Vec::new(), ..asking() }, refused(BucketClaimProblem::Missing)),
        ("no bucket yet", with(same(), nothing, same()), refused(BucketClaimProblem::NotBound)),
        ("an unfinished bucket", with(same(), same(), json!({"made": false})), refused(BucketClaimProblem::NotBound)),
        ("a terminating claim", with(deleted.clone(), same(), same()), refused(BucketClaimProblem::Deleting)),
        ("a terminating ObjectBucket", with(same(), deleted, same()), refused(BucketClaimProblem::Deleting)),
        ("granted", with(same(), same(), json!({"source": "Granted"})), refused(BucketClaimProblem::NotBucketOwner)),
        ("another class", with(same(), gold(), same()), refused(other_class)),
        ("its claim now names another class", with(gold(), same(), same()), Attempt(Reason::New)),
        (
            "another cluster's",
            with(same(), annotated("kube-provisioner/cluster-id", "that"), same()),
            refused(BucketClaimProblem::NotBound),
        ),
        (
            "another installation's",
            with(same(), annotated("kube-provisioner/identity", "that"), same()),
            refused(BucketClaimProblem::NotBound),
        ),
        (
            "the class names a bucket",
            asking().class(json!({"parameters": {"bucketName": "shared"}})),
            refused(BucketClaimProblem::ClassNamesBucket),
        ),
        ("itself", is_itself, Refuse(Refusal::BucketClaim { claim: "photos".to_owned(), problem: itself })),
        (
            "a key that the administrator does not allow",
            Fixture { rules: Rules { allowed_config: Some(Vec::new()), ..asking().rules }, ..asking() },
            not_allowed(&["bucketClaimName"], &[]),
        ),
    ]);
}

#[test]
fn decides_about_a_claim_that_uses_a_shared_bucket() {
    let changed = || Refuse(Refusal::ChangeWithoutEffect(ChangeWithoutEffect::Config { key: "bucketClaimName" }));
    let owner = json!({"namespace": "shop", "name": "first", "uid": "f"});
    let asks = json!({"bucketClaimName": "first"});
    let using = |made: bool| Fixture {
        others: vec![first(json!({})), of_first(json!({}), json!({}))],
        ..Fixture::bound()
            .claim(json!({"spec": {"additionalConfig": asks}}))
            .record(json!({"source": "Granted", "owner": owner, "config": asks, "made": made}))
    };
    let going = json!({"metadata": {"deletionTimestamp": "2024-01-01T00:00:00Z"}});
    let owner_goes =
        |made| Fixture { others: vec![first(going.clone()), of_first(going.clone(), json!({}))], ..using(made) };
    let other = |name: Value| json!({"spec": {"additionalConfig": {"bucketClaimName": name}}});
    check([
        ("everything exists", using(true), rest(NoAction::Bound)),
        ("the owner waits for it", owner_goes(true), rest(NoAction::Bound)),
        ("it requests a third bucket", using(true).claim(other(json!("third"))), changed()),
        ("it requests its own bucket", using(true).claim(other(Value::Null)), changed()),
        ("deleted", using(true).deleted(), Release(ReleaseMode::Revoke)),
        ("unfinished", using(false), Attempt(Reason::New)),
        ("unfinished, and the bucket is being deleted", owner_goes(false), Release(ReleaseMode::CleanUp)),
        (
            "unfinished, and the bucket was deleted",
            Fixture { others: Vec::new(), ..using(false) },
            Release(ReleaseMode::CleanUp),
        ),
        ("unfinished, and no longer requested", using(false).claim(other(Value::Null)), Release(ReleaseMode::CleanUp)),
        ("unfinished, and its object terminates", using(false).bucket_deleted(), Attempt(Reason::New)),
        (
            "unfinished, and its clean-up has begun",
            using(false).bucket(json!({"status": {"phase": "Released"}})),
            Release(ReleaseMode::CleanUp),
        ),
        ("unfinished and deleted", using(false).deleted(), Release(ReleaseMode::CleanUp)),
    ]);
}

#[test]
fn keeps_a_bucket_while_other_claims_use_it() {
    let user = |record: Value| {
        let mut user = of_first(json!({"metadata": {"name": "obc-shop-second"}}), json!({}));
        user["spec"]["claimRef"] = json!({"namespace": "shop", "name": "second", "uid": "s"});
        user["metadata"]["annotations"]["kube-provisioner/bucket"] = record.to_string().into();
        user
    };
    let of = |uid: &str, made: bool| {
        let owner = json!({"namespace": "shop", "name": "photos", "uid": uid});
        user(json!({"source": "Granted", "made": made, "owner": owner}))
    };
    let let_go = |mut user: Value| {
        let metadata = json!({"deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["other"]});
        merge_patch(&mut user["metadata"], metadata);
        user
    };
    let used = || Fixture { others: vec![of("u", true)], ..Fixture::bound() };
    let by = || Refuse(Refusal::InUse { by: vec!["shop/second".to_owned()] });
    check([
        ("it is not deleted", used(), rest(NoAction::Bound)),
        ("deleted", used().deleted(), by()),
        ("by an unfinished attempt", Fixture { others: vec![of("u", false)], ..Fixture::bound() }.deleted(), by()),
        ("retained by its class", used().bucket(json!({"spec": {"reclaimPolicy": "Retain"}})).deleted(), by()),
        ("deleted manually, without a claim", used().bucket_deleted().without_claim(), by()),
        (
            "assigned to another claim of that name",
            used()
                .bucket(json!({"spec": {"claimRef": {"uid": "u"}}}))
                .record(json!({"madeForUid": "before"}))
                .deleted(),
            Release(ReleaseMode::Delete),
        ),
        (
            "of a restored claim",
            Fixture { others: vec![of("before", true)], ..used() }.record(json!({"madeForUid": "before"})).deleted(),
            by(),
        ),
        (
            "its user's ObjectBucket was released",
            Fixture { others: vec![let_go(of("u", true))], ..used() }.deleted(),
            Release(ReleaseMode::Delete),
        ),
        ("abandoned", used().annotated("kube-provisioner/abandon", "true").deleted(), Release(ReleaseMode::Abandon)),
        (
            "by claims of another bucket",
            Fixture { others: vec![of("v", true)], ..used() }.deleted(),
            Release(ReleaseMode::Delete),
        ),
    ]);
}
