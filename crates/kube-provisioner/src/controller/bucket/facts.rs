//! The facts about one ObjectBucketClaim, as plain data.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use objectbucket_api::names::generated_bucket_name;

use super::decision::Refusal;
use super::delivered_names::DeliveredNames;
use super::record::Record;
use crate::bucket::{Account, ClaimName};
use crate::controller::shared::class_parameters::{BadParameters, ClassParameters};
use crate::controller::shared::secret_names::TemplateNames;
use crate::protocol::BUCKET_CLAIM_NAME;

/// All inputs of a decision about one key.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// The claim with the key's uid.
    pub(crate) claim: Option<Arc<ClaimFacts>>,
    pub(crate) bucket: Option<Arc<BucketFacts>>,
    /// The refusal of a claim without its own ObjectBucket, if another ObjectBucket blocks it.
    pub(crate) obstacle: Option<Refusal>,
    /// The claim whose bucket this claim requests or uses.
    pub(crate) owner: OwnerFacts,
    /// The other claims that use the bucket of a claim that is being deleted or no longer exists.
    pub(crate) users: Vec<ClaimName>,
    pub(crate) class: ClassState,
    /// The names of the claim's Secret and ConfigMap: the recorded names, or the default names of a new claim.
    pub(crate) names: DeliveredNames,
    pub(crate) secret: Delivered,
    pub(crate) config_map: Delivered,
}

/// A claim whose bucket another claim in its namespace uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnerFacts {
    pub(crate) claim: Option<Arc<ClaimFacts>>,
    pub(crate) bucket: Option<Arc<BucketFacts>>,
}

/// The fields of a claim that decisions read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClaimFacts {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Arc<str>,
    pub(crate) resource_version: u64,
    pub(crate) created: Option<Timestamp>,
    pub(crate) deleting: bool,
    pub(crate) finalizers: Vec<String>,
    /// The label that names its owner.
    pub(crate) label: Option<Box<str>>,
    pub(crate) class: Option<Box<str>>,
    pub(crate) bucket_name: Option<Box<str>>,
    pub(crate) prefix: Option<Box<str>>,
    pub(crate) object_bucket: Option<Box<str>>,
    pub(crate) config: BTreeMap<String, String>,
    /// The rotation request: each change of the text requests new keys.
    pub(crate) rotation: Option<Box<str>>,
    pub(crate) status: StatusFacts,
    /// The reason why only the metadata can be read.
    pub(crate) unreadable: Option<Box<str>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct StatusFacts {
    pub(crate) phase: Option<Box<str>>,
    pub(crate) conditions: Vec<ConditionFacts>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConditionFacts {
    pub(crate) kind: Box<str>,
    pub(crate) is_true: bool,
    pub(crate) reason: Box<str>,
    pub(crate) since: Box<str>,
    /// A hash of the message.
    pub(crate) message: u64,
}

/// The fields of an ObjectBucket, which may be ours, that decisions read.
#[derive(Clone, Debug)]
pub(crate) struct BucketFacts {
    pub(crate) name: Arc<str>,
    pub(crate) uid: Arc<str>,
    pub(crate) resource_version: u64,
    pub(crate) created: Option<Timestamp>,
    pub(crate) deleting: bool,
    pub(crate) finalizers: Vec<String>,
    /// The provisioner that created it, by our annotation.
    pub(crate) provisioner: Option<Box<str>>,
    /// The provisioner that created it, by the label that all bucket provisioners set.
    pub(crate) label: Option<Box<str>>,
    pub(crate) identity: Option<Box<str>>,
    /// The cluster in which it was created, if recorded.
    pub(crate) cluster_id: Option<Box<str>>,
    /// The content of `spec.claimRef`. Some CustomResourceDefinitions drop the uid, or all of it.
    pub(crate) reference: Option<ClaimName>,
    pub(crate) class: Option<Box<str>>,
    pub(crate) policy: Option<ReclaimPolicy>,
    pub(crate) endpoint: EndpointFacts,
    pub(crate) state: BTreeMap<String, String>,
    pub(crate) phase: Option<Box<str>>,
    /// Our record. Objects of other provisioners have none.
    pub(crate) record: RecordState,
    /// An administrator wants it forgotten, whatever remains in the backend.
    pub(crate) abandoned: bool,
    /// The claim to which an administrator assigns the bucket, as `namespace/name`.
    pub(crate) adopt_for: Option<Box<str>>,
    /// Other claims use the bucket, or have used it.
    pub(crate) shared: bool,
    /// The reason why only the metadata can be read.
    pub(crate) unreadable: Option<Box<str>>,
}

/// The bucket's endpoint, according to the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct EndpointFacts {
    pub(crate) bucket: Box<str>,
    pub(crate) host: Box<str>,
    pub(crate) port: i32,
    pub(crate) region: Box<str>,
    pub(crate) sub_region: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReclaimPolicy {
    Delete,
    Retain,
}

/// Our annotation on an ObjectBucket.
#[derive(Clone, Debug)]
pub(crate) enum RecordState {
    Missing,
    Unreadable(String),
    Present(Arc<Record>),
}

/// The state of the claim's Secret or ConfigMap, found by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Delivered {
    /// No object has this name and our label.
    Absent,
    /// The object belongs to another owner.
    Unmanaged,
    /// The object is intact except for its owner, as after a restore from a backup.
    Unowned,
    /// The object is intact.
    Intact,
    /// The object was changed by another writer.
    Changed,
}

