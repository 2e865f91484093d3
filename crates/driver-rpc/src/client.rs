//! Calls to a driver over its socket.

use std::error::Error as StdError;
use std::fmt::Debug;
use std::io;
use std::iter::successors;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, Uri};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, ConnectError, Request, Status};
use tonic_prost::ProstCodec;
use tower::{ServiceExt, service_fn};

use crate::address::Address;
use crate::error::{Error, code_name};
use crate::secrets::Secrets;

/// The default time limit of a call: the sidecars' default.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The default receive limit of grpc-go.
const RECEIVE_LIMIT: usize = 4 << 20;
/// Maximum size of headers, which contain the status. Drivers put entire command outputs there.
const HEADER_LIMIT: u32 = 1 << 20;

/// An observer of calls, for metrics.
pub trait CallObserver: Debug + Send + Sync {
    /// Called when a call of this path, such as `/example.v1.Health/Ping`, has ended.
    fn observe(&self, path: &'static str, code: Code, took: Duration);
}

/// A driver at an address. The service traits provide the methods for its calls.
///
/// Clones share the connection, which is established at the first call and re-established after it breaks.
#[derive(Clone, Debug)]
pub struct Client {
    address: Address,
    timeout: Duration,
    receive_limit: usize,
    observer: Option<Arc<dyn CallObserver>>,
    channel: Channel,
    /// Number of connections established so far.
    connections: Arc<watch::Sender<u64>>,
}

impl Client {
    /// Creates a client without connecting yet.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn new(address: Address) -> Self {
        let (connections, socket) = (Arc::new(watch::Sender::new(0)), address.clone());
        let connected = connections.clone();
        let connect = move |_: Uri| {
            let (connected, socket) = (connected.clone(), socket.clone());
            async move {
                let stream = UnixStream::connect(socket.path()).await?;
                connected.send_modify(|count| *count += 1);
                Ok::<_, io::Error>(TokioIo::new(stream))
            }
        };
        let endpoint = Endpoint::from_static("http://localhost").http2_max_header_list_size(HEADER_LIMIT);
        let channel = endpoint.connect_with_connector_lazy(service_fn(connect));
        Self { address, timeout: TIMEOUT, receive_limit: RECEIVE_LIMIT, observer: None, channel, connections }
    }

    /// Limits the duration of each call, including connecting. The default is 10 seconds.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Limits the size of a response. The default is 4 MiB.
    pub fn with_receive_limit(mut self, bytes: usize) -> Self {
        self.receive_limit = bytes;
        self
    }

    /// Notifies the observer about each call.
    pub fn with_observer(mut self, observer: impl CallObserver + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Returns the driver's address.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Waits until a new connection is established after this call, possibly to a different driver.
    pub fn reconnected(&self) -> impl Future<Output = ()> + Send + use<> {
        let connections = self.connections.clone();
        let mut established = connections.subscribe();
        async move {
            // The future holds the sender, so the channel stays open.
            let _ = established.changed().await;
            drop(connections);
        }
    }

    /// Calls a method, such as `/example.v1.Health/Ping`. Request and response are logged at level `trace`, so their
    /// `Debug` must not show secrets. The request's `secrets` are removed from the driver's message, which may contain
    /// the command that failed.
    pub async fn call<Q, A>(&self, path: &'static str, request: Q, secrets: Option<Secrets>) -> Result<A, Error>
    where
        Q: Message + Debug + 'static,
        A: Message + Debug + Default + 'static,
    {
        tracing::trace!(method = path, ?request, "call");
        let started = Instant::now();
        let result = match tokio::time::timeout(self.timeout, self.send(path, request)).await {
            // A grpc-go server resets the call at the deadline, possibly just before the timer here fires.
            Ok(Err(Error::Interrupted(_))) if started.elapsed() >= self.timeout => Err(Error::TimedOut(self.timeout)),
            Ok(result) => result,
            Err(_) => Err(Error::TimedOut(self.timeout)),
        };
        let result = match (result, secrets) {
            (Err(Error::Status(status)), Some(secrets)) => {
                Err(Status::new(status.code(), secrets.redact(status.message())).into())
            }
            (result, _) => result,
        };
        let code = result.as_ref().err().map_or(Code::Ok, Error::code);
        if let Some(observer) = &self.observer {
            observer.observe(path, code, started.elapsed());
        }
        match &result {
            Ok(answer) => tracing::trace!(method = path, ?answer, "answer"),
            // The message may contain secrets that are too short to be removed.
            Err(_) => tracing::debug!(method = path, code = code_name(code), "call failed"),
        }
        result
    }

    async fn send<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Error>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        // tonic turns any failure into a status. A status from the driver arrives in headers or trailers.
        let refused = Arc::new(AtomicBool::new(false));
        let note = refused.clone();
        let channel = self.channel.clone().map_response(move |response: http::Response<_>| {
            let look = move |headers: &HeaderMap| {
                if headers.get("grpc-status").is_some_and(|status| status != "0") {
                    note.store(true, Ordering::Relaxed);
                }
            };
            look(response.headers());
            response.map(|body: tonic::body::Body| {
                body.map_frame(move |frame| {
                    frame.trailers_ref().into_iter().for_each(&look);
                    frame
                })
            })
        });
        let mut request = Request::new(request);
        request.set_timeout(self.timeout);
        let mut grpc = Grpc::new(channel).max_decoding_message_size(self.receive_limit);
        grpc.ready().await.map_err(|error| Error::Interrupted(chain(&error)))?;
        match grpc.unary(request, PathAndQuery::from_static(path), ProstCodec::default()).await {
            Ok(response) => Ok(response.into_inner()),
            Err(status) if refused.load(Ordering::Relaxed) => Err(status.into()),
            Err(status) => Err(self.response_error(&status)),
        }
    }

    fn response_error(&self, status: &Status) -> Error {
        if let Some(error) = causes(status).find(|error| error.is::<ConnectError>()) {
            return Error::Unreachable { address: self.address.to_string(), reason: error.to_string() };
        }
        match (status.code(), status.source()) {
            (Code::OutOfRange, None) => Error::TooLarge { limit: self.receive_limit },
            (_, Some(error)) => Error::Interrupted(chain(error)),
            (_, None) => Error::Interrupted(status.message().to_owned()),
        }
    }
}

/// Formats an error with its causes.
pub(crate) fn chain(error: &(dyn StdError + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    successors(Some(error), |&error| error.source())
}
