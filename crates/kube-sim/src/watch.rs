//! Watches: changes of one resource as lines of JSON, read from the resource's history.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, Sleep};

use crate::api_server::ApiServer;
use crate::intercept::{WatchInterceptor, WatchStep};
use crate::selection::Selection;
use crate::state::State;
use crate::store::{ChangeKind, HistoryEntry, Stored};
use crate::trace::RequestInfo;
use crate::verbs::WatchStart;
use crate::view::View;

/// Bookmarks are sent once a minute and shortly before the end: `cacheWatcher.nextBookmarkTime`.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Maximum size of a chunk, which the last event may exceed.
const CHUNK: usize = 64 * 1024;

/// The body of a watch's answer.
pub(crate) struct Watch {
    server: Arc<ApiServer>,
    start: WatchStart,
    /// The request, for the trace.
    request: RequestInfo,
    /// Number of initial objects that are delivered.
    sent_initial: usize,
    end: Instant,
    timer: Pin<Box<Sleep>>,
    interceptor: Option<Box<dyn WatchInterceptor>>,
    /// The interceptor's pause, and the line to deliver after it.
    held: Option<(Pin<Box<Sleep>>, Vec<u8>)>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// The watch stays open but delivers nothing more.
    Silent,
    /// The connection is about to break.
    Broken,
    Ended,
}

impl Watch {
    pub(crate) fn new(
        server: Arc<ApiServer>,
        start: WatchStart,
        request: RequestInfo,
        interceptor: Option<Box<dyn WatchInterceptor>>,
    ) -> Self {
        let now = Instant::now();
        let end = now + start.timeout;
        let mut watch = Self {
            server,
            start,
            request,
            sent_initial: 0,
            end,
            timer: Box::pin(tokio::time::sleep_until(end)),
            interceptor,
            held: None,
            stage: Stage::Open,
        };
        watch.plan_bookmark(now);
        watch
    }

