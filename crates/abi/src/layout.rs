//! The structures of the wire, as in `linux/fuse.h` 7.45, without those of character devices (CUSE) and of
//! what the kernel is told by other means (ioctls, entries of rings).
//!
//! Numbers have the machine's byte order, which kernel and server share. Names are those of the header
//! without its prefix; `type` is called `kind`. Structures are read by copy, so input need not be aligned.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! layouts {
    ($($name:ident is $c_name:literal { $($field:ident is $c_field:literal: $type:ty,)* })*) => {
        $(
            #[doc = concat!("`struct ", $c_name, "`.")]
            #[derive(
                Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable,
                KnownLayout,
            )]
            #[repr(C)]
            #[expect(missing_docs, reason = "the header's own names; it has no more to say")]
            pub struct $name {
                $(pub $field: $type,)*
            }
        )*

        /// Each structure's layout, for checks against the header.
        pub const LAYOUTS: &[Layout] = &[
            $(
                Layout {
                    c_name: $c_name,
                    size: size_of::<$name>(),
                    fields: &[
                        $(($c_field, std::mem::offset_of!($name, $field), size_of::<$type>()),)*
                    ],
                },
            )*
        ];
    };
}

/// The layout of one structure.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Its name in the header.
    pub c_name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Each field's name in the header, offset and size in bytes.
    pub fields: &'static [(&'static str, usize, usize)],
}

