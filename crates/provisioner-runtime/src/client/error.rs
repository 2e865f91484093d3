//! Connection errors: one line that suggests a remedy and never contains a token.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use kube::client::AuthError;
use kube::config::{InClusterError, KubeconfigError};

/// The reason why there is no connection: complete sentences in one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(String);

/// The server and the source of its address.
pub(super) struct Origin {
    pub(super) server: String,
    pub(super) source: String,
}

impl Origin {
    /// Creates the error for connection data that no client can be built from.
    pub(super) fn unusable(&self, error: &kube::Error) -> ConnectError {
        let (reason, advice) = match error {
            kube::Error::Auth(error) => (credentials(error), "Correct it"),
            kube::Error::ProxyProtocolDisabled { .. } | kube::Error::ProxyProtocolUnsupported { .. } => {
                let reason = "its proxy, or the one that HTTPS_PROXY names, is not supported".to_owned();
                (reason, "Connect without a proxy")
            }
            error => (causes(error), "Correct it"),
        };
        config(&self.source, &reason, advice)
    }

    /// Creates the error for a first request that failed.
    pub(super) fn refused(&self, error: kube::Error) -> ConnectError {
        let Self { server, source: origin } = self;
        let error = match error {
            kube::Error::Api(status) => {
                let reason = one_line(&status.message);
                return ConnectError(match status.code {
                    401 | 403 => format!(
                        "The API server {server} does not accept the credentials of {origin}: {reason}. Renew them."
                    ),
                    _ => format!("The API server {server} of {origin} does not work: {reason}. Check the server."),
                });
            }
            kube::Error::Auth(error) => return config(origin, &credentials(&error), "Correct it"),
            kube::Error::Service(error) => match error.downcast::<AuthError>() {
                Ok(error) => return config(origin, &credentials(&error), "Correct it"),
                Err(error) => error,
            },
            error => Box::new(error),
        };
        let reason = causes(&*error);
        match find_tls_error(&*error) {
            Some(rustls::Error::InvalidCertificate(_)) => ConnectError(format!(
                "The API server {server} of {origin} is not trusted: {reason}. Check that the certificate authority there is the \
                 one of this server, and that the address is in the server's certificate."
            )),
            _ => self.unreachable(&reason),
        }
    }

    /// Creates the error for a first request without a response.
    pub(super) fn silent(&self, limit: Duration) -> ConnectError {
        self.unreachable(&format!("no answer within {limit:?}"))
    }

    fn unreachable(&self, reason: &str) -> ConnectError {
        let Self { server, source: origin } = self;
        ConnectError(format!(
            "The API server {server} of {origin} cannot be reached: {reason}. Check the address, and that the network lets the \
             connection through."
        ))
    }
}

pub(super) fn no_cluster(home: Option<PathBuf>) -> ConnectError {
    let home = home.map_or("~/.kube/config".to_owned(), |path| path.display().to_string());
    ConnectError(format!(
        "There is no cluster to connect to: no kubeconfig was given, KUBECONFIG is not set, this is not a pod, and {home} does \
         not exist. Name a kubeconfig, or run in a pod with a service account."
    ))
}

pub(super) fn service_account(origin: &str, error: &InClusterError) -> ConnectError {
    let advice = "Give the pod a service account, and do not turn off automountServiceAccountToken";
    config(origin, &causes(error), advice)
}

pub(super) fn kubeconfig(origin: &str, error: &KubeconfigError) -> ConnectError {
    let reason = match error {
        // The parser quotes the lines around the mistake, and the file contains tokens.
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => format!("it is not valid at line {}, column {}", at.line(), at.column()),
            None => "it is not valid YAML of a kubeconfig".to_owned(),
        },
        error => causes(error),
    };
    config(origin, &reason, "Correct it, or name another")
}

fn config(origin: &str, reason: &str, advice: &str) -> ConnectError {
    let mut letters = origin.chars();
    let origin: String = letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect();
    ConnectError(format!("{origin} cannot be used: {reason}. {advice}."))
}

/// Describes the problem with the credentials. A plugin's output may contain them, so it is not quoted.
fn credentials(error: &AuthError) -> String {
    match error {
        AuthError::AuthExecRun { cmd, out } => {
            format!("its command {cmd} for credentials failed ({})", out.status)
        }
        AuthError::AuthExecParse(_) => "its command for credentials returned something else".to_owned(),
        error => causes(error),
    }
}

fn causes(error: &(dyn Error + 'static)) -> String {
    one_line(&crate::error_text::error_chain(error))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").trim_end_matches('.').to_owned()
}

fn find_tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return Some(error);
        }
        // An I/O error returns the source of the error it wraps, so get the wrapped error itself.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    None
}
