//! The verbs `get` and `list`, and the start of a watch.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde_json::{Value, json};

use super::{Answer, WatchStart, view};
use crate::go_json;
use crate::request::Request;
use crate::selection::Selection;
use crate::state::State;
use crate::status::{Cause, Status};
use crate::store::{Snapshot, Stored};
use crate::view::View;

pub(super) fn get(state: &State, request: &Request) -> Result<Answer, Status> {
    at_most_now(state, parse_version(&request.options.resource_version)?)?;
    let found = super::existing(state, request)?;
    Ok(Answer::Object { code: 200, view: view(state, request), object: found })
}

pub(super) fn list(state: &State, request: &Request) -> Result<Answer, Status> {
    let page = page(state, request, request.options.limit)?;
    let mut metadata = json!({"resourceVersion": page.version.to_string()});
    if request.resource.custom && !request.metadata_only {
        metadata["continue"] = "".into();
    }
    if let Some(token) = page.continue_token {
        metadata["continue"] = token.into();
    }
    if let Some(remaining) = page.remaining {
        metadata["remainingItemCount"] = remaining.into();
    }
    Ok(Answer::list_of(&view(state, request), &metadata, &page.items))
}

pub(super) fn watch(state: &mut State, request: &Request) -> Result<Answer, Status> {
    let options = &request.options;
    let selection = Selection::new(state, request)?;
    let asked = parse_version(&options.resource_version)?;
    let now = state.version();
    // Without a resourceVersion, and for a streaming list, the current objects come first.
    let from_today = options.send_initial_events.unwrap_or(asked.is_none_or(|version| version == 0));
    let mut start = WatchStart {
        id: state.next_watch(),
        storage: request.resource.storage,
        view: view(state, request),
        after: if from_today { now } else { asked.filter(|version| *version > 0).unwrap_or(now) },
        initial: Vec::new(),
        initial_end: None,
        bookmarks: options.allow_watch_bookmarks,
        timeout: match options.timeout_seconds {
            0 => state.random.watch_timeout(),
            seconds => Duration::from_secs(seconds),
        },
        refused: None,
        selection,
    };
    let storage = state.storage(request.resource.storage);
    if from_today {
        let Selection { prefix, .. } = &start.selection;
        let matching = storage.range(prefix, "").filter(|object| start.selection.matches(object));
        start.initial = matching.cloned().collect();
        if options.send_initial_events == Some(true) && options.allow_watch_bookmarks {
            start.initial_end = Some(asked.unwrap_or(0).max(now));
        }
    } else if start.after < storage.compacted() {
        // Like the watch cache, answers a version that is too old with a 200 and one ERROR event.
        let message = format!("too old resource version: {} ({})", start.after, storage.compacted());
        start.refused = Some(Status::expired(message));
    }
    Ok(Answer::Watch(Box::new(start)))
}

/// A page of a list.
pub(super) struct ListPage {
    pub(super) items: Vec<Arc<Stored>>,
    pub(super) version: u64,
    continue_token: Option<String>,
    remaining: Option<usize>,
}

/// Returns the matching objects, at most `limit` (0 for all) of them.
pub(super) fn page(state: &State, request: &Request, limit: usize) -> Result<ListPage, Status> {
    let options = &request.options;
    let selection = Selection::new(state, request)?;
    let asked = parse_version(&options.resource_version)
        .map_err(|refused| Status::bad_request(format!("invalid resource version: {}", refused.message)))?;
    let storage = state.storage(request.resource.storage);
    let now = state.version();
    let mut from = String::new();
    let mut limit = limit;
    let at = if !options.continue_token.is_empty() {
        if asked.is_some_and(|version| version != 0) {
            return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
        }
        let (key, version) = decode_continue(&options.continue_token)?;
        from = format!("{}{key}", selection.prefix);
        version.unwrap_or(now)
    } else {
        at_most_now(state, asked)?;
        match (asked, options.resource_version_match.as_str()) {
            // The watch cache answers, which does not paginate.
            (Some(0), _) => {
                limit = 0;
                now
            }
            (Some(version), "Exact") => version,
            // Without `resourceVersionMatch`, a page has exactly this version, for compatibility.
            (Some(version), "") if limit > 0 => version,
            (_, _) => now,
        }
    };
    let snapshot = if at == now {
        None
    } else {
        Some(Snapshot::at(storage, at).ok_or_else(|| too_old(options.continue_token.is_empty(), &from, &selection))?)
    };
    let mut page = ListPage { items: Vec::new(), version: at, continue_token: None, remaining: None };
    match &snapshot {
        None => page.fill(storage.range(&selection.prefix, &from), limit, &selection),
        Some(snapshot) => page.fill(snapshot.range(&selection.prefix, &from), limit, &selection),
    }
    Ok(page)
}