#[derive(Clone, Debug)]
pub(crate) enum ClassState {
    Missing,
    Unmanaged,
    Ours(Arc<OurClass>),
}

/// A class of ours, with parsed parameters.
#[derive(Debug)]
pub(crate) struct OurClass {
    pub(crate) name: Box<str>,
    pub(crate) fingerprint: u64,
    pub(crate) policy: ReclaimPolicy,
    /// The parameters as strings.
    pub(crate) texts: Arc<BTreeMap<String, String>>,
    /// The bucket that the class grants access to.
    pub(crate) bucket: Option<Box<str>>,
    /// The keys of `additionalConfig` that its claims may use, instead of those in [`Rules`](super::decide::Rules).
    pub(crate) allowed_config: Option<Vec<String>>,
    pub(crate) parameters: Result<ClassParameters, BadParameters>,
}

impl Facts {
    pub(crate) fn bucket(&self) -> Option<&Arc<BucketFacts>> {
        self.bucket.as_ref()
    }

    pub(crate) fn record(&self) -> Option<&Record> {
        self.bucket()?.record()
    }

    /// Returns true once the Secret was delivered. The ObjectBucket records it, because other programs can damage the
    /// claim's status, or the Secret itself if the process ended before it wrote the status.
    pub(crate) fn is_served(&self) -> bool {
        let is_delivered = matches!(self.secret, Delivered::Intact | Delivered::Changed);
        let is_made = || self.record().is_some_and(|record| record.made);
        self.bucket().is_some_and(|bucket| bucket.is_bound()) || is_delivered && is_made()
    }

    /// Returns true if the claim has a key whose validity can be checked.
    pub(crate) fn has_key(&self) -> bool {
        self.record().is_some_and(|record| record.delivered_key().is_some())
    }

    /// Returns true if the claim is being deleted or no longer exists.
    pub(crate) fn is_ending(&self) -> bool {
        self.claim.as_ref().is_none_or(|claim| claim.deleting)
    }

    /// Returns the name of the class in effect, for metrics and for fairness; empty if there is none. A user can give a
    /// claim any text as its class, and change the class of a bound claim without effect.
    pub(crate) fn effective_class(&self) -> &str {
        let of_bucket = self.bucket().and_then(|bucket| bucket.class.as_deref());
        of_bucket.or_else(|| self.class.ours().map(|class| &*class.name)).unwrap_or_default()
    }

    /// Returns the name of the claim's class.
    pub(crate) fn class_name(&self) -> &str {
        let of_claim = self.claim.as_ref().and_then(|claim| claim.class.as_deref());
        of_claim.or_else(|| self.bucket()?.class.as_deref()).unwrap_or_default()
    }

    /// Returns the claim's name, even if the claim no longer exists.
    pub(crate) fn claim_name(&self) -> Option<ClaimName> {
        match (&self.claim, self.bucket()) {
            (Some(claim), _) => Some(claim.name()),
            (None, Some(bucket)) => bucket.claim(),
            (None, None) => None,
        }
    }
}

impl ClassState {
    pub(crate) fn ours(&self) -> Option<&Arc<OurClass>> {
        match self {
            Self::Ours(class) => Some(class),
            Self::Missing | Self::Unmanaged => None,
        }
    }
}

impl ClaimFacts {
    /// Returns the claim in its namespace whose bucket it requests.
    pub(crate) fn bucket_claim(&self) -> Option<&str> {
        self.config.get(BUCKET_CLAIM_NAME).map(String::as_str)
    }

    /// Returns the bucket name that the claim's prefix generates.
    pub(crate) fn generated_name(&self) -> Option<String> {
        self.prefix.as_deref().map(|prefix| generated_bucket_name(prefix, &self.uid))
    }

