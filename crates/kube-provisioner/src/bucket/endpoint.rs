//! The address of a backend, as clients receive it.

use std::str::FromStr;

use tokio::net::TcpStream;

use crate::error::StartError;

/// The endpoint at which clients reach a bucket.
///
/// ```
/// use kube_provisioner::bucket::Endpoint;
///
/// let endpoint = Endpoint::https("s3.example.com").region("eu-1");
/// assert_eq!((endpoint.port, endpoint.tls), (443, true));
///
/// // Classes and flags name endpoints by URL.
/// assert_eq!("http://store:8080".parse(), Ok(Endpoint::http("store").port(8080)));
/// assert!("http://store:8080/s3".parse::<Endpoint>().is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Endpoint {
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// True if clients connect with TLS.
    pub tls: bool,
    /// The region, for backends that have regions.
    pub region: String,
    /// The part of the region, for backends that divide regions.
    pub sub_region: String,
}

impl Endpoint {
    /// Creates the endpoint of a host that serves HTTPS on port 443.
    pub fn https(host: impl Into<String>) -> Self {
        Self { host: host.into(), port: 443, tls: true, ..Self::default() }
    }

    /// Creates the endpoint of a host that serves HTTP on port 80.
    pub fn http(host: impl Into<String>) -> Self {
        Self { host: host.into(), port: 80, ..Self::default() }
    }

    /// Sets the port.
    #[must_use]
    pub fn port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// Sets the region.
    #[must_use]
    pub fn region(self, region: impl Into<String>) -> Self {
        Self { region: region.into(), ..self }
    }

    /// Sets the part of the region.
    #[must_use]
    pub fn sub_region(self, sub_region: impl Into<String>) -> Self {
        Self { sub_region: sub_region.into(), ..self }
    }

    /// Opens a connection without sending anything. Does nothing if the environment names a proxy, since a direct
    /// connection may then be impossible.
    ///
    /// # Errors
    /// If the endpoint accepts no connections.
    pub async fn connect(&self) -> Result<(), StartError> {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let proxies = if self.tls { ["HTTPS_PROXY", "https_proxy"] } else { ["HTTP_PROXY", "http_proxy"] };
        if proxies.into_iter().any(is_set) {
            return Ok(());
        }
        // The host contains the brackets of an IPv6 address.
        let connected = TcpStream::connect(format!("{}:{}", self.host, self.port)).await;
        connected.map(drop).map_err(|error| StartError::new(format!("cannot connect to {}: {error}", self.url())))
    }

    /// Returns the URL.
    pub fn url(&self) -> String {
        let (scheme, usual) = if self.tls { ("https", 443) } else { ("http", 80) };
        if self.port == usual {
            format!("{scheme}://{}", self.host)
        } else {
            format!("{scheme}://{}:{}", self.host, self.port)
        }
    }
}

/// The reason why a string is not the URL of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// It is not a URL with `http` or `https`, or it contains a user, a password or a query.
    #[error("expected an endpoint: http://HOST:PORT or https://HOST:PORT")]
    Malformed,
    /// It has a path. An [`Endpoint`] has none, and neither do the keys `BUCKET_HOST` and `BUCKET_PORT` that clients
    /// receive.
    #[error(
        "an endpoint has no path, because clients receive only its host and port: expected http://HOST:PORT or https://HOST:PORT"
    )]
    Path,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let malformed = EndpointError::Malformed;
        let url: http::Uri = text.parse().map_err(|_| malformed)?;
        let authority = url.authority().filter(|authority| !authority.as_str().contains('@')).ok_or(malformed)?;
        let endpoint = match url.scheme_str() {
            Some("https") => Self::https(authority.host()),
            Some("http") => Self::http(authority.host()),
            _ => return Err(malformed),
        };
        let port = match authority.as_str().strip_prefix(authority.host()) {
            Some("") => endpoint.port,
            _ => authority.port_u16().filter(|port| *port > 0).ok_or(malformed)?,
        };
        if authority.host().is_empty() || url.query().is_some() {
            return Err(malformed);
        }
        if !url.path().trim_end_matches('/').is_empty() {
            return Err(EndpointError::Path);
        }
        Ok(endpoint.port(port))
    }
}

crate::deserialize_from_str!(Endpoint);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_urls_without_a_path() {
        for (text, endpoint) in [
            ("http://store", Endpoint::http("store")),
            ("https://store/", Endpoint::https("store")),
            ("http://store:9000", Endpoint::http("store").port(9000)),
            ("https://[fd00::1]:3900/", Endpoint::https("[fd00::1]").port(3900)),
        ] {
            let parsed: Endpoint = text.parse().unwrap();
            assert_eq!(parsed, endpoint, "{text}");
            assert_eq!(parsed.url(), text.trim_end_matches('/'));
        }
        for text in [
            "",
            "store",
            "store:9000",
            "localhost:9000",
            "ftp://store",
            "http://",
            "http://store:",
            "http://store:70000",
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(EndpointError::Malformed), "{text}");
        }
        for text in ["http://store/s3", "http://store/s3/", "https://store:9000//s3"] {
            assert_eq!(text.parse::<Endpoint>(), Err(EndpointError::Path), "{text}");
        }
    }
}
