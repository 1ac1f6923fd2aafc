//! Creating files and directories: open with O_CREAT, mkdir; mode, umask and owner of what appears.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    new_file_is_empty_with_the_given_mode:
        "open @f file rw,creat,excl 640; is @f size 0 links 1 mode 640; read @f",
    existing_file_is_kept_without_excl:
        "file file kept; note file; open @f file rw,creat 777; same @f ino;
         is file mode 644 text kept",
    exclusive_refuses_what_exists:
        "file file kept; dir dir; symlink file link; EEXIST open {file,dir,link} w,creat,excl;
         is file text kept",
    exclusive_refuses_a_dangling_symlink:
        "symlink nowhere link; EEXIST open link w,creat,excl; absent nowhere",
    through_a_dangling_symlink:
        "symlink real link; open @f link w,creat; write @f through; close @f;
         is real text through",
    read_only_mode_still_writable_by_the_creator:
        "shared dir; alice: open @f dir/file rw,creat,excl 400; alice: write @f written;
         close @f; alice: EACCES open dir/file w; alice: is dir/file text written;
         alice: open @g dir/none rw,creat,excl 0; alice: write @g x; close @g;
         alice: EACCES open dir/none r",
    directory_where_a_file_is_wanted:
        "dir dir; EISDIR open dir w; EISDIR open dir rw; EISDIR open dir r,creat;
         EISDIR open dir r,trunc; open @d dir r; EISDIR read @d",
    with_directory_flag_is_einval: "EINVAL open new r,creat,directory; absent new",
    updates_the_directory_times:
        "dir dir; note dir; tick; file dir/file; later dir mtime ctime; note dir; tick;
         dir dir/sub; later dir mtime ctime; note dir; tick; symlink x dir/link;
         later dir mtime ctime; note dir; tick; link dir/file dir/hard; later dir mtime ctime;
         note dir; tick; rename dir/file dir/renamed; later dir mtime ctime; note dir; tick;
         unlink dir/renamed; later dir mtime ctime; note dir; tick; rmdir dir/sub;
         later dir mtime ctime",
    umask_applies_to_files_and_directories:
        "umask 27; open file w,creat 666; dir dir 777; fifo fifo 666; umask 777;
         open nothing w,creat 666; umask 0; open all w,creat 777; is file mode 640;
         is dir mode 750; is fifo mode 640; is nothing mode 0; is all mode 777",
    owner_is_the_caller:
        "shared dir; {alice,bob,member}: file dir/{alice,bob,member}; file dir/root;
         is dir/{alice,bob,member} owner {alice,bob,member} {alice,bob,member};
         is dir/root owner 0 0",
    owner_of_every_kind_is_the_caller:
        "shared dir; alice: dir dir/dir; alice: symlink target dir/link; alice: fifo dir/fifo;
         alice: node dir/s socket 700; is dir/{dir,link,fifo,s} owner alice alice",
    mkdir_gives_an_empty_directory: "dir dir 751; is dir mode 751 names",
    mkdir_refuses_what_exists:
        "file file; dir dir; symlink nowhere link; EEXIST dir {file,dir,link,.,dir/.,dir/..}",
    mkdir_link_counts [NotBtrfs]:
        "dir dir; is dir links 2; dir dir/{a,b}; file dir/file; is dir links 4; rmdir dir/a;
         is dir links 3; rename dir/b b; is dir links 2",
    mkdir_keeps_the_sticky_bit: "dir dir 1755; is dir mode 1755",
    setgid_directory_gives_its_group:
        "shared dir; chown dir 0 team; chmod dir 2777; alice: file dir/file;
         alice: symlink x dir/link; alice: fifo dir/fifo; alice: dir dir/sub;
         is dir/{file,link,fifo,sub} owner alice team; is dir/sub mode 2755; member: dir dir/his;
         member: file dir/his/file; is dir/his mode 2755;
         is dir/his/file mode 644 owner member team",
    setgid_bit_of_a_file_needs_the_group:
        "shared dir; chown dir 0 team; chmod dir 2777; alice: open dir/alice w,creat 2755;
         member: open dir/member w,creat 2755; is dir/alice mode 755 owner alice team;
         is dir/member mode 2755 owner member team",
    many_files,
    mode_bits_of_create:
        "umask 0;
         open m{0,400,222,111,777,4755,2755,1644,6777} w,creat {0,400,222,111,777,4755,2755,1644,6777};
         is m{0,400,222,111,777,4755,2755,1644,6777} mode {0,400,222,111,777,4755,2755,1644,6777}",
    umask_is_that_of_the_caller:
        "shared dir; umask 77; open dir/a r,creat 666; dir dir/b 777; umask 0;
         open dir/c r,creat 666; dir dir/d 777; umask 137; open dir/e r,creat 666; dir dir/f 777;
         is dir/a mode 600; is dir/b mode 700; is dir/c mode 666; is dir/d mode 777;
         is dir/e mode 640; is dir/f mode 640",
    writing_does_not_change_the_owner:
        "file file by root; chown file alice alice; chmod file 666; bob: file file by bob;
         is file owner alice alice",
    hard_link_keeps_the_owner:
        "shared dir; alice: file dir/file; link dir/file dir/link; is dir/link owner alice alice",
};

fn many_files(env: &Env) {
    for number in 0..500 {
        env.file(format!("f{number:03}"), format!("{number}"));
    }
    assert_eq!(env.names("").len(), 500);
    for number in (0..500).step_by(37) {
        assert_eq!(
            env.read(format!("f{number:03}")),
            format!("{number}").as_bytes()
        );
    }
    assert_eq!(fs::read_dir(env.beneath("")).unwrap().count(), 500);
}
