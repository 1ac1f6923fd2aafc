//! Converts structures of the wire to arguments of [`FileSystem`](crate::FileSystem)'s methods.

use crate::attributes::{
    CopyArgs, LockArgs, NewNode, OpenArgs, ReadArgs, ReleaseArgs, SetAttr, SetTime, Timestamp,
    WriteArgs,
};
use thrufs_abi::layout::{
    CopyFileRangeIn, CreateIn, LkIn, MkdirIn, MknodIn, OpenIn, ReadIn, ReleaseIn, SetattrIn,
    WriteIn,
};
use thrufs_abi::{
    FileHandle, LkFlags, LockOwner, NodeId, OpenInFlags, ReadFlags, ReleaseFlags, SetattrValid,
    WriteFlags,
};

pub(super) fn set_attr(arg: &SetattrIn) -> SetAttr {
    let valid = SetattrValid::from_bits_retain(arg.valid);
    let has = |flag| valid.contains(flag);
    let timestamp = |seconds: u64, nanoseconds: u32| Timestamp {
        // The wire has an unsigned field for a signed number.
        seconds: seconds.cast_signed(),
        nanoseconds: nanoseconds.min(999_999_999),
    };
    let time = |set, now, seconds, nanoseconds| {
        has(set).then(|| {
            if has(now) {
                SetTime::Now
            } else {
                SetTime::At(timestamp(seconds, nanoseconds))
            }
        })
    };
    SetAttr {
        handle: has(SetattrValid::FH).then_some(FileHandle(arg.fh)),
        mode: has(SetattrValid::MODE).then_some(arg.mode),
        uid: has(SetattrValid::UID).then_some(arg.uid),
        gid: has(SetattrValid::GID).then_some(arg.gid),
        size: has(SetattrValid::SIZE).then_some(arg.size),
        atime: time(
            SetattrValid::ATIME,
            SetattrValid::ATIME_NOW,
            arg.atime,
            arg.atimensec,
        ),
        mtime: time(
            SetattrValid::MTIME,
            SetattrValid::MTIME_NOW,
            arg.mtime,
            arg.mtimensec,
        ),
        ctime: has(SetattrValid::CTIME).then(|| timestamp(arg.ctime, arg.ctimensec)),
        kill_suidgid: has(SetattrValid::KILL_SUIDGID),
        lock_owner: has(SetattrValid::LOCKOWNER).then_some(LockOwner(arg.lock_owner)),
    }
}

pub(super) fn open_args(arg: &OpenIn) -> OpenArgs {
    OpenArgs {
        flags: arg.flags,
        kill_suidgid: kills(arg.open_flags),
    }
}

pub(super) fn create_args(arg: &CreateIn) -> (NewNode, OpenArgs) {
    let new = NewNode {
        mode: arg.mode,
        umask: arg.umask,
        rdev: 0,
    };
    (
        new,
        OpenArgs {
            flags: arg.flags,
            kill_suidgid: kills(arg.open_flags),
        },
    )
}

fn kills(open_flags: u32) -> bool {
    OpenInFlags::from_bits_retain(open_flags).contains(OpenInFlags::KILL_SUIDGID)
}

pub(super) fn mknod_args(arg: &MknodIn) -> NewNode {
    NewNode {
        mode: arg.mode,
        umask: arg.umask,
        rdev: arg.rdev,
    }
}

pub(super) fn mkdir_args(arg: &MkdirIn) -> NewNode {
    // The kernel sends the permission bits without a file type.
    let mode = libc::S_IFDIR | (arg.mode & !libc::S_IFMT);
    NewNode {
        mode,
        umask: arg.umask,
        rdev: 0,
    }
}

pub(super) fn read_args(arg: &ReadIn) -> ReadArgs {
    let flags = ReadFlags::from_bits_retain(arg.read_flags);
    ReadArgs {
        handle: FileHandle(arg.fh),
        offset: arg.offset,
        flags: arg.flags,
        lock_owner: flags
            .contains(ReadFlags::LOCKOWNER)
            .then_some(LockOwner(arg.lock_owner)),
    }
}

pub(super) fn write_args(arg: &WriteIn) -> WriteArgs {
    let flags = WriteFlags::from_bits_retain(arg.write_flags);
    WriteArgs {
        handle: FileHandle(arg.fh),
        offset: arg.offset,
        flags: arg.flags,
        from_cache: flags.contains(WriteFlags::CACHE),
        kill_suidgid: flags.contains(WriteFlags::KILL_SUIDGID),
        lock_owner: flags
            .contains(WriteFlags::LOCKOWNER)
            .then_some(LockOwner(arg.lock_owner)),
    }
}

