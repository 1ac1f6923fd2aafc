//! Requests on names and attributes.

mod acl;
mod attributes;
mod create;
mod explain;
mod labels;
mod lookup;
mod ownership;
mod rename;
mod xattrs;

pub(crate) use attributes::{SET_IDS, content_version};
pub use explain::EXPLAINED_DEPTH_MAX;
pub(crate) use ownership::{OwnerChange, ReportedAttributes};
pub(crate) use rename::End;
