//! One cluster, with the layer between its processes and its API server.

use std::sync::Arc;
use std::time::Duration;

use kube_provisioner::bucket::objectbucket_api::{Validation, crds};
use kube_sim::{Actors, Cluster, Fault, Faults, Running};

use super::complications::Definitions;
use super::text;
use super::world::{BucketInterceptor, World};
use crate::run::{RunOptions, Trace};

const ROOK: &str = include_str!("../../../crates/objectbucket-api/fixtures/crds/rook.yaml");
const PRUNING: &str = include_str!("../../../crates/objectbucket-api/fixtures/crds/noobaa.yaml");
/// A definition without a schema, as in `apiextensions.k8s.io/v1beta1`.
const LOOSE: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: objectbucketclaims.objectbucket.io}
spec:
  group: objectbucket.io
  names: {kind: ObjectBucketClaim, listKind: ObjectBucketClaimList, plural: objectbucketclaims, singular: objectbucketclaim}
  scope: Namespaced
  versions:
  - {name: v1alpha1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: objectbuckets.objectbucket.io}
spec:
  group: objectbucket.io
  names: {kind: ObjectBucket, listKind: ObjectBucketList, plural: objectbuckets, singular: objectbucket}
  scope: Cluster
  versions:
  - {name: v1alpha1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
";

pub(crate) struct Site {
    pub(crate) number: usize,
    pub(crate) cluster: Cluster,
    /// The uid of its namespace kube-system.
    pub(crate) id: String,
    pub(crate) interceptor: Arc<BucketInterceptor>,
    pub(crate) faults: Faults,
    _actors: Running,
}

impl Site {
    /// Creates a cluster with faults of this kind.
    pub(crate) fn new(number: usize, weather: u8, world: &Arc<World>, run_options: &RunOptions) -> Self {
        // Uids differ between clusters.
        let seed = world.seed ^ ((number as u64) << 48);
        let faults = match weather {
            0 => Faults::none(seed).latency(Duration::ZERO..=Duration::from_millis(20)),
            1 => Faults::storm(seed),
            _ => Faults::storm(seed).with(Fault::Hang, 0.01).with(Fault::HangAfter, 0.01),
        };
        let faults =
            if world.complications.late > 0.0 { faults.with(Fault::Late, world.complications.late) } else { faults };
        let interceptor =
            Arc::new(BucketInterceptor::new(number, world, faults.clone(), world.complications.refused(seed)));
        let mut builder = Cluster::builder().seed(seed).hide_managed_fields().interceptor(interceptor.clone());
        if run_options.trace != Trace::Off {
            builder = builder.trace();
        }
        let cluster = builder.build();
        world.attach_cluster(&cluster);
        let actors = cluster.run(Actors::all());
        match world.complications.definitions {
            Definitions::Ours => {
                for definition in crds(Validation::Standard) {
                    let definition = serde_json::to_value(&definition).expect("a definition is JSON");
                    cluster.create(&definition).expect("the definitions are valid");
                }
            }
            Definitions::Rook => drop(cluster.create_yaml(ROOK).expect("the definitions are valid")),
            Definitions::Loose => drop(cluster.create_yaml(LOOSE).expect("the definitions are valid")),
            Definitions::Pruning => drop(cluster.create_yaml(PRUNING).expect("the definitions are valid")),
        }
        let system = cluster.get("", "namespaces", "", "kube-system").unwrap_or_default();
        let id = text(&system, "/metadata/uid").to_owned();
        Self { number, cluster, id, interceptor, faults, _actors: actors }
    }
}
