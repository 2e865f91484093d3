//! The client against a server in this process that answers what services have answered, or against a real service where
//! `S3_TEST_ENDPOINT` names one (with `S3_TEST_ACCESS_KEY` and `S3_TEST_SECRET_KEY`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::{Method, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use s3_client::lifecycle::Lifecycle;
use s3_client::policy::{Policy, allow};
use s3_client::{Client, Credentials, Error, NewBucket, ObjectVersion, Request, Settings, SettingsError};
use tokio::net::TcpListener;

/// What the server got: method with path and query, headers, body.
type Seen = Arc<Mutex<Vec<(String, http::HeaderMap, String)>>>;

/// A server that gives these answers one after the other.
async fn server(answers: &[(u16, &str)]) -> (Settings, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = Settings::new(format!("http://{}", listener.local_addr().unwrap()));
    let answers: VecDeque<(u16, String)> = answers.iter().map(|(status, body)| (*status, (*body).to_owned())).collect();
    let (answers, seen) = (Arc::new(Mutex::new(answers)), Seen::default());
    let log = seen.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (answers, log) = (answers.clone(), log.clone());
            let service = service_fn(move |request: http::Request<Incoming>| {
                let (answers, log) = (answers.clone(), log.clone());
                async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    let line = format!("{} {}", parts.method, parts.uri);
                    log.lock().unwrap().push((line, parts.headers, String::from_utf8_lossy(&body).into_owned()));
                    let (status, body) = answers.lock().unwrap().pop_front().unwrap_or((500, String::new()));
                    Response::builder().status(status).body(Full::new(Bytes::from(body)))
                }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (settings, seen)
}

fn client(settings: Settings) -> Client {
    Client::new(settings, Credentials::new("AKID", "hidden")).unwrap()
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn lines(seen: &Seen) -> Vec<String> {
    seen.lock().unwrap().iter().map(|(line, ..)| line.clone()).collect()
}

#[tokio::test]
async fn what_is_signed_is_what_is_sent() {
    let (mut settings, seen) = server(&[(200, ""), (200, "")]).await;
    settings.clock = || UNIX_EPOCH + Duration::from_secs(1_440_938_160);
    let mut credentials = Credentials::new("AKID", "hidden");
    credentials.session_token = Some("token".to_owned());
    let s3 = Client::new(settings, credentials).unwrap();
    s3.put_object("photos", "a b/ü+?#", "hello").await.unwrap();
    s3.request(Request::new(Method::GET, "/admin/user").query("uid", "a&b").query("quota", "")).await.unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0].0, "PUT /photos/a%20b/%C3%BC%2B%3F%23");
    assert_eq!(seen[0].2, "hello");
    assert_eq!(seen[0].1["x-amz-date"], "20150830T123600Z");
    assert_eq!(seen[0].1["x-amz-security-token"], "token");
    let sum = s3_client::sign::sha256_hex(b"hello");
    assert_eq!(seen[0].1["x-amz-content-sha256"], sum.as_str());
    let start = "AWS4-HMAC-SHA256 Credential=AKID/20150830/us-east-1/s3/aws4_request, \
        SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token, Signature=";
    assert!(seen[0].1["authorization"].to_str().unwrap().starts_with(start));
    assert_eq!(seen[1].0, "GET /admin/user?quota=&uid=a%26b");
}

#[tokio::test]
async fn errors_by_meaning() {
    let html = "<html><body><h1>502 Bad Gateway</h1></body></html>";
    let echo =
        "<Error><Code>SignatureDoesNotMatch</Code><Message>hidden</Message><StringToSign>hidden</StringToSign></Error>";
    let (settings, _) = server(&[(502, html), (200, html), (403, echo), (404, "")]).await;
    let endpoint = settings.endpoint.clone();
    let s3 = client(settings);
    let not_s3 = |status| Error::NotS3 { endpoint: endpoint.clone(), status };
    assert_eq!(s3.list_buckets().await.unwrap_err(), not_s3(502));
    assert_eq!(s3.list_buckets().await.unwrap_err(), not_s3(200));
    let refused = s3.list_buckets().await.unwrap_err();
    assert_eq!(refused.to_string(), "403 SignatureDoesNotMatch");
    assert!(!format!("{refused:?} {s3:?}").contains("hidden"));
    assert!(!s3.bucket_exists("none").await.unwrap());

    let down = client(Settings::new("http://127.0.0.1:1")).list_buckets().await.unwrap_err();
    assert!(matches!(&down, Error::Unreachable { reason, .. } if reason.contains("refused")), "{down}");
}

