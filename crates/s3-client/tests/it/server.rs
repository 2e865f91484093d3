//! The client against a server in this process that replays responses of actual services, or against a real service
//! named by `S3_TEST_ENDPOINT` (with `S3_TEST_ACCESS_KEY` and `S3_TEST_SECRET_KEY`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_smithy_http_client::proxy::ProxyConfig;
use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use s3_client::lifecycle::Lifecycle;
use s3_client::policy::{Policy, allow};
use s3_client::{Client, Credentials, Error, Http, NewBucket, ObjectVersion, Settings, SettingsError};
use tokio::net::TcpListener;

/// The requests that the server received: method with path and query, headers, body.
type ReceivedRequests = Arc<Mutex<Vec<(String, http::HeaderMap, String)>>>;

/// Starts a server that returns these responses one after the other.
async fn server(answers: &[(u16, &str)]) -> (Settings, ReceivedRequests) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = at(format!("http://{}", listener.local_addr().unwrap()));
    let answers: VecDeque<(u16, String)> = answers.iter().map(|(status, body)| (*status, (*body).to_owned())).collect();
    let (answers, seen) = (Arc::new(Mutex::new(answers)), ReceivedRequests::default());
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

/// Returns settings for an endpoint that is reached without proxies.
fn at(endpoint: impl Into<String>) -> Settings {
    Settings::new(Http::new(None, ProxyConfig::disabled()).unwrap()).at(endpoint)
}

fn client(settings: Settings) -> Client {
    Client::new(&settings, Credentials::new("AKID", "hidden")).unwrap()
}

fn lines(seen: &ReceivedRequests) -> Vec<String> {
    seen.lock().unwrap().iter().map(|(line, ..)| line.clone()).collect()
}

#[tokio::test]
async fn sends_object_names_unchanged() {
    let (settings, seen) = server(&[(200, ""), (200, "")]).await;
    let s3 = client(settings);
    for key in ["a b/ü+?#", "../..//x"] {
        s3.put_object("photos", key, "hello").await.unwrap();
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0].0, "PUT /photos/a%20b/%C3%BC%2B%3F%23?x-id=PutObject");
    assert_eq!(seen[1].0, "PUT /photos/../..//x?x-id=PutObject");
    assert_eq!(seen[0].2, "hello");
    // Not all stores support newer checksums.
    let names: Vec<&str> = seen[0].1.keys().map(http::HeaderName::as_str).collect();
    assert!(!names.iter().any(|name| name.contains("checksum")), "{names:?}");
}

#[tokio::test]
async fn classifies_errors() {
    let html = "<html><body><h1>502 Bad Gateway</h1></body></html>";
    let echo =
        "<Error><Code>SignatureDoesNotMatch</Code><Message>hidden</Message><StringToSign>hidden</StringToSign></Error>";
    let wrapped = "<ErrorResponse><Errors><Error><Code>AccessDenied</Code></Error></Errors></ErrorResponse>";
    let (settings, _) = server(&[(502, html), (200, html), (403, echo), (404, ""), (403, wrapped)]).await;
    let endpoint = settings.endpoint.clone().unwrap();
    let s3 = client(settings);
    let not_s3 = |status| Error::NotS3 { endpoint: endpoint.clone(), status };
    assert_eq!(s3.list_buckets().await.unwrap_err(), not_s3(502));
    assert_eq!(s3.list_buckets().await.unwrap_err(), not_s3(200));
    let refused = s3.list_buckets().await.unwrap_err();
    assert_eq!(refused.to_string(), "403 SignatureDoesNotMatch");
    assert!(!format!("{refused:?} {s3:?}").contains("hidden"));
    assert!(!s3.bucket_exists("none").await.unwrap());
    assert_eq!(s3.list_buckets().await.unwrap_err().code(), "AccessDenied");

    let down = client(at("http://127.0.0.1:1")).list_buckets().await.unwrap_err();
    assert!(matches!(&down, Error::Unreachable { reason, .. } if reason.contains("refused")), "{down}");
}

