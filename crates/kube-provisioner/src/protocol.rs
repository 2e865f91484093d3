//! Names on the wire, and other values that Kubernetes and provisioners agree on: annotations, finalizers, time limits.
//!
//! Sources: [well-known labels and annotations], and the constants of [sig-storage-lib-external-provisioner].
//!
//! [well-known labels and annotations]: https://kubernetes.io/docs/reference/labels-annotations-taints/
//! [sig-storage-lib-external-provisioner]: https://github.com/kubernetes-sigs/sig-storage-lib-external-provisioner

use std::time::Duration;

/// Time for which the API server may still execute a request of a process that was killed: by default one minute, plus
/// a margin. Until then, a volume may be saved although it does not exist yet.
pub const MAX_REQUEST_DURATION: Duration = Duration::from_secs(75);
/// PV annotation: the provisioner that created the volume, as its class named it.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// PV annotation: the installation of the provisioner that created the volume.
pub const IDENTITY: &str = "kube-provisioner/identity";
/// Annotation of PVs and ObjectBuckets: the cluster in which the storage was created.
pub const CLUSTER_ID: &str = "kube-provisioner/cluster-id";
/// The field manager of the requests that create PVs, by which `metadata.managedFields` identifies an object's creator.
pub const CREATOR: &str = "kube-provisioner-creator";
/// PV annotation: an administrator permits deletion of this volume's data, although it is unknown whether its claim was
/// deleted. The value is the volume's uid.
pub const RELEASE: &str = "kube-provisioner/release";
/// PV annotation: the time at which an administrator adopted the volume. A change retries failed work on the volume
/// immediately.
pub const ADOPTED: &str = "kube-provisioner/adopted";
/// PV annotation: the CSI driver that an in-tree volume was migrated to.
pub const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// Claim annotation: the provisioner of the requested volume (Kubernetes 1.23 and later).
pub const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// Claim annotation: the provisioner of the requested volume, under its older name.
pub const BETA_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// Claim annotation: Kubernetes has bound the claim. A claim with it but without a volume is a copy of another claim.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Claim annotation: the node selected by the scheduler for the first consumer.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotation of claims and volumes: the class name in early clusters; it takes precedence if present.
pub const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// PV annotation, followed by a role: namespace and name of the Secret that deletion needs.
pub const SECRET_PREFIX: &str = "kube-provisioner/secret";
/// PV finalizer: the backend's asset still exists.
pub const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// Node label to which volumes on one node are bound.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
/// The binding mode that waits for the first pod.
pub const WAIT_FOR_FIRST_CONSUMER: &str = "WaitForFirstConsumer";
/// ObjectBucket annotation: the data that its provisioner needs to change and to remove the bucket.
pub const BUCKET: &str = "kube-provisioner/bucket";
/// ObjectBucket annotation: the provisioner that created it, as its class names it.
pub const BUCKET_PROVISIONER: &str = "kube-provisioner/provisioned-by";
/// ObjectBucket annotation: with the value `true` the object is removed with its claim, whatever remains in the
/// backend.
pub const ABANDON: &str = "kube-provisioner/abandon";
/// ObjectBucket annotation: `<namespace>/<name>` of the claim that takes over the bucket, for objects that were
/// restored from a backup, or do not name their claim. Only administrators write ObjectBuckets.
pub const ADOPT_FOR: &str = "kube-provisioner/adopt-for";
/// Key of an ObjectBucketClaim's `additionalConfig`: the claim in the same namespace whose bucket this claim uses.
pub const BUCKET_CLAIM_NAME: &str = "bucketClaimName";
/// Key of an ObjectBucketClaim's `additionalConfig`: the name of the claim's Secret.
pub const SECRET_NAME: &str = "secretName";
/// Key of an ObjectBucketClaim's `additionalConfig`: the name of the claim's ConfigMap.
pub const CONFIG_MAP_NAME: &str = "configMapName";
/// Label of the ObjectBuckets of claims that use the bucket of another claim: the uid of the claim that the bucket was
/// created for.
pub const USES_BUCKET_OF: &str = "kube-provisioner/uses-bucket-of";
/// ObjectBucket annotation: with the value `true` other claims use the bucket, or have used it.
pub const SHARED: &str = "kube-provisioner/shared";
/// ObjectBucketClaim annotation: each change of its value rotates the claim's key.
pub const ROTATE_CREDENTIALS: &str = "kube-provisioner/rotate-credentials";
/// Parameter of a BucketAccessClass: with the value `true` its accounts can access buckets that the driver has not
/// created.
pub const EXISTING_BUCKETS: &str = "existingBuckets";
/// Annotation of the Secret that records a COSI account, and label of the Secrets of its BucketAccess: the driver.
pub const COSI_DRIVER: &str = "kube-provisioner/cosi-driver";
/// Annotation of the Secret that records a COSI account: the account's name.
pub const COSI_ACCOUNT: &str = "kube-provisioner/cosi-account";
/// Label of a provisioner's Leases: the kind of claims that it serves.
pub const SERVES: &str = "kube-provisioner/serves";
/// The value of [`SERVES`] for PersistentVolumeClaims.
pub const SERVES_VOLUMES: &str = "volumes";
/// The value of [`SERVES`] for ObjectBucketClaims.
pub const SERVES_BUCKETS: &str = "buckets";
