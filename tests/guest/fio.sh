#!/bin/bash
# Reads and writes with verification, by every engine, warm and cold.
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/../real/mount.sh"
need fio

lower "$WORK/lower" 512M
mkdir "$WORK/lower/served"
serve "$WORK/lower/served" "$WORK/mnt"
for engine in psync libaio mmap io_uring; do
    for direct in 0 1; do
        [[ $engine-$direct != mmap-1 ]] || continue
        for turn in --do_verify=1 --verify_only; do
            fio --name=verify --directory="$WORK/mnt" --ioengine=$engine --direct=$direct \
                --rw=randrw --bs=4k --size=4m --numjobs=2 --iodepth=8 --verify=crc32c --thread \
                --verify_fatal=1 --end_fsync=1 --group_reporting $turn >"$WORK/fio.log" 2>&1 ||
                { cat "$WORK/fio.log" >&2; fail "fio, $engine, direct=$direct, $turn"; }
            # The second turn reads from the host, with nothing cached here.
            drop_caches
        done
        rm -f "$WORK"/mnt/verify*
    done
done
unserve "$WORK/mnt"
say "psync, libaio, mmap, io_uring, buffered and direct, verified warm and cold"