#[tokio::test]
async fn retries_transient_failures_of_idempotent_requests() {
    let busy = "<Error><Code>SlowDown</Code></Error>";
    let broken = "<Error><Code>InternalError</Code></Error>";
    let too_many = "<Error><Code>TooManyRequests</Code></Error>";
    let answers = [(503, busy), (429, too_many), (200, ""), (500, broken), (502, "<html>"), (500, broken)];
    let (mut settings, seen) = server(&answers).await;
    settings.retries = true;
    let s3 = client(settings);
    s3.delete_bucket("photos").await.unwrap();
    assert_eq!(s3.delete_bucket("photos").await.unwrap_err().code(), "InternalError");
    assert_eq!(lines(&seen), ["DELETE /photos/"; 6]);
}

#[tokio::test]
async fn lists_buckets_in_pages() {
    let page = |name: &str, next: &str| {
        let buckets = format!("<Buckets><Bucket><Name>{name}</Name></Bucket></Buckets>");
        format!("<ListAllMyBucketsResult>{buckets}{next}</ListAllMyBucketsResult>")
    };
    let (first, last) = (page("a", "<ContinuationToken>next</ContinuationToken>"), page("b", ""));
    let (settings, seen) = server(&[(200, &first), (200, &last)]).await;
    assert_eq!(client(settings).list_buckets().await.unwrap(), ["a", "b"]);
    let lines = lines(&seen);
    assert!(lines[0].contains("max-buckets=1000") && lines[1].contains("continuation-token=next"), "{lines:?}");
}

/// Before a second request, another client or the first request may have created the bucket.
#[tokio::test]
async fn sends_bucket_creations_only_once() {
    for (status, code, refused) in [(503, "SlowDown", true), (500, "InternalError", false)] {
        let body = format!("<Error><Code>{code}</Code></Error>");
        let (mut settings, seen) = server(&[(status, &body), (200, "")]).await;
        settings.retries = true;
        let error = client(settings).create_bucket("photos", None).await.unwrap_err();
        assert_eq!((error.code(), error.is_refusal()), (code, refused));
        assert_eq!(lines(&seen), ["PUT /photos/"]);
    }
}

#[tokio::test]
async fn limits_length_and_time_of_responses() {
    let long = "x".repeat(5000);
    let (mut settings, _) = server(&[(200, &long)]).await;
    settings.answer_limit = 4999;
    let s3 = client(settings);
    assert!(matches!(s3.get_object("b", "k").await, Err(Error::TooLarge { .. })));

    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut settings = at(format!("http://{}", silent.local_addr().unwrap()));
    settings.time_limit = Duration::from_millis(50);
    let error = client(settings).list_buckets().await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
}

#[tokio::test]
async fn rejects_invalid_settings() {
    for endpoint in ["", "host:80", "ftp://host", "http://user:hidden@host", "http://host/?x", "http://host/s3/"] {
        let refused = Client::new(&at(endpoint), Credentials::new("", "")).unwrap_err();
        assert!(matches!(refused, SettingsError::Endpoint(_)), "{endpoint}");
        assert!(!format!("{refused} {refused:?}").contains("hidden"), "{refused}");
    }
    for ca in ["", "oops", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let refused = Http::new(Some(ca.as_bytes()), ProxyConfig::disabled()).unwrap_err();
        assert!(matches!(refused, SettingsError::CaBundle(_)), "{ca}");
    }
}

