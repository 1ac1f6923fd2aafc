//! Magic numbers of file systems (`statfs(2)`, `linux/magic.h`).

pub(super) const EXT_MAGIC: u64 = 0xef53;
pub(super) const TMPFS_MAGIC: u64 = 0x0102_1994;
pub(super) const RAMFS_MAGIC: u64 = 0x8584_58f6;
pub(super) const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;
pub(super) const OVERLAYFS_MAGIC: u64 = 0x794c_7630;
pub(super) const ECRYPTFS_MAGIC: u64 = 0xf15f;
pub(super) const XFS_MAGIC: u64 = 0x5846_5342;
pub(super) const BTRFS_MAGIC: u64 = 0x9123_683e;
pub(super) const F2FS_MAGIC: u64 = 0xf2f5_2010;
/// File systems that always ignore case: FAT, exFAT, NTFS (two drivers), HFS, HFS+.
pub(super) const FOLDING_MAGICS: &[u64] = &[
    0x4d44,
    0x2011_bab0,
    0x5346_544e,
    0x7366_746e,
    0x4244,
    0x482b,
];
/// File systems that report errors at close(2) and check callers by their ids: NFS, SMB, CIFS, Ceph,
/// AFS, 9P, FUSE.
pub(super) const REMOTE_MAGICS: &[u64] = &[
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x00c3_6400,
    0x5346_414f,
    0x0102_1997,
    0x6573_5546,
];
