//! Connections, and their graceful shutdown.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::App;
use super::request::answer;

/// Grace period for pending requests at shutdown.
const GRACE: Duration = Duration::from_secs(1);
/// Timeout of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Pause after a failure to accept, such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves until `end` resolves.
pub(super) async fn serve(listener: TcpListener, app: &Arc<App>, end: impl Future<Output = ()>) {
    let mut end = pin!(end);
    let (stop, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = &mut end => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(accepted_one(stream, Arc::clone(app), stopped.clone()))),
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    stop.send_replace(true);
    let all = async { while connections.join_next().await.is_some() {} };
    // Only watches remain, which do not end on their own.
    let _ = tokio::time::timeout(GRACE, all).await;
}

async fn accepted_one(stream: TcpStream, app: Arc<App>, stopped: watch::Receiver<bool>) {
    // Answers are small, and clients wait for each of them.
    let _ = stream.set_nodelay(true);
    match &app.tls {
        None => connection(stream, app, stopped).await,
        Some(tls) => {
            // Drops peers that do not speak TLS or do not trust the certificate.
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, tls.acceptor.accept(stream)).await {
                connection(stream, app, stopped).await;
            }
        }
    }
}

async fn connection<S>(stream: S, app: Arc<App>, mut stopped: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| answer(Arc::clone(&app), request));
    let connection = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // Errors are caused by the peer: it disconnected, or does not speak HTTP.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopped.wait_for(|stopped| *stopped) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
