//! StorageClasses from the watch, with their parameters parsed by the provisioner's code before any lock is taken.

use std::sync::Arc;

use k8s_openapi::api::storage::v1::StorageClass;
use provisioner_runtime::watch::Change;
use serde_json::value::RawValue;

use super::names::ProvisionerNames;
use super::watched::WatchedClass;

/// A class by its name, with its content if it is ours.
pub(crate) struct ReadClass<C> {
    pub(crate) name: Box<str>,
    pub(crate) ours: Option<Arc<C>>,
}

impl<C> ReadClass<C> {
    /// Reads the class of a watch event. `own` reads one of our classes, and may call the provisioner's code.
    pub(crate) fn of_event(
        event: Change<WatchedClass>,
        names: &ProvisionerNames,
        own: impl Fn(StorageClass) -> C,
    ) -> Change<Self> {
        let read = |class: WatchedClass| Self::read(&class, names, &own);
        match event {
            Change::Begin => Change::Begin,
            Change::Listed(class) => read(class).map_or_else(Change::Deleted, Change::Listed),
            Change::Applied(class) => read(class).map_or_else(Change::Deleted, Change::Applied),
            Change::Deleted(class) => Change::Deleted(Self { name: class.name().into(), ours: None }),
            Change::Ready => Change::Ready,
        }
    }

    /// Returns the name of one of our classes that was added or changed.
    pub(crate) fn seen(event: &Change<Self>) -> Option<&str> {
        let (Change::Listed(class) | Change::Applied(class)) = event else { return None };
        class.ours.as_ref().map(|_| &*class.name)
    }

    /// Reads a class. Returns the name of an unreadable class as an error. Such a class counts as missing instead of as
    /// another provisioner's: attempts end if their class names another provisioner.
    fn read(watched: &WatchedClass, names: &ProvisionerNames, own: impl Fn(StorageClass) -> C) -> Result<Self, Self> {
        let with = |ours| Self { name: watched.name().into(), ours };
        let problem = match &watched.fields {
            Ok(class) if !names.include(&class.provisioner) => return Ok(with(None)),
            Ok(_) => match serde_json::from_str(watched.raw.as_deref().unwrap_or(RawValue::NULL).get()) {
                Ok(class) => return Ok(with(Some(Arc::new(own(class))))),
                Err(problem) => problem.to_string(),
            },
            Err(unreadable) => unreadable.problem.clone(),
        };
        tracing::warn!(storage_class = watched.name(), problem, "unreadable StorageClass");
        Err(with(None))
    }
}
