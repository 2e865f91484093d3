//! The operations of each client on a bucket.

use anyhow::ensure;

use super::Pod;

/// Three parts for clients that use 8 MiB, and four for rclone, which uses 5 MiB.
const LARGE: usize = 17 << 20;

const BOTO3: &str = r#"
import boto3, os
from boto3.s3.transfer import TransferConfig
s3, bucket = boto3.client("s3"), os.environ["BUCKET_NAME"]
s3.put_object(Bucket=bucket, Key="boto3/small ü+", Body=b"hello")
assert s3.get_object(Bucket=bucket, Key="boto3/small ü+")["Body"].read() == b"hello"
s3.upload_file("large", bucket, "boto3/large")
s3.download_file(bucket, "boto3/large", "large-of-boto3")
upload = s3.create_multipart_upload(Bucket=bucket, Key="boto3/unfinished")["UploadId"]
of_upload = {"Bucket": bucket, "Key": "boto3/unfinished", "UploadId": upload}
s3.upload_part(PartNumber=1, Body=b"part", **of_upload)
assert [part["Size"] for part in s3.list_parts(**of_upload)["Parts"]] == [4]
s3.abort_multipart_upload(**of_upload)
pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="boto3/", PaginationConfig={"PageSize": 1})
keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
assert keys == ["boto3/large", "boto3/small ü+"], keys
for key in keys:
    s3.delete_object(Bucket=bucket, Key=key)
assert s3.list_objects(Bucket=bucket).get("Contents") is None
"#;

/// The script for the AWS CLI.
pub const AWS: &str = r#"
echo hello > small
aws s3 cp --no-progress small "s3://$BUCKET_NAME/aws/small"
test "$(aws s3 cp "s3://$BUCKET_NAME/aws/small" -)" = hello
aws s3 cp --no-progress large "s3://$BUCKET_NAME/aws/large"
aws s3 cp --no-progress "s3://$BUCKET_NAME/aws/large" large-of-aws
test "$(aws s3 ls "s3://$BUCKET_NAME/aws/" | wc -l)" = 2
aws s3 rm "s3://$BUCKET_NAME/aws/small"
aws s3 rm "s3://$BUCKET_NAME/aws/large"
test "$(aws s3api list-objects-v2 --bucket "$BUCKET_NAME" --query 'length(Contents || `[]`)')" = 0
"#;

/// The script for rclone, with the remote of docs/book/pages/use/buckets.md. Without
/// `no_check_bucket`, rclone creates the bucket before it writes.
pub const RCLONE: &str = r#"
REMOTE=":s3,provider=Other,env_auth,no_check_bucket,endpoint='$AWS_ENDPOINT_URL_S3',region=$AWS_REGION:$BUCKET_NAME"
echo hello > small
rclone copyto small "$REMOTE/rclone/small"
test "$(rclone cat "$REMOTE/rclone/small")" = hello
rclone copyto --s3-upload-cutoff 5M --s3-chunk-size 5M large "$REMOTE/rclone/large"
rclone copyto "$REMOTE/rclone/large" large-of-rclone
test "$(rclone lsf "$REMOTE/rclone")" = "large
small"
rclone deletefile "$REMOTE/rclone/small"
rclone delete "$REMOTE/rclone"
test -z "$(rclone lsf "$REMOTE")"
"#;

/// Writes, reads, lists and deletes objects with each client, and transfers a large object in parts.
pub async fn works(pod: &Pod, clients: &[(&str, &str)]) -> anyhow::Result<()> {
    let large: Vec<u8> = (0..LARGE).map(|at| (at / 7 + at / 1000) as u8).collect();
    pod.write("large", &large)?;
    for (client, script) in clients {
        pod.run(script).await?;
        ensure!(pod.read(&format!("large-of-{client}"))? == large, "{client} reads something else than it has written");
    }
    Ok(())
}

/// The name and the script of boto3.
pub fn boto3() -> (&'static str, String) {
    ("boto3", format!("cat > use.py <<'END'\n{BOTO3}\nEND\npython3 use.py"))
}
