//! Flags of open.

use crate::helper;

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    read_only_refuses_writes:
        "file file content; open @f file r; EBADF write @f x; EINVAL truncate @f 0;
         is file text content",
    write_only_refuses_reads:
        "file file content; open @f file w; EBADF read @f text; pwrite @f 3 TEN; close @f;
         is file text conTENt",
    truncates:
        "file file x; truncate file 100000; open @f file w,trunc; is @f size 0; is file text;
         pwrite @f 0 new; close @f; is file text new",
    truncate_of_a_new_file:
        "open file rw,creat,trunc; file file content; open file rw,creat,trunc; is file size 0",
    truncate_needs_write_permission:
        "file file kept; alice: EACCES open file r,trunc; alice: EACCES open file w,trunc;
         alice: EACCES open file w,creat,trunc; is file text kept",
    access_mode_and_flags_can_be_read_back,
    cloexec_and_nonblock_are_harmless:
        "open @f file rw,creat,nonblock,noctty; write @f ok; is file text ok",
    noatime_is_for_the_owner: "file file x; open file r,noatime; alice: EPERM open file r,noatime",
    direct_reads_and_writes,
    direct_sees_what_was_cached,
    every_open_has_its_own_offset:
        "file file 0123456789; open @{a,b} file r; read @{a,b} 0123; read @a 4567",
    duplicate_shares_the_offset:
        "file file 0123456789; open @a file r; dup @b @a; read @a 0123; read @b 4567; close @a;
         seek @b 1; read @b 1234",
    reopen_by_proc:
        "open @f file rw,creat,excl; write @f content; rename file moved; open @g @f r;
         read @g content",
    many_descriptors_of_one_file,
    running_program_is_etxtbsy,
    openat2_beneath,
    close_does_not_lose_data,
    truncates_what_others_have_open:
        "open @f file rw,creat; fill @f 0 9000 7; seek @f 9000; open @g file rw;
         open file rw,creat,trunc; is file size 0; pread @g 0; write @f beyond;
         is file size 9006; filled file 0 9000 0; open file r,trunc; is file size 0;
         truncate @g 123; is file size 123; is @f size 123",
};

fn access_mode_and_flags_can_be_read_back(env: &Env) {
    env.file("file", "");
    for mode in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR] {
        let file = env.open("file", mode | OFlags::APPEND | OFlags::NONBLOCK);
        let flags = rustix::fs::fcntl_getfl(&file).unwrap();
        assert_eq!(flags & OFlags::ACCMODE, mode);
        assert!(flags.contains(OFlags::APPEND | OFlags::NONBLOCK));
    }
}

const BLOCK: usize = 4096;

/// Memory on a block boundary, which direct I/O asks for.
fn aligned(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    buffer.resize(len + BLOCK, 0);
    let start = buffer.as_ptr().align_offset(BLOCK);
    &mut buffer[start..start + len]
}

fn direct_reads_and_writes(env: &Env) {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::DIRECT;
    let file = env.open("file", flags);
    let mut memory = Vec::new();
    let block = aligned(&mut memory, 4 * BLOCK);
    for (at, byte) in block.iter_mut().enumerate() {
        *byte = (at / 16) as u8;
    }
    let written = block.to_vec();
    file.write_all_at(block, 0).unwrap();
    file.write_all_at(block, 8 * BLOCK as u64).unwrap();
    block.fill(0);
    file.read_exact_at(block, 8 * BLOCK as u64).unwrap();
    assert!(block == written);
    drop(file);
    assert_eq!(env.stat("file").st_size, 12 * BLOCK as i64);
    env.agree("file");
}

