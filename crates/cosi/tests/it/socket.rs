//! Both versions over a real socket.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cosi::{Client, Code, Error, Secrets, Server, Status, v1alpha1, v1alpha2};

struct Driver;

impl v1alpha1::Identity for Driver {
    async fn driver_get_info(
        &self,
        _: v1alpha1::messages::DriverGetInfoRequest,
    ) -> Result<v1alpha1::messages::DriverGetInfoResponse, Error> {
        Ok(v1alpha1::messages::DriverGetInfoResponse { name: "one.example.com".into() })
    }
}

impl v1alpha1::Provisioner for Driver {
    async fn driver_grant_bucket_access(
        &self,
        request: v1alpha1::messages::DriverGrantBucketAccessRequest,
    ) -> Result<v1alpha1::messages::DriverGrantBucketAccessResponse, Error> {
        let secrets = Secrets::from_iter([("accessSecretKey", "hunter2")]);
        let credentials = v1alpha1::messages::CredentialDetails { secrets };
        Ok(v1alpha1::messages::DriverGrantBucketAccessResponse {
            account_id: request.name,
            credentials: BTreeMap::from([("s3".to_owned(), credentials)]),
        })
    }
}

impl v1alpha2::Identity for Driver {
    async fn driver_get_info(
        &self,
        _: v1alpha2::messages::DriverGetInfoRequest,
    ) -> Result<v1alpha2::messages::DriverGetInfoResponse, Error> {
        Ok(v1alpha2::messages::DriverGetInfoResponse { name: "two.example.com".into(), ..Default::default() })
    }
}

impl v1alpha2::Provisioner for Driver {
    async fn driver_create_bucket(
        &self,
        request: v1alpha2::messages::DriverCreateBucketRequest,
    ) -> Result<v1alpha2::messages::DriverCreateBucketResponse, Error> {
        Err(Status::already_exists(request.name).into())
    }
}

struct Bed {
    folder: tempfile::TempDir,
}

impl Bed {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("cosi.sock")
    }

    fn client(&self) -> Client {
        Client::new(self.path().to_str().unwrap().parse().unwrap())
    }
}

#[tokio::test]
async fn one_socket_has_both_versions() {
    let bed = Bed::new();
    tokio::spawn(Server::bind(&bed.path()).unwrap().v1alpha1(Driver).v1alpha2(Driver).serve());
    let client = bed.client();
    let one = v1alpha1::Identity::driver_get_info(&client, Default::default()).await.unwrap();
    let two = v1alpha2::Identity::driver_get_info(&client, Default::default()).await.unwrap();
    assert_eq!((one.name.as_str(), two.name.as_str()), ("one.example.com", "two.example.com"));

    let grant = v1alpha1::messages::DriverGrantBucketAccessRequest { name: "ba-1".into(), ..Default::default() };
    let answer = v1alpha1::Provisioner::driver_grant_bucket_access(&client, grant).await.unwrap();
    assert_eq!(answer.account_id, "ba-1");
    assert_eq!(answer.credentials["s3"].secrets.get("accessSecretKey"), Some("hunter2"));
    let shown = format!("{answer:?}");
    assert!(shown.contains("ba-1") && !shown.contains("hunter2"), "{shown}");

    let create = v1alpha2::messages::DriverCreateBucketRequest { name: "bc-1".into(), ..Default::default() };
    let error = v1alpha2::Provisioner::driver_create_bucket(&client, create).await.unwrap_err();
    assert!(matches!(&error, Error::Status(status) if status.message() == "bc-1"), "{error}");
    assert_eq!(error.code(), Code::AlreadyExists);
}

#[tokio::test]
async fn a_version_that_is_not_served_is_unimplemented() {
    for serves_one in [true, false] {
        let bed = Bed::new();
        let server = Server::bind(&bed.path()).unwrap();
        tokio::spawn(if serves_one { server.v1alpha1(Driver) } else { server.v1alpha2(Driver) }.serve());
        let client = bed.client();
        let one = v1alpha1::Identity::driver_get_info(&client, Default::default()).await.map(|answer| answer.name);
        let two = v1alpha2::Identity::driver_get_info(&client, Default::default()).await.map(|answer| answer.name);
        let (served, missing) = if serves_one { (one, two) } else { (two, one) };
        served.unwrap();
        let error = missing.unwrap_err();
        assert!(matches!(&error, Error::Status(status) if status.code() == Code::Unimplemented), "{error}");
    }
}

#[test]
fn debug_shows_no_credentials() {
    use v1alpha2::messages::*;
    let text = || "hunter2".to_owned();
    let info = S3BucketInfo { endpoint: text(), ..Default::default() };
    let answer = DriverGrantBucketAccessResponse {
        account_id: "ba-1".into(),
        buckets: vec![driver_grant_bucket_access_response::BucketInfo {
            bucket_id: "bc-1".into(),
            bucket_info: Some(ObjectProtocolAndBucketInfo { s3: Some(info), ..Default::default() }),
        }],
        credentials: Some(CredentialInfo {
            s3: Some(S3CredentialInfo { access_key_id: text(), access_secret_key: text() }),
            azure: Some(AzureCredentialInfo { access_token: text(), expiry_timestamp: text() }),
            gcs: Some(GcsCredentialInfo {
                access_id: text(),
                access_secret: text(),
                private_key_name: text(),
                service_account: text(),
            }),
        }),
    };
    let shown = format!("{answer:?} {answer:#?}");
    assert!(shown.contains("ba-1") && shown.contains("bc-1") && !shown.contains("hunter2"), "{shown}");
}
