//! Creating files and directories: open with O_CREAT, mkdir; mode, umask and owner of what appears.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    new_file_is_empty_with_the_given_mode:
        "open @f file rw,creat,excl 640; is @f size 0 links 1 mode 640; read @f",
    existing_file_is_kept_without_excl:
        "file file kept; note file; open @f file rw,creat 777; same @f ino;
         is file mode 644 text kept",
    read_only_mode_still_writable_by_the_creator:
        "shared dir; alice: open @f dir/file rw,creat,excl 400; alice: write @f written;
         close @f; alice: EACCES open dir/file w; alice: is dir/file text written;
         alice: open @g dir/none rw,creat,excl 0; alice: write @g x; close @g;
         alice: EACCES open dir/none r",
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
    mode_bits_of_create:
        "umask 0;
         open m{0,400,222,111,777,4755,2755,1644,6777} w,creat {0,400,222,111,777,4755,2755,1644,6777};
         is m{0,400,222,111,777,4755,2755,1644,6777} mode {0,400,222,111,777,4755,2755,1644,6777}",
};
