//! [Signature Version 4](https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html) of S3 requests.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ring::digest::{SHA256, digest};
use ring::hmac;

/// The parts of a request that a signature covers.
#[derive(Clone, Copy, Debug)]
pub struct Signable<'a> {
    /// The method in upper case.
    pub method: &'a str,
    /// The path, not encoded.
    pub path: &'a str,
    /// The query parameters, not encoded.
    pub query: &'a [(String, String)],
    /// The headers, sorted by their lower-case names. Must include `x-amz-date` and `x-amz-content-sha256`.
    pub headers: &'a [(String, String)],
}

/// Returns the value of the header `authorization`, for a key's id and secret. Returns `None` if a header that each
/// signature must cover is missing.
pub fn authorization((id, secret): (&str, &str), region: &str, signable: Signable<'_>) -> Option<String> {
    const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    const PATH: &AsciiSet = &COMPONENT.remove(b'/');
    let Signable { method, path, query, headers } = signable;
    let header = |name: &str| headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
    let (time, payload_hash) = (header("x-amz-date")?, header("x-amz-content-sha256")?);
    let day = time.get(..8)?;

    let path = utf8_percent_encode(path, PATH).to_string();
    let encoded = |text: &String| utf8_percent_encode(text, COMPONENT).to_string();
    let mut query: Vec<_> = query.iter().map(|(name, value)| (encoded(name), encoded(value))).collect();
    query.sort();
    let query: Vec<_> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let names: Vec<_> = headers.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(";");
    let headers: String = headers.iter().map(|(name, value)| format!("{name}:{}\n", trimmed(value))).collect();
    let request = [method, &path, &query.join("&"), &headers, &names, payload_hash].join("\n");

    let scope = format!("{day}/{region}/s3/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", sha256_hex(request.as_bytes()));
    let hmac = |key: &[u8], text: &str| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
    let first = hmac(format!("AWS4{secret}").as_bytes(), day);
    let key = [region, "s3", "aws4_request"].iter().fold(first, |key, part| hmac(key.as_ref(), part));
    let signature = hex(hmac(key.as_ref(), &text).as_ref());
    Some(format!("AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}"))
}

/// Returns the SHA-256 of these bytes in hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Trims a header's value and collapses consecutive blanks.
fn trimmed(value: &str) -> String {
    value.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples from AWS's page about signatures in headers.
    #[test]
    fn reproduces_the_signatures_of_the_aws_examples() {
        const KEY: (&str, &str) = ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
        let signature = |method, path, query: &[(&str, &str)], headers: &[(&str, &str)]| {
            let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
                pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
            };
            let signable = Signable { method, path, query: &owned(query), headers: &owned(headers) };
            let header = authorization(KEY, "us-east-1", signable)?;
            Some(header.rsplit_once('=')?.1.to_owned())
        };
        let host = ("host", "examplebucket.s3.amazonaws.com");
        let empty = sha256_hex(b"");
        let (none, date) = (("x-amz-content-sha256", empty.as_str()), ("x-amz-date", "20130524T000000Z"));

        let range = ("range", "bytes=0-9");
        let get = signature("GET", "/test.txt", &[], &[host, range, none, date]).unwrap();
        assert_eq!(get, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");

        let sum = sha256_hex(b"Welcome to Amazon S3.");
        let put_headers = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            host,
            ("x-amz-content-sha256", &sum),
            date,
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ];
        let put = signature("PUT", "/test$file.text", &[], &put_headers).unwrap();
        assert_eq!(put, "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");

        let lifecycle = signature("GET", "/", &[("lifecycle", "")], &[host, none, date]).unwrap();
        assert_eq!(lifecycle, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
        let list = signature("GET", "/", &[("prefix", "J"), ("max-keys", "2")], &[host, none, date]).unwrap();
        assert_eq!(list, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");

        assert_eq!(signature("GET", "/", &[], &[host, none]), None);
    }
}
