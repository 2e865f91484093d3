use std::time::Duration;

use super::*;

const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

struct Case<'a> {
    method: &'a str,
    path: &'a str,
    query: &'a [(&'a str, &'a str)],
    headers: &'a [(&'a str, &'a str)],
    body: &'a str,
}

const GET: Case<'_> = Case { method: "GET", path: "/", query: &[], headers: &[], body: "" };

/// The key, time and scope of AWS's test suite for Signature Version 4.
fn suite(case: Case<'_>) -> String {
    suite_by(Rule::General, case)
}

fn suite_by(rule: Rule, case: Case<'_>) -> String {
    let credentials = Credentials::new("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
    let scope =
        Scope { region: "us-east-1", service: "service", rule, time: UNIX_EPOCH + Duration::from_secs(1_440_938_160) };
    let fixed = [("host", "example.amazonaws.com"), ("x-amz-date", "20150830T123600Z")];
    signature(&credentials, scope, &case, &fixed, &sha256_hex(case.body.as_bytes()))
}

/// The key, time and scope of the examples in S3's documentation.
fn s3(case: Case<'_>, payload_hash: &str) -> String {
    let credentials = Credentials::new("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
    let scope = Scope {
        region: "us-east-1",
        service: "s3",
        rule: Rule::S3,
        time: UNIX_EPOCH + Duration::from_secs(1_369_353_600),
    };
    let fixed = [
        ("host", "examplebucket.s3.amazonaws.com"),
        ("x-amz-content-sha256", payload_hash),
        ("x-amz-date", "20130524T000000Z"),
    ];
    signature(&credentials, scope, &case, &fixed, payload_hash)
}

fn signature(
    credentials: &Credentials,
    scope: Scope<'_>,
    case: &Case<'_>,
    fixed: &[(&str, &str)],
    payload_hash: &str,
) -> String {
    let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let headers = [owned(fixed), owned(case.headers)].concat();
    let signable =
        Signable { method: case.method, path: case.path, query: &owned(case.query), headers: &headers, payload_hash };
    let header = authorization(credentials, scope, signable);
    header.rsplit_once("Signature=").unwrap().1.to_owned()
}

#[test]
fn the_test_suite_of_aws() {
    let vanilla = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
    assert_eq!(suite(GET), vanilla);
    for same in ["//", "/./", "/example/..", "/example1/example2/../.."] {
        assert_eq!(suite(Case { path: same, ..GET }), vanilla, "{same}");
    }
    let ordered = Case { query: &[("Param2", "value2"), ("Param1", "value1")], ..GET };
    assert_eq!(suite(ordered), "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
    let unreserved = "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    assert_eq!(
        suite(Case { path: unreserved, ..GET }),
        "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"
    );
    // The suite takes these paths for what is sent, so they are encoded once.
    let once = |path| suite_by(Rule::S3, Case { path, ..GET });
    assert_eq!(once("/\u{1234}"), "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85");
    assert_eq!(once("/example space/"), "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741");
    assert_eq!(canonical_path("/example space", Rule::General), "/example%2520space");
    let trim = Case { headers: &[("My-Header1", " value1"), ("My-Header2", " \"a   b   c\"")], ..GET };
    assert_eq!(suite(trim), "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736");
}

#[test]
fn posts_of_the_test_suite_of_aws() {
    let post = Case { method: "POST", ..GET };
    assert_eq!(suite(post), "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
    let form = Case {
        method: "POST",
        headers: &[("content-type", "application/x-www-form-urlencoded")],
        body: "Param1=value1",
        ..GET
    };
    assert_eq!(suite(form), "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a");
    let token = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";
    let session = Case { method: "POST", headers: &[("x-amz-security-token", token)], ..GET };
    assert_eq!(suite(session), "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead");
}

#[test]
fn the_examples_of_s3() {
    let get = Case { path: "/test.txt", headers: &[("range", "bytes=0-9")], ..GET };
    assert_eq!(s3(get, EMPTY), "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    let put = Case {
        method: "PUT",
        path: "/test$file.text",
        headers: &[("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")],
        ..GET
    };
    let hash = sha256_hex(b"Welcome to Amazon S3.");
    assert_eq!(s3(put, &hash), "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    let lifecycle = Case { query: &[("lifecycle", "")], ..GET };
    assert_eq!(s3(lifecycle, EMPTY), "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    let list = Case { query: &[("max-keys", "2"), ("prefix", "J")], ..GET };
    assert_eq!(s3(list, EMPTY), "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

#[test]
fn secrets_are_not_printed() {
    let mut credentials = Credentials::new("AKID", "hidden");
    credentials.session_token = Some("hidden too".to_owned());
    assert_eq!(format!("{credentials:?}"), "Credentials { access_key_id: \"AKID\", .. }");
}
