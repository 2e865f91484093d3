//! Both versions over a real socket.

use std::collections::BTreeMap;

use driver_rpc::cosi::{v1alpha1, v1alpha2};
use driver_rpc::{Client, Code, Error, Secrets, Server, Status};

struct Driver;

impl v1alpha1::Identity for Driver {
    async fn driver_get_info(
        &self,
        _: v1alpha1::DriverGetInfoRequest,
    ) -> Result<v1alpha1::DriverGetInfoResponse, Error> {
        Ok(v1alpha1::DriverGetInfoResponse { name: "one.example.com".into() })
    }
}

impl v1alpha1::Provisioner for Driver {
    async fn driver_grant_bucket_access(
        &self,
        request: v1alpha1::DriverGrantBucketAccessRequest,
    ) -> Result<v1alpha1::DriverGrantBucketAccessResponse, Error> {
        let secrets = Secrets::from_iter([("accessSecretKey", "hunter2")]);
        let credentials = v1alpha1::CredentialDetails { secrets };
        Ok(v1alpha1::DriverGrantBucketAccessResponse {
            account_id: request.name,
            credentials: BTreeMap::from([("s3".to_owned(), credentials)]),
        })
    }
}

impl v1alpha2::Identity for Driver {
    async fn driver_get_info(
        &self,
        _: v1alpha2::DriverGetInfoRequest,
    ) -> Result<v1alpha2::DriverGetInfoResponse, Error> {
        Ok(v1alpha2::DriverGetInfoResponse { name: "two.example.com".into(), ..Default::default() })
    }
}

impl v1alpha2::Provisioner for Driver {
    async fn driver_create_bucket(
        &self,
        request: v1alpha2::DriverCreateBucketRequest,
    ) -> Result<v1alpha2::DriverCreateBucketResponse, Error> {
        Err(Status::already_exists(request.name).into())
    }
}

/// Returns a client of a server with these services, and the folder that contains its socket.
fn served(services: impl FnOnce(Server) -> Server) -> (tempfile::TempDir, Client) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cosi.sock");
    tokio::spawn(services(Server::bind(&path).unwrap()).serve());
    (folder, Client::new(path.to_str().unwrap().parse().unwrap()))
}

#[tokio::test]
async fn one_socket_has_both_versions() {
    let (_folder, client) = served(|server| server.cosi_v1alpha1(Driver).cosi_v1alpha2(Driver));
    let one = v1alpha1::Identity::driver_get_info(&client, Default::default()).await.unwrap();
    let two = v1alpha2::Identity::driver_get_info(&client, Default::default()).await.unwrap();
    assert_eq!((one.name.as_str(), two.name.as_str()), ("one.example.com", "two.example.com"));

    let grant = v1alpha1::DriverGrantBucketAccessRequest { name: "ba-1".into(), ..Default::default() };
    let answer = v1alpha1::Provisioner::driver_grant_bucket_access(&client, grant).await.unwrap();
    assert_eq!(answer.account_id, "ba-1");
    assert_eq!(answer.credentials["s3"].secrets.get("accessSecretKey"), Some("hunter2"));
    let shown = format!("{answer:?}");
    assert!(shown.contains("ba-1") && !shown.contains("hunter2"), "{shown}");

    let create = v1alpha2::DriverCreateBucketRequest { name: "bc-1".into(), ..Default::default() };
    let error = v1alpha2::Provisioner::driver_create_bucket(&client, create).await.unwrap_err();
    assert!(matches!(&error, Error::Status(status) if status.message() == "bc-1"), "{error}");
    assert_eq!(error.code(), Code::AlreadyExists);
}

#[tokio::test]
async fn a_version_that_is_not_served_is_unimplemented() {
    for serves_one in [true, false] {
        let one_of =
            |server: Server| if serves_one { server.cosi_v1alpha1(Driver) } else { server.cosi_v1alpha2(Driver) };
        let (_folder, client) = served(one_of);
        let one = v1alpha1::Identity::driver_get_info(&client, Default::default()).await.map(|answer| answer.name);
        let two = v1alpha2::Identity::driver_get_info(&client, Default::default()).await.map(|answer| answer.name);
        let (served, missing) = if serves_one { (one, two) } else { (two, one) };
        served.unwrap();
        let error = missing.unwrap_err();
        assert!(matches!(&error, Error::Status(status) if status.code() == Code::Unimplemented), "{error}");
    }
}
