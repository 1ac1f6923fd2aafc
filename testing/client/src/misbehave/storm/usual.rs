//! The usual arguments of each operation: 64-bit words, names, bytes. Two 32-bit fields are one word, the
//! first in the lower half.

use thrufs_abi::Opcode;
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

pub(super) struct Usual {
    pub(super) words: &'static [Word],
    pub(super) names: usize,
    pub(super) has_bytes: bool,
}

const fn usual(words: &'static [Word], names: usize) -> Usual {
    Usual {
        words,
        names,
        has_bytes: false,
    }
}

const fn with_bytes(words: &'static [Word], names: usize) -> Usual {
    Usual {
        words,
        names,
        has_bytes: true,
    }
}

pub(super) fn of(opcode: Opcode) -> Usual {
    use Word::{Handle, Mode, Node, Offset, Open, Size, Small, Zero};
    match opcode {
        Opcode::Lookup | Opcode::Unlink | Opcode::Rmdir | Opcode::Removexattr => usual(&[], 1),
        Opcode::Symlink => usual(&[], 2),
        Opcode::Forget | Opcode::Interrupt | Opcode::Access => usual(&[Small], 0),
        Opcode::Getattr | Opcode::Fsync | Opcode::Fsyncdir => usual(&[Handle, Zero], 0),
        Opcode::Setattr => usual(
            &[
                Small, Handle, Size, Zero, Small, Small, Small, Zero, Mode, Zero, Zero,
            ],
            0,
        ),
        Opcode::Mknod => usual(&[Mode, Zero], 1),
        Opcode::Mkdir => usual(&[Mode], 1),
        Opcode::Rename => usual(&[Node], 2),
        Opcode::Rename2 => usual(&[Node, Small], 2),
        Opcode::Link => usual(&[Node], 1),
        Opcode::Open | Opcode::Opendir => usual(&[Open], 0),
        Opcode::Create | Opcode::Tmpfile => usual(&[Open, Zero], 1),
        Opcode::Read | Opcode::Readdir | Opcode::Readdirplus => {
            usual(&[Handle, Offset, Size, Zero, Zero], 0)
        }
        Opcode::Write => with_bytes(&[Handle, Offset, Size, Zero, Zero], 0),
        Opcode::Release | Opcode::Releasedir | Opcode::Flush => usual(&[Handle, Zero, Zero], 0),
        Opcode::Setxattr => with_bytes(&[Size], 1),
        Opcode::Getxattr => usual(&[Size], 1),
        Opcode::Listxattr => usual(&[Size], 0),
        Opcode::Getlk | Opcode::Setlk | Opcode::Setlkw => {
            usual(&[Handle, Small, Offset, Offset, Small, Small], 0)
        }
        Opcode::Fallocate => usual(&[Handle, Offset, Offset, Small], 0),
        Opcode::Lseek => usual(&[Handle, Offset, Small], 0),
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => {
            usual(&[Handle, Offset, Node, Handle, Offset, Size, Zero], 0)
        }
        Opcode::Statx => usual(&[Small, Handle, Size], 0),
        Opcode::Ioctl => with_bytes(&[Handle, Small, Zero, Size], 0),
        _ => usual(&[], 0),
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