#[tokio::test]
async fn what_fails_for_a_moment_is_sent_again_where_that_is_safe() {
    let busy = "<Error><Code>SlowDown</Code></Error>";
    let broken = "<Error><Code>InternalError</Code></Error>";
    let answers =
        [(503, busy), (429, ""), (200, ""), (500, broken), (200, ""), (500, broken), (502, "<html>"), (500, broken)];
    let (mut settings, seen) = server(&answers).await;
    settings.repeats = true;
    let s3 = client(settings);
    // Nothing was done, so anything can be sent again.
    s3.create_bucket("photos", None).await.unwrap();
    assert_eq!(lines(&seen), ["PUT /photos"; 3]);
    s3.delete_bucket("photos").await.unwrap();
    assert_eq!(s3.delete_bucket("photos").await.unwrap_err().code(), "InternalError");
    assert_eq!(lines(&seen)[3..], ["DELETE /photos"; 5]);
}

#[tokio::test]
async fn a_bucket_that_somebody_may_make_meanwhile_is_asked_for_once() {
    let (mut settings, seen) = server(&[(503, "<Error><Code>SlowDown</Code></Error>"), (200, "")]).await;
    settings.repeats = true;
    let new = NewBucket { once: true, ..NewBucket::default() };
    let refused = client(settings).create_bucket_with("photos", new).await.unwrap_err();
    assert!(refused.is_refusal(), "{refused}");
    assert_eq!(lines(&seen), ["PUT /photos"]);
}

#[tokio::test]
async fn what_may_have_been_done_is_not_sent_again() {
    let (mut settings, seen) = server(&[(500, "<Error><Code>InternalError</Code></Error>")]).await;
    settings.repeats = true;
    assert_eq!(client(settings).create_bucket("photos", None).await.unwrap_err().code(), "InternalError");
    assert_eq!(lines(&seen), ["PUT /photos"]);
}

#[tokio::test]
async fn answers_are_bounded_in_length_and_time() {
    let long = "x".repeat(5000);
    let (mut settings, _) = server(&[(200, &long)]).await;
    settings.answer_limit = 4999;
    let s3 = client(settings);
    assert!(matches!(s3.get_object("b", "k").await, Err(Error::TooLarge { limit: 4999, .. })));

    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let s3 = client(Settings::new(format!("http://{}", silent.local_addr().unwrap())));
    tokio::time::pause();
    let error = s3.with_time_limit(Duration::from_secs(3)).list_buckets().await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { limit, .. } if limit == Duration::from_secs(3)), "{error}");
}

#[tokio::test]
async fn settings_that_make_no_sense() {
    let refused = |endpoint: &str, ca: Option<&str>| {
        let mut settings = Settings::new(endpoint);
        settings.ca_bundle = ca.map(|ca| ca.as_bytes().to_vec());
        Client::new(settings, Credentials::new("", "")).unwrap_err()
    };
    for endpoint in ["", "host:80", "ftp://host", "http://user:hidden@host", "http://host/?x"] {
        assert!(matches!(refused(endpoint, None), SettingsError::Endpoint(_)), "{endpoint}");
    }
    for ca in ["", "oops", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        assert!(matches!(refused("https://host", Some(ca)), SettingsError::CaBundle(_)), "{ca}");
    }
}

