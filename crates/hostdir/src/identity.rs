//! The identity of an inode: which lookups lead to the same one. By mount and file handle, or by mount,
//! number and time of birth where there are no handles.

use crate::ids::NodeWord;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use thrufs_abi::NodeId;
use thrufs_sys::handle::{FileHandleBuf, MAX_HANDLE_SIZE};

/// Handle type of mounts without file handles: number and birth time identify an inode.
const KIND_NUMBER_AND_BIRTH: i32 = i32::MIN;

/// A bit in the type of a handle that cannot be opened: it identifies an inode, as in events of fanotify(7).
const NOT_OPENABLE: i32 = 1 << 30;

/// Room for the handles of ext4 (8 bytes), tmpfs (12), XFS (12) and btrfs (20) without a heap
/// allocation.
const INLINE_BYTES: usize = 20;

pub(crate) const HANDLE_BYTES_MAX: usize = MAX_HANDLE_SIZE;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Bytes {
    Inline(u8, [u8; INLINE_BYTES]),
    Heap(Box<[u8]>),
}

/// The index of an inode's lower mount, and its file handle there. A handle includes a generation, so that
/// an inode number that was freed and used again makes another identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "Parts", try_from = "Parts")]
pub(crate) struct Identity {
    mount: u32,
    kind: i32,
    bytes: Bytes,
}

/// Mount, kind and bytes.
#[derive(Serialize, Deserialize)]
struct Parts(u32, i32, Box<[u8]>);

impl From<Identity> for Parts {
    fn from(identity: Identity) -> Parts {
        let (kind, bytes) = identity.parts();
        Parts(identity.mount, kind, bytes.into())
    }
}

impl TryFrom<Parts> for Identity {
    type Error = &'static str;

    fn try_from(Parts(mount, kind, bytes): Parts) -> Result<Identity, &'static str> {
        Identity::from_parts(mount, kind, &bytes).ok_or("a file handle has another length")
    }
}

impl Identity {
    fn new(mount: u32, kind: i32, bytes: &[u8]) -> Identity {
        let bytes = if bytes.len() <= INLINE_BYTES {
            let mut inline = [0; INLINE_BYTES];
            inline[..bytes.len()].copy_from_slice(bytes);
            Bytes::Inline(bytes.len() as u8, inline)
        } else {
            Bytes::Heap(bytes.into())
        };
        Identity { mount, kind, bytes }
    }

    pub(crate) fn by_handle(mount: u32, handle: &FileHandleBuf) -> Identity {
        Identity::new(mount, handle.kind(), handle.bytes())
    }

    /// By a handle that this process cannot open.
    pub(crate) fn by_closed_handle(mount: u32, kind: i32, bytes: &[u8]) -> Option<Identity> {
        Identity::from_parts(mount, kind | NOT_OPENABLE, bytes)
    }

    pub(crate) fn by_number(mount: u32, ino: u64, birth: (i64, u32)) -> Identity {
        let mut bytes = [0; INLINE_BYTES];
        bytes[..8].copy_from_slice(&ino.to_ne_bytes());
        bytes[8..16].copy_from_slice(&birth.0.to_ne_bytes());
        bytes[16..20].copy_from_slice(&birth.1.to_ne_bytes());
        Identity::new(mount, KIND_NUMBER_AND_BIRTH, &bytes)
    }

    /// An inode of another process that cannot be found here.
    pub(crate) fn lost(mount: u32, node: u64) -> Identity {
        Identity::by_number(mount, node, (i64::MIN, u32::MAX))
    }

    pub(crate) fn parts(&self) -> (i32, &[u8]) {
        let bytes = match &self.bytes {
            Bytes::Inline(length, bytes) => &bytes[..usize::from(*length)],
            Bytes::Heap(bytes) => bytes,
        };
        (self.kind, bytes)
    }

    /// From its [parts](Self::parts); `None` when they make no sense.
    pub(crate) fn from_parts(mount: u32, kind: i32, bytes: &[u8]) -> Option<Identity> {
        let fits = match kind {
            KIND_NUMBER_AND_BIRTH => bytes.len() == INLINE_BYTES,
            _ => bytes.len() <= HANDLE_BYTES_MAX,
        };
        fits.then(|| Identity::new(mount, kind, bytes))
    }

    /// The same inode on another mount.
    pub(crate) fn on(&self, mount: u32) -> Identity {
        Identity {
            mount,
            ..self.clone()
        }
    }

    pub(crate) fn mount(&self) -> u32 {
        self.mount
    }

    pub(crate) fn handle(&self) -> Option<(i32, &[u8])> {
        let (kind, bytes) = self.parts();
        let is_openable = kind != KIND_NUMBER_AND_BIRTH && kind & NOT_OPENABLE == 0;
        is_openable.then_some((kind, bytes))
    }
}

/// Most bytes of a name.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// A name of an inode, which refers to its directory by node id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownName {
    #[serde(with = "NodeWord")]
    pub(crate) directory: NodeId,
    #[serde(deserialize_with = "name")]
    pub(crate) name: Box<[u8]>,
}

fn name<'de, D: Deserializer<'de>>(from: D) -> Result<Box<[u8]>, D::Error> {
    let name = <&[u8]>::deserialize(from)?;
    match name.len() > NAME_BYTES_MAX {
        true => Err(D::Error::custom("a name is too long")),
        false => Ok(name.into()),
    }
}

impl KnownName {
    pub(crate) fn new(directory: NodeId, name: &[u8]) -> KnownName {
        KnownName {
            directory,
            name: name.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_stays_small() {
        assert!(size_of::<Identity>() <= 32, "{}", size_of::<Identity>());
    }

    #[test]
    fn identity_by_number_differs_from_any_handle() {
        let by_number = Identity::by_number(0, 5, (7, 9));
        assert!(by_number.handle().is_none());
        assert!(by_number == Identity::by_number(0, 5, (7, 9)));
        assert!(by_number != Identity::by_number(0, 5, (7, 10)));
        assert!(by_number != Identity::by_number(1, 5, (7, 9)));
    }

    #[test]
    fn long_handles_are_not_truncated() {
        let bytes: Vec<u8> = (0..100).collect();
        let handle = FileHandleBuf::from_parts(3, &bytes).expect("fits");
        let identity = Identity::by_handle(2, &handle);
        assert_eq!(identity.handle(), Some((3, &bytes[..])));
    }
}