impl ListPage {
    fn fill<'a>(&mut self, objects: impl Iterator<Item = &'a Arc<Stored>>, limit: usize, selection: &Selection) {
        let mut objects = objects.filter(|object| selection.matches(object));
        if limit == 0 {
            self.items.extend(objects.cloned());
            return;
        }
        self.items.extend(objects.by_ref().take(limit).cloned());
        let rest = if selection.is_everything() {
            objects.count()
        } else {
            // The server counts the remaining items only without selectors, so this only detects whether there are
            // more.
            objects.take(1).count()
        };
        if rest > 0
            && let Some(last) = self.items.last()
        {
            let key = last.key().strip_prefix(selection.prefix.as_str()).unwrap_or(last.key());
            self.continue_token = Some(encode_continue(&format!("{key}\0"), Some(self.version)));
            self.remaining = selection.is_everything().then_some(rest);
        }
    }
}

/// Returns the refusal of a compacted version. A continued list receives a token to continue without consistency.
fn too_old(first_page: bool, from: &str, selection: &Selection) -> Status {
    if first_page {
        return Status::expired("The resourceVersion for the provided list is too old.");
    }
    let key = from.strip_prefix(selection.prefix.as_str()).unwrap_or(from);
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new \
                   list without the continue parameter, or use the continue token in this response to retrieve the \
                   remainder of the results. Continuing with the provided token results in an inconsistent list - \
                   objects that were created, modified, or deleted between the time the first chunk was returned and \
                   now may show up in the list.";
    Status { continue_token: Some(encode_continue(key, None).into()), ..Status::expired(message) }
}

/// Parses a resourceVersion, `None` for an empty one. The error for an invalid one is the versioner's.
fn parse_version(text: &str) -> Result<Option<u64>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        let detail = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
        Status::new(500, "", Cause::invalid("resourceVersion", &text.into(), &detail).text())
    })
}

/// Refuses a future version.
fn at_most_now(state: &State, asked: Option<u64>) -> Result<(), Status> {
    match asked {
        Some(version) if version > state.version() => {
            Err(Status::resource_version_too_large(version, state.version(), 1))
        }
        _ => Ok(()),
    }
}

/// Encodes a continue token of apiserver's `storage/continue.go`. Without a version, the list continues with the
/// current objects.
fn encode_continue(key: &str, version: Option<u64>) -> String {
    let version = version.and_then(|version| i64::try_from(version).ok()).unwrap_or(-1);
    URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": version, "start": key}).to_string())
}

fn decode_continue(token: &str) -> Result<(String, Option<u64>), Status> {
    let refuse = |why: &str| Status::bad_request(format!("invalid continue token: continue key is not valid{why}"));
    let json = URL_SAFE_NO_PAD.decode(token).map_err(|error| refuse(&format!(": {error}")))?;
    let value = go_json::parse(&json).map_err(|error| refuse(&format!(": {error}")))?.value;
    if value["v"] != "meta.k8s.io/v1" {
        return Err(refuse(&format!(": server does not recognize this encoded version {}", value["v"])));
    }
    let key = value["start"].as_str().filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| refuse(": encoded start key empty (version meta.k8s.io/v1)"))?;
    match value["rv"].as_i64() {
        None | Some(0) => Err(refuse(": incorrect encoded start resourceVersion (version meta.k8s.io/v1)")),
        Some(version) => Ok((key.to_owned(), u64::try_from(version).ok())),
    }
}

impl Answer {
    /// Returns a list with these items.
    pub(super) fn list_of(view: &View, metadata: &Value, items: &[Arc<Stored>]) -> Self {
        let size: usize = items.iter().map(|object| object.bytes().len() + 1).sum();
        let mut json = Vec::with_capacity(size + 256);
        json.extend_from_slice(view.list_head().as_bytes());
        json.extend_from_slice(format!(r#""metadata":{metadata},"items":["#).as_bytes());
        for (index, object) in items.iter().enumerate() {
            if index > 0 {
                json.push(b',');
            }
            view.write_item(object, &mut json);
        }
        json.extend_from_slice(b"]}");
        Self::Document { code: 200, json: Bytes::from(json) }
    }
}
