//! One request over the port: authentication, conversion of the body, and conversion of the answer.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Method, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde_json::Value;
use tower::{BoxError, ServiceExt as _};

use super::App;
use super::caller::Caller;
use super::media_type::{Language, MediaType, Representation};
use super::protobuf;
use super::table::{Include, TableWatch, Tables};
use crate::authorize::Attributes;
use crate::request::Path;
use crate::resource::Resource;
use crate::service::{BODY_LIMIT, Body};
use crate::status::Status;

/// The body of an answer.
pub(super) type AnswerBody = UnsyncBoxBody<Bytes, io::Error>;

/// Answers a request. An error breaks the connection.
pub(super) async fn answer(app: Arc<App>, request: http::Request<Incoming>) -> io::Result<Response<AnswerBody>> {
    let (parts, body) = request.into_parts();
    match app.answer(parts, body).await {
        Ok(response) => Ok(response),
        Err(Failure::Refused(status)) => Ok(document(status.code, &status.to_value())),
        Err(Failure::Broken(error)) => Err(error),
    }
}

/// A failure before the API's answer.
enum Failure {
    Refused(Status),
    /// The API breaks the connection, for example because of a fault.
    Broken(io::Error),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

impl App {
    async fn answer(&self, mut parts: Parts, body: Incoming) -> Result<Response<AnswerBody>, Failure> {
        let caller = self.caller(&parts.headers)?;
        let body = readable(&mut parts, body).await?;
        let uri = parts.uri.clone();
        let Some(path) = Path::parse(uri.path()) else { return self.plainly(&caller, parts, body).await };
        if parts.method == Method::POST
            && path.group.is_empty()
            && path.plural == "serviceaccounts"
            && path.subresource == "token"
        {
            return Ok(self.token(&caller, &path, body).await?);
        }
        if parts.method == Method::POST && path.group == "authentication.k8s.io" && path.plural == "tokenreviews" {
            return Ok(self.token_review(&caller, body).await?);
        }
        let Some(resource) = self.resource(&path) else { return self.plainly(&caller, parts, body).await };
        let form = MediaType::wanted(&parts.headers)?;
        let tables = match form.representation {
            Representation::Table(version) => {
                let include = Include::of(uri.query().unwrap_or_default())?;
                Some(Tables::new(&self.cluster, resource, version, include))
            }
            Representation::Objects | Representation::Metadata => None,
        };
        parts.headers.insert(http::header::ACCEPT, HeaderValue::from_static(form.accept()));
        let response = self.ask(&caller, parts, body).await?;
        match tables {
            // A watch stays JSON, which is also valid YAML.
            None if form.language == Language::Json || response.body().is_stream() => {
                Ok(response.map(BodyExt::boxed_unsync))
            }
            Some(tables) if response.body().is_stream() => {
                Ok(response.map(|body| TableWatch::new(body, tables).boxed_unsync()))
            }
            tables => convert(response, tables, form.language).await,
        }
    }

    /// Sends a request to the API itself.
    async fn ask(&self, caller: &Caller, parts: Parts, body: Full<Bytes>) -> io::Result<Response<Body>> {
        let service = self.cluster.service_in_groups(&caller.name, &caller.groups);
        service.oneshot(http::Request::from_parts(parts, body)).await
    }

    async fn plainly(&self, caller: &Caller, parts: Parts, body: Full<Bytes>) -> Result<Response<AnswerBody>, Failure> {
        Ok(self.ask(caller, parts, body).await?.map(BodyExt::boxed_unsync))
    }

    fn resource(&self, path: &Path<'_>) -> Option<Arc<Resource>> {
        self.cluster.0.lock().registry.at_path(&path.group, &path.version, &path.plural).cloned()
    }

    async fn token(&self, caller: &Caller, path: &Path<'_>, body: Full<Bytes>) -> Result<Response<AnswerBody>, Status> {
        self.check(&Attributes {
            user: &caller.name,
            groups: &caller.groups,
            verb: "create",
            resource: "serviceaccounts",
            subresource: "token",
            namespace: &path.namespace,
            name: &path.name,
            ..Attributes::default()
        })?;
        let request = object(body).await?;
        Ok(document(201, &self.issue(&path.namespace, &path.name, request)?))
    }

    async fn token_review(&self, caller: &Caller, body: Full<Bytes>) -> Result<Response<AnswerBody>, Status> {
        self.check(&Attributes {
            user: &caller.name,
            groups: &caller.groups,
            verb: "create",
            group: "authentication.k8s.io",
            resource: "tokenreviews",
            ..Attributes::default()
        })?;
        Ok(document(201, &self.review(object(body).await?)))
    }
}

/// Returns the body. Protobuf is converted to JSON. The API itself reads YAML.
async fn readable(parts: &mut Parts, body: Incoming) -> Result<Full<Bytes>, Status> {
    let limited = Limited::new(body, BODY_LIMIT).collect().await;
    let body = match limited {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return Err(Status::too_large(format_args!("limit is {BODY_LIMIT}")));
        }
        Err(error) => return Err(unreadable(&error)),
    };
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let content_type = content_type.split(';').next().unwrap_or_default().trim();
    let body = if content_type == "application/vnd.kubernetes.protobuf" {
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        protobuf::to_json(&body)?
    } else {
        body
    };
    parts.headers.remove(CONTENT_LENGTH);
    Ok(Full::new(body))
}

/// Returns the refusal of an incomplete body. The client has usually disconnected.
fn unreadable(error: &BoxError) -> Status {
    Status::bad_request(format!("error reading the body: {error}"))
}

async fn object(body: Full<Bytes>) -> Result<Value, Status> {
    let Ok(body) = body.collect().await;
    let value: Value =
        serde_json::from_slice(&body.to_bytes()).map_err(|error| Status::bad_request(error.to_string()))?;
    match value {
        Value::Object(_) => Ok(value),
        _ => Err(Status::bad_request("the body must be an object")),
    }
}

/// Converts a document to a table or to YAML.
async fn convert(
    response: Response<Body>,
    tables: Option<Tables>,
    language: Language,
) -> Result<Response<AnswerBody>, Failure> {
    let (mut parts, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    let value: Value = serde_json::from_slice(&body).map_err(|error| Status::internal(error.to_string()))?;
    let value = match tables {
        Some(tables) if value["kind"] != "Status" => tables.of_document(&value),
        _ => value,
    };
    let body = match language {
        Language::Json => Bytes::from(value.to_string()),
        Language::Yaml => {
            parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
            let text = serde_saphyr::to_string(&value).map_err(|error| Status::internal(error.to_string()))?;
            Bytes::from(text)
        }
    };
    Ok(Response::from_parts(parts, whole(body)))
}

fn document(code: u16, value: &Value) -> Response<AnswerBody> {
    let mut response = Response::new(whole(Bytes::from(value.to_string())));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn whole(body: Bytes) -> AnswerBody {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}
