//! A StorageClass from the watch, with its parameters read by the author's code before any lock is taken.

use std::sync::Arc;

use k8s_openapi::api::storage::v1::StorageClass;
use provisioner_runtime::watch::Change;
use serde_json::value::RawValue;

use super::backend::Backend;
use super::decide::Rules;
use super::facts::{OurClass, fingerprint};
use super::{intent, projection};
use crate::controller::watched::WatchedClass;

/// A class by its name, and what is in it where it is ours.
pub(crate) struct ReadClass {
    pub(crate) name: Box<str>,
    pub(crate) ours: Option<Arc<OurClass>>,
}

impl ReadClass {
    /// Reads the class of a watch event.
    pub(crate) fn of_event(event: Change<WatchedClass>, rules: &Rules, backend: &dyn Backend) -> Change<Self> {
        let read = |class: WatchedClass| Self::read(&class, rules, backend);
        match event {
            Change::Begin => Change::Begin,
            Change::Listed(class) => Change::Listed(read(class)),
            Change::Applied(class) => Change::Applied(read(class)),
            Change::Deleted(class) => Change::Deleted(Self { name: class.name().into(), ours: None }),
            Change::Ready => Change::Ready,
        }
    }

    fn read(watched: &WatchedClass, rules: &Rules, backend: &dyn Backend) -> Self {
        let ours = match &watched.fields {
            Ok(class) if rules.names.include(&class.provisioner) => match own(watched, rules, backend) {
                Ok(class) => Some(Arc::new(class)),
                Err(problem) => {
                    tracing::warn!(storage_class = watched.name(), %problem, "unreadable StorageClass");
                    None
                }
            },
            _ => None,
        };
        Self { name: watched.name().into(), ours }
    }
}

fn own(watched: &WatchedClass, rules: &Rules, backend: &dyn Backend) -> Result<OurClass, serde_json::Error> {
    let object: StorageClass = serde_json::from_str(watched.raw.as_deref().unwrap_or(RawValue::NULL).get())?;
    let object = projection::class(object, &rules.capabilities);
    let fingerprint = fingerprint(&(&watched.metadata().uid, &watched.metadata().resource_version));
    let snapshot = intent::snapshot(&object, fingerprint);
    Ok(OurClass::read(object, fingerprint, (backend, &rules.capabilities), snapshot))
}
