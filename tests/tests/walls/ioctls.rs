//! The kernel above passes on every command that it does not know, for whoever has the file open.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{IFlags, ioctl_getflags};
use rustix::io::Errno;
use thrufs_tests::caller::BOB;
use thrufs_tests::fence::ioctl::{Argument, send};
use thrufs_tests::lower::Lower;
use thrufs_tests::mounted::Mounted;
use thrufs_tests::transport::over_each;

/// What commands on files are of: `linux/fs.h`, `linux/fiemap.h`, file systems of their own, and those
/// of terminals (FIONREAD, FIBMAP and the like).
const KINDS: &[u8] = b"fvXVTRbc\x00\x12\x94\x97";

/// Directions, and sizes of arguments: none, an `int`, a `long`, `struct fsxattr`, larger ones.
const DIRECTIONS: std::ops::Range<u32> = 0..4;
const SIZES: &[u32] = &[0, 4, 8, 12, 16, 24, 28, 32, 64, 128];

fn commands() -> impl Iterator<Item = u32> {
    KINDS.iter().flat_map(|&kind| {
        (0..=255).flat_map(move |number| {
            DIRECTIONS.flat_map(move |direction| {
                let command =
                    move |size: &u32| direction << 30 | size << 16 | u32::from(kind) << 8 | number;
                SIZES.iter().map(command)
            })
        })
    })
}

/// All that a command could have changed.
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

fn nothing_changes(mounted: &Mounted, name: &str) {
    let (beneath, above) = (mounted.source().join(name), mounted.mnt().join(name));
    let before = state(&beneath);
    BOB.run(|| {
        let (native, through) = (File::open(&beneath).unwrap(), File::open(&above).unwrap());
        let mut argument = Argument::new();
        for command in commands() {
            let expected = send(&native, command, &mut argument);
            let answer = send(&through, command, &mut argument);
            // What the server, or FUSE, does not pass on is not there.
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
    over_each(
        "ioctls::a_stranger_changes_nothing_by_any_command",
        |transport| {
            let mounted = Mounted::start_on(Lower::Ext4, &transport.with("")).unwrap();
            let source = mounted.source();
            fs::set_permissions(source, fs::Permissions::from_mode(0o755)).unwrap();
            fs::create_dir(source.join("directory")).unwrap();
            fs::write(source.join("file"), "content").unwrap();
            for name in ["file", "directory", "."] {
                nothing_changes(&mounted, name);
            }
        },
    );
}
