//! The facts about one of our classes.

use std::sync::Arc;

use k8s_openapi::api::storage::v1::StorageClass;

use crate::capabilities::Capabilities;
use crate::controller::shared::class_parameters::{BadParameters, ClassParameters};
use crate::controller::volume::backend::Backend;
use crate::protocol;

/// One of our classes, with its parameters parsed once.
#[derive(Debug)]
pub(crate) struct OurClass {
    /// The class as the provisioner receives it.
    pub(crate) object: Arc<StorageClass>,
    /// A fingerprint that changes whenever the class does.
    pub(crate) fingerprint: u64,
    pub(crate) waits_for_consumer: bool,
    /// The parsed parameters, or the problem with them.
    pub(crate) parameters: Result<ClassParameters, BadParameters>,
    /// The class as the journal stores it, with its name there.
    pub(crate) snapshot: (String, Arc<str>),
}

impl OurClass {
    /// Parses the class. Calls the provisioner's code, so no lock may be held. `snapshot` is the class as
    /// [`OurClass::snapshot`] writes it.
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

    /// Parses the same class once more. Calls the provisioner's code.
    pub(crate) fn read_again(&self, backend: (&dyn Backend, &Capabilities)) -> Self {
        Self::read((*self.object).clone(), self.fingerprint, backend, self.snapshot.clone())
    }

    pub(crate) fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns true if this class was created after the other was deleted. Our watch may be behind the class of an
    /// adopted attempt.
    pub(crate) fn replaces(&self, other: &Self) -> bool {
        let (this, other) = (&self.object.metadata, &other.object.metadata);
        let version = |version: &Option<String>| version.as_ref()?.parse::<u64>().ok();
        let versions = version(&this.resource_version).zip(version(&other.resource_version));
        this.uid != other.uid && versions.is_none_or(|(this, other)| this > other)
    }
}

/// Returns the class's name. The beta annotation takes precedence if it is present, even if it is empty.
pub(super) fn class_name(annotation: Option<&str>, field: Option<&str>) -> Option<Box<str>> {
    annotation.or(field).filter(|name| !name.is_empty()).map(Into::into)
}
