//! Keys that name objects.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::Resource;
use kube::ResourceExt;

use crate::events::ObjectRef;

/// An object's `namespace/name/uid`. An object that was deleted and created again has another key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(Arc<str>);

impl ObjectKey {
    /// Creates a key.
    pub fn of(namespace: &str, name: &str, uid: &str) -> Self {
        Self(format!("{namespace}/{name}/{uid}").into())
    }

    /// Returns the key of an object that the API server has returned.
    pub fn of_object(object: &impl ResourceExt) -> Self {
        Self::of(&object.namespace().unwrap_or_default(), &object.name_any(), &object.uid().unwrap_or_default())
    }

    /// Returns `namespace/name`.
    pub fn path(&self) -> &str {
        self.0.rsplit_once('/').map_or(&*self.0, |(path, _)| path)
    }

    /// Returns the namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.path().split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.path().split_once('/').map_or("", |(_, name)| name)
    }

    /// Returns the uid.
    pub fn uid(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(_, uid)| uid)
    }

    /// Returns the object of this kind, for an event.
    pub fn object<K: Resource>(&self) -> ObjectRef {
        let namespace = Some(self.namespace()).filter(|namespace| !namespace.is_empty()).map(Into::into);
        let (name, uid) = (self.name().into(), self.uid().into());
        ObjectRef { api_version: K::API_VERSION, kind: K::KIND, namespace, name, uid }
    }
}

impl From<&str> for ObjectKey {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
