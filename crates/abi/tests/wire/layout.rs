//! Structs, opcodes, flags and notification codes against the kernel's own header.
//!
//! The numbers recorded in `layout.recorded` are what a C compiler made of `linux/fuse.h` 7.45; the
//! crate is held against them always. Where there is a C compiler and a header
//! (`$THRUFS_FUSE_H`, else `/usr/include/linux/fuse.h`), the header is asked again, as far as its
//! version goes. To record anew: set `THRUFS_FUSE_H` to a 7.45 header and `THRUFS_RECORD_LAYOUT=1`.

use bitflags::Flags;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use thrufs_abi::layout::LAYOUTS;
use thrufs_abi::version::KERNEL_MINOR;
use thrufs_abi::{
    AttrFlags, FsyncFlags, GetattrFlags, InitFlags, IoctlFlags, LkFlags, NotifyCode, Opcode,
    OpenInFlags, OpenReplyFlags, PollFlags, ReadFlags, ReleaseFlags, SetattrValid, SetxattrFlags,
    WriteFlags,
};
use thrufs_test_report::{skipped, skipped_in};

const RECORDED: &str = include_str!("layout.recorded");

/// Numbers by name: `struct` for a size, `struct.field` for "offset size", constants by their name.
type Numbers = BTreeMap<String, String>;

fn structs() -> Numbers {
    let mut numbers = Numbers::new();
    for layout in LAYOUTS {
        let name = layout.c_name;
        numbers.insert(name.to_owned(), layout.size.to_string());
        for (field, offset, size) in layout.fields {
            numbers.insert(format!("{name}.{field}"), format!("{offset} {size}"));
        }
    }
    numbers
}

fn flags<F: Flags>(prefix: &str, numbers: &mut Numbers)
where
    F::Bits: std::fmt::Display,
{
    for flag in F::FLAGS {
        // Where a name of ours cannot be the kernel's.
        let name = match flag.name() {
            "RESERVED" => "INIT_RESERVED",
            "IN_32BIT" => "32BIT",
            name => name,
        };
        numbers.insert(format!("{prefix}{name}"), flag.value().bits().to_string());
    }
}

fn constants() -> Numbers {
    let mut numbers = Numbers::new();
    for opcode in Opcode::ALL {
        let name = format!("FUSE_{}", opcode.name());
        numbers.insert(name, opcode.number().to_string());
    }
    flags::<InitFlags>("FUSE_", &mut numbers);
    flags::<OpenReplyFlags>("FOPEN_", &mut numbers);
    flags::<SetattrValid>("FATTR_", &mut numbers);
    flags::<ReleaseFlags>("FUSE_RELEASE_", &mut numbers);
    flags::<GetattrFlags>("FUSE_GETATTR_", &mut numbers);
    flags::<LkFlags>("FUSE_LK_", &mut numbers);
    flags::<WriteFlags>("FUSE_WRITE_", &mut numbers);
    flags::<ReadFlags>("FUSE_READ_", &mut numbers);
    flags::<IoctlFlags>("FUSE_IOCTL_", &mut numbers);
    flags::<PollFlags>("FUSE_POLL_", &mut numbers);
    flags::<FsyncFlags>("FUSE_FSYNC_", &mut numbers);
    flags::<AttrFlags>("FUSE_ATTR_", &mut numbers);
    flags::<OpenInFlags>("FUSE_OPEN_", &mut numbers);
    flags::<SetxattrFlags>("FUSE_SETXATTR_", &mut numbers);
    for (name, code) in [
        ("POLL", NotifyCode::Poll),
        ("INVAL_INODE", NotifyCode::InvalInode),
        ("INVAL_ENTRY", NotifyCode::InvalEntry),
        ("STORE", NotifyCode::Store),
        ("RETRIEVE", NotifyCode::Retrieve),
        ("DELETE", NotifyCode::Delete),
        ("RESEND", NotifyCode::Resend),
        ("INC_EPOCH", NotifyCode::IncEpoch),
        ("PRUNE", NotifyCode::Prune),
    ] {
        numbers.insert(format!("FUSE_NOTIFY_{name}"), (code as i32).to_string());
    }
    numbers
}

