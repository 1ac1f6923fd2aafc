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
/// proc, sysfs, cgroups of both versions, devpts, debugfs, tracefs, securityfs, SELinux, Smack, BPF, namespaces, FUSE's
/// control files, configfs, binfmt_misc, EFI variables, pstore, resctrl, message queues.
pub(super) const KERNEL_MAGICS: &[u64] = &[
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x1cd1,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0xf97c_ff8c,
    0x4341_5d53,
    0xcafe_4a11,
    0x6e73_6673,
    0x6573_5543,
    0x6265_6570,
    0x4249_4e4d,
    0xde5e_81e4,
    0x6165_676c,
    0x0765_5821,
    0x1980_0202,
];
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
