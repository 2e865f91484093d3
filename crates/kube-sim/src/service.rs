//! The API over HTTP: a [`tower::Service`] for clients, or for a server on a port.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT, WARNING};
use http::request::Parts;
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde_json::Value;
use tower::BoxError;

use crate::api_server::ApiServer;
use crate::authorize::Attributes;
use crate::edit::{Edit, edited};
use crate::intercept::{After, Before};
use crate::pages;
use crate::patch::{self, PatchKind};
use crate::request::{Content, MAX_MANAGER, Options, Path, Request, Subresource, Verb};
use crate::resource::Special;
use crate::selector::FieldSelector;
use crate::status::Status;
use crate::trace::RequestInfo;
use crate::verbs::Answer;
use crate::watch::Watch;

/// One user's access to a cluster over HTTP. Created by [`Cluster::service`](crate::Cluster::service).
#[derive(Clone)]
pub struct ApiService {
    server: Arc<ApiServer>,
    user: Arc<str>,
    groups: Arc<[String]>,
    edit: Option<Edit>,
}

/// The body of an answer: a document, or the stream of a watch.
pub struct Body {
    source: Source,
    edit: Option<Edit>,
}

enum Source {
    Document(Option<Bytes>),
    Watch(Box<Watch>),
}

/// `--max-request-bytes` and the limit of apiserver's `limitedReadBody`.
pub(crate) const BODY_LIMIT: usize = 3 * 1024 * 1024;
/// Time that the watch cache waits for a future resourceVersion.
const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

impl ApiService {
    pub(crate) fn new(server: Arc<ApiServer>, user: Arc<str>, groups: Arc<[String]>) -> Self {
        Self { server, user, groups, edit: None }
    }

    /// Edits all objects in answers, lists and watches, for example so that clients cannot decode them. The objects in
    /// the cluster do not change.
    #[must_use]
    pub fn edit(self, edit: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        Self { edit: Some(Arc::new(edit)), ..self }
    }
}

impl<B> tower::Service<http::Request<B>> for ApiService
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = http::Response<Body>;
    /// A broken connection.
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let edit = service.edit.clone();
            let answer = service.answer(request).await?;
            Ok(answer.map(|body| Body { edit, ..body }))
        })
    }
}

