//! The kernel above passes on every unknown command, from any caller with the file open.

use rustix::fs::{IFlags, ioctl_getflags};
use rustix::io::Errno;
use thrufs_tests::fence::ioctl::{Argument, send};
use thrufs_tests::prelude::*;
use thrufs_tests::transport::Transport;

/// Types of commands on files: `linux/fs.h`, `linux/fiemap.h`, file systems' own, and those of terminals
/// (FIONREAD, FIBMAP and the like).
const KINDS: &[u8] = b"fvXVTRbc\x00\x12\x94\x97";

/// Types with numbers that change files beneath.
const CHANGING: &[u8] = b"fvX";

/// Directions and sizes of arguments: none, an `int` and a `long` to the kernel and from it, and
/// `struct fsxattr`.
const ARGUMENTS: &[(u32, u32)] = &[(0, 0), (1, 4), (2, 4), (1, 8), (2, 8), (1, 28), (2, 28)];

fn commands(kinds: &[u8]) -> impl Iterator<Item = u32> {
    kinds.iter().flat_map(|&kind| {
        (0..=255).flat_map(move |number| {
            let command = move |(direction, size): &(u32, u32)| {
                direction << 30 | size << 16 | u32::from(kind) << 8 | number
            };
            ARGUMENTS.iter().map(command)
        })
    })
}

/// All that a command could change.
fn state(path: &Path) -> (u32, u32, u64, Vec<i64>, IFlags) {
    let found = fs::metadata(path).unwrap();
    let times = vec![
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec(),
    ];
    let flags = ioctl_getflags(File::open(path).unwrap()).unwrap();
    (found.mode(), found.uid(), found.size(), times, flags)
}

fn nothing_changes(mounted: &Mounted, name: &str, kinds: &[u8]) {
    let (beneath, above) = (mounted.source().join(name), mounted.mnt().join(name));
    let before = state(&beneath);
    BOB.run(|| {
        let (native, through) = (File::open(&beneath).unwrap(), File::open(&above).unwrap());
        let mut argument = Argument::new();
        for command in commands(kinds) {
            let expected = send(&native, command, &mut argument);
            let answer = send(&through, command, &mut argument);
            // The server, or FUSE, does not pass it on.
            let is_unknown = matches!(answer, Err(Errno::NOTTY | Errno::OPNOTSUPP));
            assert!(
                answer == expected || is_unknown,
                "{command:#x} of {name}: {answer:?}, beneath {expected:?}"
            );
        }
    });
    assert_eq!(state(&beneath), before, "{name}");
}

/// Commands of 32-bit programs above all: the kernel above knows them from such programs alone.
#[test]
fn a_stranger_changes_nothing_by_any_command() {
    over_each(|transport| {
        let mounted = Mounted::start_on(Lower::Ext4, &transport.with("")).unwrap();
        let source = mounted.source();
        fs::set_permissions(source, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(source.join("directory")).unwrap();
        fs::write(source.join("file"), "content").unwrap();
        // Answers do not depend on the transport.
        let all = match transport {
            Transport::Dev => KINDS,
            Transport::Uring => CHANGING,
        };
        nothing_changes(&mounted, "file", all);
        nothing_changes(&mounted, "directory", all);
        nothing_changes(&mounted, ".", CHANGING);
    });
}