pub(super) fn release_args(arg: &ReleaseIn) -> ReleaseArgs {
    let flags = ReleaseFlags::from_bits_retain(arg.release_flags);
    let owner = |flag| flags.contains(flag).then_some(LockOwner(arg.lock_owner));
    ReleaseArgs {
        handle: FileHandle(arg.fh),
        flags: arg.flags,
        flush: owner(ReleaseFlags::FLUSH),
        flock_unlock: owner(ReleaseFlags::FLOCK_UNLOCK),
    }
}

pub(super) fn lock_args(arg: &LkIn) -> LockArgs {
    let end_of_file = i64::MAX.cast_unsigned();
    LockArgs {
        handle: FileHandle(arg.fh),
        owner: LockOwner(arg.owner),
        flock: LkFlags::from_bits_retain(arg.lk_flags).contains(LkFlags::FLOCK),
        start: arg.lk.start,
        end: arg.lk.end.min(end_of_file),
        kind: arg.lk.kind,
        pid: arg.lk.pid,
    }
}

pub(super) fn copy_args(arg: &CopyFileRangeIn, wide: bool) -> CopyArgs {
    // The short form of the reply counts in 32 bits.
    let length_max = if wide {
        u64::MAX
    } else {
        u64::from(u32::MAX) & !4095
    };
    CopyArgs {
        handle_in: FileHandle(arg.fh_in),
        offset_in: arg.off_in,
        node_out: NodeId(arg.nodeid_out),
        handle_out: FileHandle(arg.fh_out),
        offset_out: arg.off_out,
        length: arg.len.min(length_max),
        flags: arg.flags,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setattr_without_fields_sets_nothing() {
        let arg = SetattrIn {
            size: 7,
            mode: 7,
            uid: 7,
            fh: 7,
            ..SetattrIn::default()
        };
        let set = set_attr(&arg);
        assert!(set.handle.is_none() && set.mode.is_none() && set.uid.is_none());
        assert!(set.gid.is_none() && set.size.is_none() && set.lock_owner.is_none());
        assert!(set.atime.is_none() && set.mtime.is_none() && set.ctime.is_none());
        assert!(!set.kill_suidgid);
    }

    #[test]
    fn a_setattr_with_all_fields_sets_each() {
        let arg = SetattrIn {
            valid: SetattrValid::all().bits(),
            fh: 1,
            size: 2,
            lock_owner: 3,
            ctime: 4,
            ctimensec: 5,
            mode: 6,
            uid: 7,
            gid: 8,
            ..SetattrIn::default()
        };
        let set = set_attr(&arg);
        assert_eq!(set.handle, Some(FileHandle(1)));
        assert_eq!((set.size, set.lock_owner), (Some(2), Some(LockOwner(3))));
        let ctime = Timestamp {
            seconds: 4,
            nanoseconds: 5,
        };
        assert_eq!(set.ctime, Some(ctime));
        assert_eq!((set.mode, set.uid, set.gid), (Some(6), Some(7), Some(8)));
        assert!(set.kill_suidgid);
    }

    #[test]
    fn times_before_the_epoch_and_now() {
        let valid = SetattrValid::ATIME | SetattrValid::MTIME | SetattrValid::MTIME_NOW;
        let arg = SetattrIn {
            valid: valid.bits(),
            atime: (-5_i64).cast_unsigned(),
            atimensec: 3,
            ..SetattrIn::default()
        };
        let set = set_attr(&arg);
        let before = Timestamp {
            seconds: -5,
            nanoseconds: 3,
        };
        assert_eq!(set.atime, Some(SetTime::At(before)));
        assert_eq!(set.mtime, Some(SetTime::Now));
        assert_eq!(set.ctime, None);
    }

    #[test]
    fn flags_of_writes_and_releases() {
        let arg = WriteIn {
            write_flags: 0b101,
            lock_owner: 4,
            ..WriteIn::default()
        };
        let args = write_args(&arg);
        assert!(args.from_cache && args.kill_suidgid && args.lock_owner.is_none());
        let arg = ReleaseIn {
            release_flags: 0b10,
            lock_owner: 4,
            ..ReleaseIn::default()
        };
        let args = release_args(&arg);
        assert_eq!((args.flush, args.flock_unlock), (None, Some(LockOwner(4))));
    }
}