impl ApiService {
    async fn answer<B>(self, request: http::Request<B>) -> io::Result<http::Response<Body>>
    where
        B: http_body::Body,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let mut request = match self.route(&parts) {
            Ok(Routed::Request(request)) => *request,
            Ok(Routed::Page(page)) => return Ok(page),
            Err(refused) => return Ok(refusal(&refused)),
        };
        let body = match Limited::new(body, BODY_LIMIT).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return Ok(refusal(&Status::too_large(format_args!("limit is {BODY_LIMIT}"))));
            }
            Err(error) => return Err(io::Error::other(error)),
        };
        if let Err(refused) = take_body(&mut request, &parts.headers, body) {
            return Ok(refusal(&refused));
        }
        match self.before(&request).await {
            Before::Handle => {}
            Before::HandleStale(changes) => self.read_from_the_past(&mut request, changes),
            Before::Refuse(status) => {
                self.trace_fault(&request, format_args!("{} {} instead of handling it", status.code, status.reason));
                return Ok(refusal(&status));
            }
            Before::Break => {
                self.trace_fault(&request, format_args!("the connection breaks before it is handled"));
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            Before::BreakAndHandle(delay) => {
                let later = format_args!("the connection breaks, and it is handled {} s later", delay.as_secs_f64());
                self.trace_fault(&request, later);
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    drop(self.handle(&mut request).await);
                });
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            Before::Hang => {
                self.trace_fault(&request, format_args!("no answer ever, and it is not handled"));
                return std::future::pending().await;
            }
        }
        let answer = self.handle(&mut request).await;
        if let Some(interceptor) = &self.server.interceptor {
            let code = answer.as_ref().map_or_else(|refused| refused.code, Answer::code);
            match interceptor.after(&request, code).await {
                After::Deliver => {}
                After::Replace(status) => {
                    self.trace_fault(&request, format_args!("{} {} instead of the answer", status.code, status.reason));
                    return Ok(refusal(&status));
                }
                After::Break => {
                    self.trace_fault(&request, format_args!("the connection breaks before the answer"));
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                After::Hang => {
                    self.trace_fault(&request, format_args!("no answer ever"));
                    return std::future::pending().await;
                }
            }
        }
        Ok(match answer {
            Ok(Answer::Object { code, view, object }) => warned(document(code, view.bytes(&object)), &request.warnings),
            Ok(Answer::Document { code, json }) => warned(document(code, json), &request.warnings),
            Ok(Answer::Watch(start)) => {
                let interceptor = self.server.interceptor.as_ref().and_then(|interceptor| interceptor.watch(&request));
                let watch = Watch::new(Arc::clone(&self.server), *start, RequestInfo::from(&request), interceptor);
                respond(200, Source::Watch(Box::new(watch)))
            }
            Err(refused) => refusal(&refused),
        })
    }

    async fn before(&self, request: &Request) -> Before {
        match &self.server.interceptor {
            Some(interceptor) => interceptor.before(request).await,
            None => Before::Handle,
        }
    }

    /// Rewrites a list with `resourceVersion=0` so that it is answered from the state `changes` changes ago.
    fn read_from_the_past(&self, request: &mut Request, changes: u64) {
        if request.verb != Verb::List || request.options.resource_version != "0" {
            return;
        }
        let state = self.server.lock();
        let storage = state.storage(request.resource.storage);
        let version = state.version().saturating_sub(changes).max(storage.compacted()).max(1);
        request.options.resource_version = version.to_string();
        request.options.resource_version_match = "Exact".to_owned();
        // The watch cache does not paginate.
        request.options.limit = 0;
    }

    fn trace_fault(&self, request: &Request, fault: std::fmt::Arguments<'_>) {
        if let Some(trace) = &self.server.trace {
            trace.fault(self.server.clock.elapsed(), RequestInfo::from(request), fault);
        }
    }

    /// Handles a request. Requests for a future resourceVersion wait until it exists.
    async fn handle(&self, request: &mut Request) -> Result<Answer, Status> {
        if let Some(authorizer) = &self.server.authorizer {
            // Invalid selectors are refused later.
            let selector = FieldSelector::parse(&request.options.field_selector, &request.resource, &[]).ok();
            Attributes::of(request, selector.as_ref()).check(&**authorizer)?;
        }
        match self.server.handle(request) {
            Err(refused) if refused.is_too_large_resource_version() => {
                tokio::time::sleep(FRESHNESS_WAIT).await;
                self.server.handle(request)
            }
            other => other,
        }
    }

    /// Routes a request by its line and headers.
    fn route(&self, parts: &Parts) -> Result<Routed, Status> {
        let Some(path) = Path::parse(parts.uri.path()) else {
            return Ok(Routed::Page(self.page(parts)?));
        };
        let state = self.server.lock();
        let Some(resource) = state.registry.at_path(&path.group, &path.version, &path.plural).cloned() else {
            let known = state.registry.has_builtin_group(&path.group);
            drop(state);
            return if known { Err(Status::no_such_path()) } else { Ok(Routed::Page(self.page(parts)?)) };
        };
        drop(state);
        if !resource.namespaced && !path.namespace.is_empty() {
            return if resource.custom { Ok(Routed::Page(self.page(parts)?)) } else { Err(Status::no_such_path()) };
        }
        let mut options = Options::parse(parts.uri.query().unwrap_or_default())?;
        let verb = match (&parts.method, path.name.is_empty()) {
            (&Method::GET, _) if options.watch => Verb::Watch,
            (&Method::GET, true) => Verb::List,
            (&Method::GET, false) => Verb::Get,
            (&Method::POST, _) => Verb::Create,
            (&Method::PUT, _) => Verb::Update,
            (&Method::PATCH, _) => Verb::Patch,
            (&Method::DELETE, true) => Verb::DeleteCollection,
            (&Method::DELETE, false) => Verb::Delete,
            _ => return Err(Status::method_not_allowed()),
        };
        let subresource = match &*path.subresource {
            "" => None,
            "status" if resource.status => Some(Subresource::Status),
            "finalize" if resource.special == Special::Namespace => Some(Subresource::Finalize),
            other => return Err(missing_subresource(&resource.plural, resource.custom, other)),
        };
        if verb == Verb::Patch && path.name.is_empty() {
            return Err(Status::method_not_allowed());
        }
        // The options of deletes and patches are completed with the body.
        if !matches!(verb, Verb::Delete | Verb::DeleteCollection | Verb::Patch) {
            options.complete(verb, None)?;
        }
        let metadata_only = wants_metadata_only(&parts.headers, resource.custom)?;
        Ok(Routed::Request(Box::new(Request {
            user: Arc::clone(&self.user),
            groups: Arc::clone(&self.groups),
            verb,
            resource,
            namespace: path.namespace.into_owned(),
            name: path.name.into_owned(),
            subresource,
            options,
            content: Content::None,
            metadata_only,
            managed_fields: self.server.managed_fields,
            decoded: false,
            agent: agent(&parts.headers),
            warnings: Vec::new(),
        })))
    }

    /// Answers a request for a non-resource path.
    fn page(&self, parts: &Parts) -> Result<http::Response<Body>, Status> {
        let path = parts.uri.path();
        if let Some(authorizer) = &self.server.authorizer {
            let verb = parts.method.as_str().to_ascii_lowercase();
            let (user, groups) = (&*self.user, &*self.groups);
            Attributes { user, groups, verb: &verb, path, ..Attributes::default() }.check(&**authorizer)?;
        }
        let page = pages::page(&self.server.lock(), parts)?;
        let mut response = document(page.code, page.body);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(page.content_type));
        Ok(response)
    }
}

