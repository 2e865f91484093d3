//! Objects of other kinds that an author's answers depend on.

use std::fmt;

use kube::Api;
use kube::core::DynamicObject;
use provisioner_runtime::watch::{Change, Scope};

/// A watch of one kind of object, which the controller runs for the author: see
/// [`Hooks::watches`](crate::Hooks::watches).
///
/// The controller does not wait for it. Until its first [`Change::Ready`], and where the account may not watch these objects,
/// the author has to do without what it shows.
pub struct ObjectWatch {
    pub(crate) plural: &'static str,
    pub(crate) scope: Scope<DynamicObject>,
    pub(crate) on_change: OnChange,
}

type OnChange = Box<dyn Fn(Change<DynamicObject>) -> Vec<Wake> + Send + 'static>;

/// Work that need not wait any longer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake {
    /// The deletion of the volume with this name.
    Volume(String),
    /// The claims that wait for volumes with this data source, and the attempts for such claims that are gone.
    DataSource {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The claims of other namespaces that wait for volumes with a data source in this namespace, and the attempts for such claims
    /// that are gone: something there may let them use it, or no longer.
    SourceNamespace(String),
    /// The claims for which the scheduler has selected the node with this name.
    SelectedNode(String),
    /// All claims that wait for a volume.
    Claims,
}

impl ObjectWatch {
    /// Watches all that `api` covers; `plural` is the name in metrics, where the controller has `persistentvolumeclaims`,
    /// `persistentvolumes` and `storageclasses`. `on_change` sees each change in order, and returns the
    /// work that waits for it: that is tried again at once, whatever its back-off. It must not block.
    pub fn new(
        plural: &'static str,
        api: Api<DynamicObject>,
        on_change: impl Fn(Change<DynamicObject>) -> Vec<Wake> + Send + 'static,
    ) -> Self {
        Self { plural, scope: api.into(), on_change: Box::new(on_change) }
    }

    /// The same, but the objects that `on_change` sees contain only their metadata: the API server leaves out the rest.
    pub fn of_metadata(
        plural: &'static str,
        api: Api<DynamicObject>,
        on_change: impl Fn(Change<DynamicObject>) -> Vec<Wake> + Send + 'static,
    ) -> Self {
        Self { plural, scope: Scope::metadata(api), on_change: Box::new(on_change) }
    }

    /// Limits the watch to the objects that this label selector selects, such as `app=web`.
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
