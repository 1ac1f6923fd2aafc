//! Names: any bytes but "/" and NUL, 255 of them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    name_of_255_bytes,
    name_of_256_bytes_is_too_long_for_every_call,
    every_byte_but_slash_and_nul,
    leading_dots_are_ordinary:
        "file {.hidden,...,..x,.x.,x..} dots; is . names ... ..x .hidden .x. x..",
    names_are_case_sensitive:
        "file Name upper; file name lower; is Name text upper; is name text lower",
    deep_path,
};

fn name_of_255_bytes(env: &Env) {
    let name = "n".repeat(255);
    env.file(&name, "long");
    assert_eq!(env.read(&name), b"long");
    assert_eq!(env.names(""), [OsStr::new(&name)]);
    env.agree(&name);
    let other = "m".repeat(255);
    fs::rename(env.path(&name), env.path(&other)).unwrap();
    env.absent(&name);
    env.agree(&other);
    fs::remove_file(env.path(&other)).unwrap();
    env.absent(&other);
}

fn name_of_256_bytes_is_too_long_for_every_call(env: &Env) {
    let long = env.path("n".repeat(256));
    let file = env.file("file", "");
    fails(rustix::fs::lstat(&long), Errno::NAMETOOLONG);
    fails(
        open(&long, OFlags::RDWR | OFlags::CREATE),
        Errno::NAMETOOLONG,
    );
    fails(mkdir(&long, 0o755), Errno::NAMETOOLONG);
    fails(rustix::fs::symlink("target", &long), Errno::NAMETOOLONG);
    fails(rustix::fs::link(&file, &long), Errno::NAMETOOLONG);
    fails(rustix::fs::rename(&file, &long), Errno::NAMETOOLONG);
    fails(rustix::fs::rename(&long, &file), Errno::NAMETOOLONG);
    fails(rustix::fs::unlink(&long), Errno::NAMETOOLONG);
    fails(rustix::fs::rmdir(&long), Errno::NAMETOOLONG);
    assert_eq!(env.names(""), [OsStr::new("file")]);
}

fn every_byte_but_slash_and_nul(env: &Env) {
    let bytes: Vec<u8> = (1..=255u8).filter(|byte| *byte != b'/').collect();
    // 254 bytes in one name, and each in a name of its own.
    let all = OsStr::from_bytes(&bytes);
    env.file(all, "all");
    env.agree(all);
    env.dir("each");
    for byte in &bytes {
        let name = [b'x', *byte];
        env.file(Path::new("each").join(OsStr::from_bytes(&name)), [*byte]);
    }
    let names = env.names("each");
    assert_eq!(names.len(), bytes.len());
    for byte in &bytes {
        let name = [b'x', *byte];
        let name = Path::new("each").join(OsStr::from_bytes(&name));
        assert_eq!(env.read(&name), [*byte]);
        assert!(env.beneath(&name).exists());
    }
}

fn deep_path(env: &Env) {
    let mut path = std::path::PathBuf::from("d");
    env.dir(&path);
    for depth in 0..100 {
        path.push(format!("level{depth}"));
        env.dir(&path);
    }
    let file = path.join("bottom");
    env.file(&file, "deep");
    assert_eq!(env.read(&file), b"deep");
    env.agree(&file);
}
