//! An object-safe trait around the bucket provisioner: the controller is compiled once, without the provisioner's
//! types.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use futures::future::BoxFuture;
use provisioner_runtime::access::AccessRule;

use crate::bucket::{
    Assets, Bucket, BucketCapabilities, BucketHooks, BucketLookup, BucketProvisioner, BucketRequest,
    BucketStartContext, Credentials, GrantRequest, Granted, GrantedAccount, ListAssets, ProvisionedBucket,
};
use crate::controller::shared::class_parameters::Parsed;
use crate::error::{DeleteError, ProvisionError, StartError};
use crate::parameters::{self, ParameterError};

// The arguments before their parameters are converted to the provisioner's types.
pub(crate) type UntypedRequest = BucketRequest<Parsed, Parsed>;
pub(crate) type UntypedGrant = GrantRequest<Parsed, Parsed>;
pub(crate) type UntypedBucket = ProvisionedBucket<Parsed>;
pub(crate) type UntypedAccount = GrantedAccount<Parsed>;
pub(crate) type UntypedLookup = BucketLookup<Parsed>;

/// Converts an argument to the provisioner's types.
macro_rules! typed {
    ($type:ident, $untyped:expr, { $($new:ident: $value:expr),* }, $($kept:ident),*) => {{
        let untyped = $untyped;
        $type { $($new: $value,)* $($kept: untyped.$kept,)* }
    }};
}

fn request<P: Send + Sync + 'static, C: Send + Sync + 'static>(untyped: UntypedRequest) -> BucketRequest<P, C> {
    let (parameters, config) = (of_author(&untyped.parameters), of_author(&untyped.config));
    typed!(BucketRequest, untyped, { parameters: parameters, config: config },
        name, owner, config_texts, state, secrets, applied_config, cluster_id, fencing_token)
}

fn grant<P: Send + Sync + 'static, C: Send + Sync + 'static>(untyped: UntypedGrant) -> GrantRequest<P, C> {
    let (parameters, config) = (of_author(&untyped.parameters), of_author(&untyped.config));
    typed!(GrantRequest, untyped, { parameters: parameters, config: config },
        account, buckets, config_texts, state, access_key_id, credentials, secrets, cluster_id, fencing_token)
}

fn bucket<P: Send + Sync + 'static>(untyped: UntypedBucket) -> ProvisionedBucket<P> {
    let parameters = untyped.parameters.as_ref().map(of_author);
    typed!(ProvisionedBucket, untyped, { parameters: parameters },
        name, owner, state, config_texts, secrets, cluster_id, fencing_token)
}

fn account<P: Send + Sync + 'static>(untyped: UntypedAccount) -> GrantedAccount<P> {
    let parameters = untyped.parameters.as_ref().map(of_author);
    typed!(GrantedAccount, untyped, { parameters: parameters },
        account, buckets, state, config_texts, access_key_id, secrets, cluster_id, fencing_token)
}

fn lookup<P: Send + Sync + 'static>(untyped: UntypedLookup) -> BucketLookup<P> {
    let parameters = of_author(&untyped.parameters);
    typed!(BucketLookup, untyped, { parameters: parameters }, name, secrets)
}

fn of_author<T: Send + Sync + 'static>(parsed: &Arc<Parsed>) -> Arc<T> {
    Parsed::clone(parsed).typed()
}

type Answer<'a, T, E> = BoxFuture<'a, Result<T, E>>;

