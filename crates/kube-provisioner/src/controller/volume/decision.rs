//! Decisions about one key, and their reasons.

/// The action for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Do nothing until something changes.
    NoAction(NoAction),
    /// Do nothing, and report the reason on the claim.
    Refuse(Refusal),
    /// Call the author's `provision`.
    Provision,
    /// Remove what an attempt may have left, because its claim or its class no longer exists.
    CleanUp,
    /// Call the author's `delete` for a surplus asset: another process has saved the volume with another asset.
    DeleteSurplus,
    /// Read the claim again before it receives another volume.
    Confirm,
    /// Read the volume that our watch has delivered, since it may be older than our term.
    ConfirmVolume,
    /// Save the volume whose asset exists.
    Save,
    /// Select our node for a claim that does not wait for a pod, unless another node is faster.
    Bid,
    /// Check whether the node whose replica has to create or delete the volume exists and has a running replica.
    CheckNode {
        /// The node, or the volume's place if that decides.
        name: String,
    },
    /// Add our finalizer to a volume that was created without it.
    Protect,
    /// Remove our finalizer from a volume that is not to be deleted.
    Unprotect,
    /// Call the author's `expand` with this size.
    Expand {
        /// The size.
        bytes: u64,
    },
    /// Call the author's `delete`, then delete the object.
    Delete(Deletion),
    /// Delete the object of a deleted asset.
    FinishDelete,
}

/// The reason why there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoAction {
    /// The key has neither a claim that names us nor a volume of ours.
    Unrelated,
    /// The claim has a volume.
    Bound,
    /// The volume is saved. The controller-manager binds it.
    Provisioned,
    /// The author's `accepts` returned false.
    Vetoed,
    /// The attempt is in the journal of a former replica, and our journal does not have room for it yet.
    AwaitsAdoption,
    /// The claim's class names another provisioner.
    ForeignClass,
    /// The claim's or the volume's node has its own replica.
    OtherNode,
    /// The volume was created in another cluster.
    OtherCluster,
    /// The volume was created by another installation.
    OtherInstallation,
    /// The scheduler has not chosen a node.
    AwaitsNode,
    /// The claim is being deleted, and no attempt was begun for it.
    ClaimTerminating,
    /// The volume is in use, or was never bound.
    NotReleased,
    /// The volume is retained.
    Retained,
    /// The volume is released, but its claim still exists.
    ClaimStillExists,
    /// The volume is being deleted, and there is no asset of ours to delete.
    VolumeTerminating,
}

/// The reason why a claim does not receive a volume, or why a volume is kept. The texts for users are in `report`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The provisioner supports only these access modes, and the claim requests another one.
    AccessModes(Vec<String>),
    /// The class restricts the topology of volumes.
    AllowedTopologies,
    /// The claim names this VolumeAttributesClass.
    AttributesClass(String),
    /// The claim's binding is marked as complete, but it does not name a volume: Kubernetes considers it Lost.
    BindCompleted,
    /// The claim requests a block device.
    Block,
    /// The class with this name does not exist, or the claim does not name a class.
    ClassMissing(Option<String>),
    /// The volume may be a copy from a backup, so the absence of its claim does not prove a deletion.
    Copy {
        /// The volume's uid.
        uid: String,
    },
    /// The claim requests a copy.
    DataSource {
        /// The kind of the source, with its group.
        kind: String,
        /// The name of the source.
        name: String,
    },
    /// The volume does not name an installation, and each node's replica reconciles only its own volumes.
    Unowned,
    /// The claim cannot be read.
    Unreadable {
        /// The reason.
        problem: String,
    },
    /// The volume cannot be read.
    UnreadableVolume {
        /// The reason.
        problem: String,
    },
    /// The claim requests more, and the provisioner does not support expansion.
    Expansion,
    /// Every node has its own replica, and the class does not let the scheduler choose a node.
    ImmediateClass,
    /// The class has mount options.
    MountOptions,
    /// A foreign volume has the name of the claim's volume.
    NameTaken,
    /// Another claim holds the name that the claim's volume would have.
    NameShared {
        /// That claim.
        rival: String,
    },
    /// The volume is on a node that no longer exists.
    NodeGone {
        /// Its name.
        node: String,
    },
    /// The CSI driver is not registered on any node that can use the volume.
    NoUsableNode {
        /// The volume's place, as label selectors.
        place: String,
    },
    /// The volume was created in another cluster.
    OtherCluster {
        /// The cluster's ID.
        creator: String,
    },
    /// The volume was created by another installation.
    OtherInstallation {
        /// The installation's identity.
        creator: String,
    },
    /// The class's parameters are invalid.
    Parameters(String),
    /// The author's code panicked while it parsed the class's parameters.
    ParametersCrash(String),
    /// A volume populator has to fill the claim.
    Populator {
        /// The kind of the source, with its group.
        kind: String,
        /// The name of the source.
        name: String,
    },
    /// The claim's size cannot be read.
    Request(String),
    /// The volume should be retained, but its deletion has begun.
    RetainedTooLate,
    /// The claim has a label selector.
    Selector,
    /// The claim requests a copy of a source in another namespace.
    SourceNamespace {
        /// That namespace.
        namespace: String,
        /// The name of the source.
        name: String,
    },
    /// The claim requests more, but the volume does not name an installation, and each node's replica reconciles only
    /// its own volumes.
    Unadopted,
    /// The volume is being deleted after its `claimRef` was removed, so it is not Released.
    Unreleased {
        /// The volume's uid.
        uid: String,
    },
}

impl Refusal {
    /// Returns whether the refusal is about a volume that is kept, and not about a claim.
    pub(crate) fn is_about_volume(&self) -> bool {
        matches!(
            self,
            Self::Copy { .. }
                | Self::Unowned
                | Self::NodeGone { .. }
                | Self::NoUsableNode { .. }
                | Self::OtherCluster { .. }
                | Self::OtherInstallation { .. }
                | Self::RetainedTooLate
                | Self::Unreleased { .. }
                | Self::UnreadableVolume { .. }
        )
    }
}

/// The procedure for deleting a volume. The state in the cache is never sufficient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// Our finalizer keeps the object: delete the object first (the answer is the live object), then the asset.
    Protected,
    /// Read the live object, delete the asset, then delete the object with its uid as precondition.
    Checked,
    /// A user deleted the volume before its claim was bound to it, and our finalizer keeps it. Read the volume and its
    /// claim, which will receive another volume. The deleted volume was never used by a pod.
    NeverBound,
}
