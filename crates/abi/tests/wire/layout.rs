//! Structs, opcodes, flags and notification codes against the kernel's own header.
//!
//! The numbers recorded in `layout.recorded` are what a C compiler made of `linux/fuse.h` 7.45. To record
//! anew what a later header says of the names here: [`record_the_header`].

use bitflags::Flags;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use thrufs_abi::layout::LAYOUTS;
use thrufs_abi::{
    AttrFlags, FsyncFlags, GetattrFlags, InitFlags, IoctlFlags, LkFlags, NotifyCode, Opcode,
    OpenInFlags, OpenReplyFlags, PollFlags, ReadFlags, ReleaseFlags, SetattrValid, SetxattrFlags,
    WriteFlags,
};

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

/// A program that prints what a header says, in the form of the record.
fn program(header: &Path, names: &Numbers) -> String {
    let mut c = format!(
        "#include <stdio.h>\n#include <stddef.h>\n#include <stdint.h>\n#include \"{}\"\n\
         #define NUMBER(x) (sizeof(x) == 4 ? (unsigned long long)(uint32_t)(x) : \
         (unsigned long long)(x))\n\
         int main(void) {{\n",
        header.display()
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

#[test]
#[ignore = "records anew, with a C compiler, what the header that THRUFS_FUSE_H names says"]
fn record_the_header() {
    let header = std::env::var_os("THRUFS_FUSE_H").expect("THRUFS_FUSE_H names the header");
    let directory = tempfile::tempdir().unwrap();
    let [source, binary] = ["layout.c", "layout"].map(|name| directory.path().join(name));
    let header = Path::new(&header).canonicalize().unwrap();
    std::fs::write(&source, program(&header, &ours())).unwrap();
    let mut compiler = Command::new("cc");
    let built = compiler.arg("-o").args([&binary, &source]).status();
    assert!(built.unwrap().success());
    let theirs = Command::new(&binary).output().unwrap().stdout;
    let record = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire/layout.recorded");
    std::fs::write(record, &theirs).unwrap();
    let theirs = numbers_in(&String::from_utf8(theirs).unwrap());
    assert_eq!(differences(&ours(), &theirs), Vec::<String>::new());
}
