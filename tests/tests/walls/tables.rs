//! Tables of `docs/security/requests.md` and `docs/architecture.md` against the lists in the code: opcodes,
//! commands, flags.

use std::collections::BTreeSet;

use rustix::fs::{FallocateFlags, RenameFlags};
use thrufs_abi::opcode::{Permission, Row, Sleep};
use thrufs_abi::{
    FsyncFlags, GetattrFlags, IoctlFlags, LkFlags, Opcode, OpenInFlags, PollFlags, ReadFlags,
    ReleaseFlags, SetattrValid, SetxattrFlags, WriteFlags,
};
use thrufs_sys::ioctl::COMMANDS;

const PAGE: &str = include_str!("../../../docs/security/requests.md");
const ARCHITECTURE: &str = include_str!("../../../docs/architecture.md");

/// The cells of the table under a heading, row by row.
fn table(page: &'static str, heading: &str) -> Vec<Vec<&'static str>> {
    let lines = page.lines().skip_while(|line| *line != heading).skip(1);
    let section = lines.take_while(|line| !line.starts_with('#'));
    let rows = section.filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.split('|').skip(1).map(str::trim).collect())
        .collect()
}

/// What the rows of the table under a heading are about, in their order.
fn rows(heading: &str) -> Vec<String> {
    let rows = table(PAGE, heading);
    let names = rows.iter().flat_map(|cells| cells[0].split(", "));
    names
        .map(|name| name.trim_matches('`').to_owned())
        .collect()
}

#[track_caller]
fn are_the_rows_of(heading: &str, wanted: impl IntoIterator<Item = String>) {
    let rows = rows(heading);
    let found: BTreeSet<_> = rows.iter().cloned().collect();
    assert_eq!(found.len(), rows.len(), "two rows of one under {heading}");
    assert_eq!(found, wanted.into_iter().collect(), "{heading}");
}

fn names_of(is_meant: impl Fn(&Row) -> bool) -> Vec<&'static str> {
    let rows = Opcode::ALL.iter().map(|opcode| opcode.row());
    rows.filter(|row| is_meant(row))
        .map(|row| row.name)
        .collect()
}

/// Of requests that the host directory does not answer, the page does not say who checks them.
#[test]
fn every_request_has_a_row_that_says_who_checks_it() {
    let asked = table(PAGE, "### Asked for callers");
    let by = |server: bool| {
        let rows = asked
            .iter()
            .filter(move |cells| cells[2].is_empty() != server);
        rows.map(|cells| cells[0])
    };
    let unanswered = rows("### Not answered");
    let answered = |permission| {
        names_of(|row| row.permission == permission && !unanswered.iter().any(|it| it == row.name))
    };
    assert_eq!(sorted(by(false)), sorted(answered(Permission::Kernel)));
    assert_eq!(sorted(by(true)), sorted(answered(Permission::Both)));
    assert_eq!(answered(Permission::Server), [""; 0]);
    let without_caller = answered(Permission::Sender);
    are_the_rows_of(
        "### Sent without a caller",
        without_caller.into_iter().map(str::to_owned),
    );
    let all = names_of(|_| true);
    assert!(unanswered.iter().all(|name| all.contains(&name.as_str())));
}

fn sorted<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_unstable();
    names
}

#[test]
fn requests_are_carried_out_where_the_table_of_opcodes_says() {
    let rows = table(ARCHITECTURE, "### Where requests are carried out");
    let sleeps = [Sleep::Data, Sleep::Usual, Sleep::Lock];
    for (row, sleep) in rows.iter().zip(sleeps) {
        let named = row[1].split(", ");
        assert_eq!(sorted(named), sorted(names_of(|row| row.sleep == sleep)));
    }
    assert_eq!(rows[sleeps.len()][1], "all others");
}

#[test]
fn every_command_has_a_row() {
    let names = COMMANDS.iter().map(|(_, name)| *name);
    are_the_rows_of(
        "### ioctls",
        names.chain(["every other"]).map(str::to_owned),
    );
}

/// Prefixes of `linux/xattr.h`, and the names that the kernel knows.
#[test]
fn every_kind_of_extended_attribute_has_a_row() {
    let names = [
        "user.",
        "trusted.",
        "security.",
        "security.capability",
        "system.",
        "system.posix_acl_access",
        "system.posix_acl_default",
        "any other",
    ];
    are_the_rows_of("### Extended attributes", names.map(str::to_owned));
}

#[test]
fn every_flag_has_a_row() {
    let of_calls = [
        "O_RDONLY",
        "O_WRONLY",
        "O_RDWR",
        "O_TRUNC",
        "O_APPEND",
        "O_NOATIME",
        "O_DIRECT",
        "O_SYNC",
        "O_DSYNC",
        "O_CREAT",
        "O_EXCL",
        "O_NONBLOCK",
        "SEEK_DATA",
        "SEEK_HOLE",
    ];
    let mut wanted: Vec<String> = of_calls.map(str::to_owned).to_vec();
    macro_rules! all_of {
        ($($flags:ty: $prefix:literal),*) => {
            $(wanted.extend(<$flags>::all().iter_names().map(|(name, _)| format!($prefix, name.trim_start_matches("IN_"))));)*
        };
    }
    all_of!(
        SetattrValid: "FATTR_{}",
        OpenInFlags: "FUSE_OPEN_{}",
        ReadFlags: "FUSE_READ_{}",
        WriteFlags: "FUSE_WRITE_{}",
        ReleaseFlags: "FUSE_RELEASE_{}",
        GetattrFlags: "FUSE_GETATTR_{}",
        LkFlags: "FUSE_LK_{}",
        IoctlFlags: "FUSE_IOCTL_{}",
        PollFlags: "FUSE_POLL_{}",
        FsyncFlags: "FUSE_FSYNC_{}",
        SetxattrFlags: "FUSE_SETXATTR_{}",
        RenameFlags: "RENAME_{}",
        FallocateFlags: "FALLOC_FL_{}"
    );
    are_the_rows_of("### Flags", wanted);
}
