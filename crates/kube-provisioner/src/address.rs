//! Listen addresses in the notation of Go programs.

use std::net::{SocketAddr, ToSocketAddrs};

/// Parses a listen address such as `127.0.0.1:8080`, `localhost:8080`, or `:8080` for all addresses of the machine.
///
/// # Errors
/// A message for the command line that describes the expected form.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let full = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    let found = full.to_socket_addrs().map(|found| found.min_by_key(SocketAddr::is_ipv6));
    let problem = || format!("expected an address such as :8080 or localhost:8080, not {text:?}");
    found.map_err(|error| format!("{}: {error}", problem()))?.ok_or_else(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_addresses_like_go() {
        for (text, address) in [
            (":8080", "0.0.0.0:8080"),
            ("localhost:8202", "127.0.0.1:8202"),
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("[::1]:8080", "[::1]:8080"),
        ] {
            assert_eq!(parse_address(text), Ok(address.parse().unwrap()), "{text}");
        }
        for text in ["8080", "localhost", ":http:1", ":99999", ""] {
            assert!(parse_address(text).is_err_and(|error| error.starts_with("expected an address such as")), "{text}");
        }
    }
}
