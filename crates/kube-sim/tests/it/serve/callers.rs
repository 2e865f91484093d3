//! Authentication and authorization.

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};

use super::*;
use crate::common::refusal;

fn rbac(kind: &str, namespace: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace},
    });
    object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    object
}

/// Returns a cluster with RBAC in which the service account `reader` may read the pods of its namespace.
async fn with_reader() -> (Served, String) {
    let served = Served::new(Cluster::builder().rbac().build()).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}});
    served.cluster.create(&account).unwrap();
    let rules = json!({"rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]});
    served.cluster.create(&rbac("Role", "default", "reader", rules)).unwrap();
    let binding = json!({
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
    });
    served.cluster.create(&rbac("RoleBinding", "default", "reader", binding)).unwrap();
    let token = token(&served, 3600).await.unwrap();
    (served, token)
}

async fn token(served: &Served, seconds: i64) -> kube::Result<String> {
    let accounts: Api<ServiceAccount> = Api::default_namespaced(served.client(Some(&served.admin_token)));
    let spec = TokenRequestSpec { expiration_seconds: Some(seconds), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer: TokenRequest = accounts.create_subresource("token", "reader", &PostParams::default(), &request).await?;
    Ok(answer.status.unwrap().token)
}

#[tokio::test]
async fn roles_limit_a_service_account() {
    let (served, token) = with_reader().await;
    let client = served.client(Some(&token));
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    assert!(pods.list(&ListParams::default()).await.is_ok());
    let user = "system:serviceaccount:default:reader";
    assert_eq!(
        refusal(pods.delete("p", &Default::default()).await),
        (
            403,
            format!(
                "pods \"p\" is forbidden: User {user:?} cannot delete resource \"pods\" in API group \"\" in the namespace \
                 \"default\""
            )
        )
    );
    let all: Api<Pod> = Api::all(client.clone());
    assert_eq!(
        refusal(all.list(&ListParams::default()).await),
        (
            403,
            format!(
                "pods is forbidden: User {user:?} cannot list resource \"pods\" in API group \"\" at the cluster scope"
            )
        )
    );
    // Removing a permission takes effect immediately.
    let target =
        kube_sim::Target { group: "rbac.authorization.k8s.io", plural: "roles", namespace: "default", name: "reader" };
    served.cluster.delete(&target, Default::default()).unwrap();
    assert_eq!(
        refusal(pods.list(&ListParams::default()).await).1,
        format!(
            "pods is forbidden: User {user:?} cannot list resource \"pods\" in API group \"\" in the namespace \"default\": \
             RBAC: role.rbac.authorization.k8s.io \"reader\" not found"
        )
    );
}

#[tokio::test]
async fn tokens_become_invalid_with_their_service_account() {
    let (served, token) = with_reader().await;
    let pods: Api<Pod> = Api::default_namespaced(served.client(Some(&token)));
    assert!(pods.list(&ListParams::default()).await.is_ok());
    let target = kube_sim::Target { group: "", plural: "serviceaccounts", namespace: "default", name: "reader" };
    served.cluster.delete(&target, Default::default()).unwrap();
    assert_eq!(refusal(pods.list(&ListParams::default()).await), (401, "Unauthorized".to_owned()));
    assert_eq!(
        refusal(super::callers::token(&served, 3600).await),
        (404, "serviceaccounts \"reader\" not found".to_owned())
    );
}

#[tokio::test]
async fn rejects_token_lifetimes_below_ten_minutes() {
    let (served, _) = with_reader().await;
    let expected = "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 60: may not \
                    specify a duration less than 10 minutes";
    assert_eq!(refusal(token(&served, 60).await), (422, expected.to_owned()));
}

#[tokio::test]
async fn anonymous_requests_reach_only_public_paths() {
    let (served, _) = with_reader().await;
    let (code, page) = served.get("/version", "*/*").await;
    assert_eq!((code, &page["major"]), (200, &json!("1")));
    let (code, refusal) = served.get("/apis", "*/*").await;
    assert_eq!(
        (code, refusal["message"].as_str()),
        (403, Some("forbidden: User \"system:anonymous\" cannot get path \"/apis\""))
    );
    assert_eq!(refusal["details"], json!({}));
    let request = http::Request::get("/version").header(AUTHORIZATION, "Bearer wrong");
    assert_eq!(served.ask(request, "").await.0, 401);
}

#[tokio::test]
async fn impersonation_requires_permission() {
    let (served, _) = with_reader().await;
    let admin = format!("Bearer {}", served.admin_token);
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let whoami = |user: &str| {
        let request = http::Request::post(path).header(AUTHORIZATION, &admin).header("Impersonate-User", user);
        request.header("Impersonate-Group", "people")
    };
    let (code, _, text) = served.ask(whoami("joe"), "{}").await;
    let review: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, 201);
    let expected = json!({"username": "joe", "groups": ["people", "system:authenticated"]});
    assert_eq!(review["status"]["userInfo"], expected);
    let request = http::Request::get("/version").header("Impersonate-User", "joe");
    let (code, _, text) = served.ask(request, "").await;
    let refusal: Value = serde_json::from_str(&text).unwrap();
    let expected = "users \"joe\" is forbidden: User \"system:anonymous\" cannot impersonate resource \"users\" in API group \
                    \"\" at the cluster scope";
    assert_eq!((code, refusal["message"].as_str()), (403, Some(expected)));
}

#[tokio::test]
async fn access_reviews_follow_the_roles() {
    let (served, token) = with_reader().await;
    let client = served.client(Some(&token));
    let review = async |client: &Client, verb: &str| {
        let body = json!({"spec": {"resourceAttributes": {"verb": verb, "resource": "pods", "namespace": "default"}}});
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let request = http::Request::post(path).body(body.to_string().into_bytes()).unwrap();
        client.request::<Value>(request).await.unwrap()["status"].clone()
    };
    let expected =
        "RBAC: allowed by RoleBinding \"reader/default\" of Role \"reader\" to ServiceAccount \"reader/default\"";
    assert_eq!(review(&client, "list").await, json!({"allowed": true, "reason": expected}));
    assert_eq!(review(&client, "delete").await, json!({"allowed": false}));
    let admin = served.client(Some(&served.admin_token));
    assert_eq!(review(&admin, "delete").await, json!({"allowed": true}));
    let body = json!({"spec": {"token": token}}).to_string().into_bytes();
    let request = http::Request::post("/apis/authentication.k8s.io/v1/tokenreviews").body(body).unwrap();
    let review: Value = admin.request(request).await.unwrap();
    assert_eq!(review["status"]["user"]["username"], "system:serviceaccount:default:reader");
}