#[tokio::test]
async fn empties_buckets_page_by_page() {
    let page = "<ListVersionsResult><IsTruncated>true</IsTruncated><NextKeyMarker>b</NextKeyMarker>\
        <Version><Key>a&amp;</Key><VersionId>1</VersionId></Version>\
        <DeleteMarker><Key>b</Key><VersionId>null</VersionId></DeleteMarker></ListVersionsResult>";
    let last = "<ListVersionsResult><Version><Key>c</Key></Version></ListVersionsResult>";
    let none = "<ListVersionsResult/>";
    let uploads = "<ListMultipartUploadsResult><Upload><Key>d</Key><UploadId>2~x</UploadId></Upload>\
        </ListMultipartUploadsResult>";
    let gone = "<DeleteResult><Error><Key>a</Key><Code>NoSuchVersion</Code></Error></DeleteResult>";
    let no_uploads = "<ListMultipartUploadsResult/>";
    let answers = [page, gone, last, "<DeleteResult/>", none, uploads, "", none, no_uploads].map(|body| (200, body));
    let (settings, seen) = server(&answers).await;
    client(settings).empty_bucket("b").await.unwrap();
    let list = "GET /b/?versions&encoding-type=url";
    let (delete, uploads) = ("POST /b/?delete", "GET /b/?uploads&encoding-type=url");
    let abort = "DELETE /b/d?x-id=AbortMultipartUpload&uploadId=2~x";
    assert_eq!(lines(&seen), [list, delete, list, delete, list, uploads, abort, list, uploads]);
    let seen = seen.lock().unwrap();
    assert_eq!(
        seen[1].2,
        "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Object><Key>a&amp;</Key><VersionId>1</VersionId></Object><Object><Key>b</Key>\
         <VersionId>null</VersionId></Object><Quiet>true</Quiet></Delete>"
    );
    assert!(seen[1].1.contains_key("content-md5"));
}

#[tokio::test]
async fn reports_objects_that_cannot_be_deleted() {
    let locked = "<DeleteResult><Error><Key>a</Key><Code>AccessDenied</Code></Error></DeleteResult>";
    let (settings, _) = server(&[(200, locked)]).await;
    let versions = [ObjectVersion { key: "a".to_owned(), version_id: None }];
    let error = client(settings).delete_objects("b", &versions).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot delete the object \"a\": AccessDenied");
}

/// A list with such names is not valid XML.
#[tokio::test]
async fn reads_names_that_a_store_does_not_encode() {
    let page = "<ListVersionsResult><Version><Key>a\u{1}b\u{1f}\t</Key></Version></ListVersionsResult>";
    let (settings, seen) = server(&[(200, page), (204, "")]).await;
    let s3 = client(settings);
    let versions = s3.list_object_versions("b").await.unwrap();
    assert_eq!(versions[0].key, "a\u{1}b\u{1f}\t");
    s3.delete_objects("b", &versions).await.unwrap();
    assert_eq!(lines(&seen)[1], "DELETE /b/a%01b%1F%09?x-id=DeleteObject");
}

/// XML cannot represent some characters.
#[tokio::test]
async fn reads_and_deletes_names_with_control_characters() {
    let page = "<ListVersionsResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>\
        <NextKeyMarker>a%01b</NextKeyMarker><NextVersionIdMarker>2+x</NextVersionIdMarker>\
        <Version><Key>a%01b</Key><VersionId>1</VersionId></Version>\
        <DeleteMarker><Key>a%01b</Key><VersionId>2+x</VersionId></DeleteMarker>\
        <Version><Key>c+d%2B%09</Key><VersionId>3</VersionId></Version></ListVersionsResult>";
    let locked = "<Error><Code>AccessDenied</Code></Error>";
    let (settings, seen) = server(&[(200, page), (200, "<DeleteResult/>"), (204, ""), (403, locked)]).await;
    let s3 = client(settings);
    let page = s3.list_object_versions("b").await.unwrap();
    let keys: Vec<&str> = page.iter().map(|version| version.key.as_str()).collect();
    assert_eq!(keys, ["a\u{1}b", "c d+\t", "a\u{1}b"]);
    let error = s3.delete_objects("b", &page).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot delete the object \"a\\u{1}b\": AccessDenied");
    let seen = seen.lock().unwrap();
    assert!(seen[1].2.contains("<Object><Key>c d+\t</Key>"), "{}", seen[1].2);
    let lines: Vec<&str> = seen[1..].iter().map(|(line, ..)| line.as_str()).collect();
    let singly = ["1", "2%2Bx"].map(|id| format!("DELETE /b/a%01b?x-id=DeleteObject&versionId={id}"));
    assert_eq!(lines, ["POST /b/?delete", &singly[0], &singly[1]]);
}

