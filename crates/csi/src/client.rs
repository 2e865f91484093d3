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
use crate::messages::ProbeRequest;
use crate::metrics::Operations;
use crate::services::Identity;

/// How long a call may take unless the caller says otherwise: the sidecars' default.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What grpc-go reads by default.
const RECEIVE_LIMIT: usize = 4 << 20;
/// A status is in headers. Drivers put whole outputs of commands there.
const HEADER_LIMIT: u32 = 1 << 20;
/// How long the sidecars try to connect at the start, and how often they ask.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// How often a driver that is not there is mentioned in the log.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// A driver at an address. The services are the traits [`Identity`], [`Controller`](crate::Controller) and [`Node`](crate::Node).
///
/// Clones share the connection, which is made at the first call and again after it broke.
#[derive(Clone, Debug)]
pub struct Client {
    address: Address,
    timeout: Duration,
    receive_limit: usize,
    operations: Option<Operations>,
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
        Self { address, timeout: TIMEOUT, receive_limit: RECEIVE_LIMIT, operations: None, channel, connections }
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

    /// Measures the calls.
    pub fn with_metrics(mut self, operations: Operations) -> Self {
        self.operations = Some(operations);
        self
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

    /// Connects and probes until the driver is ready.
    ///
    /// Waits 30 seconds for a socket, and without end for a driver that is not ready or does not answer in time. Any other error is final.
    pub async fn wait_until_ready(&self) -> Result<(), Error> {
        let started = Instant::now();
        let mut next_log = started;
        let mut ticks = tokio::time::interval(PROBE_INTERVAL);
        loop {
            ticks.tick().await;
            let reason = match self.probe(ProbeRequest {}).await {
                Ok(answer) if answer.ready.unwrap_or(true) => return Ok(()),
                Ok(_) => "it is not ready".to_owned(),
                Err(error @ Error::Unreachable { .. }) if started.elapsed() < CONNECT_PATIENCE => error.to_string(),
                Err(error) if error.code() == Code::DeadlineExceeded => error.to_string(),
                Err(error) => return Err(error),
            };
            if Instant::now() >= next_log {
                tracing::info!(address = %self.address, %reason, "waiting for the CSI driver");
                next_log += LOG_INTERVAL;
            }
        }
    }

    pub(crate) async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Error>
    where
        Q: Message + Debug + 'static,
        A: Message + Debug + Default + 'static,
    {
        tracing::trace!(method = path, ?request, "CSI call");
        let started = Instant::now();
        let result = match tokio::time::timeout(self.timeout, self.send(path, request)).await {
            // A server of grpc-go resets the call at the deadline, maybe just before the timer here fires.
            Ok(Err(Error::Interrupted(_))) if started.elapsed() >= self.timeout => Err(Error::TimedOut(self.timeout)),
            Ok(result) => result,
            Err(_) => Err(Error::TimedOut(self.timeout)),
        };
        let code = result.as_ref().err().map_or(Code::Ok, Error::code);
        if let Some(operations) = &self.operations {
            operations.observe(path, code, started.elapsed());
        }
        match &result {
            Ok(answer) => tracing::trace!(method = path, ?answer, "CSI answer"),
            Err(error) => tracing::debug!(method = path, code = code_name(code), %error, "CSI call failed"),
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
