//! Requests whose answers are decoded like watched objects.

use std::fmt::Debug;

use kube::api::{GetParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use provisioner_runtime::Cache;
use provisioner_runtime::call::{CallError, invalid_request};
use provisioner_runtime::controller::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Reads an object. `path` is the path of its kind and namespace.
pub(crate) async fn get<C: Cache, T: DeserializeOwned>(
    context: &Context<C>,
    path: String,
    name: &str,
) -> Result<T, CallError> {
    let request = Request::new(path).get(name, &GetParams::default()).map_err(invalid_request)?;
    context.request(context.client().request(request)).await
}

/// Replaces an object, if its resource version is still the one in `object`. `path` is the path of its kind and
/// namespace.
pub(crate) async fn replace<C: Cache, T: DeserializeOwned>(
    context: &Context<C>,
    path: String,
    name: &str,
    object: &Value,
) -> Result<T, CallError> {
    let body = serde_json::to_vec(object).map_err(invalid_request)?;
    let request = Request::new(path).replace(name, &PostParams::default(), body).map_err(invalid_request)?;
    context.request(context.client().request(request)).await
}

/// Returns the merge patch that removes a finalizer from this version of an object.
pub(crate) fn without_finalizer(uid: &str, version: impl ToString, finalizers: &[String], removed: &str) -> Value {
    let others: Vec<&String> = finalizers.iter().filter(|name| *name != removed).collect();
    json!({"metadata": {"uid": uid, "resourceVersion": version.to_string(), "finalizers": others}})
}

/// Patches an object or one of its subresources. `path` is the path of its kind and namespace.
pub(crate) async fn patch<C: Cache, T: DeserializeOwned>(
    context: &Context<C>,
    path: String,
    name: &str,
    subresource: Option<&str>,
    patch: &Patch<impl Debug + Serialize>,
) -> Result<T, CallError> {
    let (request, parameters) = (Request::new(path), PatchParams::default());
    let request = match subresource {
        None => request.patch(name, &parameters, patch),
        Some(subresource) => request.patch_subresource(subresource, name, &parameters, patch),
    };
    context.request(context.client().request(request.map_err(invalid_request)?)).await
}
