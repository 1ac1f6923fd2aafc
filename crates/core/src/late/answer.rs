//! What a late reply may carry, and how it is written.

use crate::attributes::{
    Attributes, Entry, ExtendedAttributes, FileSystemStatistics, LockArgs, Opened,
};
use crate::directory::Listing;
use crate::errno::{Errno, Result};
use crate::reply::{attr_out, entry_out, lk_out, open_out, put, put_created, statx_out};
use thrufs_abi::layout::{
    BmapOut, CopyFileRangeOut, GetxattrOut, IoctlOut, LseekOut, PollOut, StatfsOut, WriteOut,
};
use thrufs_abi::{Opcode, Operation};

/// The longest target of a symbolic link that the kernel takes: a page without the NUL.
pub(crate) const LINK_TARGET_BYTES_MAX: u32 = 4095;

/// What a reply depends on.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub(crate) opcode: Opcode,
    /// The most bytes of data that the client takes or has sent.
    pub(crate) size: u64,
}

impl Shape {
    /// The reply to `operation`, where one READ has at most `data_bytes_max`.
    pub(crate) fn of(opcode: Opcode, operation: &Operation<'_>, data_bytes_max: u32) -> Shape {
        let size = match operation {
            Operation::Read(arg) | Operation::Readdir(arg) | Operation::Readdirplus(arg) => {
                arg.size.min(data_bytes_max).into()
            }
            Operation::Write { arg, .. } => arg.size.into(),
            Operation::Readlink => LINK_TARGET_BYTES_MAX.into(),
            Operation::Getxattr { size, .. } | Operation::Listxattr { size } => u64::from(*size),
            Operation::CopyFileRange { arg, wide: true } => arg.len,
            Operation::CopyFileRange { arg, .. } => arg.len.min(u64::from(u32::MAX) & !4095),
            Operation::Ioctl { arg, .. } => arg.out_size.into(),
            _ => 0,
        };
        Shape { opcode, size }
    }

    /// The part of `data` that the reply carries.
    fn cut(self, data: &[u8]) -> &[u8] {
        &data[..self.limit(data.len())]
    }

    pub(crate) fn limit(self, bytes: usize) -> usize {
        usize::try_from(self.size).map_or(bytes, |most| bytes.min(most))
    }

    fn asks_for_length(self) -> bool {
        self.size == 0 && matches!(self.opcode, Opcode::Getxattr | Opcode::Listxattr)
    }
}

/// Methods of [`LateAnswer`](super::LateAnswer), for this crate alone.
pub trait Encode: Send + 'static {
    #[doc(hidden)]
    fn answers(opcode: Opcode) -> bool;

    /// Writes the fixed part of the body, and returns its length.
    #[doc(hidden)]
    fn put(&self, shape: Shape, body: &mut [u8]) -> Result<usize>;

    /// What follows the fixed part.
    #[doc(hidden)]
    fn data(&self, _: Shape) -> &[u8] {
        &[]
    }

    /// How many bytes were read or written for the client.
    #[doc(hidden)]
    fn moved(&self, _: Shape) -> u64 {
        0
    }
}

macro_rules! encode {
    ($type:ty: $($opcode:ident)|+, |$answer:ident, $shape:ident, $body:ident| $put:expr) => {
        impl Encode for $type {
            fn answers(opcode: Opcode) -> bool {
                matches!(opcode, $(Opcode::$opcode)|+)
            }

            fn put(&self, $shape: Shape, $body: &mut [u8]) -> Result<usize> {
                let $answer = self;
                $put
            }
        }
    };
}

encode!(Entry: Lookup | Symlink | Mknod | Mkdir | Link, |entry, _shape, body| {
    put(body, &entry_out(entry))
});
encode!(Attributes: Getattr | Setattr, |attributes, _shape, body| {
    put(body, &attr_out(attributes))
});
encode!(ExtendedAttributes: Statx, |attributes, _shape, body| put(body, &statx_out(attributes)));
encode!(Opened: Open | Opendir, |opened, _shape, body| put(body, &open_out(opened)));
encode!((Entry, Opened): Create | Tmpfile, |created, _shape, body| {
    put_created(body, &created.0, &created.1)
});
encode!((): Unlink | Rmdir | Rename | Rename2 | Flush | Fsync | Fsyncdir | Syncfs | Setxattr
    | Removexattr | Access | Setlk | Setlkw | Fallocate, |_answer, _shape, _body| Ok(0));
