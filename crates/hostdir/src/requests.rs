//! Requests on names and attributes, which need all parts of a served directory: each as a method of
//! [`Host`](crate::host::Host).

mod acl;
mod attributes;
mod create;
mod dax;
mod explain;
mod ioctl;
mod labels;
mod lookup;
mod ownership;
mod rename;
mod xattrs;

pub use explain::EXPLAINED_DEPTH_MAX;
