//! The names on the wire: annotations, finalizers and values that Kubernetes and provisioners agree on.
//!
//! Sources: [well-known labels and annotations], and the constants of [sig-storage-lib-external-provisioner].
//!
//! [well-known labels and annotations]: https://kubernetes.io/docs/reference/labels-annotations-taints/
//! [sig-storage-lib-external-provisioner]: https://github.com/kubernetes-sigs/sig-storage-lib-external-provisioner

/// PV annotation: the provisioner that made the volume, as its class named it.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// PV annotation: the installation of the provisioner that made the volume.
pub const IDENTITY: &str = "kube-provisioner/identity";
/// Annotation of PVs and ObjectBuckets: the cluster in which the storage was made.
pub const CLUSTER_ID: &str = "kube-provisioner/cluster-id";
/// The field manager of the requests that create PVs: `metadata.managedFields` says by it who created an object.
pub const CREATOR: &str = "kube-provisioner-creator";
/// PV annotation: a person says that the data of this volume may go, although nobody knows of its claim's deletion. The value
/// is the volume's uid.
pub const RELEASE: &str = "kube-provisioner/release";
/// PV annotation: when an administrator adopted the volume. A change retries failed work on the volume at once.
pub const ADOPTED: &str = "kube-provisioner/adopted";
/// PV annotation: the CSI driver that an in-tree volume was migrated to.
pub const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// Claim annotation: the provisioner that is asked for a volume (Kubernetes 1.23 and later).
pub const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// Claim annotation: the same, under its older name.
pub const BETA_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// Claim annotation: Kubernetes has bound the claim. On a claim without a volume it was copied from another claim.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Claim annotation: the node that the scheduler chose for the first consumer.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotation of claims and volumes: the class name of early clusters; it wins when present.
pub const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// PV annotation: the deletion of the asset has begun. The value is the volume's uid.
pub const DELETING: &str = "kube-provisioner/deleting";
/// PV annotation, followed by a role: namespace and name of the Secret that deletion needs.
pub const SECRET_PREFIX: &str = "kube-provisioner/secret";
/// PV finalizer: the backend's asset still exists.
pub const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// Node label that volumes of one node are bound to.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
/// The binding mode that waits for the first pod.
pub const WAIT_FOR_FIRST_CONSUMER: &str = "WaitForFirstConsumer";
/// ObjectBucket annotation: what its provisioner has to know to change and to remove the bucket.
pub const BUCKET: &str = "kube-provisioner/bucket";
/// ObjectBucket annotation: the provisioner that made it, as its class names it.
pub const BUCKET_PROVISIONER: &str = "kube-provisioner/provisioned-by";
/// ObjectBucket annotation: with the value `true` the object is removed with its claim, whatever is left in the backend.
pub const ABANDON: &str = "kube-provisioner/abandon";
/// ObjectBucket annotation: `<namespace>/<name>` of the claim that takes the bucket over, for objects that were restored from a
/// backup, or do not say to which claim they belong. Only administrators write ObjectBuckets.
pub const ADOPT_FOR: &str = "kube-provisioner/adopt-for";
/// Key of an ObjectBucketClaim's `additionalConfig`: the claim of the same namespace whose bucket this claim uses.
pub const BUCKET_CLAIM_NAME: &str = "bucketClaimName";
/// Key of an ObjectBucketClaim's `additionalConfig`: the name of the claim's Secret.
pub const SECRET_NAME: &str = "secretName";
/// Key of an ObjectBucketClaim's `additionalConfig`: the name of the claim's ConfigMap.
pub const CONFIG_MAP_NAME: &str = "configMapName";
/// Label of the ObjectBuckets of claims that use the bucket of another claim: the uid of the claim that it was made for.
pub const USES_BUCKET_OF: &str = "kube-provisioner/uses-bucket-of";
/// ObjectBucket annotation: with the value `true` other claims use the bucket, or have used it.
pub const SHARED: &str = "kube-provisioner/shared";
/// ObjectBucketClaim annotation: whenever it is another text, the claim's user gets another key.
pub const ROTATE_CREDENTIALS: &str = "kube-provisioner/rotate-credentials";
/// Parameter of a BucketAccessClass: with the value `true` its accounts are let into buckets that the driver has not made.
pub const EXISTING_BUCKETS: &str = "existingBuckets";
/// Annotation of the Secret that records an account of COSI, and label of the Secrets of its BucketAccess: the driver.
pub const COSI_DRIVER: &str = "kube-provisioner/cosi-driver";
/// Annotation of the Secret that records an account of COSI: the account's name.
pub const COSI_ACCOUNT: &str = "kube-provisioner/cosi-account";
/// Label of the Leases of a provisioner: what its claims are for.
pub const SERVES: &str = "kube-provisioner/serves";
/// The value of [`SERVES`] where claims are PersistentVolumeClaims.
pub const SERVES_VOLUMES: &str = "volumes";
/// The value of [`SERVES`] where claims are for buckets.
pub const SERVES_BUCKETS: &str = "buckets";
