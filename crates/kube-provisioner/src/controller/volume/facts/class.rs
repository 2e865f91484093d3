//! What is known of one class of ours.

use std::sync::Arc;

use k8s_openapi::api::storage::v1::StorageClass;

use crate::capabilities::Capabilities;
use crate::controller::shared::class_parameters::{BadParameters, ClassParameters};
use crate::controller::volume::backend::Backend;
use crate::protocol;

/// A class of ours, with its parameters parsed once.
#[derive(Debug)]
pub(crate) struct OurClass {
    /// As the author gets it.
    pub(crate) object: Arc<StorageClass>,
    /// Changes whenever the class does.
    pub(crate) fingerprint: u64,
    pub(crate) waits_for_consumer: bool,
    /// What the author gets, or what is wrong with the parameters.
    pub(crate) parameters: Result<ClassParameters, BadParameters>,
    /// The class as the journal keeps it, under its name there.
    pub(crate) snapshot: (String, Arc<str>),
}

impl OurClass {
    /// Calls the author's code, so no lock may be held. `snapshot` is the class as [`OurClass::snapshot`] writes it.
    pub(crate) fn read(
        object: StorageClass,
        fingerprint: u64,
        (backend, capabilities): (&dyn Backend, &Capabilities),
        snapshot: (String, Arc<str>),
    ) -> Self {
        let parameters = object.parameters.clone().unwrap_or_default();
        Self {
            fingerprint,
            waits_for_consumer: object.volume_binding_mode.as_deref() == Some(protocol::WAIT_FOR_FIRST_CONSUMER),
            parameters: ClassParameters::read(parameters, &capabilities.secrets, |texts| backend.parse(texts)),
            object: Arc::new(object),
            snapshot,
        }
    }

    /// The same class, read once more. Calls the author's code.
    pub(crate) fn read_again(&self, backend: (&dyn Backend, &Capabilities)) -> Self {
        Self::read((*self.object).clone(), self.fingerprint, backend, self.snapshot.clone())
    }

    pub(crate) fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// Whether this class was created after the other was deleted. Our watch may be behind the class of an adopted
    /// attempt.
    pub(crate) fn replaces(&self, other: &Self) -> bool {
        let (this, other) = (&self.object.metadata, &other.object.metadata);
        let version = |version: &Option<String>| version.as_ref()?.parse::<u64>().ok();
        let versions = version(&this.resource_version).zip(version(&other.resource_version));
        this.uid != other.uid && versions.is_none_or(|(this, other)| this > other)
    }
}

/// The beta annotation wins when it is present, even empty.
pub(super) fn class_name(annotation: Option<&str>, field: Option<&str>) -> Option<Box<str>> {
    annotation.or(field).filter(|name| !name.is_empty()).map(Into::into)
}
