//! Percent-encoding as Signature Version 4 wants it: all but the unreserved characters of RFC 3986, in upper case.

/// A path that is not encoded yet. Slashes stay.
pub(crate) fn path(text: &str) -> String {
    encode(text, true)
}

/// The name or the value of a query.
pub(crate) fn component(text: &str) -> String {
    encode(text, false)
}

/// The query of a request in its canonical form, which is sent as it is.
pub(crate) fn query(pairs: &[(String, String)]) -> String {
    let mut pairs: Vec<_> = pairs.iter().map(|(name, value)| (component(name), component(value))).collect();
    pairs.sort();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn encode(text: &str, slashes_stay: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte.into()),
            b'/' if slashes_stay => encoded.push('/'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(text: &str) -> Vec<u8> {
        let mut bytes = text.bytes();
        let mut decoded = Vec::new();
        while let Some(byte) = bytes.next() {
            let digit = |byte: Option<u8>| (byte.unwrap() as char).to_digit(16).unwrap() as u8;
            decoded.push(if byte == b'%' { digit(bytes.next()) * 16 + digit(bytes.next()) } else { byte });
        }
        decoded
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself_and_fits_an_address(text: String) {
            for encoded in [path(&text), component(&text)] {
                prop_assert_eq!(decode(&encoded), text.as_bytes());
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
