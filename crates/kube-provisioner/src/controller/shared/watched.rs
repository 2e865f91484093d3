//! Partial decoding of watched objects: only the fields that decisions read are allocated.
//!
//! An unreadable object does not affect the others: it is decoded into its name and the reason.

use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use provisioner_runtime::error_chain;
use provisioner_runtime::watch::FromJson;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny};
use serde_json::value::RawValue;

use super::writers::Writers;

/// An object of kind `K`, decoded as a `T`.
#[derive(Clone, Debug)]
pub(crate) struct Watched<K, T: Fields> {
    /// The metadata that the watch needs: the resource version.
    meta: ObjectMeta,
    /// The fields of interest, or the reason why they cannot be read.
    pub(crate) fields: Result<T, Unreadable<MetaOf<T>>>,
    /// The object as sent by the API server, if the whole object may be needed.
    pub(crate) raw: Option<Box<RawValue>>,
    kind: std::marker::PhantomData<K>,
}

/// The known parts of an object that cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable<M> {
    metadata: M,
    pub(crate) problem: String,
}

/// The fields of one kind of object.
pub(crate) trait Fields: Sized {
    /// The annotations that are read.
    type Annotations: Clone + std::fmt::Debug + Default + DeserializeOwned;
    /// The labels that are read.
    type Labels: Clone + std::fmt::Debug + Default + DeserializeOwned;

    fn metadata(&self) -> &MetaOf<Self>;

    /// Returns true if the whole object may be needed.
    fn wanted_whole(&self) -> bool {
        false
    }
}

/// The metadata of one kind of object.
pub(crate) type MetaOf<T> = Meta<<T as Fields>::Annotations, <T as Fields>::Labels>;

impl<K, T: Fields> Watched<K, T> {
    pub(crate) fn name(&self) -> &str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.metadata().namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn version(&self) -> Option<&str> {
        self.metadata().resource_version.as_deref()
    }

    pub(crate) fn metadata(&self) -> &MetaOf<T> {
        self.fields.as_ref().map_or_else(|unreadable| &unreadable.metadata, Fields::metadata)
    }
}

impl<K, T: DeserializeOwned + Fields> FromJson for Watched<K, T> {
    fn from_json(json: &str) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        #[serde(bound = "")]
        struct Head<T: Fields> {
            metadata: MetaOf<T>,
        }
        let fields = match serde_json::from_str(json) {
            Err(error) if error.is_data() => Err(Unreadable {
                // Only an unreadable object is parsed twice.
                metadata: serde_json::from_str::<Head<T>>(json).map(|head| head.metadata).unwrap_or_default(),
                problem: error_chain(&error),
            }),
            fields => Ok(fields?),
        };
        let wanted_whole = fields.as_ref().is_ok_and(T::wanted_whole);
        let mut watched = Self {
            meta: ObjectMeta::default(),
            fields,
            raw: wanted_whole.then(|| RawValue::from_string(json.to_owned())).transpose()?,
            kind: std::marker::PhantomData,
        };
        watched.meta.resource_version = watched.metadata().resource_version.clone();
        Ok(watched)
    }
}

/// Decodes the object inside a list.
impl<'de, K, T: DeserializeOwned + Fields> Deserialize<'de> for Watched<K, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Borrowed: most objects are foreign, and none of their content is kept.
        let raw = <&RawValue>::deserialize(deserializer)?;
        Self::from_json(raw.get()).map_err(serde::de::Error::custom)
    }
}

impl<K, T: Fields> kube::Resource for Watched<K, T>
where
    K: kube::Resource<DynamicType = ()>,
{
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind(_: &()) -> std::borrow::Cow<'_, str> {
        K::kind(&())
    }
    fn group(_: &()) -> std::borrow::Cow<'_, str> {
        K::group(&())
    }
    fn version(_: &()) -> std::borrow::Cow<'_, str> {
        K::version(&())
    }
    fn plural(_: &()) -> std::borrow::Cow<'_, str> {
        K::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

/// The decoded metadata. All fields are optional here; required fields are checked where they are used.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(
    rename_all = "camelCase",
    default,
    bound = "A: Default + serde::de::DeserializeOwned, L: Default + serde::de::DeserializeOwned"
)]
pub(crate) struct Meta<A, L = IgnoredAny> {
    pub(crate) name: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) creation_timestamp: Option<Box<str>>,
    pub(crate) deletion_timestamp: Option<IgnoredAny>,
    #[serde(deserialize_with = "null_as_default")]
    pub(crate) annotations: A,
    #[serde(deserialize_with = "null_as_default")]
    pub(crate) labels: L,
    #[serde(deserialize_with = "null_as_default")]
    pub(crate) finalizers: Vec<String>,
    #[serde(rename = "managedFields", deserialize_with = "null_as_default")]
    pub(crate) writers: Writers,
}

pub(crate) type WatchedClass = Watched<StorageClass, ClassFields>;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClassFields {
    metadata: Meta<IgnoredAny>,
    pub(crate) provisioner: String,
}

impl Fields for ClassFields {
    type Annotations = IgnoredAny;
    type Labels = IgnoredAny;

    fn metadata(&self) -> &Meta<IgnoredAny> {
        &self.metadata
    }

    fn wanted_whole(&self) -> bool {
        true
    }
}

pub(crate) fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