    /// Returns `namespace/name`.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    pub(crate) fn name(&self) -> ClaimName {
        ClaimName { namespace: self.namespace.to_string(), name: self.name.to_string(), uid: self.uid.to_string() }
    }

    pub(crate) fn template_names(&self) -> TemplateNames<'_> {
        TemplateNames { claim: &self.name, namespace: &self.namespace, volume: "" }
    }

    pub(crate) fn is_bound(&self) -> bool {
        self.status.phase.as_deref() == Some("Bound")
    }

    /// Returns the status of the condition `Ready`. An older CustomResourceDefinition may drop conditions.
    pub(crate) fn is_ready(&self) -> Option<bool> {
        self.status.conditions.iter().find(|condition| &*condition.kind == "Ready").map(|condition| condition.is_true)
    }

    pub(crate) fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|name| name == objectbucket_api::names::FINALIZER)
    }

    /// Returns true if no bucket provisioner has begun to work on the claim.
    pub(crate) fn is_untouched(&self) -> bool {
        let is_new = self.label.is_none() && self.object_bucket.is_none() && !self.has_finalizer();
        is_new && matches!(self.status.phase.as_deref(), None | Some("Pending"))
    }
}

impl BucketFacts {
    pub(crate) fn record(&self) -> Option<&Record> {
        match &self.record {
            RecordState::Present(record) => Some(record),
            RecordState::Missing | RecordState::Unreadable(_) => None,
        }
    }

    pub(crate) fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|name| name == objectbucket_api::names::FINALIZER)
    }

    /// Returns true if it is being deleted, and only finalizers of other writers keep it.
    pub(crate) fn has_only_foreign_finalizers(&self) -> bool {
        self.deleting && !self.has_finalizer()
    }

    pub(crate) fn is_bound(&self) -> bool {
        self.phase.as_deref() == Some("Bound")
    }

    /// Returns true if its release has begun.
    pub(crate) fn is_released(&self) -> bool {
        self.phase.as_deref() == Some("Released")
    }

    /// Returns true if the ObjectBucket differs from a former version only in fields that no decision uses: foreign
    /// labels and annotations, other phases, and the mark that claims share it.
    pub(crate) fn is_alike(&self, former: &Self) -> bool {
        fn read(bucket: &BucketFacts) -> impl PartialEq {
            let metadata =
                (&bucket.uid, bucket.deleting, bucket.is_released(), &bucket.finalizers, bucket.unreadable.is_some());
            let marks = (bucket.abandoned, &bucket.adopt_for, &bucket.identity, &bucket.cluster_id);
            (metadata, marks, &bucket.endpoint, &bucket.state, &bucket.reference, bucket.policy)
        }
        let is_same_record = match (&self.record, &former.record) {
            (RecordState::Missing, RecordState::Missing) => true,
            (RecordState::Present(record), RecordState::Present(former)) => record == former,
            _ => false,
        };
        is_same_record && read(self) == read(former)
    }

    /// Returns the claim that it represents, by its own reference or by our record. The uid is empty if only a
    /// reference of another provisioner without a uid is left.
    pub(crate) fn claim(&self) -> Option<ClaimName> {
        let has_uid = |claim: &&ClaimName| !claim.uid.is_empty();
        let recorded = || self.record()?.claim.clone().filter(|claim| has_uid(&claim));
        self.reference.clone().filter(|claim| has_uid(&claim)).or_else(recorded).or_else(|| self.reference.clone())
    }

    /// Returns the provisioner's state. It is empty until a call has succeeded, whatever other writers have put into
    /// the object.
    pub(crate) fn kept_state(&self) -> BTreeMap<String, String> {
        let unmade = self.record().is_some_and(|record| !record.made);
        if unmade { BTreeMap::new() } else { self.state.clone() }
    }

    /// Returns the claim that the bucket was created for, as named by marks in the backend: a restored claim has
    /// another uid.
    pub(crate) fn created_for(&self, claim: ClaimName) -> ClaimName {
        let created_for = self.record().and_then(|record| record.made_for_uid.clone());
        ClaimName { uid: created_for.unwrap_or(claim.uid), ..claim }
    }

    /// Returns the claim's account, for which its bucket was created.
    pub(crate) fn owner(&self, claim: ClaimName) -> Account {
        Account::of(self.created_for(claim))
    }

    /// Returns true if an administrator assigns it to this claim. A bucket with an owner can only be assigned to a
    /// claim of the same name, from which the names of accounts are derived.
    pub(crate) fn is_given_to(&self, claim: &ClaimFacts) -> bool {
        let is_of_name = |former: ClaimName| {
            former.name.is_empty() || former.namespace == *claim.namespace && former.name == *claim.name
        };
        self.adopt_for.as_deref() == Some(&claim.path()) && self.claim().is_none_or(is_of_name)
    }
}
