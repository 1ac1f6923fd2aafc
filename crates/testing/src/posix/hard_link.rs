//! link: several names of one file.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    two_names_of_one_file:
        "file a one; link a b; is a ino b; file b changed through b; is a text changed through b",
    link_counts_up_and_down:
        "file a; is a links 1; link a b; link b c; is {a,b,c} links 3; agree; unlink b;
         is a links 2; rename a moved; is moved links 2; unlink c; is moved links 1",
    last_name_keeps_the_content: "file a content; link a b; unlink a; is b text content; absent a",
    changes_ctime:
        "file a; stamp a; note a; tick; link a b; later a ctime; note a; tick; unlink b;
         later a ctime",
    of_a_symlink_is_a_link_to_the_symlink:
        "symlink nowhere link; link link second; is second ino link links 2",
    of_an_open_descriptor:
        "open @f a rw,creat,excl; write @f by descriptor; linkfollow @f b;
         is b text by descriptor; is @f links 2; fdlink @f c; is @f links 3",
    of_nodes:
        "fifo fifo; node null char 700 1 3; link {fifo,null} {fifo,null}2;
         is {fifo,null}2 ino {fifo,null}",
    between_directories:
        "dir {x,y}; file x/a shared; link x/a y/b; unlink x/a; rmdir x; is y/b text shared",
    attributes_are_shared:
        "file a 12345; link a b; stat b; chmod a 600; chown a 7 8; is b mode 600 owner 7 8;
         open @f a w; truncate @f 2; close @f; is b size 2",
    an_open_file_is_that_of_its_other_name:
        "open @a one rw,creat; link one other; open @b other rw; fill @a 0 5000 7;
         is @b size 5000; unlink one; open @c other rw; pwrite @c 0 begin; pread @a 0 begin;
         close @{a,b}; pwrite @c 0 BEGIN; close @c; open @d ^other r; pread @d 0 BEGIN",
};
