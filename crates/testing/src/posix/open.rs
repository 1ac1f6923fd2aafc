//! Flags of open.

use crate::helper;

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    write_only_refuses_reads:
        "file file content; open @f file w; EBADF read @f text; pwrite @f 3 TEN; close @f;
         is file text conTENt",
    truncates:
        "file file x; truncate file 100000; open @f file w,trunc; is @f size 0; is file text;
         pwrite @f 0 new; close @f; is file text new",
    truncate_of_a_new_file:
        "open file rw,creat,trunc; file file content; open file rw,creat,trunc; is file size 0",
    cloexec_and_nonblock_are_harmless:
        "open @f file rw,creat,nonblock,noctty; write @f ok; is file text ok",
    noatime_is_for_the_owner: "file file x; open file r,noatime; alice: EPERM open file r,noatime",
    direct_reads_and_writes,
    direct_sees_what_was_cached,
    reopen_by_proc:
        "open @f file rw,creat,excl; write @f content; rename file moved; open @g @f r;
         read @g content",
    running_program_is_etxtbsy,
    creates_nothing_over_what_came_beneath_meanwhile:
        "absent file; file ^file content; EEXIST open file rw,creat,excl; open @f file rw,creat;
         read @f content; absent other; file ^other content; open @g other w,creat,trunc;
         write @g x; close @g; is ^other text x",
    goes_on_after_chmod:
        "file file content; chown file alice alice; alice: open @f file rw; chmod file 0;
         alice: EACCES open file r; alice: pwrite @f 0 C; alice: truncate @f 4;
         alice: allocate @f 0 5; alice: pread @f 0 Cont\\x00; fsync @f; is ^file size 5",
    may_be_made_without_permission_to_open_it:
        "shared dir; alice: open @f dir/file rw,creat 0; alice: write @f content;
         alice: EACCES open dir/file r; alice: pread @f 0 content; fsync @f; is ^dir/file mode 0 size 7",
    truncates_what_others_have_open:
        "open @f file rw,creat; fill @f 0 9000 7; seek @f 9000; open @g file rw;
         open file rw,creat,trunc; is file size 0; pread @g 0; write @f beyond;
         is file size 9006; filled file 0 9000 0; open file r,trunc; is file size 0;
         truncate @g 123; is file size 123; is @f size 123",
};

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