encode!(FileSystemStatistics: Statfs, |statistics, _shape, body| {
    put(body, &StatfsOut { st: *statistics })
});
encode!(Option<LockArgs>: Getlk, |lock, _shape, body| put(body, &lk_out(lock.as_ref())));
encode!(u32: Poll, |events, _shape, body| {
    put(body, &PollOut { revents: *events, padding: 0 })
});

impl Encode for usize {
    fn answers(opcode: Opcode) -> bool {
        opcode == Opcode::Write
    }

    fn put(&self, shape: Shape, body: &mut [u8]) -> Result<usize> {
        // A request is far below 4 GiB.
        let size = shape.limit(*self) as u32;
        put(body, &WriteOut { size, padding: 0 })
    }

    fn moved(&self, shape: Shape) -> u64 {
        shape.limit(*self) as u64
    }
}

impl Encode for u64 {
    fn answers(opcode: Opcode) -> bool {
        use Opcode::{Bmap, CopyFileRange, CopyFileRange64, Lseek};
        matches!(opcode, Lseek | Bmap | CopyFileRange | CopyFileRange64)
    }

    fn put(&self, shape: Shape, body: &mut [u8]) -> Result<usize> {
        let bytes_copied = (*self).min(shape.size);
        match shape.opcode {
            Opcode::Lseek => put(body, &LseekOut { offset: *self }),
            Opcode::Bmap => put(body, &BmapOut { block: *self }),
            Opcode::CopyFileRange64 => put(body, &CopyFileRangeOut { bytes_copied }),
            _ => {
                let size = bytes_copied as u32;
                put(body, &WriteOut { size, padding: 0 })
            }
        }
    }

    fn moved(&self, shape: Shape) -> u64 {
        (*self).min(shape.size)
    }
}

/// Bytes of any owner, for a late reply: `Data(bytes)` where `bytes` is no `Vec<u8>`.
#[derive(Clone, Debug)]
pub struct Data<B>(pub B);

fn put_data(data: &[u8], shape: Shape, body: &mut [u8]) -> Result<usize> {
    if shape.asks_for_length() {
        let size = u32::try_from(data.len()).map_err(|_| Errno::E2BIG)?;
        return put(body, &GetxattrOut { size, padding: 0 });
    }
    match shape.opcode {
        Opcode::Read => Ok(0),
        _ if data.len() as u64 <= shape.size => Ok(0),
        Opcode::Readlink => Err(Errno::ENAMETOOLONG),
        _ => Err(Errno::ERANGE),
    }
}

macro_rules! encode_data {
    ([$($generics:tt)*] $type:ty, |$answer:ident| $bytes:expr) => {
        impl<$($generics)*> Encode for $type {
            fn answers(opcode: Opcode) -> bool {
                use Opcode::{Getxattr, Listxattr, Read, Readlink};
                matches!(opcode, Read | Readlink | Getxattr | Listxattr)
            }

            fn put(&self, shape: Shape, body: &mut [u8]) -> Result<usize> {
                let $answer = self;
                put_data($bytes, shape, body)
            }

            fn data(&self, shape: Shape) -> &[u8] {
                // Cut to no bytes where the length is asked for.
                let $answer = self;
                shape.cut($bytes)
            }

            fn moved(&self, shape: Shape) -> u64 {
                match shape.opcode {
                    Opcode::Read => self.data(shape).len() as u64,
                    _ => 0,
                }
            }
        }
    };
}

encode_data!([] Vec<u8>, |data| data);
encode_data!([B: AsRef<[u8]> + Send + 'static] Data<B>, |data| data.0.as_ref());

/// The result of an ioctl, and its output.
impl Encode for (i32, Vec<u8>) {
    fn answers(opcode: Opcode) -> bool {
        opcode == Opcode::Ioctl
    }

    fn put(&self, _: Shape, body: &mut [u8]) -> Result<usize> {
        let result = self.0;
        put(
            body,
            &IoctlOut {
                result,
                ..IoctlOut::default()
            },
        )
    }

    fn data(&self, shape: Shape) -> &[u8] {
        shape.cut(&self.1)
    }
}

impl Encode for Listing {
    fn answers(opcode: Opcode) -> bool {
        matches!(opcode, Opcode::Readdir | Opcode::Readdirplus)
    }

    fn put(&self, _: Shape, _: &mut [u8]) -> Result<usize> {
        Ok(0)
    }

    fn data(&self, shape: Shape) -> &[u8] {
        shape.cut(self.bytes())
    }
}