layouts! {
    Attr is "fuse_attr" {
        ino is "ino": u64,
        size is "size": u64,
        blocks is "blocks": u64,
        atime is "atime": u64,
        mtime is "mtime": u64,
        ctime is "ctime": u64,
        atimensec is "atimensec": u32,
        mtimensec is "mtimensec": u32,
        ctimensec is "ctimensec": u32,
        mode is "mode": u32,
        nlink is "nlink": u32,
        uid is "uid": u32,
        gid is "gid": u32,
        rdev is "rdev": u32,
        blksize is "blksize": u32,
        flags is "flags": u32,
    }
    SxTime is "fuse_sx_time" {
        tv_sec is "tv_sec": i64,
        tv_nsec is "tv_nsec": u32,
        reserved is "__reserved": i32,
    }
    Statx is "fuse_statx" {
        mask is "mask": u32,
        blksize is "blksize": u32,
        attributes is "attributes": u64,
        nlink is "nlink": u32,
        uid is "uid": u32,
        gid is "gid": u32,
        mode is "mode": u16,
        spare0 is "__spare0": [u16; 1],
        ino is "ino": u64,
        size is "size": u64,
        blocks is "blocks": u64,
        attributes_mask is "attributes_mask": u64,
        atime is "atime": SxTime,
        btime is "btime": SxTime,
        ctime is "ctime": SxTime,
        mtime is "mtime": SxTime,
        rdev_major is "rdev_major": u32,
        rdev_minor is "rdev_minor": u32,
        dev_major is "dev_major": u32,
        dev_minor is "dev_minor": u32,
        spare2 is "__spare2": [u64; 14],
    }
    Kstatfs is "fuse_kstatfs" {
        blocks is "blocks": u64,
        bfree is "bfree": u64,
        bavail is "bavail": u64,
        files is "files": u64,
        ffree is "ffree": u64,
        bsize is "bsize": u32,
        namelen is "namelen": u32,
        frsize is "frsize": u32,
        padding is "padding": u32,
        spare is "spare": [u32; 6],
    }
    FileLock is "fuse_file_lock" {
        start is "start": u64,
        end is "end": u64,
        kind is "type": u32,
        pid is "pid": u32,
    }
    EntryOut is "fuse_entry_out" {
        nodeid is "nodeid": u64,
        generation is "generation": u64,
        entry_valid is "entry_valid": u64,
        attr_valid is "attr_valid": u64,
        entry_valid_nsec is "entry_valid_nsec": u32,
        attr_valid_nsec is "attr_valid_nsec": u32,
        attr is "attr": Attr,
    }
    ForgetIn is "fuse_forget_in" {
        nlookup is "nlookup": u64,
    }
    ForgetOne is "fuse_forget_one" {
        nodeid is "nodeid": u64,
        nlookup is "nlookup": u64,
    }
    BatchForgetIn is "fuse_batch_forget_in" {
        count is "count": u32,
        dummy is "dummy": u32,
    }
    GetattrIn is "fuse_getattr_in" {
        getattr_flags is "getattr_flags": u32,
        dummy is "dummy": u32,
        fh is "fh": u64,
    }
    AttrOut is "fuse_attr_out" {
        attr_valid is "attr_valid": u64,
        attr_valid_nsec is "attr_valid_nsec": u32,
        dummy is "dummy": u32,
        attr is "attr": Attr,
    }
    StatxIn is "fuse_statx_in" {
        getattr_flags is "getattr_flags": u32,
        reserved is "reserved": u32,
        fh is "fh": u64,
        sx_flags is "sx_flags": u32,
        sx_mask is "sx_mask": u32,
    }
    StatxOut is "fuse_statx_out" {
        attr_valid is "attr_valid": u64,
        attr_valid_nsec is "attr_valid_nsec": u32,
        flags is "flags": u32,
        spare is "spare": [u64; 2],
        stat is "stat": Statx,
    }
    MknodIn is "fuse_mknod_in" {
        mode is "mode": u32,
        rdev is "rdev": u32,
        umask is "umask": u32,
        padding is "padding": u32,
    }
    MkdirIn is "fuse_mkdir_in" {
        mode is "mode": u32,
        umask is "umask": u32,
    }
    RenameIn is "fuse_rename_in" {
        newdir is "newdir": u64,
    }
    Rename2In is "fuse_rename2_in" {
        newdir is "newdir": u64,
        flags is "flags": u32,
        padding is "padding": u32,
    }
    LinkIn is "fuse_link_in" {
        oldnodeid is "oldnodeid": u64,
    }
    SetattrIn is "fuse_setattr_in" {
        valid is "valid": u32,
        padding is "padding": u32,
        fh is "fh": u64,
        size is "size": u64,
        lock_owner is "lock_owner": u64,
        atime is "atime": u64,
        mtime is "mtime": u64,
        ctime is "ctime": u64,
        atimensec is "atimensec": u32,
        mtimensec is "mtimensec": u32,
        ctimensec is "ctimensec": u32,
        mode is "mode": u32,
        unused4 is "unused4": u32,
        uid is "uid": u32,
        gid is "gid": u32,
        unused5 is "unused5": u32,
    }
    OpenIn is "fuse_open_in" {
        flags is "flags": u32,
        open_flags is "open_flags": u32,
    }
    CreateIn is "fuse_create_in" {
        flags is "flags": u32,
        mode is "mode": u32,
        umask is "umask": u32,
        open_flags is "open_flags": u32,
    }
    OpenOut is "fuse_open_out" {
        fh is "fh": u64,
        open_flags is "open_flags": u32,
        backing_id is "backing_id": i32,
    }
    ReleaseIn is "fuse_release_in" {
        fh is "fh": u64,
        flags is "flags": u32,
        release_flags is "release_flags": u32,
        lock_owner is "lock_owner": u64,
    }
    FlushIn is "fuse_flush_in" {
        fh is "fh": u64,
        unused is "unused": u32,
        padding is "padding": u32,
        lock_owner is "lock_owner": u64,
    }
    ReadIn is "fuse_read_in" {
        fh is "fh": u64,
        offset is "offset": u64,
        size is "size": u32,
        read_flags is "read_flags": u32,
        lock_owner is "lock_owner": u64,
        flags is "flags": u32,
        padding is "padding": u32,
    }
    WriteIn is "fuse_write_in" {
        fh is "fh": u64,
        offset is "offset": u64,
        size is "size": u32,
        write_flags is "write_flags": u32,
        lock_owner is "lock_owner": u64,
        flags is "flags": u32,
        padding is "padding": u32,
    }
    WriteOut is "fuse_write_out" {
        size is "size": u32,
        padding is "padding": u32,
    }
    StatfsOut is "fuse_statfs_out" {
        st is "st": Kstatfs,
    }
    FsyncIn is "fuse_fsync_in" {
        fh is "fh": u64,
        fsync_flags is "fsync_flags": u32,
        padding is "padding": u32,
    }
    SetxattrIn is "fuse_setxattr_in" {
        size is "size": u32,
        flags is "flags": u32,
        setxattr_flags is "setxattr_flags": u32,
        padding is "padding": u32,
    }
    GetxattrIn is "fuse_getxattr_in" {
        size is "size": u32,
        padding is "padding": u32,
    }
    GetxattrOut is "fuse_getxattr_out" {
        size is "size": u32,
        padding is "padding": u32,
    }
    LkIn is "fuse_lk_in" {
        fh is "fh": u64,
        owner is "owner": u64,
        lk is "lk": FileLock,
        lk_flags is "lk_flags": u32,
        padding is "padding": u32,
    }
    LkOut is "fuse_lk_out" {
        lk is "lk": FileLock,
    }
    AccessIn is "fuse_access_in" {
        mask is "mask": u32,
        padding is "padding": u32,
    }
    InitIn is "fuse_init_in" {
        major is "major": u32,
        minor is "minor": u32,
        max_readahead is "max_readahead": u32,
        flags is "flags": u32,
        flags2 is "flags2": u32,
        unused is "unused": [u32; 11],
    }
    InitOut is "fuse_init_out" {
        major is "major": u32,
        minor is "minor": u32,
        max_readahead is "max_readahead": u32,
        flags is "flags": u32,
        max_background is "max_background": u16,
        congestion_threshold is "congestion_threshold": u16,
        max_write is "max_write": u32,
        time_gran is "time_gran": u32,
        max_pages is "max_pages": u16,
        map_alignment is "map_alignment": u16,
        flags2 is "flags2": u32,
        max_stack_depth is "max_stack_depth": u32,
        request_timeout is "request_timeout": u16,
        unused is "unused": [u16; 11],
    }
    InterruptIn is "fuse_interrupt_in" {
        unique is "unique": u64,
    }
    BmapIn is "fuse_bmap_in" {
        block is "block": u64,
        blocksize is "blocksize": u32,
        padding is "padding": u32,
    }
    BmapOut is "fuse_bmap_out" {
        block is "block": u64,
    }
    IoctlIn is "fuse_ioctl_in" {
        fh is "fh": u64,
        flags is "flags": u32,
        cmd is "cmd": u32,
        arg is "arg": u64,
        in_size is "in_size": u32,
        out_size is "out_size": u32,
    }
    IoctlOut is "fuse_ioctl_out" {
        result is "result": i32,
        flags is "flags": u32,
        in_iovs is "in_iovs": u32,
        out_iovs is "out_iovs": u32,
    }
    PollIn is "fuse_poll_in" {
        fh is "fh": u64,
        kh is "kh": u64,
        flags is "flags": u32,
        events is "events": u32,
    }
    PollOut is "fuse_poll_out" {
        revents is "revents": u32,
        padding is "padding": u32,
    }
    NotifyPollWakeupOut is "fuse_notify_poll_wakeup_out" {
        kh is "kh": u64,
    }
    FallocateIn is "fuse_fallocate_in" {
        fh is "fh": u64,
        offset is "offset": u64,
        length is "length": u64,
        mode is "mode": u32,
        padding is "padding": u32,
    }
    InHeader is "fuse_in_header" {
        len is "len": u32,
        opcode is "opcode": u32,
        unique is "unique": u64,
        nodeid is "nodeid": u64,
        uid is "uid": u32,
        gid is "gid": u32,
        pid is "pid": u32,
        total_extlen is "total_extlen": u16,
        padding is "padding": u16,
    }
    OutHeader is "fuse_out_header" {
        len is "len": u32,
        error is "error": i32,
        unique is "unique": u64,
    }
    Dirent is "fuse_dirent" {
        ino is "ino": u64,
        off is "off": u64,
        namelen is "namelen": u32,
        kind is "type": u32,
    }
    NotifyInvalInodeOut is "fuse_notify_inval_inode_out" {
        ino is "ino": u64,
        off is "off": i64,
        len is "len": i64,
    }
    NotifyInvalEntryOut is "fuse_notify_inval_entry_out" {
        parent is "parent": u64,
        namelen is "namelen": u32,
        flags is "flags": u32,
    }
    NotifyDeleteOut is "fuse_notify_delete_out" {
        parent is "parent": u64,
        child is "child": u64,
        namelen is "namelen": u32,
        padding is "padding": u32,
    }
    NotifyStoreOut is "fuse_notify_store_out" {
        nodeid is "nodeid": u64,
        offset is "offset": u64,
        size is "size": u32,
        padding is "padding": u32,
    }
    NotifyRetrieveOut is "fuse_notify_retrieve_out" {
        notify_unique is "notify_unique": u64,
        nodeid is "nodeid": u64,
        offset is "offset": u64,
        size is "size": u32,
        padding is "padding": u32,
    }
    NotifyRetrieveIn is "fuse_notify_retrieve_in" {
        dummy1 is "dummy1": u64,
        offset is "offset": u64,
        size is "size": u32,
        dummy2 is "dummy2": u32,
        dummy3 is "dummy3": u64,
        dummy4 is "dummy4": u64,
    }
    NotifyPruneOut is "fuse_notify_prune_out" {
        count is "count": u32,
        padding is "padding": u32,
        spare is "spare": u64,
    }
    LseekIn is "fuse_lseek_in" {
        fh is "fh": u64,
        offset is "offset": u64,
        whence is "whence": u32,
        padding is "padding": u32,
    }
    LseekOut is "fuse_lseek_out" {
        offset is "offset": u64,
    }
    CopyFileRangeIn is "fuse_copy_file_range_in" {
        fh_in is "fh_in": u64,
        off_in is "off_in": u64,
        nodeid_out is "nodeid_out": u64,
        fh_out is "fh_out": u64,
        off_out is "off_out": u64,
        len is "len": u64,
        flags is "flags": u64,
    }
    CopyFileRangeOut is "fuse_copy_file_range_out" {
        bytes_copied is "bytes_copied": u64,
    }
    SetupmappingIn is "fuse_setupmapping_in" {
        fh is "fh": u64,
        foffset is "foffset": u64,
        len is "len": u64,
        flags is "flags": u64,
        moffset is "moffset": u64,
    }
    RemovemappingIn is "fuse_removemapping_in" {
        count is "count": u32,
    }
    RemovemappingOne is "fuse_removemapping_one" {
        moffset is "moffset": u64,
        len is "len": u64,
    }
    SyncfsIn is "fuse_syncfs_in" {
        padding is "padding": u64,
    }
    Secctx is "fuse_secctx" {
        size is "size": u32,
        padding is "padding": u32,
    }
    SecctxHeader is "fuse_secctx_header" {
        size is "size": u32,
        nr_secctx is "nr_secctx": u32,
    }
    ExtHeader is "fuse_ext_header" {
        size is "size": u32,
        kind is "type": u32,
    }
    SuppGroups is "fuse_supp_groups" {
        nr_groups is "nr_groups": u32,
    }
}
