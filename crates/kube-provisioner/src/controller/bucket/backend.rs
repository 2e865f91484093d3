//! The author's bucket provisioner behind an object-safe trait: the controller is compiled once, without the author's
//! types.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use provisioner_runtime::access::AccessRule;

use crate::bucket::{
    Bucket, BucketCapabilities, BucketProvisioner, BucketRequest, BucketStart, Credentials, ProvisionedBucket,
    RequestOf,
};
use crate::controller::shared::class_parameters::Parsed;
use crate::error::{DeleteError, ProvisionError, StartError};
use crate::parameters::ParameterError;

/// A [`BucketRequest`] before its parameters have their types.
#[derive(Clone)]
pub(crate) struct UntypedRequest {
    pub(crate) request: BucketRequest<(), ()>,
    pub(crate) parameters: Parsed,
    pub(crate) config: Parsed,
}

/// A [`ProvisionedBucket`] before its parameters have their type.
#[derive(Clone)]
pub(crate) struct UntypedBucket {
    pub(crate) bucket: ProvisionedBucket<()>,
    pub(crate) parameters: Option<Parsed>,
}

impl UntypedRequest {
    fn typed<B: BucketProvisioner>(self) -> RequestOf<B> {
        let BucketRequest {
            name,
            claim,
            made_for,
            config_texts,
            state,
            access_key_id,
            credentials,
            secrets,
            applied_config,
            cluster_id,
            fencing_token,
            parameters: _,
            config: _,
        } = self.request;
        let (parameters, config) = (self.parameters.typed(), self.config.typed());
        BucketRequest {
            name,
            claim,
            made_for,
            parameters,
            config,
            config_texts,
            state,
            access_key_id,
            credentials,
            secrets,
            applied_config,
            cluster_id,
            fencing_token,
        }
    }
}

impl UntypedBucket {
    fn typed<P: Send + Sync + 'static>(self) -> ProvisionedBucket<P> {
        let ProvisionedBucket {
            name,
            claim,
            source,
            made_for,
            state,
            config_texts,
            access_key_id,
            secrets,
            cluster_id,
            fencing_token,
            parameters: _,
        } = self.bucket;
        let parameters: Option<Arc<P>> = self.parameters.map(Parsed::typed);
        ProvisionedBucket {
            name,
            claim,
            source,
            made_for,
            parameters,
            state,
            config_texts,
            access_key_id,
            secrets,
            cluster_id,
            fencing_token,
        }
    }
}

type Answer<'a, T, E> = BoxFuture<'a, Result<T, E>>;

/// The calls of a bucket provisioner. Each may panic.
pub(crate) trait BucketBackend: Send + Sync + 'static {
    fn parse(&self, parameters: &BTreeMap<String, String>) -> Result<Parsed, ParameterError>;
    fn parse_config(&self, config: &BTreeMap<String, String>) -> Result<Parsed, ParameterError>;
    fn provision(&self, request: UntypedRequest) -> Answer<'_, Bucket, ProvisionError>;
    fn grant(&self, request: UntypedRequest) -> Answer<'_, Bucket, ProvisionError>;
    fn delete(&self, bucket: UntypedBucket) -> Answer<'_, (), DeleteError>;
    fn revoke(&self, bucket: UntypedBucket) -> Answer<'_, (), DeleteError>;
    fn clean_up(&self, attempt: UntypedBucket) -> Answer<'_, (), DeleteError>;
    fn rotate(&self, bucket: UntypedBucket) -> Answer<'_, Credentials, ProvisionError>;
    fn retire(&self, bucket: UntypedBucket) -> Answer<'_, (), DeleteError>;
    fn start(&self, start: BucketStart) -> Answer<'_, (), StartError>;
    fn probe(&self) -> Answer<'_, (), StartError>;
    fn capabilities(&self) -> BucketCapabilities;
    fn access_rules(&self) -> Vec<AccessRule>;
}

impl<B: BucketProvisioner> BucketBackend for B {
    fn parse(&self, parameters: &BTreeMap<String, String>) -> Result<Parsed, ParameterError> {
        Parsed::read::<B::Parameters>(parameters)
    }

    fn parse_config(&self, config: &BTreeMap<String, String>) -> Result<Parsed, ParameterError> {
        Parsed::read::<B::Config>(config)
    }

    fn provision(&self, request: UntypedRequest) -> Answer<'_, Bucket, ProvisionError> {
        Box::pin(BucketProvisioner::provision(self, request.typed::<B>()))
    }

    fn grant(&self, request: UntypedRequest) -> Answer<'_, Bucket, ProvisionError> {
        Box::pin(BucketProvisioner::grant(self, request.typed::<B>()))
    }

    fn delete(&self, bucket: UntypedBucket) -> Answer<'_, (), DeleteError> {
        Box::pin(BucketProvisioner::delete(self, bucket.typed()))
    }

    fn revoke(&self, bucket: UntypedBucket) -> Answer<'_, (), DeleteError> {
        Box::pin(BucketProvisioner::revoke(self, bucket.typed()))
    }

    fn clean_up(&self, attempt: UntypedBucket) -> Answer<'_, (), DeleteError> {
        Box::pin(BucketProvisioner::clean_up(self, attempt.typed()))
    }

    fn rotate(&self, bucket: UntypedBucket) -> Answer<'_, Credentials, ProvisionError> {
        Box::pin(BucketProvisioner::rotate(self, bucket.typed()))
    }

    fn retire(&self, bucket: UntypedBucket) -> Answer<'_, (), DeleteError> {
        Box::pin(BucketProvisioner::retire(self, bucket.typed()))
    }

    fn start(&self, start: BucketStart) -> Answer<'_, (), StartError> {
        Box::pin(BucketProvisioner::start(self, start))
    }

    fn probe(&self) -> Answer<'_, (), StartError> {
        Box::pin(BucketProvisioner::probe(self))
    }

    fn capabilities(&self) -> BucketCapabilities {
        B::capabilities()
    }

    fn access_rules(&self) -> Vec<AccessRule> {
        B::access_rules()
    }
}
