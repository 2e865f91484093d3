//! Buckets on the Versity S3 Gateway, made by `aws-s3-provisioner`. It checks every right, and shows at once what was written.

mod cases;
mod contract;
mod fixture;
mod rights;
mod settings;
