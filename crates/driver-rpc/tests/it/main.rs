//! Tests of clients and servers over a socket, and of the messages against the specifications.

mod csi;
mod generated;
mod messages;
