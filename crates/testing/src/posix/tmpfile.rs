//! O_TMPFILE: files without a name, and giving them one.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    has_no_name:
        "open @f . rw,tmpfile 640; write @f nameless; is . names; agree;
         is @f links 0 size 8 mode 640; pread @f 0 nameless",
    gets_a_name_by_proc:
        "open @f . rw,tmpfile 640; write @f named later; open @g @f rw; pwrite @g 0 N;
         linkfollow @f name; write @f , and longer; is @f links 1; open @n name rw;
         pwrite @n 23 !; close @{f,g,n}; is ^name text Named later, and longer!",
    gets_a_name_by_empty_path:
        "open @f . rw,tmpfile 640; write @f content; fdlink @f name; EEXIST fdlink @f name;
         is name text content",
    exclusive_never_gets_a_name:
        "open @f . rw,tmpfile,excl 640; ENOENT linkfollow @f name; absent name",
    owner_mode_and_umask:
        "shared dir; umask 77; alice: open @f dir rw,tmpfile 666;
         is @f owner alice alice mode 600",
};