enum Routed {
    Request(Box<Request>),
    Page(http::Response<Body>),
}

/// Returns the refusal of an unknown subresource: 501 for a subresource that only the real server has.
fn missing_subresource(plural: &str, custom: bool, name: &str) -> Status {
    const REAL: &[(&str, &[&str])] = &[
        (
            "pods",
            &["attach", "binding", "ephemeralcontainers", "eviction", "exec", "log", "portforward", "proxy", "resize"],
        ),
        ("nodes", &["proxy"]),
        ("services", &["proxy"]),
        ("serviceaccounts", &["token"]),
        ("deployments", &["scale"]),
        ("replicasets", &["scale"]),
        ("replicationcontrollers", &["scale"]),
        ("statefulsets", &["scale"]),
    ];
    let first = name.split('/').next().unwrap_or_default();
    let known =
        REAL.iter().any(|(owner, parts)| *owner == plural && parts.contains(&first)) || (custom && first == "scale");
    if known {
        Status::not_implemented(format_args!("the subresource {plural}/{first}"))
    } else {
        Status::no_such_path()
    }
}

fn warned(mut response: http::Response<Body>, warnings: &[String]) -> http::Response<Body> {
    for warning in warnings {
        // Warnings that are not valid header values are dropped.
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {warning:?}")) {
            response.headers_mut().append(WARNING, value);
        }
    }
    response
}

/// Stores the body in the request, according to verb and content type.
fn take_body(request: &mut Request, headers: &HeaderMap, body: Bytes) -> Result<(), Status> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let content_type = content_type.split(';').next().unwrap_or_default().trim();
    let is_json = matches!(content_type, "" | "application/json" | "*/*");
    match request.verb {
        Verb::Get | Verb::List | Verb::Watch => {}
        Verb::Create | Verb::Update if is_json => request.content = Content::Json(body),
        Verb::Create | Verb::Update if content_type == "application/yaml" => request.content = Content::Yaml(body),
        Verb::Delete | Verb::DeleteCollection if is_json || body.is_empty() => {
            request.options.read_delete_body(&body)?;
            request.options.complete(request.verb, None)?;
        }
        Verb::Patch => {
            let kind = match content_type {
                "application/json-patch+json" => PatchKind::Json,
                "application/merge-patch+json" => PatchKind::Merge,
                "application/strategic-merge-patch+json" if !request.resource.custom => PatchKind::StrategicMerge,
                "application/apply-patch+yaml" => PatchKind::Apply,
                _ => return Err(unknown_patch(request.resource.custom)),
            };
            request.options.complete(request.verb, Some(kind))?;
            request.content = Content::Patch(kind, body);
        }
        // YAML in the bodies of deletions is not simulated.
        _ if content_type == "application/yaml" => {
            return Err(Status::not_implemented(format_args!("bodies of type {content_type}")));
        }
        _ => {
            let accepted = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
            return Err(Status::unsupported_media_type(&accepted));
        }
    }
    Ok(())
}

