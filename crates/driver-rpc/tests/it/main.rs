//! Clients and servers over a socket, and the messages against the specifications.

mod csi;
mod generated;
mod messages;
