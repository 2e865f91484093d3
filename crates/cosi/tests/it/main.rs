//! The COSI interface: a client and a server over a socket, and the messages against the specification.

mod socket;
mod specification;
