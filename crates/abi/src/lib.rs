//! The FUSE wire format: protocol 7.45 (Linux 6.18), down to 7.31 (Linux 5.4) where it differs.
//!
//! No I/O and no unsafe code. [`Request::parse`] makes a typed [`Operation`] or an error of any bytes;
//! [`layout`] has the structures, [`flags`] the flags, [`notify`] the notifications of a server, [`encode`]
//! the requests of a client.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod arguments;
mod attr;
pub mod encode;
mod extensions;
pub mod flags;
mod ids;
pub mod layout;
mod name;
pub mod notify;
pub mod opcode;
mod parse_error;
pub mod reply;
pub mod request;
pub mod version;

pub use encode::RequestBuilder;
pub use extensions::Extensions;
pub use flags::*;
pub use ids::{BackingId, FileHandle, Generation, LockOwner, NodeId, Unique};
pub use name::{BadName, NAME_BYTES_MAX, Name};
pub use notify::{Notification, NotifyCode, UNIQUE_RESEND};
pub use opcode::Opcode;
pub use parse_error::{ParseError, ParseErrorKind};
pub use reply::Reply;
pub use request::{Dialect, Header, Operation, Payload, Request, op_struct_size};
