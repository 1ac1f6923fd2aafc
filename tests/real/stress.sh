#!/bin/bash
# Loads that verify themselves: stress-ng's file system class, fio, dbench, fs_mark, postmark.
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/mount.sh"
need stress-ng fio dbench fs_mark postmark
SECONDS_EACH=${STRESS_SECONDS:-1}

lower "$WORK/lower" 4G
mkdir "$WORK/lower/served"
serve "$WORK/lower/served" "$WORK/mnt" "${STRESS_OPTIONS:-allow_other}"
# Some leave their notes where they are started.
cd "$WORK"
mkdir "$WORK/mnt/stress" "$WORK/mnt/fio" "$WORK/mnt/dbench" "$WORK/mnt/mark" "$WORK/mnt/postmark"

# Of the class, what works on files beneath its temporary path. The others test the kernel alone
# (binderfs, eventfd, procfs, ioprio) or need a feature that no FUSE file system has (verity).
STRESSORS=(access chattr chdir chmod chown copy-file dentry dir dirdeep dirmany dnotify dup
    fallocate fcntl fiemap file-ioctl filename flock fpunch fsize fstat getdent handle hdd
    inode-flags inotify io iomix lease link lockf lockofd locka mknod open rename symlink
    sync-file touch utime xattr)
for stressor in "${STRESSORS[@]}"; do
    log=$WORK/stress-ng.log
    code=0
    # With a generous limit: a stressor that hangs is a failure of the mount, not of patience.
    timeout -k 5 120 stress-ng --temp-path "$WORK/mnt/stress" --timeout "${SECONDS_EACH}s" --verify \
        --oomable --hdd-bytes 16m --fallocate-bytes 16m --iomix-bytes 16m --copy-file-bytes 128m \
        --sync-file-bytes 16m --dirdeep-inodes 2000 \
        "--$stressor" 2 >"$log" 2>&1 || code=$?
    case $code in
        0) ;;
        # 3: no resource or not implemented, which must then be so natively as well; 4: the same.
        3 | 4)
            code=0
            timeout -k 5 120 stress-ng --temp-path "$WORK/lower" --timeout 1s --verify \
                "--$stressor" 1 >"$log.native" 2>&1 || code=$?
            [[ $code == 3 || $code == 4 ]] ||
                { cat "$log" >&2; fail "stress-ng $stressor does not run here, but natively it does"; }
            say "stress-ng $stressor: not here, natively neither"
            ;;
        *)
            cat "$log" >&2
            fail "stress-ng $stressor: exit status $code"
            ;;
    esac
    if grep -qE '^stress-ng: fail:' "$log"; then
        cat "$log" >&2
        fail "stress-ng $stressor: a verification failed"
    fi
done
say "stress-ng: ${#STRESSORS[@]} stressors of ${SECONDS_EACH} s, verified"

for engine in psync libaio mmap io_uring; do
    for direct in 0 1; do
        [[ $engine-$direct != mmap-1 ]] || continue
        fio --name=verify --directory="$WORK/mnt/fio" --ioengine=$engine --direct=$direct \
            --rw=randrw --bs=4k --size=16m --numjobs=2 --iodepth=8 --verify=crc32c \
            --verify_fatal=1 --do_verify=1 --end_fsync=1 --group_reporting \
            >"$WORK/fio.log" 2>&1 || { cat "$WORK/fio.log" >&2; fail "fio, $engine, direct=$direct"; }
        # Once more from what is on disk, with nothing cached.
        drop_caches
        fio --name=verify --directory="$WORK/mnt/fio" --ioengine=$engine --direct=$direct \
            --rw=randrw --bs=4k --size=16m --numjobs=2 --iodepth=8 --verify=crc32c \
            --verify_fatal=1 --verify_only --group_reporting \
            >"$WORK/fio.log" 2>&1 || { cat "$WORK/fio.log" >&2; fail "fio, $engine, direct=$direct, cold"; }
        rm -f "$WORK"/mnt/fio/verify*
    done
done
say "fio: psync, libaio, mmap, io_uring, buffered and direct, verified warm and cold"

dbench -D "$WORK/mnt/dbench" -t 5 -c /usr/share/dbench/client.txt 2 >"$WORK/dbench.log" 2>&1 ||
    { tail -n 20 "$WORK/dbench.log" >&2; fail "dbench"; }
grep -q '^Throughput' "$WORK/dbench.log" || { tail -n 20 "$WORK/dbench.log" >&2; fail "dbench ended early"; }
say "dbench: $(grep '^Throughput' "$WORK/dbench.log")"

# It takes no path of 40 bytes or more.
(cd "$WORK/mnt" && fs_mark -d ./mark -n 500 -t 2 -s 10240 -S 1 -k -l "$WORK/fs_log") >"$WORK/fs_mark.log" 2>&1 ||
    { cat "$WORK/fs_mark.log" >&2; fail "fs_mark"; }
expect "files of fs_mark" "$(find "$WORK/mnt/mark" -type f -size 10240c | wc -l)" 1000
say "fs_mark: 1000 files, synced"

(
    cd "$WORK/mnt/postmark"
    # Quit must come last: without it postmark waits for more.
    printf 'set location %s\nset size 500 20000\nset number 500\nset transactions 3000\nrun\nquit\n' \
        "$WORK/mnt/postmark" | postmark >"$WORK/postmark.log" 2>&1
) || { cat "$WORK/postmark.log" >&2; fail "postmark"; }
grep -q ' created (' "$WORK/postmark.log" || { cat "$WORK/postmark.log" >&2; fail "postmark said nothing"; }
! grep -qi error "$WORK/postmark.log" || { cat "$WORK/postmark.log" >&2; fail "postmark: errors"; }
expect "files that postmark left" "$(find "$WORK/mnt/postmark" -type f | wc -l)" 0
say "postmark: 3000 transactions"

unserve "$WORK/mnt"
