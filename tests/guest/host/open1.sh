#!/bin/bash
# How often a second a file is opened and closed, in guests with kernels from before and after close(2)
# did its work before it returned, in a tmpfs of the guest and in a share, with and without restartable
# sequences, by one process and by several. `cargo xtask vm-bench --open1` runs this and makes a table of it.
#
#   KERNEL_BEFORE, INITRAMFS_BEFORE  a kernel from before, as KERNEL and INITRAMFS
#   ROUNDS     how often each is measured, in turns
#   SECONDS_EACH  how long
#   MEASURED   a file for what is measured: ROW CONTESTANT UNIT VALUE
# shellcheck source=tests/guest/machine.sh
source "$(dirname "$0")/../machine.sh"
[[ $GUEST == qemu ]] || fail "this needs kernels of Debian: --guest qemu"
[[ $SERVER == thrufs ]] || fail "this is about thrufs"
PROCESSES=(1 2)

lower "$WORK/lower" 512M
mkdir "$WORK/lower/served"
declare -A LINUX=()
for guest in before after; do
    share "shared-$guest" "$OPTIONS" "$WORK/lower/served" shared
    share_beneath "beneath-$guest"
done
KERNEL=$KERNEL_BEFORE INITRAMFS=$INITRAMFS_BEFORE boot before shared-before beneath-before
boot after shared-after beneath-after
for guest in before after; do
    asks $guest 'mkdir /native && mount -t tmpfs tmpfs /native && uname -r'
    LINUX[$guest]=$(cut -d. -f1,2 <<<"$ANSWER")
done

# rate GUEST PLACE PROCESSES RSEQ: each process has a file of its own. What they print is their sum.
rate() {
    asks "$1" "for ((n = 0; n < $3; n++)); do
            mkdir -p $2/$1-\$n
            GLIBC_TUNABLES=glibc.pthread.rseq=$4 thrufs-guest-tests measure open-close $2/$1-\$n $SECONDS_EACH &
        done >/tmp/rates; wait; [[ \$(wc -l </tmp/rates) == $3 ]] && awk '{ sum += \$1 } END { print sum }' /tmp/rates"
}

# One guest works at a time, and the two take turns.
for ((round = 1; round <= ROUNDS; round++)); do
    for processes in "${PROCESSES[@]}"; do
        for rseq in 1 0; do
            for place in native shared; do
                for guest in before after; do
                    rate $guest /$place "$processes" $rseq
                    word=$([[ $rseq == 1 ]] && echo rseq || echo no-rseq)
                    echo "linux-${LINUX[$guest]}-$word-$processes $([[ $place == shared ]] && echo thrufs || echo tmpfs)" \
                        "/s $ANSWER" >>"$WORK/measured"
                done
            done
        done
    done
done
sort --stable --key=1,1 "$WORK/measured" | tee -a "$MEASURED"
for guest in before after; do
    dismiss $guest
    ended "shared-$guest"
    ended "beneath-$guest"
done
