#!/bin/bash
# The soak of following (tests/tests/soak), with mounts of the guest's own: the trials with a fixed seed on tmpfs, or,
# with THRUFS_SOAK_SECONDS, the long ones on tmpfs and overlayfs. From Linux 7.3 on, INVAL_ENTRY leaves the directory's
# mode and owner.
SERVE=native
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/../real/mount.sh"
need fusermount3

# As udev and the package make them, for ordinary users.
chmod 666 /dev/fuse
chmod 4755 "$(command -v fusermount3)"
ring=/sys/module/fuse/parameters/enable_uring
[[ ! -e $ring ]] || echo Y >$ring
trials=(--skip long)
[[ -z ${THRUFS_SOAK_SECONDS:-} ]] || trials=(--ignored --skip ext4 --skip xfs --skip btrfs)
export THRUFS_SKIPPED=$WORK/skipped
thrufs-soak "${trials[@]}" || fail "the soak of following"
[[ ! -e $THRUFS_SKIPPED ]] || sed 's/^/SKIPPED /' "$THRUFS_SKIPPED"
