//! The usual arguments of each operation: 64-bit words, names, bytes. Two 32-bit fields are one word, the
//! first in the lower half.

use thrufs_abi::Opcode;
use thrufs_abi::opcode::Trailing;
use thrufs_testing::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Handle,
    Node,
    Zero,
    Small,
    /// Up to 64 KiB.
    Size,
    /// Up to 2 MiB.
    Offset,
    /// The mode of a file or directory; a mask in the upper half.
    Mode,
    /// Open flags; a mode in the upper half.
    Open,
}

/// How many names follow the words.
pub(super) fn names(trailing: Trailing) -> usize {
    match trailing {
        Trailing::Name | Trailing::Value => 1,
        Trailing::Names => 2,
        _ => 0,
    }
}

/// Whether bytes follow the words and names.
pub(super) fn has_bytes(trailing: Trailing) -> bool {
    matches!(trailing, Trailing::Value | Trailing::Data | Trailing::Bytes)
}

pub(super) fn words(opcode: Opcode) -> &'static [Word] {
    use Word::{Handle, Mode, Node, Offset, Open, Size, Small, Zero};
    match opcode {
        Opcode::Getattr | Opcode::Fsync | Opcode::Fsyncdir => &[Handle, Zero],
        Opcode::Setattr => &[
            Small, Handle, Size, Zero, Small, Small, Small, Zero, Mode, Zero, Zero,
        ],
        Opcode::Mknod => &[Mode, Zero],
        Opcode::Mkdir => &[Mode],
        Opcode::Rename | Opcode::Link => &[Node],
        Opcode::Rename2 => &[Node, Small],
        Opcode::Open | Opcode::Opendir => &[Open],
        Opcode::Create | Opcode::Tmpfile => &[Open, Zero],
        Opcode::Read | Opcode::Readdir | Opcode::Readdirplus | Opcode::Write => {
            &[Handle, Offset, Size, Zero, Zero]
        }
        Opcode::Release | Opcode::Releasedir | Opcode::Flush => &[Handle, Zero, Zero],
        Opcode::Setxattr | Opcode::Getxattr | Opcode::Listxattr => &[Size],
        Opcode::Getlk | Opcode::Setlk | Opcode::Setlkw => {
            &[Handle, Small, Offset, Offset, Small, Small]
        }
        Opcode::Fallocate => &[Handle, Offset, Offset, Small],
        Opcode::Lseek => &[Handle, Offset, Small],
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => {
            &[Handle, Offset, Node, Handle, Offset, Size, Zero]
        }
        Opcode::Statx => &[Small, Handle, Size],
        Opcode::Ioctl => &[Handle, Small, Zero, Size],
        _ => &[Small; 16][..opcode.row().structure_bytes / 8],
    }
}

/// `O_RDONLY`, `O_RDWR`, `O_RDWR | O_TRUNC`.
const OPEN: &[u64] = &[0, 2, 0o1002];
/// Regular, directory, fifo.
const MODES: &[u64] = &[0o100_644, 0o100_777, 0o40_755, 0o10_644];

impl Word {
    pub(super) fn value(self, random: &mut Random, nodes: &[u64], handles: &[u64]) -> u64 {
        match self {
            Word::Handle if handles.is_empty() => 0,
            Word::Handle => random.pick(handles),
            Word::Node => random.pick(nodes),
            Word::Zero => 0,
            Word::Small => random.number() % 8,
            Word::Size => random.number() % (64 << 10),
            Word::Offset => random.number() % (2 << 20),
            Word::Mode => random.pick(MODES),
            Word::Open => random.pick(OPEN) | 0o100_644 << 32,
        }
    }
}
