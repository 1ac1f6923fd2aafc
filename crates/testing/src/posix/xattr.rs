//! Extended attributes.

use rustix::fs::XattrFlags;

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    set_get_list_remove:
        "file file; setxattr file user.one first; setxattr file user.two second;
         getxattr file user.one first; getxattr file user.two second;
         is file xattrs user.one user.two; agree; rmxattr file user.one;
         ENODATA getxattr file user.one; is file xattrs user.two",
    create_and_replace:
        "file file; ENODATA setxattr file user.it x replace; setxattr file user.it first create;
         EEXIST setxattr file user.it x create; getxattr file user.it first;
         setxattr file user.it second,longer replace; getxattr file user.it second,longer",
    value_with_any_bytes,
    empty_value:
        "file file; setxattr file user.empty; getxattr file user.empty; is file xattrs user.empty",
    short_buffer_is_erange,
    size_query_returns_the_length,
    missing_is_enodata:
        "file file; ENODATA {getxattr,rmxattr} file user.none; ENOENT getxattr missing user.none;
         EOPNOTSUPP setxattr file nonsense.name x",
    by_descriptor:
        "open @f file rw,creat,excl; setxattr @f user.it open; getxattr {file,@f} user.it open;
         rmxattr @f user.it; ENODATA getxattr file user.it",
    of_a_directory:
        "dir dir; setxattr dir user.it dir; getxattr dir user.it dir; is dir xattrs user.it",
    needs_the_permissions_of_the_file:
        "file file; setxattr file user.it kept; alice: getxattr file user.it kept;
         alice: EACCES setxattr file user.it x; alice: EACCES rmxattr file user.it;
         chmod file 602; alice: EACCES getxattr file user.it;
         alice: setxattr file user.it changed; getxattr file user.it changed",
    trusted_is_for_root [TrustedAttributes]:
        "file file; chmod file 666; setxattr file trusted.it secret;
         getxattr file trusted.it secret; alice: ENODATA getxattr file trusted.it;
         alice: EPERM setxattr file trusted.it x; getxattr file trusted.it secret",
    user_attributes_not_on_links:
        "file file; symlink file link; EPERM setxattr link user.it x; open @f link rw;
         setxattr @f user.it through; getxattr file user.it through",
    ctime_moves:
        "file file; stamp file; note file; tick; setxattr file user.it x; later file ctime;
         same file mtime",
    two_names_share_them:
        "file file; link file link; setxattr file user.it shared; getxattr link user.it shared;
         rmxattr link user.it; ENODATA getxattr file user.it",
};

const NONE: XattrFlags = XattrFlags::empty();

fn get(path: &Path, name: &str) -> rustix::io::Result<Vec<u8>> {
    let mut value = vec![0; 8192];
    let len = rustix::fs::lgetxattr(path, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

fn value_with_any_bytes(env: &Env) {
    let path = env.file("file", "");
    let value: Vec<u8> = (0..2000u32).map(|at| at as u8).collect();
    rustix::fs::setxattr(&path, "user.bytes", &value, NONE).unwrap();
    assert_eq!(get(&path, "user.bytes").unwrap(), value);
    env.agree_everywhere();
}

fn short_buffer_is_erange(env: &Env) {
    let path = env.file("file", "");
    rustix::fs::setxattr(&path, "user.it", b"0123456789", NONE).unwrap();
    let mut short = [0; 4];
    fails(
        rustix::fs::getxattr(&path, "user.it", &mut short[..]),
        Errno::RANGE,
    );
    fails(rustix::fs::listxattr(&path, &mut short[..]), Errno::RANGE);
}

fn size_query_returns_the_length(env: &Env) {
    let path = env.file("file", "");
    rustix::fs::setxattr(&path, "user.it", b"0123456789", NONE).unwrap();
    assert_eq!(rustix::fs::getxattr_query(&path, "user.it").unwrap(), 10);
    let open = File::open(&path).unwrap();
    assert_eq!(rustix::fs::fgetxattr_query(&open, "user.it").unwrap(), 10);
    let length = rustix::fs::listxattr_query(&path).unwrap();
    let mut list = vec![0; 4096];
    assert_eq!(rustix::fs::listxattr(&path, &mut list[..]).unwrap(), length);
    assert!(
        list[..length]
            .split(|byte| *byte == 0)
            .any(|name| name == b"user.it")
    );
}