#[tokio::test]
async fn a_bucket_is_emptied_page_by_page() {
    let page = "<ListVersionsResult><IsTruncated>true</IsTruncated><NextKeyMarker>b</NextKeyMarker>\
        <Version><Key>a&amp;</Key><VersionId>1</VersionId></Version>\
        <DeleteMarker><Key>b</Key><VersionId>null</VersionId></DeleteMarker></ListVersionsResult>";
    let last = "<ListVersionsResult><Version><Key>c</Key></Version></ListVersionsResult>";
    let none = "<ListVersionsResult/>";
    let uploads = "<ListMultipartUploadsResult><Upload><Key>d</Key><UploadId>2~x</UploadId></Upload>\
        </ListMultipartUploadsResult>";
    let gone = "<DeleteResult><Error><Key>a</Key><Code>NoSuchVersion</Code></Error></DeleteResult>";
    let no_uploads = "<ListMultipartUploadsResult/>";
    let answers = [page, gone, last, "<DeleteResult/>", none, uploads, "", no_uploads].map(|body| (200, body));
    let (settings, seen) = server(&answers).await;
    client(settings).empty_bucket("b").await.unwrap();
    let list = "GET /b?encoding-type=url&prefix=&versions=";
    let (delete, uploads) = ("POST /b?delete=", "GET /b?encoding-type=url&uploads=");
    assert_eq!(lines(&seen), [list, delete, list, delete, list, uploads, "DELETE /b/d?uploadId=2~x", uploads]);
    let seen = seen.lock().unwrap();
    assert_eq!(
        seen[1].2,
        "<Delete><Object><Key>a&amp;</Key><VersionId>1</VersionId></Object><Object><Key>b</Key>\
         <VersionId>null</VersionId></Object><Quiet>true</Quiet></Delete>"
    );
    assert!(seen[1].1.contains_key("content-md5"));
}

#[tokio::test]
async fn an_object_that_stays_is_an_error() {
    let locked = "<DeleteResult><Error><Key>a</Key><Code>AccessDenied</Code></Error></DeleteResult>";
    let (settings, _) = server(&[(200, locked)]).await;
    let versions = [ObjectVersion { key: "a".to_owned(), version_id: None }];
    let error = client(settings).delete_objects("b", &versions).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot delete the object \"a\": AccessDenied");
}

#[tokio::test]
async fn lists_go_on_where_they_ended() {
    let first = "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t/1</NextContinuationToken>\
        <Contents><Key>a</Key><Size>3</Size></Contents></ListBucketResult>";
    let (settings, seen) = server(&[(200, first), (200, "<ListBucketResult/>")]).await;
    let s3 = client(settings);
    let page = s3.list_objects_v2("b", "p/", None).await.unwrap();
    assert_eq!((page.items[0].key.as_str(), page.items[0].size), ("a", 3));
    let end = s3.list_objects_v2("b", "p/", page.next.as_deref()).await.unwrap();
    assert_eq!((end.items.len(), end.next), (0, None));
    let [start, next] = ["", "continuation-token=t%2F1&"]
        .map(|token| format!("GET /b?{token}encoding-type=url&list-type=2&prefix=p%2F"));
    assert_eq!(lines(&seen), [start, next]);
}

/// XML has no way to write some characters.
#[tokio::test]
async fn names_with_control_characters_are_read_and_deleted() {
    let page = "<ListVersionsResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>\
        <NextKeyMarker>a%01b</NextKeyMarker><NextVersionIdMarker>2+x</NextVersionIdMarker>\
        <Version><Key>a%01b</Key><VersionId>1</VersionId></Version>\
        <DeleteMarker><Key>a%01b</Key><VersionId>2+x</VersionId></DeleteMarker>\
        <Version><Key>c+d%2B%09</Key><VersionId>3</VersionId></Version></ListVersionsResult>";
    let locked = "<Error><Code>AccessDenied</Code></Error>";
    let (settings, seen) = server(&[(200, page), (200, "<DeleteResult/>"), (204, ""), (403, locked)]).await;
    let s3 = client(settings);
    let page = s3.list_object_versions("b", "", None).await.unwrap();
    let keys: Vec<&str> = page.items.iter().map(|version| version.key.as_str()).collect();
    assert_eq!(keys, ["a\u{1}b", "a\u{1}b", "c d+\t"]);
    assert_eq!(page.next.unwrap(), [("key-marker", "a\u{1}b"), ("version-id-marker", "2+x")].map(owned));
    let error = s3.delete_objects("b", &page.items).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot delete the object \"a\\u{1}b\": AccessDenied");
    let seen = seen.lock().unwrap();
    assert!(seen[1].2.starts_with("<Delete><Object><Key>c d+&#9;</Key>"), "{}", seen[1].2);
    let lines: Vec<&str> = seen[1..].iter().map(|(line, ..)| line.as_str()).collect();
    let singly = ["DELETE /b/a%01b?versionId=1", "DELETE /b/a%01b?versionId=2%2Bx"];
    assert_eq!(lines, ["POST /b?delete=", singly[0], singly[1]]);
}

