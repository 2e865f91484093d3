//! Non-resource paths: discovery, OpenAPI, health and version.

mod discovery;
mod openapi;

use bytes::Bytes;
use http::Method;
use http::header::{ACCEPT, HeaderMap};
use http::request::Parts;
use serde_json::{Value, json};

use crate::state::State;
use crate::status::Status;

/// The answer of a non-resource path.
pub(crate) struct Page {
    pub(crate) code: u16,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
}

/// Returns the answer for a path. Paths that only the real server has are refused with 501.
pub(crate) fn page(state: &State, request: &Parts) -> Result<Page, Status> {
    let path = request.uri.path();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let page = match parts.as_slice() {
        ["healthz" | "livez" | "readyz"] => health(path, request.uri.query().unwrap_or_default()),
        ["version"] | ["version", ""] => Page::json(&version()),
        ["api"] | ["api", ""] => discovery::core(state, wants_aggregated(&request.headers)),
        ["apis"] | ["apis", ""] => discovery::groups(state, wants_aggregated(&request.headers)),
        ["api", version] => discovery::resources(state, "", version)?,
        ["apis", group] | ["apis", group, ""] => match discovery::group(state, group) {
            Some(page) => page,
            None => Page::missing(),
        },
        ["apis", group, version] if discovery::has(state, group) => discovery::resources(state, group, version)?,
        ["api", ..] => return Err(Status::no_such_path()),
        // Groups of custom resources have a handler with other error texts.
        ["apis", group, ..] if state.registry.has_builtin_group(group) => return Err(Status::no_such_path()),
        ["openapi", "v2"] => openapi::old(&request.headers),
        ["openapi", "v3"] => openapi::index(state),
        ["openapi", "v3", "api", version] => openapi::document(state, "", version)?,
        ["openapi", "v3", "apis", group, version] => openapi::document(state, group, version)?,
        ["openapi", ..] | ["metrics", ..] | [".well-known", ..] | ["openid", ..] => {
            return Err(Status::not_implemented(format_args!("the path {path}")));
        }
        [""] => Page::json(&json!({"paths": discovery::paths(state)})),
        _ => Page::missing(),
    };
    match request.method {
        Method::GET | Method::HEAD => Ok(page),
        _ if page.code == 200 => Err(Status::method_not_allowed()),
        _ => Ok(page),
    }
}

impl Page {
    fn json(value: &Value) -> Self {
        Self { code: 200, content_type: "application/json", body: Bytes::from(value.to_string()) }
    }

    fn text(code: u16, text: String) -> Self {
        Self { code, content_type: "text/plain; charset=utf-8", body: Bytes::from(text) }
    }

    fn missing() -> Self {
        Self::text(404, "404 page not found\n".to_owned())
    }
}

fn health(path: &str, query: &str) -> Page {
    let is_verbose = query.split('&').any(|part| part == "verbose" || part.starts_with("verbose="));
    let name = path.trim_start_matches('/');
    Page::text(200, if is_verbose { format!("[+]ping ok\n{name} check passed\n") } else { "ok".to_owned() })
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "37",
        "emulationMajor": "1", "emulationMinor": "37", "minCompatibilityMajor": "1", "minCompatibilityMinor": "36",
        "gitVersion": "v1.37.1+kube-sim", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "2030-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "linux/amd64",
    })
}

/// Returns whether the client requests aggregated discovery.
fn wants_aggregated(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let wanted = ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"];
    let choices = || accept.split(',').map(|choice| choice.split(';').map(str::trim).collect::<Vec<&str>>());
    choices().any(|choice| choice[0] == "application/json" && wanted.iter().all(|part| choice.contains(part)))
}
