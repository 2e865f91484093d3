//! The author's provisioner behind an object-safe trait: the controller is compiled once, without the author's types.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Client;
use prometheus_client::registry::Registry;
use provisioner_runtime::AccessRule;

use crate::capabilities::Capabilities;
use crate::controller::shared::class_parameters::Parsed;
use crate::error::{DeleteError, ExpandError, ProvisionError, StartError};
use crate::hooks::Hooks;
use crate::object_watch::ObjectWatch;
use crate::parameters::ParameterError;
use crate::prepared::Prepared;
use crate::provisioner::Provisioner;
use crate::request::{ProvisionRequest, ProvisionedVolume};
use crate::start::StartContext;
use crate::volume::Volume;

/// A request before its parameters have their type.
pub(crate) type UntypedRequest = ProvisionRequest<Parsed>;

impl UntypedRequest {
    fn typed<P: Send + Sync + 'static>(self) -> ProvisionRequest<P> {
        ProvisionRequest {
            name: self.name,
            bytes: self.bytes,
            parameters: Parsed::clone(&self.parameters).typed(),
            claim: self.claim,
            claim_seen: self.claim_seen,
            class: self.class,
            selected_node: self.selected_node,
            node_labels: self.node_labels,
            secrets: self.secrets,
            cluster_id: self.cluster_id,
            idempotency_token: self.idempotency_token,
            prepared: self.prepared,
            resumed: self.resumed,
            fencing_token: self.fencing_token,
        }
    }
}

/// The calls of a provisioner. Each may panic.
pub(crate) trait Backend: Send + Sync + 'static {
    fn parse(&self, parameters: &BTreeMap<String, String>) -> Result<Parsed, ParameterError>;
    fn prepare(&self, request: UntypedRequest) -> BoxFuture<'_, Result<Prepared, ProvisionError>>;
    fn provision(&self, request: UntypedRequest) -> BoxFuture<'_, Result<Volume, ProvisionError>>;
    fn clean_up(&self, attempt: UntypedRequest) -> BoxFuture<'_, Result<(), DeleteError>>;
    fn has_room(&self, request: UntypedRequest) -> BoxFuture<'_, bool>;
    fn end_attempt(&self, attempt: UntypedRequest) -> BoxFuture<'_, Result<(), DeleteError>>;
    fn take_over(&self, name: &str, prepared: &Prepared);
    fn dropped(&self, name: &str);
    fn while_leading(&self) -> BoxFuture<'_, ()>;
    fn should_delete(&self, volume: ProvisionedVolume) -> BoxFuture<'_, Result<(), DeleteError>>;
    fn delete(&self, volume: ProvisionedVolume) -> BoxFuture<'_, Result<(), DeleteError>>;
    fn expand(&self, volume: ProvisionedVolume, bytes: u64) -> BoxFuture<'_, Result<(), ExpandError>>;
    fn start(&self, start: StartContext) -> BoxFuture<'_, Result<(), StartError>>;
    fn probe(&self) -> BoxFuture<'_, Result<(), StartError>>;
    fn capabilities(&self) -> Capabilities;
    fn access_rules(&self) -> Vec<AccessRule>;
    fn accepts(&self, claim: &PersistentVolumeClaim) -> bool;
    fn register_metrics(&self, registry: &mut Registry);
    fn watches(&self, client: &Client) -> Vec<ObjectWatch>;
}

impl<P: Hooks> Backend for P {
    fn parse(&self, parameters: &BTreeMap<String, String>) -> Result<Parsed, ParameterError> {
        Parsed::read::<P::Parameters>(parameters)
    }

    fn prepare(&self, request: UntypedRequest) -> BoxFuture<'_, Result<Prepared, ProvisionError>> {
        Box::pin(Hooks::prepare(self, request.typed()))
    }

    fn provision(&self, request: UntypedRequest) -> BoxFuture<'_, Result<Volume, ProvisionError>> {
        Box::pin(Provisioner::provision(self, request.typed()))
    }

    fn clean_up(&self, attempt: UntypedRequest) -> BoxFuture<'_, Result<(), DeleteError>> {
        Box::pin(Provisioner::clean_up(self, attempt.typed()))
    }

    fn has_room(&self, request: UntypedRequest) -> BoxFuture<'_, bool> {
        Box::pin(Hooks::has_room(self, request.typed()))
    }

    fn end_attempt(&self, attempt: UntypedRequest) -> BoxFuture<'_, Result<(), DeleteError>> {
        Box::pin(Hooks::end_attempt(self, attempt.typed()))
    }

    fn take_over(&self, name: &str, prepared: &Prepared) {
        Hooks::take_over(self, name, prepared);
    }

    fn dropped(&self, name: &str) {
        Hooks::dropped(self, name);
    }

    fn while_leading(&self) -> BoxFuture<'_, ()> {
        Box::pin(Hooks::while_leading(self))
    }

    fn should_delete(&self, volume: ProvisionedVolume) -> BoxFuture<'_, Result<(), DeleteError>> {
        Box::pin(Hooks::should_delete(self, volume))
    }

    fn delete(&self, volume: ProvisionedVolume) -> BoxFuture<'_, Result<(), DeleteError>> {
        Box::pin(Provisioner::delete(self, volume))
    }

    fn expand(&self, volume: ProvisionedVolume, bytes: u64) -> BoxFuture<'_, Result<(), ExpandError>> {
        Box::pin(Provisioner::expand(self, volume, bytes))
    }

    fn start(&self, start: StartContext) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(Provisioner::start(self, start))
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(Provisioner::probe(self))
    }

    fn capabilities(&self) -> Capabilities {
        P::capabilities()
    }

    fn access_rules(&self) -> Vec<AccessRule> {
        P::access_rules()
    }

    fn accepts(&self, claim: &PersistentVolumeClaim) -> bool {
        Hooks::accepts(self, claim)
    }

    fn register_metrics(&self, registry: &mut Registry) {
        Hooks::register_metrics(self, registry);
    }

    fn watches(&self, client: &Client) -> Vec<ObjectWatch> {
        Hooks::watches(self, client)
    }
}
