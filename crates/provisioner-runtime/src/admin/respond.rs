//! The response to one request.

use http::header::{ACCEPT, ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use prometheus_client::encoding::{prometheus_text, text as open_metrics};
use prometheus_client::registry::Registry;
use tracing::error;

use super::Checks;

const PLAIN: &str = "text/plain; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) async fn respond<B>(request: &Request<B>, checks: &Checks, registry: &Registry) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET and HEAD\n".to_owned());
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return answer;
    }
    match request.uri().path() {
        "/livez" => text(StatusCode::OK, PLAIN, "alive\n".to_owned()),
        "/healthz/leader-election" => text(StatusCode::OK, PLAIN, "ok".to_owned()),
        "/readyz" => match checks.report().await {
            (true, report) => text(StatusCode::OK, PLAIN, report),
            // The API server responds with 500 as well. `kubectl get --raw` would not print the text of a 503.
            (false, report) => text(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, report),
        },
        "/metrics" => metrics(request, registry),
        _ => text(StatusCode::NOT_FOUND, PLAIN, "not found; the paths are /livez, /readyz and /metrics\n".to_owned()),
    }
}

fn metrics<B>(request: &Request<B>, registry: &Registry) -> Response<Full<Bytes>> {
    let accepts = |value: &HeaderValue| value.to_str().is_ok_and(|text| text.contains("application/openmetrics-text"));
    let mut page = String::new();
    let (kind, encoded) = if request.headers().get_all(ACCEPT).iter().any(accepts) {
        (OPEN_METRICS, open_metrics::encode(&mut page, registry))
    } else {
        (prometheus_text::CONTENT_TYPE, prometheus_text::encode(&mut page, registry))
    };
    if let Err(failure) = encoded {
        error!("the metrics could not be written: {failure}");
        let problem = "the metrics could not be written\n".to_owned();
        return text(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, problem);
    }
    text(StatusCode::OK, kind, page)
}

fn text(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