#[tokio::test]
async fn deletes_objects_one_by_one_if_batches_fail() {
    let answer = |code: &str| format!("<Error><Code>{code}</Code></Error>");
    for (status, body) in [(400, answer("MalformedXML")), (501, answer("NotImplemented")), (500, "<html>".to_owned())] {
        let refusal = (status, body.as_str());
        let gone = (404, "<Error><Code>NoSuchVersion</Code></Error>");
        let (settings, seen) = server(&[refusal, (204, ""), gone]).await;
        let versions = [("a", Some("1")), ("b", None)]
            .map(|(key, version)| ObjectVersion { key: key.to_owned(), version_id: version.map(str::to_owned) });
        client(settings).delete_objects("b", &versions).await.unwrap();
        assert_eq!(
            lines(&seen),
            ["POST /b/?delete", "DELETE /b/a?x-id=DeleteObject&versionId=1", "DELETE /b/b?x-id=DeleteObject"]
        );
    }
    // More requests would add to an overload.
    let overload = answer("ServiceUnavailable");
    let (settings, seen) = server(&[(503, overload.as_str())]).await;
    let versions = [ObjectVersion { key: "a".to_owned(), version_id: None }];
    let error = client(settings).delete_objects("b", &versions).await.unwrap_err();
    assert_eq!((error.code(), lines(&seen).len()), ("ServiceUnavailable", 1));
}

#[tokio::test]
async fn creates_buckets_with_tags_and_settings() {
    let controls =
        "<OwnershipControls><Rule><ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule></OwnershipControls>";
    let none = "<Error><Code>OwnershipControlsNotFoundError</Code></Error>";
    let (settings, seen) = server(&[(200, ""), (200, ""), (200, controls), (404, none)]).await;
    let s3 = client(settings);
    let tags = [("claim".to_owned(), "a & b".to_owned())].into();
    let new = NewBucket { tags: Some(&tags), ownership: Some("BucketOwnerEnforced"), ..NewBucket::default() };
    s3.create_bucket_with("photos", new).await.unwrap();
    s3.create_bucket_with(
        "photos",
        NewBucket { location: Some("eu"), object_lock: true, namespace: Some("account-regional"), ..new },
    )
    .await
    .unwrap();
    assert_eq!(s3.bucket_ownership("photos").await.unwrap().as_deref(), Some("BucketOwnerEnforced"));
    assert_eq!(s3.bucket_ownership("photos").await.unwrap(), None);
    let seen = seen.lock().unwrap();
    let tags = "<Tags><Tag><Key>claim</Key><Value>a &amp; b</Value></Tag></Tags>";
    let [first, second] = ["", "<LocationConstraint>eu</LocationConstraint>"]
        .map(|location| format!("<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{location}{tags}</CreateBucketConfiguration>"));
    assert_eq!([&seen[0].2, &seen[1].2], [&first, &second]);
    assert_eq!(seen[0].1["x-amz-object-ownership"], "BucketOwnerEnforced");
    assert!(!seen[0].1.contains_key("x-amz-bucket-object-lock-enabled"));
    assert_eq!(seen[1].1["x-amz-bucket-object-lock-enabled"], "true");
    assert!(!seen[0].1.contains_key("x-amz-bucket-namespace"));
    assert_eq!(seen[1].1["x-amz-bucket-namespace"], "account-regional");
    assert_eq!(seen[2].0, "GET /photos/?ownershipControls");
}

