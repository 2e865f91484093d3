//! Watches of additional objects that a provisioner's answers depend on.

use std::fmt;

use kube::Api;
use kube::core::DynamicObject;
use provisioner_runtime::watch::{Change, Scope, WatchHealth};

/// A watch of one kind of object, which the controller runs for the provisioner: see
/// [`Hooks::watches`](crate::Hooks::watches).
///
/// The controller does not wait for it. Until its first [`Change::Ready`], and if the account may not watch these
/// objects, the provisioner has to work without its information.
pub struct ObjectWatch {
    pub(crate) plural: &'static str,
    pub(crate) scope: Scope<DynamicObject>,
    pub(crate) health: WatchHealth,
    pub(crate) on_change: OnChange,
}

type OnChange = Box<dyn Fn(Change<DynamicObject>) -> Vec<Trigger> + Send + 'static>;

/// Waiting work to retry immediately.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trigger {
    /// The deletion of the volume with this name.
    Volume(String),
    /// The claims that wait for volumes with this data source, and the attempts for deleted claims with it.
    DataSource {
        /// The namespace of the data source.
        namespace: String,
        /// The name of the data source.
        name: String,
    },
    /// The claims in other namespaces that wait for volumes with a data source in this namespace, and the attempts for
    /// such claims that have been deleted: an object there may allow them to use it, or no longer allow it.
    SourceNamespace(String),
    /// The claims for which the scheduler has selected the node with this name.
    SelectedNode(String),
    /// All claims that wait for a volume.
    Claims,
}

impl ObjectWatch {
    /// Watches all objects that `api` covers; `plural` is the name in metrics, where the controller has
    /// `persistentvolumeclaims`, `persistentvolumes` and `storageclasses`. `on_change` receives each change in order,
    /// and returns the work that depends on it, which is then retried immediately regardless of its back-off. It must
    /// not block. The objects have no `managedFields`.
    pub fn new(
        plural: &'static str,
        api: Api<DynamicObject>,
        on_change: impl Fn(Change<DynamicObject>) -> Vec<Trigger> + Send + 'static,
    ) -> Self {
        Self { plural, scope: api.into(), health: WatchHealth::new(), on_change: Box::new(on_change) }
    }

    /// Watches like [`new`](Self::new), but `on_change` receives only the objects' metadata: the API server omits the
    /// rest.
    pub fn of_metadata(
        plural: &'static str,
        api: Api<DynamicObject>,
        on_change: impl Fn(Change<DynamicObject>) -> Vec<Trigger> + Send + 'static,
    ) -> Self {
        Self { scope: Scope::metadata(api.clone()), ..Self::new(plural, api, on_change) }
    }

    /// Returns a function that has all objects listed again: `on_change` then sees [`Change::Begin`], the objects, and
    /// [`Change::Ready`]. Use it if `on_change` stores only a part of each object, and another part is needed later.
    pub fn lister(&self) -> impl Fn() + Send + use<> {
        let health = self.health.clone();
        move || health.request_list()
    }

    /// Limits the watch to the objects that match this label selector, such as `app=web`.
    #[must_use]
    pub fn labelled(self, selector: impl Into<String>) -> Self {
        Self { scope: self.scope.with_labels(selector), ..self }
    }
}

impl fmt::Debug for ObjectWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectWatch").field("plural", &self.plural).finish_non_exhaustive()
    }
}