#[tokio::test]
async fn what_a_service_does_not_delete_together_is_deleted_one_by_one() {
    let answer = |code: &str| format!("<Error><Code>{code}</Code></Error>");
    for (status, body) in [(400, answer("MalformedXML")), (501, answer("NotImplemented")), (500, "<html>".to_owned())] {
        let refusal = (status, body.as_str());
        let gone = (404, "<Error><Code>NoSuchVersion</Code></Error>");
        let (settings, seen) = server(&[refusal, (204, ""), gone]).await;
        let versions = [("a", Some("1")), ("b", None)]
            .map(|(key, version)| ObjectVersion { key: key.to_owned(), version_id: version.map(str::to_owned) });
        client(settings).delete_objects("b", &versions).await.unwrap();
        assert_eq!(lines(&seen), ["POST /b?delete=", "DELETE /b/a?versionId=1", "DELETE /b/b"]);
    }
}

#[tokio::test]
async fn a_bucket_is_made_with_its_tags() {
    let controls =
        "<OwnershipControls><Rule><ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule></OwnershipControls>";
    let none = "<Error><Code>OwnershipControlsNotFoundError</Code></Error>";
    let (settings, seen) = server(&[(200, ""), (200, ""), (200, controls), (404, none)]).await;
    let s3 = client(settings);
    let tags = [("claim".to_owned(), "a & b".to_owned())].into();
    let new = NewBucket { tags: Some(&tags), ownership: Some("BucketOwnerEnforced"), ..NewBucket::default() };
    s3.create_bucket_with("photos", new).await.unwrap();
    s3.create_bucket_with("photos", NewBucket { location: Some("eu"), object_lock: true, ..new }).await.unwrap();
    assert_eq!(s3.bucket_ownership("photos").await.unwrap().as_deref(), Some("BucketOwnerEnforced"));
    assert_eq!(s3.bucket_ownership("photos").await.unwrap(), None);
    let seen = seen.lock().unwrap();
    let tags = "<Tags><Tag><Key>claim</Key><Value>a &amp; b</Value></Tag></Tags>";
    let [first, second] = ["", "<LocationConstraint>eu</LocationConstraint>"]
        .map(|location| format!("<CreateBucketConfiguration>{location}{tags}</CreateBucketConfiguration>"));
    assert_eq!([&seen[0].2, &seen[1].2], [&first, &second]);
    assert_eq!(seen[0].1["x-amz-object-ownership"], "BucketOwnerEnforced");
    assert!(!seen[0].1.contains_key("x-amz-bucket-object-lock-enabled"));
    assert_eq!(seen[1].1["x-amz-bucket-object-lock-enabled"], "true");
    assert_eq!(seen[2].0, "GET /photos?ownershipControls=");
}

