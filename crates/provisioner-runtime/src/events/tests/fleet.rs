//! Events of several replicas, and a recorder that has stopped.

use futures::FutureExt;

use super::*;

#[tokio::test(start_paused = true)]
async fn same_event_has_one_name_in_all_replicas() {
    let name = async |event: Event| {
        let test = Test::start([]);
        test.recorder.record(event);
        test.wait(1).await;
        test.only().body["metadata"]["name"].as_str().unwrap().to_owned()
    };
    let same = |note: &str| Event { same_from_all: true, ..event("a", note) };
    // The name must never change: old and new replicas form one fleet during an update.
    assert_eq!(name(same("one")).await, "a.e02ae8ae5e985aab");
    assert_eq!(name(same("one")).await, name(same("one")).await);
    let others = [
        same("two"),
        Event { reason: "Other", ..same("one") },
        Event { object: ObjectRef { uid: "new".into(), ..same("one").object }, ..same("one") },
        event("a", "one"),
    ];
    for other in others {
        assert_ne!(name(other).await, name(same("one")).await);
    }
}

#[tokio::test(start_paused = true)]
async fn event_written_by_another_replica_counts_as_sent() {
    let test = Test::start([Answer::Refusal(409, "AlreadyExists", "exists")]);
    test.recorder.record(Event { same_from_all: true, ..event("a", "one") });
    test.wait(60).await;
    assert_eq!(test.requests().len(), 1);
    assert_eq!(test.recorder.stats(), EventStats { sent: 1, ..EventStats::default() });
}

#[tokio::test(start_paused = true)]
async fn event_reported_for_hours_does_not_expire() {
    let test = Test::start([Answer::Ok, Answer::Ok, Answer::Refusal(404, "NotFound", "")]);
    for _ in 0..3 {
        test.recorder.record(Event { same_from_all: true, ..event("a", "one") });
        test.wait(45 * 60).await;
    }
    let methods: Vec<Method> = test.requests().iter().map(|request| request.method.clone()).collect();
    assert_eq!(methods, [Method::POST, Method::PATCH, Method::PATCH, Method::POST]);
    assert_eq!(test.requests()[1].body["series"]["count"], 2);
}

#[tokio::test(start_paused = true)]
async fn stopped_returns_when_sending_ends() {
    let test = Test::start([]);
    let stopped = test.recorder.stopped();
    sleep(SECOND).await;
    assert!(test.recorder.stopped().now_or_never().is_none());
    drop(test);
    stopped.await;

    let panics = EventRecorder::new(client(|_| async { panic!("on purpose") }), options());
    panics.record(event("a", "one"));
    panics.stopped().await;
}