fn ours() -> Numbers {
    let mut numbers = structs();
    numbers.extend(constants());
    numbers
}

fn numbers_in(text: &str) -> Numbers {
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

fn differences(ours: &Numbers, theirs: &Numbers) -> Vec<String> {
    let names: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let differ = |name: &&String| ours.get(*name) != theirs.get(*name);
    let text = |name| {
        let (ours, theirs) = (ours.get(name), theirs.get(name));
        format!("{name}: ours {ours:?}, theirs {theirs:?}")
    };
    names.into_iter().filter(differ).map(text).collect()
}

#[test]
fn layouts_match_the_record() {
    let recorded = numbers_in(RECORDED);
    let lines = recorded.len();
    assert!(lines > 400, "the record is incomplete: {lines} lines");
    assert_eq!(differences(&ours(), &recorded), Vec::<String>::new());
}

#[test]
fn structs_have_no_padding() {
    for layout in LAYOUTS {
        let mut end = 0;
        for (field, offset, size) in layout.fields {
            assert_eq!(*offset, end, "{}.{field}", layout.c_name);
            end = offset + size;
        }
        assert_eq!(end, layout.size, "{}", layout.c_name);
    }
}

/// The words of a piece of C.
fn words(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .collect()
}

/// The structs that a header defines, each with its body.
fn structs_of(header: &str) -> BTreeMap<&str, &str> {
    let mut found = BTreeMap::new();
    for (at, _) in header.match_indices("\nstruct ") {
        let rest = &header[at + "\nstruct ".len()..];
        if let Some((name, body)) = rest.split_once(" {\n")
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && let Some((body, _)) = body.split_once("\n};")
        {
            found.insert(name, body);
        }
    }
    found
}

struct Header {
    path: PathBuf,
    text: String,
    minor: u32,
}

fn header() -> Option<Header> {
    let asked = std::env::var_os("THRUFS_FUSE_H").map(PathBuf::from);
    let usual = Path::new("/usr/include/linux/fuse.h").to_owned();
    let path = match asked {
        Some(path) => {
            assert!(
                path.exists(),
                "THRUFS_FUSE_H names {}, which is not there",
                path.display()
            );
            path
        }
        None if usual.exists() => usual,
        None => return None,
    };
    let text = std::fs::read_to_string(&path).unwrap();
    let minor = text
        .split_once("define FUSE_KERNEL_MINOR_VERSION")
        .unwrap()
        .1;
    let minor = minor.split_whitespace().next().unwrap().parse().unwrap();
    Some(Header { path, text, minor })
}

fn compiler() -> Option<String> {
    let names = std::env::var("CC")
        .into_iter()
        .chain(["cc", "gcc", "clang"].map(str::to_owned));
    let works = |name: &String| Command::new(name).arg("--version").output().is_ok();
    names.into_iter().find(works)
}

/// A program that prints what the header says, in the form of the record.
fn program(header: &Header, names: &Numbers) -> String {
    let path = header.path.canonicalize().unwrap();
    let mut c = format!(
        "#include <stdio.h>\n#include <stddef.h>\n#include <stdint.h>\n#include \"{}\"\n\
         #define NUMBER(x) (sizeof(x) == 4 ? (unsigned long long)(uint32_t)(x) : \
         (unsigned long long)(x))\n\
         int main(void) {{\n",
        path.display()
    );
    for name in names.keys() {
        c += &if let Some((of, field)) = name.split_once('.') {
            format!(
                "printf(\"{name} %zu %zu\\n\", offsetof(struct {of}, {field}), \
                 sizeof(((struct {of} *)0)->{field}));\n"
            )
        } else if LAYOUTS.iter().any(|layout| layout.c_name == name) {
            format!("printf(\"{name} %zu\\n\", sizeof(struct {name}));\n")
        } else {
            format!("printf(\"{name} %llu\\n\", NUMBER({name}));\n")
        };
    }
    c + "return 0; }\n"
}

fn ask(compiler: &str, header: &Header, names: &Numbers) -> String {
    let directory = tempfile::tempdir().unwrap();
    let (source, binary) = (
        directory.path().join("layout.c"),
        directory.path().join("layout"),
    );
    std::fs::write(&source, program(header, names)).unwrap();
    let built = Command::new(compiler)
        .arg("-o")
        .args([&binary, &source])
        .output()
        .unwrap();
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    String::from_utf8(Command::new(&binary).output().unwrap().stdout).unwrap()
}

/// Leaves of `ours` what this header knows; the rest by name. A struct that had other fields then
/// is left out as a whole.
fn known(header: &Header, ours: Numbers) -> (Numbers, Vec<String>) {
    let structs = structs_of(&header.text);
    let all = words(&header.text);
    let same = |name: &str| {
        let Some(body) = structs.get(name) else {
            return false;
        };
        let (fields, layout) = (words(body), LAYOUTS.iter().find(|l| l.c_name == name));
        layout.is_some_and(|l| l.fields.iter().all(|(field, _, _)| fields.contains(field)))
    };
    let is_known = |name: &String| {
        let base = name.split('.').next().unwrap();
        if LAYOUTS.iter().any(|layout| layout.c_name == base) {
            same(base)
        } else {
            all.contains(base)
        }
    };
    let (known, unknown): (Numbers, Numbers) =
        ours.into_iter().partition(|(name, _)| is_known(name));
    (
        known,
        unknown
            .into_keys()
            .filter(|name| !name.contains('.'))
            .collect(),
    )
}

#[test]
fn layouts_match_the_header() {
    let (Some(compiler), Some(header)) = (compiler(), header()) else {
        return skipped("linux/fuse.h: no C compiler or no header here");
    };
    let (known, unknown) = known(&header, ours());
    if header.minor == KERNEL_MINOR {
        assert_eq!(
            unknown,
            Vec::<String>::new(),
            "a 7.45 header knows everything"
        );
    } else if !unknown.is_empty() {
        // Not this test: what the header knows is checked.
        let why = format!(
            "{} is 7.{}, not 7.{KERNEL_MINOR}, and does not know {}",
            header.path.display(),
            header.minor,
            unknown.join(" ")
        );
        skipped_in("layout::numbers_newer_than_the_header", why);
    }
    let count = known.len();
    assert!(count > 300, "only {count} numbers are known");
    let theirs = ask(&compiler, &header, &known);
    assert_eq!(
        differences(&known, &numbers_in(&theirs)),
        Vec::<String>::new()
    );
    if std::env::var_os("THRUFS_RECORD_LAYOUT").is_some() {
        assert_eq!(header.minor, KERNEL_MINOR, "only this version is recorded");
        let record = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire/layout.recorded");
        std::fs::write(record, theirs).unwrap();
    }
}

#[test]
fn no_struct_of_the_header_is_missing() {
    // Of character devices, of ioctls and of rings; and a listing's entry with attributes, which is written
    // in two parts.
    const NOT_HERE: [&str; 8] = [
        "cuse_init_in",
        "cuse_init_out",
        "fuse_backing_map",
        "fuse_direntplus",
        "fuse_ioctl_iovec",
        "fuse_uring_cmd_req",
        "fuse_uring_ent_in_out",
        "fuse_uring_req_header",
    ];
    let Some(header) = header() else {
        return skipped("linux/fuse.h: no header here");
    };
    let structs = structs_of(&header.text);
    let count = structs.len();
    assert!(count > 60, "only {count} structs found in the header");
    let is_missing = |name: &&str| !LAYOUTS.iter().any(|layout| layout.c_name == *name);
    let missing: Vec<_> = structs.into_keys().filter(is_missing).collect();
    let missing: Vec<_> = missing
        .into_iter()
        .filter(|name| !NOT_HERE.contains(name))
        .collect();
    if header.minor > KERNEL_MINOR {
        let why = format!("structs newer than 7.{KERNEL_MINOR}: {missing:?}");
        skipped_in("layout::structs_newer_than_ours", why);
    } else {
        assert_eq!(missing, Vec::<&str>::new());
    }
}
