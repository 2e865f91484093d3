//! Percent-encoding as Signature Version 4 wants it: all but the unreserved characters of RFC 3986, in upper case.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A path that is not encoded yet. Slashes stay.
pub(crate) fn path(text: &str) -> String {
    const RESERVED_IN_PATHS: &AsciiSet = &RESERVED.remove(b'/');
    utf8_percent_encode(text, RESERVED_IN_PATHS).to_string()
}

/// The name or the value of a query.
pub(crate) fn component(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// The query of a request in its canonical form, which is sent as it is.
pub(crate) fn query(pairs: &[(String, String)]) -> String {
    let mut pairs: Vec<_> = pairs.iter().map(|(name, value)| (component(name), component(value))).collect();
    pairs.sort();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

/// A name as lists of S3 have it. S3 writes a blank as `+`, and other services as `%20`.
pub(crate) fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_in_lists() {
        for (text, name) in [("a%01b", "a\u{1}b"), ("a+b%2Bc", "a b+c"), ("%C3%BC/%20", "ü/ "), ("100%", "100%")] {
            assert_eq!(decoded(text), name);
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself_and_fits_an_address(text: String) {
            for encoded in [path(&text), component(&text)] {
                prop_assert_eq!(decoded(&encoded), text.as_str());
                let uri = format!("http://host/{encoded}?{encoded}").parse::<http::Uri>();
                prop_assert!(uri.is_ok());
            }
            prop_assert!(!component(&text).contains(['/', '+', '&', '=', ' ']));
        }

        #[test]
        fn the_order_of_a_query_does_not_matter(mut pairs: Vec<(String, String)>) {
            let sent = query(&pairs);
            pairs.reverse();
            prop_assert_eq!(sent, query(&pairs));
        }
    }
}
