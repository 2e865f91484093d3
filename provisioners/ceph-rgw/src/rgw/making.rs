//! Makes a claim's bucket.

use kube_provisioner::ProvisionError;
use kube_provisioner::bucket::{Objection, RequestOf};
use s3_client::NewBucket;

use super::account::Account;
use super::{ONE_BUCKET, Rgw, Users};
use crate::admin::{Failure, User};
use crate::parameters::Placement;
use crate::store::Store;
use crate::users::HandedOver;

/// Makes the bucket, unless it is `absent` no more, and sees to it that its owner has it. The claim's own user makes it in any
/// case: nobody else has a name with the claim's uid, so that user's bucket is the claim's, whenever this ends. A bucket of
/// the owner whom the claim names could be any of that owner's. The answer is the marker of a bucket that belongs to that owner.
pub(super) async fn make(
    store: &Store,
    users: &Users,
    owner: &User,
    request: &RequestOf<Rgw>,
    absent: bool,
) -> Result<Option<String>, Objection> {
    if users.owner.generated {
        return create(store, &users.owner, owner, request).await.map(|()| None);
    }
    let own = users.own.as_ref().ok_or_else(|| Objection::Refused("the claim has no uid".to_owned()))?;
    let own_user = own.ensured(store, ONE_BUCKET).await?;
    if absent {
        has_room(store, &users.owner, owner).await?;
        create(store, own, &own_user, request).await?;
    }
    let name = &request.name;
    let made = store.admin.bucket(name).await?.filter(|made| made.owner == own.id);
    let made = made.ok_or_else(|| {
        Objection::Failed(ProvisionError::retry(format!("the bucket {name} was made and is not there")))
    })?;
    own.note(store, HandedOver { marker: made.marker.clone(), owner: users.owner.id.clone() }).await?;
    store.admin.give_bucket(name, &made.id, &users.owner.id).await?;
    Ok(Some(made.marker))
}

async fn create(store: &Store, account: &Account, user: &User, request: &RequestOf<Rgw>) -> Result<(), Objection> {
    let name = &request.name;
    let key = account.key(store, user, None).await?;
    // A region would be taken for the name of a placement, which stands behind a colon.
    let location = request.config.bucket_placement.as_ref().map(|Placement(name)| format!(":{name}"));
    let storage_class = request.config.bucket_storage_class.as_ref().map(|Placement(name)| name.as_str());
    let new = NewBucket { location: location.as_deref(), storage_class, ..NewBucket::default() };
    let error = match store.s3(key).create_bucket_with(name, new).await {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    match error.code() {
        // An answer to an earlier call was lost.
        "BucketAlreadyOwnedByYou" => Ok(()),
        "BucketAlreadyExists" => Err(Objection::Refused(format!(
            "the bucket {name} exists and belongs to somebody else: choose another bucketName"
        ))),
        "InvalidBucketName" => {
            Err(Objection::Refused(Failure::of_user(&format!("make the bucket {name}"), error).to_string()))
        }
        _ => Err(Failure::of_user(&format!("make the bucket {name}"), error).into()),
    }
}

/// Whether the owner whom the claim names may own another bucket. The gateway asks only those who make one.
async fn has_room(store: &Store, account: &Account, owner: &User) -> Result<(), Objection> {
    let (id, most) = (&account.id, owner.max_buckets);
    let full = most < 0 || (most > 0 && store.admin.buckets_of(id).await?.len() as i64 >= most);
    if full {
        let text =
            format!("the user {id} may own no further bucket: radosgw-admin user modify --uid={id} --max-buckets=…");
        return Err(Objection::Failed(ProvisionError::retry(text)));
    }
    Ok(())
}