/// The calls of a bucket provisioner. Each may panic.
pub(crate) trait BucketBackend: Send + Sync + 'static {
    fn parse(&self, parameters: &BTreeMap<String, String>) -> Result<Parsed, ParameterError>;
    fn parse_config(&self, config: &BTreeMap<String, String>) -> Result<Parsed, ParameterError>;
    /// Returns the keys of the class parameters, and of `additionalConfig`, if the provisioner's types are structs.
    fn keys(&self) -> [Option<&'static [&'static str]>; 2];
    fn create_bucket(&self, request: UntypedRequest) -> Answer<'_, Bucket, ProvisionError>;
    fn delete_bucket(&self, bucket: UntypedBucket) -> Answer<'_, (), DeleteError>;
    #[cfg_attr(not(feature = "cosi"), expect(dead_code, reason = "COSI alone looks buckets up"))]
    fn find_bucket(&self, bucket: UntypedLookup) -> Answer<'_, Option<Bucket>, ProvisionError>;
    fn grant(&self, request: UntypedGrant) -> Answer<'_, Granted, ProvisionError>;
    fn revoke(&self, account: UntypedAccount) -> Answer<'_, (), DeleteError>;
    fn rotate(&self, account: UntypedAccount) -> Answer<'_, Credentials, ProvisionError>;
    fn revoke_old_keys(&self, account: UntypedAccount) -> Answer<'_, (), DeleteError>;
    fn list_keys(&self, account: UntypedAccount) -> Answer<'_, Option<Vec<String>>, Box<dyn Error + Send + Sync>>;
    fn list_assets(&self, list: ListAssets<Parsed>) -> Answer<'_, Assets, Box<dyn Error + Send + Sync>>;
    fn start(&self, start: BucketStartContext) -> Answer<'_, (), StartError>;
    fn probe(&self) -> Answer<'_, (), StartError>;
    fn probe_class(&self, parameters: Parsed) -> Answer<'_, (), StartError>;
    fn capabilities(&self) -> BucketCapabilities;
    fn access_rules(&self) -> Vec<AccessRule>;
}

impl<B: BucketHooks> BucketBackend for B {
    fn parse(&self, parameters: &BTreeMap<String, String>) -> Result<Parsed, ParameterError> {
        Parsed::read::<B::Parameters>(parameters)
    }

    fn parse_config(&self, config: &BTreeMap<String, String>) -> Result<Parsed, ParameterError> {
        Parsed::read::<B::Config>(config)
    }

    fn keys(&self) -> [Option<&'static [&'static str]>; 2] {
        [parameters::keys_of::<B::Parameters>(), parameters::keys_of::<B::Config>()]
    }

    fn create_bucket(&self, untyped: UntypedRequest) -> Answer<'_, Bucket, ProvisionError> {
        Box::pin(BucketProvisioner::create_bucket(self, request(untyped)))
    }

    fn delete_bucket(&self, untyped: UntypedBucket) -> Answer<'_, (), DeleteError> {
        Box::pin(BucketProvisioner::delete_bucket(self, bucket(untyped)))
    }

    fn find_bucket(&self, untyped: UntypedLookup) -> Answer<'_, Option<Bucket>, ProvisionError> {
        Box::pin(BucketHooks::find_bucket(self, lookup(untyped)))
    }

    fn grant(&self, untyped: UntypedGrant) -> Answer<'_, Granted, ProvisionError> {
        Box::pin(BucketProvisioner::grant(self, grant(untyped)))
    }

    fn revoke(&self, untyped: UntypedAccount) -> Answer<'_, (), DeleteError> {
        Box::pin(BucketProvisioner::revoke(self, account(untyped)))
    }

    fn rotate(&self, untyped: UntypedAccount) -> Answer<'_, Credentials, ProvisionError> {
        Box::pin(BucketHooks::rotate(self, account(untyped)))
    }

    fn revoke_old_keys(&self, untyped: UntypedAccount) -> Answer<'_, (), DeleteError> {
        Box::pin(BucketHooks::revoke_old_keys(self, account(untyped)))
    }

    fn list_keys(&self, untyped: UntypedAccount) -> Answer<'_, Option<Vec<String>>, Box<dyn Error + Send + Sync>> {
        Box::pin(BucketHooks::list_keys(self, account(untyped)))
    }

    fn list_assets(&self, list: ListAssets<Parsed>) -> Answer<'_, Assets, Box<dyn Error + Send + Sync>> {
        let ListAssets { parameters, secrets, cluster_id } = list;
        let parameters = of_author(&parameters);
        Box::pin(BucketHooks::list_assets(self, ListAssets { parameters, secrets, cluster_id }))
    }

    fn start(&self, start: BucketStartContext) -> Answer<'_, (), StartError> {
        Box::pin(BucketHooks::start(self, start))
    }

    fn probe(&self) -> Answer<'_, (), StartError> {
        Box::pin(BucketHooks::probe(self))
    }

    fn probe_class(&self, parameters: Parsed) -> Answer<'_, (), StartError> {
        Box::pin(BucketHooks::probe_class(self, parameters.typed()))
    }

    fn capabilities(&self) -> BucketCapabilities {
        B::capabilities()
    }

    fn access_rules(&self) -> Vec<AccessRule> {
        B::access_rules()
    }
}
