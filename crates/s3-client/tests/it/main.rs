//! Tests of the S3 and IAM clients against a server.

mod server;