/// `prefixFromUserAgent` of apiserver's `endpoints/handlers/create.go`.
fn agent(headers: &HeaderMap) -> Arc<str> {
    let text = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = text.split('/').next().unwrap_or_default();
    match &name[..name.floor_char_boundary(MAX_MANAGER)] {
        "" => Arc::from("unknown"),
        name => Arc::from(name),
    }
}

/// Returns the refusal of an unknown patch type. The handler of custom resources has another text.
fn unknown_patch(custom: bool) -> Status {
    if custom {
        Status::unsupported_media_type(&patch::OF_ALL_RESOURCES)
    } else {
        Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").with_empty_details()
    }
}

/// Returns whether the client requests only metadata. The first acceptable media type counts.
fn wants_metadata_only(headers: &HeaderMap, custom: bool) -> Result<bool, Status> {
    const SERVED: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
    let Some(accept) = headers.get(ACCEPT).and_then(|value| value.to_str().ok()) else { return Ok(false) };
    let (mut known, mut odd_form) = (None, false);
    for choice in accept.split(',') {
        let mut parts = choice.split(';').map(str::trim);
        match parts.next() {
            Some("application/json" | "*/*") => {}
            Some(other) if SERVED.contains(&other) => {
                known = Some(other);
                continue;
            }
            _ => continue,
        }
        match parts.find_map(|part| part.strip_prefix("as=")) {
            None => return Ok(false),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") => return Ok(true),
            Some("Table") => known = Some("table"),
            Some(_) => odd_form = true,
        }
    }
    Err(match known {
        Some(form) => Status::not_implemented(format_args!("answers in the form {form}")),
        None if odd_form || custom => Status::not_acceptable(&SERVED),
        None => {
            let message = format!("406: Not Acceptable\n\nAvailable representations: {}", SERVED.join(", "));
            Status::new(406, "NotAcceptable", message).with_empty_details()
        }
    })
}

fn refusal(status: &Status) -> http::Response<Body> {
    let json = serde_json::to_vec(&status.to_value()).expect("JSON values can be written to memory");
    let mut response = document(status.code, Bytes::from(json));
    if let Some(seconds) =
        status.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0)
    {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn document(code: u16, json: Bytes) -> http::Response<Body> {
    respond(code, Source::Document(Some(json)))
}

fn respond(code: u16, source: Source) -> http::Response<Body> {
    let mut response = http::Response::new(Body { source, edit: None });
    // Faults can have any number as their code.
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl Body {
    /// Returns whether the body is the stream of a watch.
    #[cfg(feature = "serve")]
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.source, Source::Watch(_))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<http_body::Frame<Bytes>>>> {
        let Self { source, edit } = self.get_mut();
        let piece = match source {
            Source::Document(bytes) => Poll::Ready(bytes.take().map(Ok)),
            Source::Watch(watch) => watch.poll_frame(context),
        };
        let edited = |bytes| match edit.as_ref() {
            Some(edit) => edited(&bytes, edit),
            None => bytes,
        };
        piece.map(|piece| piece.map(|bytes| bytes.map(|bytes| http_body::Frame::data(edited(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.source, Source::Document(None))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match &self.source {
            Source::Document(bytes) if self.edit.is_none() => {
                http_body::SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            _ => http_body::SizeHint::default(),
        }
    }
}