#[tokio::test]
async fn all_operations_on_a_real_service() {
    let variable = |name: &str| std::env::var(format!("S3_TEST_{name}")).ok();
    let Some(endpoint) = variable("ENDPOINT") else { return };
    let [id, secret] = ["ACCESS_KEY", "SECRET_KEY"].map(|name| variable(name).unwrap());
    let s3 = Client::new(&at(endpoint), Credentials::new(id, secret)).unwrap();
    let name = &format!("s3-client-{}", std::process::id());
    s3.create_bucket(name, None).await.unwrap();
    assert!(s3.bucket_exists(name).await.unwrap());
    assert!(s3.list_buckets().await.unwrap().iter().any(|bucket| bucket == name));

    let mut policy = Policy::default();
    assert!(s3.bucket_policy(name).await.unwrap().is_empty());
    policy.upsert(allow("all", "*", &["s3:GetObject"], &[&format!("arn:aws:s3:::{name}/*")]));
    s3.put_bucket_policy(name, &policy).await.unwrap();
    assert!(s3.bucket_policy(name).await.unwrap().is_equivalent_to(&policy));
    s3.put_bucket_policy(name, &Policy::default()).await.unwrap();
    assert!(s3.bucket_policy(name).await.unwrap().is_empty());

    let rules = r#"{"Rules":[{"Status":"Enabled","Filter":{"Prefix":"a & b/"},"Expiration":{"Days":3},
         "AbortIncompleteMultipartUpload":{"DaysAfterInitiation":1}},
        {"ID":"b","Status":"Enabled","Filter":{"And":{"Prefix":"c/","Tags":[{"Key":"k","Value":"v"}]}},
         "NoncurrentVersionExpiration":{"NoncurrentDays":2}}]}"#;
    let lifecycle = Lifecycle::parse(rules).unwrap();
    assert!(s3.bucket_lifecycle(name).await.unwrap().is_empty());
    s3.put_bucket_lifecycle(name, &lifecycle).await.unwrap();
    let live = s3.bucket_lifecycle(name).await.unwrap();
    assert!(lifecycle.is_equivalent_to(&live), "{live:?}");
    s3.put_bucket_lifecycle(name, &Lifecycle::default()).await.unwrap();
    assert!(s3.bucket_lifecycle(name).await.unwrap().is_empty());

    let tags = [("claim".to_owned(), "a <b>".to_owned())].into();
    s3.put_bucket_tagging(name, &tags).await.unwrap();
    assert_eq!(s3.bucket_tagging(name).await.unwrap(), tags);
    s3.put_bucket_versioning(name, true).await.unwrap();

    for key in ["plain", "a b+c/ü&<>", "../..//x", "100%", "a\u{1}b"] {
        for body in ["one", "two"] {
            s3.put_object(name, key, body).await.unwrap();
        }
        assert_eq!(s3.get_object(name, key).await.unwrap().unwrap(), "two", "{key}");
        assert!(s3.object_exists(name, key).await.unwrap());
    }
    s3.delete_object(name, "plain").await.unwrap();
    assert_eq!(s3.get_object(name, "plain").await.unwrap(), None);
    s3.sdk().create_multipart_upload().bucket(name).key("big").send().await.unwrap();
    assert_eq!(s3.list_object_versions(name).await.unwrap().len(), 11);
    assert_eq!(s3.delete_bucket(name).await.unwrap_err().code(), "BucketNotEmpty");
    s3.empty_bucket(name).await.unwrap();
    assert!(s3.delete_bucket(name).await.unwrap());
    assert!(!s3.delete_bucket(name).await.unwrap());
    assert!(!s3.bucket_exists(name).await.unwrap());
}

#[tokio::test]
async fn trusts_only_certificates_in_the_bundle() {
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
        let http = Http::new(Some(pem.as_bytes()), ProxyConfig::disabled()).unwrap();
        client(Settings::new(http).at(format!("https://localhost:{port}")))
    };
    assert_eq!(with(trusted.cert.pem()).list_buckets().await, Ok(Vec::new()));
    let refused = with(other.cert.pem()).list_buckets().await.unwrap_err();
    assert!(matches!(&refused, Error::Unreachable { reason, .. } if reason.contains("certificate")), "{refused}");
}
