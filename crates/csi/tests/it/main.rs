//! The CSI interface: a client and a server over a socket, and the messages against the specification.

mod methods;
mod socket;
mod specification;
