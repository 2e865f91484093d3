//! The calls of a driver over its socket.

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

/// How long a call may take unless the caller says otherwise: the sidecars' default.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What grpc-go reads by default.
const RECEIVE_LIMIT: usize = 4 << 20;
/// A status is in headers. Drivers put whole outputs of commands there.
const HEADER_LIMIT: u32 = 1 << 20;

/// What happens with each call, for metrics.
pub trait CallObserver: Debug + Send + Sync {
    /// A call of this path, such as `/example.v1.Health/Ping`, has ended.
    fn observe(&self, path: &'static str, code: Code, took: Duration);
}

/// A driver at an address. The traits of the services have the methods for its calls.
///
/// Clones share the connection, which is made at the first call and again after it broke.
#[derive(Clone, Debug)]
pub struct Client {
    address: Address,
    timeout: Duration,
    receive_limit: usize,
    observer: Option<Arc<dyn CallObserver>>,
    channel: Channel,
    /// How many connections have been made.
    connections: Arc<watch::Sender<u64>>,
}

impl Client {
    /// Makes no connection yet.
    ///
    /// # Panics
    ///
    /// If no runtime of tokio runs.
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

    /// Limits how long each call may take, connecting included. The default is 10 seconds.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Limits the size of an answer. The default is 4 MiB.
    pub fn with_receive_limit(mut self, bytes: usize) -> Self {
        self.receive_limit = bytes;
        self
    }

    /// Tells the observer about each call.
    pub fn with_observer(mut self, observer: impl CallObserver + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// The driver's address.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns when another connection is made after this call. The driver may be another one by then.
    pub fn reconnected(&self) -> impl Future<Output = ()> + Send + use<> {
        let connections = self.connections.clone();
        let mut made = connections.subscribe();
        async move {
            // The sender lives as long as this future.
            let _ = made.changed().await;
            drop(connections);
        }
    }

    /// Makes a call, such as `/example.v1.Health/Ping`. Request and answer are in the log at the level `trace`, so their `Debug` shows no secret.
    pub async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Error>
    where
        Q: Message + Debug + 'static,
        A: Message + Debug + Default + 'static,
    {
        tracing::trace!(method = path, ?request, "call");
        let started = Instant::now();
        let result = match tokio::time::timeout(self.timeout, self.send(path, request)).await {
            // A server of grpc-go resets the call at the deadline, maybe just before the timer here fires.
            Ok(Err(Error::Interrupted(_))) if started.elapsed() >= self.timeout => Err(Error::TimedOut(self.timeout)),
            Ok(result) => result,
            Err(_) => Err(Error::TimedOut(self.timeout)),
        };
        let code = result.as_ref().err().map_or(Code::Ok, Error::code);
        if let Some(observer) = &self.observer {
            observer.observe(path, code, started.elapsed());
        }
        match &result {
            Ok(answer) => tracing::trace!(method = path, ?answer, "answer"),
            Err(error) => tracing::debug!(method = path, code = code_name(code), %error, "call failed"),
        }
        result
    }

    async fn send<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Error>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        // tonic makes a status of any failure. The driver's own are those that came in headers.
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
            Err(status) => Err(self.unanswered(&status)),
        }
    }

    fn unanswered(&self, status: &Status) -> Error {
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

/// An error with its causes.
pub(crate) fn chain(error: &(dyn StdError + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    successors(Some(error), |&error| error.source())
}
