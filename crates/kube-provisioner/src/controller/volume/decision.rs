//! What can be decided about one key, and why.

/// What to do about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing, until something changes.
    NoAction(NoAction),
    /// Nothing, and the claim's user should know why.
    Refuse(Refusal),
    /// Call the author's `provision`.
    Provision,
    /// Remove what an attempt may have left: its claim or its class is gone.
    CleanUp,
    /// Call the author's `delete` for a surplus asset: another process has saved the volume with another one.
    DeleteSurplus,
    /// Read the claim again before it gets another volume.
    Confirm,
    /// Read the volume that our watch has shown: it may be older than our term.
    ConfirmVolume,
    /// Save the volume whose asset exists.
    Save,
    /// Take a claim that waits for no pod for our node, unless another node is faster.
    Bid,
    /// Check the node whose replica has to make the claim's volume, or to delete the volume: whether it exists, and runs a
    /// replica.
    LookForNode {
        /// The node, or the place of the volume where it decides.
        name: String,
    },
    /// Add our finalizer to a volume that was made without it.
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
    /// The asset is gone: delete the object.
    FinishDelete,
}

/// Why there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoAction {
    /// Neither a claim that asks us nor a volume of ours.
    NothingHere,
    /// The claim has a volume.
    Bound,
    /// The volume is saved. The controller-manager binds it.
    Provisioned,
    /// The author's `accepts` said no.
    Vetoed,
    /// The attempt is in the journal of a former replica, and our journal has no room for it yet.
    AwaitsAdoption,
    /// The claim's class names another provisioner.
    ClassOfAnother,
    /// The claim's or the volume's node has a replica of its own.
    OtherNode,
    /// The volume was made in another cluster.
    OtherCluster,
    /// The volume was made by another installation.
    OtherInstallation,
    /// The scheduler has not chosen a node.
    AwaitsNode,
    /// The claim is being deleted, and nothing was made for it.
    ClaimTerminating,
    /// The volume is in use, or was never bound.
    NotReleased,
    /// The volume is to be kept.
    Retained,
    /// The volume is released, but its claim still exists.
    ClaimStillSeen,
    /// The volume is being deleted, and no asset of ours hangs on it.
    VolumeTerminating,
}

/// Why a claim gets no volume. The texts for its user are in `report`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The claim's access modes are not among these, which are all that there are.
    AccessModes(Vec<String>),
    /// The class restricts where volumes may be.
    AllowedTopologies,
    /// The claim names this VolumeAttributesClass.
    AttributesClass(String),
    /// The claim says that its binding is complete, and names no volume: Kubernetes considers it Lost.
    BindCompleted,
    /// The claim asks for a block device.
    Block,
    /// The class with this name does not exist, or the claim names none.
    ClassMissing(Option<String>),
    /// The volume may be a copy from a backup: that its claim is absent says nothing.
    Copy {
        /// The volume's uid.
        uid: String,
    },
    /// The claim asks for a copy.
    DataSource {
        /// The kind of the source, with its group.
        kind: String,
        /// The name of the source.
        name: String,
    },
    /// The volume names no installation, and each node's replica serves only its own.
    Nobodys,
    /// The claim cannot be read.
    Unreadable {
        /// Why not.
        problem: String,
    },
    /// The volume cannot be read.
    UnreadableVolume {
        /// Why not.
        problem: String,
    },
    /// The claim asks for more, and volumes cannot grow.
    Expansion,
    /// Every node has a replica of its own, and the class lets the scheduler choose none.
    ImmediateClass,
    /// The class has mount options.
    MountOptions,
    /// The name of the claim's volume is another one's.
    NameTaken,
    /// Another claim has the name that the claim's volume would have.
    NameShared {
        /// That claim.
        rival: String,
    },
    /// The volume is on a node that does not exist any more.
    NodeGone {
        /// Its name.
        node: String,
    },
    /// No node with the CSI driver can use the volume any more.
    PlaceGone {
        /// Where the volume is, as label selectors.
        place: String,
    },
    /// The volume was made in another cluster.
    OtherCluster {
        /// Its id.
        maker: String,
    },
    /// The volume was made by another installation.
    OtherInstallation {
        /// Its identity.
        maker: String,
    },
    /// The class's parameters cannot be used.
    Parameters(String),
    /// The author's code crashed while it read the class's parameters.
    ParametersCrash(String),
    /// The claim is to be filled by a volume populator.
    Populator {
        /// The kind of the source, with its group.
        kind: String,
        /// The name of the source.
        name: String,
    },
    /// The claim's size cannot be read.
    Request(String),
    /// The volume is to be kept, but its deletion has begun.
    RetainedTooLate,
    /// The claim has a label selector.
    Selector,
    /// The claim asks for a copy of what is in another namespace.
    SourceNamespace {
        /// That namespace.
        namespace: String,
        /// The name of the source.
        name: String,
    },
    /// The claim asks for more, and the volume names no installation: each node's replica serves only its own.
    Unadopted,
    /// The volume is being deleted after its `claimRef` was removed, so it is not Released.
    Unreleased {
        /// The volume's uid.
        uid: String,
    },
}

impl Refusal {
    /// Returns whether a volume is kept, rather than a claim refused.
    pub(crate) fn is_about_volume(&self) -> bool {
        matches!(
            self,
            Self::Copy { .. }
                | Self::Nobodys
                | Self::NodeGone { .. }
                | Self::PlaceGone { .. }
                | Self::OtherCluster { .. }
                | Self::OtherInstallation { .. }
                | Self::RetainedTooLate
                | Self::Unreleased { .. }
                | Self::UnreadableVolume { .. }
        )
    }
}

/// How a volume is deleted. The cache alone never suffices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// Our finalizer holds the object: delete it first (the answer is the live object), then the asset.
    Protected,
    /// Read the live object, delete the asset, then the object with its uid as precondition.
    Checked,
    /// A user deleted the volume before its claim was bound to it, and our finalizer keeps it. Read the volume and its
    /// claim, which will get another volume. No pod has ever used it.
    NeverBound,
}
