//! Set-id bits are cleared when an unprivileged user changes a file, and stay when root does.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    write_drops_them:
        "file file 0123456789; chmod file 6777; alice: open @f file w; alice: write @f x;
         is file mode 777",
    write_through_a_descriptor_of_root_drops_them:
        "file file 0123456789; chmod file 6755; open @f file rw; alice: write @f x;
         is file mode 755",
    write_at_the_end_drops_them:
        "file file 0123456789; chmod file 4777; alice: open @f file w,append; alice: write @f x;
         is file mode 777 text 0123456789x",
    truncate_by_descriptor_drops_them:
        "file file 0123456789; chmod file 6777; alice: open @f file w; alice: truncate @f 4;
         is file mode 777",
    open_with_truncation_drops_them:
        "file file 0123456789; chmod file 6777; alice: open file w,trunc; is file mode 777 size 0",
    fallocate_drops_them:
        "file file 0123456789; chmod file 6777; alice: open @f file w;
         alice: allocate @f 0 20000; is file mode 777",
    setgid_without_group_execution_stays:
        "file file 0123456789; chown file member team; chmod file 2666; member: open @f file w;
         member: write @f x; is file mode 2666",
    setuid_falls_where_setgid_stays:
        "file file 0123456789; chown file member team; chmod file 6666; member: open @f file w;
         member: pwrite @f 0 x; close @f; is file mode 2666; agree; chmod file 6666;
         member: open @f file w; member: truncate @f 4; close @f; is file mode 2666; agree;
         chmod file 6666; member: open file w,trunc; is file mode 2666; agree; chmod file 6666;
         member: open @f file w; member: allocate @f 0 20000; close @f; is file mode 2666; agree",
    root_writes_and_keeps_them:
        "file file 0123456789; chmod file 6755; open @f file w; write @f x; allocate @f 0 20000;
         close @f; is file mode 6755",
    root_truncates_and_keeps_them:
        "file file 0123456789; chmod file 6755; open @f file w; truncate @f 3; close @f;
         open file w,trunc; is file mode 6755",
    chown_drops_them:
        "file file 0123456789; chmod file 6755; chown file member member; is file mode 755;
         chmod file 6755; member: chown file - team; is file mode 755",
    chown_of_a_directory_keeps_them:
        "dir dir; chmod dir 6755; chown dir alice alice; is dir mode 6755",
    chown_of_nothing_drops_them:
        "file file 0123456789; chown file member member; chmod file 6755; member: chown file - -;
         is file mode 755; chmod file 6755; chown file - -; is file mode 755",
    chown_of_nothing_by_a_stranger_is_refused [AskedAtOpen]:
        "node file file 400; chmod file 6755; alice: EPERM chown file - -; is file mode 6755;
         agree; chmod file 755; alice: chown file - -",
    chown_of_nothing_keeps_those_of_a_directory:
        "dir dir; chmod dir 6755; chown dir - -; alice: chown dir - -; is dir mode 6755",
    setgid_without_group_execution_set_on_an_open_file_stays:
        "file file 0123456789; chown file member team; member: open @f file w; chmod file 6666;
         member: pwrite @f 0 x; is file mode 2666; member: truncate @f 5; is file mode 2666",
    reading_keeps_them:
        "file file 0123456789; chmod file 6777; alice: is file text 0123456789;
         alice: open file rw; is file mode 6777",
};