    /// Returns the next chunk of the stream.
    pub(crate) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            if let Some((pause, _)) = &mut self.held {
                if pause.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                let line = self.held.take().map(|(_, line)| line).unwrap_or_default();
                if line.is_empty() {
                    continue;
                }
                return Poll::Ready(Some(Ok(line.into())));
            }
            match self.stage {
                Stage::Open => {}
                Stage::Silent => return Poll::Pending,
                Stage::Ended => return Poll::Ready(None),
                Stage::Broken => {
                    self.stage = Stage::Ended;
                    return Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())));
                }
            }
            let mut lines = Vec::new();
            self.collect(&mut lines, context);
            if !lines.is_empty() {
                return Poll::Ready(Some(Ok(lines.into())));
            }
            if self.held.is_some() || self.stage != Stage::Open {
                continue;
            }
            if self.timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            if now >= self.end {
                self.stage = Stage::Ended;
            } else {
                self.plan_bookmark(now);
                let bookmark = self.start.view.bookmark(self.start.after, false);
                return Poll::Ready(Some(Ok(line("BOOKMARK", bookmark.as_bytes()).into())));
            }
        }
    }

    /// Collects the events to deliver. If there are none, the next change wakes the task.
    fn collect(&mut self, lines: &mut Vec<u8>, context: &Context<'_>) {
        if let Some(status) = self.start.refused.take() {
            self.stage = Stage::Ended;
            *lines = line("ERROR", status.to_value().to_string().as_bytes());
            return;
        }
        while let Some(object) = self.start.initial.get(self.sent_initial).cloned() {
            self.sent_initial += 1;
            if self.deliver("ADDED", &object, lines) == Delivery::Stop {
                return;
            }
        }
        if self.sent_initial > 0 {
            self.start.initial = Vec::new();
            self.sent_initial = 0;
        }
        let server = Arc::clone(&self.server);
        let mut state = server.lock();
        if let Some(version) = self.start.initial_end.take_if(|version| state.version() >= *version) {
            let version = self.start.after.max(version);
            lines.extend(line("BOOKMARK", self.start.view.bookmark(version, true).as_bytes()));
        }
        self.collect_changes(&mut state, lines);
        if lines.is_empty() && self.held.is_none() && self.stage == Stage::Open {
            // All changes so far are delivered, so bookmarks may have this version.
            self.start.after = self.start.after.max(state.version());
            state.storage_mut(self.start.storage).wait(self.start.id, context.waker());
        }
    }

    fn collect_changes(&mut self, state: &mut State, lines: &mut Vec<u8>) {
        let storage = state.storage(self.start.storage);
        if self.start.after < storage.compacted() {
            // The client is too slow: the watch ends, and the client must list again.
            self.stage = Stage::Ended;
            return;
        }
        for change in storage.changes_after(self.start.after) {
            self.start.after = change.object.resource_version();
            if let Some((kind, object)) = event_of(change, &self.start.selection)
                && self.deliver(kind, &object, lines) == Delivery::Stop
            {
                return;
            }
        }
        if storage.closed && lines.is_empty() {
            self.stage = Stage::Ended;
        }
    }

    /// Delivers one event, unless the interceptor decides otherwise.
    fn deliver(&mut self, kind: &'static str, object: &Arc<Stored>, lines: &mut Vec<u8>) -> Delivery {
        let step = match &mut self.interceptor {
            None => WatchStep::Deliver,
            Some(interceptor) => interceptor.event(kind, object),
        };
        if step != WatchStep::Deliver
            && let Some(trace) = &self.server.trace
        {
            let fault = format!("{step} at {kind} {} rv {}", object.key(), object.resource_version());
            trace.fault(self.server.clock.elapsed(), self.request.clone(), fault);
        }
        match step {
            WatchStep::Deliver => {
                write_line(kind, &self.start.view, object, lines);
                return if lines.len() < CHUNK { Delivery::Continue } else { Delivery::Stop };
            }
            WatchStep::Delay(pause) => {
                let mut held = Vec::new();
                write_line(kind, &self.start.view, object, &mut held);
                self.held = Some((Box::pin(tokio::time::sleep(pause)), held));
            }
            WatchStep::End => self.stage = Stage::Ended,
            WatchStep::Break => self.stage = Stage::Broken,
            WatchStep::Stall(pause) => {
                self.held = Some((Box::pin(tokio::time::sleep(pause)), Vec::new()));
                self.stage = Stage::Broken;
            }
            WatchStep::Silence => self.stage = Stage::Silent,
            WatchStep::Refuse(status) => {
                self.stage = Stage::Ended;
                lines.extend(line("ERROR", status.to_value().to_string().as_bytes()));
            }
        }
        Delivery::Stop
    }

    fn plan_bookmark(&mut self, now: Instant) {
        let before_end = self.end.checked_sub(BOOKMARK_BEFORE_END).filter(|early| *early > now);
        let bookmark =
            if self.start.bookmarks { (now + BOOKMARK_PERIOD).min(before_end.unwrap_or(self.end)) } else { self.end };
        self.timer.as_mut().reset(bookmark.min(self.end));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.server.lock().storage_mut(self.start.storage).stop_waiting(self.start.id);
    }
}

#[derive(PartialEq, Eq)]
enum Delivery {
    Continue,
    Stop,
}

/// Returns the event of a change under a selection. An object that starts to match is added, an object that stops
/// matching is deleted.
fn event_of(change: &HistoryEntry, selection: &Selection) -> Option<(&'static str, Arc<Stored>)> {
    let object = Arc::clone(&change.object);
    let matches = selection.matches(&change.object);
    match change.kind {
        ChangeKind::Created => matches.then_some(("ADDED", object)),
        ChangeKind::Deleted => matches.then_some(("DELETED", object)),
        ChangeKind::Updated if selection.is_everything() => matches.then_some(("MODIFIED", object)),
        ChangeKind::Updated => {
            let before = change.before.as_ref().filter(|before| selection.matches(before));
            match (before, matches) {
                (Some(_), true) => Some(("MODIFIED", object)),
                (None, true) => Some(("ADDED", object)),
                // The state before, with the resourceVersion of the change.
                (Some(before), false) => {
                    Some(("DELETED", Arc::new(before.at_version(change.object.resource_version()))))
                }
                (None, false) => None,
            }
        }
    }
}

fn write_line(kind: &str, view: &View, object: &Arc<Stored>, lines: &mut Vec<u8>) {
    lines.reserve(object.bytes().len() + 48);
    lines.extend_from_slice(br#"{"type":""#);
    lines.extend_from_slice(kind.as_bytes());
    lines.extend_from_slice(br#"","object":"#);
    view.write(object, lines);
    lines.extend_from_slice(b"}\n");
}

fn line(kind: &str, json: &[u8]) -> Vec<u8> {
    [br#"{"type":""#, kind.as_bytes(), br#"","object":"#, json, b"}\n"].concat()
}
