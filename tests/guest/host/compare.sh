#!/bin/bash
# Measures, in one guest and row by row in turns: our share, virtiofsd's, and with QEMU the one that QEMU
# has by itself, 9p. `bench/guest.py` has `cargo xtask vm-test compare` run this, and makes a table of it.
#
#   PEER       virtiofsd
#   ROUNDS     how often each row is measured of each (default: 5)
#   SECONDS_EACH  how long (default: 2)
#   ROWS       an expression of which a row's name is one (default: all)
#   CACHE      of both servers: `never` (default), `auto` or `always`; 9p has none
#   WITH       more options of our share
#   MEASURED   a file for what is measured: ROW TARGET UNIT VALUE
# shellcheck source=tests/guest/machine.sh
source "$(dirname "$0")/../machine.sh"
need fio
[[ $SERVER == thrufs ]] || fail "the peer is there anyway"
CACHE=${CACHE:-never} ROUNDS=${ROUNDS:-5} SECONDS_EACH=${SECONDS_EACH:-2} MEASURED=${MEASURED:-/dev/null}

peer() { SERVER=virtiofsd PROGRAM=$PEER "$@"; }

lower "$WORK/lower" 4G
# Of each file: more than is read through any of them while one is measured.
SIZE=32M
[[ $GUEST == uml ]] || SIZE=128M
mkdir "$WORK/lower/served"
targets=(thrufs virtiofsd)
share shared "cache=$CACHE,allow_mmap${WITH:+,$WITH}"
peer share peer "cache=$CACHE,allow_mmap"
share_beneath
if [[ $GUEST == qemu ]]; then
    targets+=(9p)
    QEMU_MORE=(-fsdev "local,id=nine,path=$WORK/lower/served,security_model=passthrough"
        -device virtio-9p-pci,fsdev=nine,mount_tag=nine)
fi
boot guest shared peer beneath
asks guest 'mkdir /guests && mkdir /guests/{thrufs,virtiofsd} && mount --move /shared /guests/thrufs &&
    mkdir -p /shared && mount -t virtiofs peer /guests/virtiofsd'
[[ $GUEST != qemu ]] ||
    asks guest 'mkdir /guests/9p && mount -t 9p -o trans=virtio,version=9p2000.L,cache=none nine /guests/9p'
for target in "${targets[@]}"; do
    # Through none of them, so that nothing remembers it.
    mkdir "$WORK/lower/served/$target"
    for ((job = 0; job < 4; job++)); do
        head -c $SIZE /dev/urandom >"$WORK/lower/served/$target/row.$job.0"
    done
done

# asked_for ROW
asked_for() { [[ $1 =~ ^(${ROWS:-.*})$ ]]; }

# measured ROW TARGET UNIT VALUE
measured() { echo "$*" | tee -a "$MEASURED"; }

# one ROW UNIT COMMAND: in turns, so that what else the machine does meets all of them. In COMMAND, PLACE
# stands for the directory. What cannot be done is said and has no value.
one() {
    local row=$1 unit=$2 command=$3 round target
    local -A missing=()
    asked_for "$row" || return 0
    for ((round = 1; round <= ROUNDS; round++)); do
        for target in "${targets[@]}"; do
            [[ -z ${missing[$target]:-} ]] || continue
            if ask guest "${command//PLACE//guests/$target/$target}"; then
                measured "$row" "$target" "$unit" "$ANSWER"
            else
                missing[$target]=yes
                say "$row: not with $target: $(head -n 1 <<<"$ANSWER")"
            fi
        done
    done
}

names() { one "$1" /s "thrufs-guest-tests measure $1 PLACE $SECONDS_EACH"; }

# by_fio ROW UNIT FIELD ARGUMENT...: by one run of fio for all in turns, as its start takes longer than
# anything else where the processor is emulated. Each round begins with another, and each finds nothing in
# the guest's cache. The field is that of fio's terse form, version 3.
by_fio() {
    local row=$1 unit=$2 field=$3 round turn target error value jobs
    shift 3
    asked_for "$row" || return 0
    for ((round = 0; round < ROUNDS; round++)); do
        jobs=
        for ((turn = 0; turn < ${#targets[@]}; turn++)); do
            target=${targets[(round + turn) % ${#targets[@]}]}
            jobs+=" --name=$target --directory=/guests/$target/$target --stonewall --new_group"
        done
        # What it exits with is not asked: one may have failed.
        ask guest "timeout 90 fio --output-format=terse --terse-version=3 --name=global --size=$SIZE \
            --filename_format='row.\$jobnum.0' --time_based --runtime=$SECONDS_EACH --group_reporting --thread \
            --fallocate=none --gtod_reduce=1 --exec_prerun='sync; echo 3 >/proc/sys/vm/drop_caches' \
            $* $jobs >/tmp/fio 2>/tmp/fio-errors; grep '^3;' /tmp/fio | cut -d';' -f3,5,$field" || true
        while IFS=';' read -r target error value; do
            if [[ $error == 0 && -n $value && $value != 0 ]]; then
                measured "$row" "$target" "$unit" "$value"
            elif ((round == 0)); then
                say "$row: not with $target: error $error"
            fi
        done <<<"$ANSWER"
    done
}

if [[ $GUEST == uml ]]; then
    for row in stat open-close create-unlink readdir-10000; do names "$row"; done
    by_fio read-4k-random /s 8 --rw=randread --bs=4k --ioengine=psync
    by_fio write-4k-random /s 49 --rw=randwrite --bs=4k --ioengine=psync
    for size in 128k 1m; do
        by_fio "read-$size" KiB/s 7 --rw=read --bs=$size --ioengine=psync
        by_fio "write-$size" KiB/s 48 --rw=write --bs=$size --ioengine=psync
    done
else
    # Blocks, engines and jobs of the comparisons that were published with virtio-fs.
    for jobs in 1 4; do
        for engine in psync mmap libaio; do
            direct=0
            [[ $engine != libaio ]] || direct=1
            for way in read randread write randwrite; do
                field=8
                [[ $way != *write ]] || field=49
                by_fio "$way-$engine-$jobs" /s $field \
                    --rw=$way --bs=4k --ioengine=$engine --direct=$direct --numjobs=$jobs
            done
        done
    done
fi
asks guest 'umount /guests/* && mount -t virtiofs shared /shared'
dismiss guest
ended shared
ended beneath
peer ended peer