fn direct_sees_what_was_cached(env: &Env) {
    let file = env.create("file");
    file.write_all_at(&[1; 2 * BLOCK], 0).unwrap();
    let direct = env.open("file", OFlags::RDWR | OFlags::DIRECT);
    let mut memory = Vec::new();
    let block = aligned(&mut memory, BLOCK);
    direct.read_exact_at(block, BLOCK as u64).unwrap();
    assert!(
        block.iter().all(|byte| *byte == 1),
        "a direct read must see cached writes"
    );
    block.fill(2);
    direct.write_all_at(block, 0).unwrap();
    let mut seen = [0; BLOCK];
    file.read_exact_at(&mut seen, 0).unwrap();
    assert!(
        seen.iter().all(|byte| *byte == 2),
        "a cached read must see direct writes"
    );
    env.agree("file");
}

fn many_descriptors_of_one_file(env: &Env) {
    env.file("file", "shared");
    let files: Vec<File> = (0..200).map(|_| env.open("file", OFlags::RDWR)).collect();
    files[199].write_all_at(b"S", 0).unwrap();
    let mut buffer = [0; 6];
    files[0].read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"Shared");
}

fn running_program_is_etxtbsy(env: &Env) {
    let program = env.path("program");
    fs::copy(helper::program(), &program).unwrap();
    env.chmod("program", 0o755);
    env.file("file", "");
    // `hold` runs until its input closes; it says "ok" once it is running.
    let mut child = started(&program, &env.path("file"));
    let mut ok = [0; 3];
    child.stdout.take().unwrap().read_exact(&mut ok).unwrap();
    assert_eq!(&ok, b"ok\n");
    let refused = [
        OFlags::WRONLY,
        OFlags::RDWR | OFlags::TRUNC,
        // With FUSE, the server is asked to truncate before the kernel looks whether the program is running.
        OFlags::RDONLY | OFlags::TRUNC,
        OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC,
    ]
    .map(|flags| env.try_open("program", flags));
    drop(child.stdin.take());
    child.wait().unwrap();
    for opened in refused {
        fails(opened, Errno::TXTBSY);
    }
    let length = fs::metadata(&program).unwrap().len();
    assert_eq!(length, fs::metadata(helper::program()).unwrap().len());
    // It has ended, also if the server does not know yet.
    drop(env.open("program", OFlags::RDONLY | OFlags::TRUNC));
    assert_eq!(fs::metadata(&program).unwrap().len(), 0);
    drop(env.open("program", OFlags::WRONLY));
}

/// Runs a program that was just written. A process that another case starts meanwhile may inherit the writing
/// descriptor for a moment (ETXTBSY).
fn started(program: &Path, file: &Path) -> std::process::Child {
    for _ in 0..100 {
        let child = std::process::Command::new(program)
            .args([helper::MARK, "hold"])
            .arg(file)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn();
        match child {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            child => return child.unwrap(),
        }
    }
    panic!("{} stays open for writing", program.display());
}

fn openat2_beneath(env: &Env) {
    use rustix::fs::ResolveFlags;
    env.dir("dir");
    env.file("dir/file", "in");
    env.file("outer", "out");
    rustix::fs::symlink("../outer", env.path("dir/link")).unwrap();
    let dir = env.open("dir", OFlags::RDONLY | OFlags::DIRECTORY);
    let open = |name: &str, resolve| {
        rustix::fs::openat2(
            &dir,
            name,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        )
    };
    open("file", ResolveFlags::BENEATH).unwrap();
    fails(open("link", ResolveFlags::BENEATH), Errno::XDEV);
    fails(open("../outer", ResolveFlags::BENEATH), Errno::XDEV);
    fails(open("link", ResolveFlags::NO_SYMLINKS), Errno::LOOP);
    open("link", ResolveFlags::empty()).unwrap();
}

fn close_does_not_lose_data(env: &Env) {
    for round in 0..50 {
        let name = format!("f{round}");
        let mut file = env.create(&name);
        file.write_all(&vec![round; 3000]).unwrap();
        drop(file);
        assert_eq!(
            fs::read(env.beneath(&name)).unwrap(),
            vec![round; 3000],
            "after close"
        );
    }
}
