//! Notifications, the messages of a server without a request: their codes, and writing them.

use crate::ids::{NodeId, Unique};
use crate::layout::{
    NotifyDeleteOut, NotifyInvalEntryOut, NotifyInvalInodeOut, NotifyPollWakeupOut, NotifyPruneOut,
    NotifyRetrieveOut, NotifyStoreOut, OutHeader,
};
use zerocopy::IntoBytes;

/// The bit of [`Unique`] that marks a request that the kernel sends again (`FUSE_UNIQUE_RESEND`).
pub const UNIQUE_RESEND: u64 = 1 << 63;

/// Codes of notifications (`enum fuse_notify_code`), in the place of a reply's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum NotifyCode {
    /// A polled file is ready.
    Poll = 1,
    /// Attributes, or a range of data, of an inode have changed.
    InvalInode = 2,
    /// A name has another node, or none.
    InvalEntry = 3,
    /// Stores data in the page cache.
    Store = 4,
    /// Asks for data of the page cache.
    Retrieve = 5,
    /// A name was removed, with the node that it had.
    Delete = 6,
    /// Sends every unanswered request again (7.39).
    Resend = 7,
    /// Every name and every listing is stale (7.44).
    IncEpoch = 8,
    /// Forgets these inodes where they are not in use (7.45).
    Prune = 9,
}

/// A notification with borrowed parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the fields have the header's own names and meanings"
)]
pub enum Notification<'a> {
    /// [`NotifyCode::Poll`].
    Poll { kh: u64 },
    /// [`NotifyCode::InvalInode`]: a negative `off` means attributes only, a `len` of 0 or less all from
    /// `off` on.
    InvalInode { node: NodeId, off: i64, len: i64 },
    /// [`NotifyCode::InvalEntry`]; with `expire_only`, the name is looked up again and not dropped.
    InvalEntry {
        parent: NodeId,
        name: &'a [u8],
        expire_only: bool,
    },
    /// [`NotifyCode::Delete`].
    Delete {
        parent: NodeId,
        child: NodeId,
        name: &'a [u8],
    },
    /// [`NotifyCode::Store`].
    Store {
        node: NodeId,
        offset: u64,
        data: &'a [u8],
    },
    /// [`NotifyCode::Retrieve`]; `unique` comes back with the data.
    Retrieve {
        unique: Unique,
        node: NodeId,
        offset: u64,
        size: u32,
    },
    /// [`NotifyCode::Resend`].
    Resend,
    /// [`NotifyCode::IncEpoch`].
    IncEpoch,
    /// [`NotifyCode::Prune`].
    Prune { nodes: &'a [NodeId] },
}

impl Notification<'_> {
    /// Its code.
    #[must_use]
    pub const fn code(&self) -> NotifyCode {
        match self {
            Notification::Poll { .. } => NotifyCode::Poll,
            Notification::InvalInode { .. } => NotifyCode::InvalInode,
            Notification::InvalEntry { .. } => NotifyCode::InvalEntry,
            Notification::Delete { .. } => NotifyCode::Delete,
            Notification::Store { .. } => NotifyCode::Store,
            Notification::Retrieve { .. } => NotifyCode::Retrieve,
            Notification::Resend => NotifyCode::Resend,
            Notification::IncEpoch => NotifyCode::IncEpoch,
            Notification::Prune { .. } => NotifyCode::Prune,
        }
    }

    /// The whole message with its header; `None` when it is too long for the header.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut message = vec![0; size_of::<OutHeader>()];
        self.encode_body(&mut message)?;
        let len = u32::try_from(message.len()).ok()?;
        let header = OutHeader {
            len,
            error: self.code() as i32,
            unique: 0,
        };
        message[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        Some(message)
    }

    fn encode_body(&self, message: &mut Vec<u8>) -> Option<()> {
        let mut put = |bytes: &[u8]| message.extend_from_slice(bytes);
        match *self {
            Notification::Poll { kh } => put(NotifyPollWakeupOut { kh }.as_bytes()),
            Notification::InvalInode { node, off, len } => {
                put(NotifyInvalInodeOut {
                    ino: node.0,
                    off,
                    len,
                }
                .as_bytes());
            }
            Notification::InvalEntry {
                parent,
                name,
                expire_only,
            } => {
                let namelen = u32::try_from(name.len()).ok()?;
                let flags = u32::from(expire_only);
                put(NotifyInvalEntryOut {
                    parent: parent.0,
                    namelen,
                    flags,
                }
                .as_bytes());
                put(name);
                put(b"\0");
            }
            Notification::Delete {
                parent,
                child,
                name,
            } => {
                let namelen = u32::try_from(name.len()).ok()?;
                let out = NotifyDeleteOut {
                    parent: parent.0,
                    child: child.0,
                    namelen,
                    padding: 0,
                };
                put(out.as_bytes());
                put(name);
                put(b"\0");
            }
            Notification::Store { node, offset, data } => {
                let size = u32::try_from(data.len()).ok()?;
                put(NotifyStoreOut {
                    nodeid: node.0,
                    offset,
                    size,
                    padding: 0,
                }
                .as_bytes());
                put(data);
            }
            Notification::Retrieve {
                unique,
                node,
                offset,
                size,
            } => {
                let (notify_unique, nodeid) = (unique.0, node.0);
                let out = NotifyRetrieveOut {
                    notify_unique,
                    nodeid,
                    offset,
                    size,
                    padding: 0,
                };
                put(out.as_bytes());
            }
            Notification::Resend | Notification::IncEpoch => {}
            Notification::Prune { nodes } => {
                let count = u32::try_from(nodes.len()).ok()?;
                put(NotifyPruneOut {
                    count,
                    padding: 0,
                    spare: 0,
                }
                .as_bytes());
                nodes.iter().for_each(|node| put(node.0.as_bytes()));
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::Reply;

    #[test]
    fn a_notification_has_its_code_and_no_unique() {
        let notification = Notification::InvalEntry {
            parent: NodeId(1),
            name: b"x",
            expire_only: true,
        };
        let message = notification.encode().unwrap();
        assert_eq!(message.len(), 16 + 16 + 2);
        let reply = Reply::parse(&message).unwrap();
        assert_eq!((reply.unique, reply.error), (Unique(0), 3));
        assert!(message.ends_with(b"x\0"));
        let prune = Notification::Prune {
            nodes: &[NodeId(2), NodeId(3)],
        }
        .encode()
        .unwrap();
        assert_eq!(prune.len(), 16 + 16 + 16);
    }
}