#[tokio::test]
async fn all_operations_on_a_real_service() {
    let variable = |name: &str| std::env::var(format!("S3_TEST_{name}")).ok();
    let Some(endpoint) = variable("ENDPOINT") else { return };
    let [id, secret] = ["ACCESS_KEY", "SECRET_KEY"].map(|name| variable(name).unwrap());
    let s3 = Client::new(Settings::new(endpoint), Credentials::new(id, secret)).unwrap();
    let name = &format!("s3-client-{}", std::process::id());
    s3.create_bucket(name, None).await.unwrap();
    assert!(s3.bucket_exists(name).await.unwrap());
    assert!(s3.list_buckets().await.unwrap().iter().any(|bucket| bucket.name == *name));

    let mut policy = Policy::default();
    assert!(s3.bucket_policy(name).await.unwrap().unwrap().is_empty());
    policy.upsert(allow("all", "*", &["s3:GetObject"], &[&format!("arn:aws:s3:::{name}/*")]));
    s3.put_bucket_policy(name, &policy).await.unwrap();
    assert!(s3.bucket_policy(name).await.unwrap().unwrap().same_as(&policy));
    s3.put_bucket_policy(name, &Policy::default()).await.unwrap();
    assert!(s3.bucket_policy(name).await.unwrap().unwrap().is_empty());

    let rules = r#"{"Rules":[{"Status":"Enabled","Filter":{"Prefix":"a & b/"},"Expiration":{"Days":3},
         "AbortIncompleteMultipartUpload":{"DaysAfterInitiation":1}},
        {"ID":"b","Status":"Enabled","Filter":{"And":{"Prefix":"c/","Tags":[{"Key":"k","Value":"v"}]}},
         "NoncurrentVersionExpiration":{"NoncurrentDays":2}}]}"#;
    let lifecycle = Lifecycle::parse(rules).unwrap();
    assert!(s3.bucket_lifecycle(name).await.unwrap().is_empty());
    s3.put_bucket_lifecycle(name, &lifecycle).await.unwrap();
    let live = s3.bucket_lifecycle(name).await.unwrap();
    assert!(lifecycle.same_as(&live), "{live:?}");
    s3.put_bucket_lifecycle(name, &Lifecycle::default()).await.unwrap();
    assert!(s3.bucket_lifecycle(name).await.unwrap().is_empty());

    let tags = [("claim".to_owned(), "a <b>".to_owned())].into();
    s3.put_bucket_tagging(name, &tags).await.unwrap();
    assert_eq!(s3.bucket_tagging(name).await.unwrap(), tags);
    s3.put_bucket_versioning(name, true).await.unwrap();
    assert!(s3.bucket_versioning(name).await.unwrap());

    for key in ["plain", "a b+c/ü&<>", "../..//x", "100%", "a\u{1}b"] {
        for body in ["one", "two"] {
            s3.put_object(name, key, body).await.unwrap();
        }
        assert_eq!(s3.get_object(name, key).await.unwrap().unwrap(), "two", "{key}");
        assert!(s3.object_exists(name, key).await.unwrap());
    }
    assert_eq!(s3.list_objects_v2(name, "", None).await.unwrap().items.len(), 5);
    s3.delete_object(name, "plain").await.unwrap();
    assert_eq!(s3.get_object(name, "plain").await.unwrap(), None);
    let upload = Request::new(Method::POST, format!("/{name}/big")).query("uploads", "");
    s3.request(upload).await.unwrap();
    assert_eq!(s3.list_multipart_uploads(name, None).await.unwrap().items.len(), 1);
    assert_eq!(s3.list_object_versions(name, "", None).await.unwrap().items.len(), 11);
    assert_eq!(s3.delete_bucket(name).await.unwrap_err().code(), "BucketNotEmpty");
    s3.empty_bucket(name).await.unwrap();
    assert!(s3.delete_bucket(name).await.unwrap());
    assert!(!s3.delete_bucket(name).await.unwrap());
    assert!(!s3.bucket_exists(name).await.unwrap());
}

#[tokio::test]
async fn a_certificate_of_the_bundle_is_trusted_and_no_other() {
    let [trusted, other] = [(); 2].map(|()| rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = rustls::pki_types::PrivateKeyDer::try_from(trusted.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![trusted.cert.der().clone()], key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let list = Bytes::from("<ListAllMyBucketsResult/>");
            let service = service_fn(move |_| {
                let answer = Response::new(Full::new(list.clone()));
                async move { Ok::<_, std::convert::Infallible>(answer) }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    let with = |pem: String| {
        let mut settings = Settings::new(format!("https://localhost:{port}"));
        settings.ca_bundle = Some(pem.into_bytes());
        client(settings)
    };
    assert_eq!(with(trusted.cert.pem()).list_buckets().await, Ok(Vec::new()));
    let refused = with(other.cert.pem()).list_buckets().await.unwrap_err();
    assert!(matches!(&refused, Error::Unreachable { reason, .. } if reason.contains("certificate")), "{refused}");
}
