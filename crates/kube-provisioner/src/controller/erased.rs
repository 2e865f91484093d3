//! The author's provisioner behind an object-safe trait, so that the controller is compiled once and
//! knows nothing of the author's types.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;

use crate::error::{DeleteError, ProvisionError};
use crate::mandate::Mandate;
use crate::parameters::{self, ParameterError};
use crate::provisioner::{Capabilities, ProvisionRequest, ProvisionedVolume, Provisioner};
use crate::volume::Volume;

/// A class's parameters as the author's type.
#[derive(Clone)]
pub(crate) struct Parsed(Arc<dyn Any + Send + Sync>);

impl fmt::Debug for Parsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parsed")
    }
}

/// A [`ProvisionRequest`] before its parameters have their type.
pub(crate) struct UntypedRequest {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) claim: Arc<PersistentVolumeClaim>,
    pub(crate) class: Arc<StorageClass>,
    pub(crate) selected_node: Option<String>,
    pub(crate) mandate: Mandate,
}

/// What the controller asks of a provisioner.
pub(crate) trait Backend: Send + Sync + 'static {
    fn parse(&self, parameters: &BTreeMap<String, String>) -> Result<Parsed, ParameterError>;
    fn provision(&self, request: UntypedRequest, parameters: Parsed) -> BoxFuture<'_, Result<Volume, ProvisionError>>;
    fn delete(&self, volume: ProvisionedVolume) -> BoxFuture<'_, Result<(), DeleteError>>;
    fn capabilities(&self) -> Capabilities;
    fn accepts(&self, claim: &PersistentVolumeClaim) -> bool;
}

impl<P: Provisioner> Backend for P {
    fn parse(&self, parameters: &BTreeMap<String, String>) -> Result<Parsed, ParameterError> {
        let typed: P::Parameters = parameters::from_map(parameters)?;
        Ok(Parsed(Arc::new(typed)))
    }

    fn provision(&self, request: UntypedRequest, parameters: Parsed) -> BoxFuture<'_, Result<Volume, ProvisionError>> {
        let Ok(parameters) = parameters.0.downcast::<P::Parameters>() else {
            unreachable!("parameters are parsed by the provisioner that they are handed to");
        };
        let UntypedRequest { name, bytes, claim, class, selected_node, mandate } = request;
        let request = ProvisionRequest { name, bytes, parameters, claim, class, selected_node, mandate };
        Box::pin(Provisioner::provision(self, request))
    }

    fn delete(&self, volume: ProvisionedVolume) -> BoxFuture<'_, Result<(), DeleteError>> {
        Box::pin(Provisioner::delete(self, volume))
    }

    fn capabilities(&self) -> Capabilities {
        Provisioner::capabilities(self)
    }

    fn accepts(&self, claim: &PersistentVolumeClaim) -> bool {
        Provisioner::accepts(self, claim)
    }
}
