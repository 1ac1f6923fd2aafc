#!/bin/bash
# A share with a DAX window, from the window's request to the guest's page table: which files the guest maps,
# that guest and host have the same bytes however they are written, and that nothing of a file stays in the
# window for another.
#
#   PARTS   what is tried, in this order (default: all but `stopped_busy`, `reset` and `truncated`, which end
#           QEMU 11.1: docs/upstream/qemu-shmem.md)
# shellcheck source=tests/guest/machine.sh
source "$(dirname "$0")/../machine.sh"
need fio fsx xfs_io fallocate setpriv
[[ $GUEST == qemu ]] || fail "this needs a window: --guest qemu"
[[ $SERVER == thrufs ]] || fail "this is about thrufs"

PARTS=${PARTS:-kinds bytes at_once direct set_ids size exerciser reclaim stopped modes rules remounts unbinds restarts}
QEMU=$QEMU_WINDOW
# With QEMU, a machine that starts again stays.
ON_REBOOT=
# Of 8 ranges: half of `big.img`, so that the guest has to take ranges away from it.
WINDOW[shared]=16M
BIG=32M
served=$WORK/lower/served

# random NAME SIZE: a file on the host.
random() { head -c "$2" /dev/urandom >"$served/$1"; }

md5() { (cd "$served"; md5sum "$@"); }

# same WHAT NAME...: both sides read the same.
same() {
    local what=$1
    shift
    asks guest "cd /shared; md5sum $*"
    expect "$what: what the guest reads" "$ANSWER" "$(md5 "$@")"
}

# mapped WANTED NAME...: of these files, the guest maps those.
mapped() {
    local wanted=$1
    shift
    asks guest "cd /shared; for name in $*; do
        attributes=\$(xfs_io -r -c 'statx -r' \$name | sed -n 's/^stat.attributes = //p')
        ((attributes & 0x200000)) && printf '%s ' \$name; done; true"
    expect "files that are mapped" "${ANSWER% }" "$wanted"
}

# maps: how many mappings there were.
maps() {
    "$PROGRAM" ctl "$WORK/shared.socket" statistics | sed -nE 's/^.*window maps\W+([0-9]+).*$/\1/p' | head -n 1
}

# refused WHAT COMMAND: the guest must not do this. xfs_io succeeds whatever happens.
refused() {
    ask guest "cd /shared; $2" || true
    [[ $ANSWER == *'Operation not permitted'* ]] || fail "$1: not refused with EPERM: $ANSWER"
}

# verify SIDE ENGINE SEED ARGUMENT...: fio writes `both.img`, or verifies what it has written with this seed.
verify() {
    local side=$1 engine=$2 seed=$3
    shift 3
    local words=(fio --name=verify --filename=both.img --ioengine="$engine" --rw=randwrite --bs=4k --size=4m
        --thread --fallocate=none --randseed="$seed" --verify=crc32c --verify_fatal=1 --verify_state_save=0 "$@")
    if [[ $side == guest ]]; then
        in_guest "${words[@]}"
    elif ! (cd "$served"; "${words[@]}" >"$WORK/fio.log" 2>&1); then
        cat "$WORK/fio.log" >&2
        fail "on the host: ${words[*]}"
    fi
}

in_guest() { asks guest "cd /shared; $* >/tmp/log 2>&1 || { cat /tmp/log; false; }"; }

# Files of each kind, for several parts.
files() {
    local name
    random whole.img 8M
    random small.img 1M
    random odd.img $((4 * 1048576 + 100))
    random other.dat 4M
    random program.img 4M
    chmod 755 "$served/program.img"
    : >"$served/empty.img"
    random big.img "$BIG"
    for name in one two three; do random $name.img 4M; done
}

kinds() {
    local all=(whole.img small.img odd.img other.dat program.img empty.img)
    mapped whole.img "${all[@]}"
    same "each kind of file" "${all[@]}"
    # What is not mapped has every size that the guest gives it.
    asks guest 'cd /shared; for name in small.img odd.img other.dat empty.img; do
        echo more >>$name && truncate -s 3m $name && echo less >$name || exit 1; done'
    same "files that are not mapped, after the guest has written them" small.img odd.img other.dat empty.img
    # Nor has what it makes itself, until it looks it up anew.
    asks guest 'cd /shared; cp whole.img new.img && truncate -s 6m new.img && cat odd.img >>new.img &&
        truncate -s 8m new.img && sleep 1.1 && cat whole.img >new.img'
    mapped whole.img whole.img new.img
    asks guest 'echo 2 >/proc/sys/vm/drop_caches'
    mapped "whole.img new.img" whole.img new.img
    same "a file that the guest has made" new.img
    (($(maps) >= 4)) || fail "the guest maps nothing: $(maps) mappings were made"
    say "mapped are files of whole pages that are named and large enough"
}

bytes() {
    local engine
    random both.img 4M
    mapped both.img both.img
    same "read(2)" both.img
    for engine in mmap psync; do
        verify host psync 1 --do_verify=0
        verify guest $engine 1 --verify_only
        verify guest $engine 2 --do_verify=0
        verify host psync 2 --verify_only
        same "$engine" both.img
    done
    say "read and written by mmap and by read(2) and write(2), from both sides"
}

# A process of the guest that has mapped a file and the host see each other's bytes at once.
at_once() {
    local turn at
    random live.img 4M
    mapped live.img live.img
    maps_it live.img
    for turn in 1 2 3; do
        at=$((turn * 1048576 - 4))
        printf 'of host%d' $turn | dd of="$served/live.img" bs=1 seek=$at conv=notrunc status=none
        tells "load $at 8"
        expect "what the guest loads" "$ANSWER" "of host$turn"
        tells "store $at of-guest$turn"
        expect "what the guest has stored" "$(dd if="$served/live.img" bs=1 skip=$at count=9 status=none)" "of-guest$turn"
    done
    unmaps_it
    same "a file that the guest has mapped" live.img
    say "what the host writes is in a map of the guest at once, and the reverse"
}

# The map is the buffer of read(2) and write(2) with O_DIRECT on a file that is not mapped, also while ranges of
# the window are taken away for another file.
direct() {
    local place at count
    random buffer.img 8M
    random direct.dat 8M
    mapped buffer.img buffer.img direct.dat
    maps_it buffer.img
    asks guest '{ until [[ -e /tmp/enough ]]; do md5sum </shared/big.img; done >/tmp/sums; : >/tmp/over; } &'
    for place in "0 4096" "2093056 8192" "1048576 1048576" "3145728 4194304" "0 8388608"; do
        read -r at count <<<"$place"
        moves read "$at" "$count"
        random more "$count"
        dd if="$served/more" of="$served/buffer.img" bs=4096 seek=$((at / 4096)) conv=notrunc status=none
        moves write "$at" "$count"
    done
    unmaps_it
    asks guest ': >/tmp/enough; until [[ -e /tmp/over ]]; do sleep 0.1; done; sort -u /tmp/sums
        rm /tmp/enough /tmp/over'
    expect "another file, meanwhile" "$ANSWER" "$(md5sum <"$served/big.img")"
    same "O_DIRECT with a map as the buffer" buffer.img direct.dat
    say "O_DIRECT from a file that is not mapped into a map, and the reverse"
}

# moves HOW AT COUNT: both files have the same bytes there.
moves() {
    tells "$1 $2 $3 /shared/direct.dat"
    expect "O_DIRECT, $1 of $3 bytes at $2" "$ANSWER" "$3"
    cmp --ignore-initial="$2" --bytes="$3" "$served/buffer.img" "$served/direct.dat" ||
        fail "O_DIRECT, $1 of $3 bytes at $2: other bytes"
}

# A store by a user who may not keep them keeps set-id bits, and a write clears them, as on the host.
set_ids() {
    local mode name wanted
    for mode in 6666 4666 2666; do
        name=$mode.img
        random $name 4M
        random native 4M
        chmod $mode "$served/$name" "$served/native"
        mapped $name $name
        as_user store "$served/native"
        asks guest "$(declare -f as_user); as_user store /shared/$name"
        expect "$mode natively, after a store" "$(stat -c %a "$served/native")" $mode
        expect "$mode after a store" "$(stat -c %a "$served/$name")" $mode
        as_user write "$served/native"
        asks guest "$(declare -f as_user); as_user write /shared/$name; stat -c %a /shared/$name"
        wanted=$(stat -c %a "$served/native")
        expect "$mode after a write, on the host" "$(stat -c %a "$served/$name")" "$wanted"
        expect "$mode after a write, in the guest" "$ANSWER" "$wanted"
        same "a file with set-id bits" $name
    done
    say "set-id bits as natively"
}

# as_user HOW FILE: changes its beginning, as a user in its group.
as_user() {
    local user=(setpriv --reuid 4001 --regid 0 --clear-groups)
    case $1 in
        store) "${user[@]}" xfs_io -c 'mmap -rw 0 4096' -c 'mwrite -S 0x61 0 8' "$2" ;;
        write) printf written | "${user[@]}" dd of="$2" conv=notrunc status=none ;;
    esac
}

# maps_it NAME: a process of the guest maps the file, and does what it is told.
maps_it() {
    asks guest "mkfifo /tmp/live
        thrufs-test-helper map /shared/$1 <>/tmp/live >/tmp/lived 2>&1 & echo \$! >/tmp/maps"
    lines_told=0
    told
    expect "a process that maps a file" "$ANSWER" ok
}

unmaps_it() { asks guest 'kill $(cat /tmp/maps); rm /tmp/live'; }

# tells LINE: to that process; what it says is in $ANSWER.
tells() {
    asks guest "echo '$1' >/tmp/live"
    told
}

# told: its next line, within 20 s.
told() {
    lines_told=$((lines_told + 1))
    asks guest "for ((n = 0; n < 400; n++)); do
        line=\$(sed -n ${lines_told}p /tmp/lived); [[ -z \$line ]] || break; sleep 0.05; done; echo \"\$line\""
}

size() {
    random fixed.img 4M
    mapped fixed.img fixed.img
    same "a file that is mapped" fixed.img
    refused "cutting a file that is mapped" 'truncate -s 2m fixed.img'
    refused "making it larger" 'truncate -s 6m fixed.img'
    refused "appending to it" 'echo more >>fixed.img'
    refused "cutting it as it is opened" ': >fixed.img'
    refused "allocating beyond its end" 'fallocate -l 6m fixed.img'
    refused "copying beyond its end" 'xfs_io -c "copy_range -d 3m -l 2m whole.img" fixed.img'
    expect "the size on the host" "$(stat -c %s "$served/fixed.img")" $((4 << 20))
    same "a file whose size stays" fixed.img
    asks guest 'cd /shared; truncate -s 4m fixed.img && fallocate -p -o 1m -l 64k fixed.img &&
        printf last | dd of=fixed.img bs=1 seek=$((4 * 1048576 - 4)) conv=notrunc status=none'
    same "what a file can do whose size stays" fixed.img
    grown
    say "the size of a file that is mapped stays, and what is added on the host is right or not there"
}

# What is added on the host is read right, as far as the guest is told of it.
grown() {
    local turn bytes told
    for turn in 1048576 100 65536 4096 3; do
        random more $turn
        cat "$served/more" >>"$served/fixed.img"
        # Attributes are valid for a second.
        asks guest 'sleep 1.1; stat -c %s /shared/fixed.img; md5sum </shared/fixed.img'
        read -r told bytes <<<"${ANSWER//$'\n'/ }"
        ((told >= 4 << 20 && told <= $(stat -c %s "$served/fixed.img"))) || fail "grown by $turn on the host: $told bytes"
        expect "the first $told bytes of a file that has grown by $turn" "$bytes" \
            "$(head -c "$told" "$served/fixed.img" | md5sum)"
    done
    # With no mapping of it left, too.
    asks guest "echo 3 >/proc/sys/vm/drop_caches; stat -c %s /shared/fixed.img; md5sum </shared/fixed.img"
    read -r told bytes <<<"${ANSWER//$'\n'/ }"
    expect "the first $told bytes of a file that has grown" "$bytes" "$(head -c "$told" "$served/fixed.img" | md5sum)"
}

# Random operations, every read verified, on a file of one size.
exerciser() {
    local seed=${THRUFS_SEED:-$((SRANDOM % 1000000))} operations=${FSX_OPERATIONS:-600}
    say "THRUFS_SEED=$seed"
    cat >"$served/fsx.toml" <<'TOML'
flen = 4194304
blockmode = true
[opsize]
max = 131072
[weights]
close_open = 0
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 0
fsync = 0.5
fdatasync = 0.5
posix_fallocate = 0
punch_hole = 2
sendfile = 2
posix_fadvise = 1
copy_file_range = 2
TOML
    random fsx.img 4M
    cp "$served/fsx.img" "$WORK/memory/fsx.img"
    mapped fsx.img fsx.img
    asks guest "cd /shared; fsx -N $operations -S $seed -f fsx.toml -P /tmp fsx.img >/tmp/log 2>&1 ||
        { tail -n 40 /tmp/log; false; }"
    fsx -N "$operations" -S "$seed" -f "$served/fsx.toml" -P "$WORK" "$WORK/memory/fsx.img" >"$WORK/fsx.log" 2>&1 ||
        fail "fsx fails natively: $(tail -n 40 "$WORK/fsx.log")"
    same fsx fsx.img
    cmp "$WORK/memory/fsx.img" "$served/fsx.img" || fail "fsx: the file is not what the same operations make natively"
    say "$operations operations of fsx"
}

# A file that has more than the window has room for.
reclaim() {
    local engine before
    mapped big.img big.img
    before=$(maps)
    same "a file larger than the window" big.img
    for engine in mmap psync; do
        in_guest fio --name=verify --filename=big.img --ioengine=$engine --rw=randrw --bs=16k --size="$BIG" \
            --io_size=16m --thread --fallocate=none --verify=crc32c --verify_backlog=32 --verify_fatal=1 \
            --verify_state_save=0 --randseed=$SRANDOM
        same "a file larger than the window, after fio by $engine" big.img
    done
    (($(maps) > before + 64)) || fail "the guest took no range away: $(maps) mappings, before $before"
    say "$(($(maps) - before)) mappings in a window half as large as the file"
}

# The monitor stops the queues and the virtual processors between two accesses of the guest, and what is mapped
# stays.
stopped() {
    local turn
    for turn in 1 2 3; do
        asks guest 'md5sum /shared/big.img'
        qmp 1 stop
        random new 4096
        dd if="$served/new" of="$served/big.img" bs=4096 seek=$((SRANDOM % 8192)) conv=notrunc status=none
        qmp 1 cont
        same "after a stop" big.img
    done
    say "stopped $turn times"
}

# The same over and over, while the guest changes the window.
stopped_busy() {
    local turn
    asks guest '{ for ((n = 1; ; n++)); do
            md5sum </shared/big.img; echo $n >/tmp/reads; [[ ! -e /tmp/enough ]] || break
        done >/tmp/sums 2>&1; : >/tmp/over; } &'
    for ((turn = 0; turn < 20; turn++)); do
        qmp 1 stop
        qmp 1 cont
        sleep "0.0$((SRANDOM % 10))"
    done
    asks guest 'reads=$(cat /tmp/reads 2>/dev/null); for ((n = 0; n < 900; n++)); do
        (($(cat /tmp/reads 2>/dev/null) < reads + 2)) || break; sleep 0.1; done; : >/tmp/enough'
    asks guest 'for ((n = 0; n < 300; n++)); do [[ ! -e /tmp/over ]] || break; sleep 0.1; done
        sort -u /tmp/sums; cat /tmp/reads'
    expect "what the guest has read" "${ANSWER%$'\n'*}" "$(md5sum <"$served/big.img")"
    say "stopped $turn times, meanwhile the guest has read the file ${ANSWER##*$'\n'} times"
}

# How the guest mounts it: all files mapped, or none.
modes() {
    local name
    asks guest 'umount /shared && mount -t virtiofs -o dax=never shared /shared'
    mapped '' whole.img odd.img
    same "dax=never" whole.img odd.img
    asks guest 'umount /shared && mount -t virtiofs -o dax=always shared /shared'
    mapped "whole.img odd.img" whole.img odd.img
    same "dax=always" whole.img
    # The guest maps what cannot be mapped: it gets an error, and no zeroes.
    for name in odd.img other.dat program.img; do
        asks guest "dd if=/shared/$name bs=1M 2>/dev/null | md5sum; echo \${PIPESTATUS[0]}"
        [[ ${ANSWER##*$'\n'} != 0 || ${ANSWER%%$'\n'*} == "$(md5sum <"$served/$name")" ]] ||
            fail "dax=always: the guest reads something else in $name: $ANSWER"
    done
    asks guest 'umount /shared && mount -t virtiofs shared /shared'
    say "with dax=never and dax=always"
}

# rule PATTERN ACTION: the share's only rule from now on.
rule() {
    printf '[[rule]]\npath = "%s"\naction = "%s"\n' "$1" "$2" >"$WORK/rules.toml"
}

# Rules come to restrict files that the guest has mapped: it goes on with what it has open, and then reads them by
# requests.
rules() {
    local withdrawn='s/^.*dax_withdrawn=([0-9]+).*$/\1/p' turn
    random used.img 4M
    random idle.img 4M
    ln "$served/idle.img" "$served/twin.img"
    mapped "used.img idle.img twin.img" used.img idle.img twin.img
    same "files without a rule" used.img idle.img twin.img
    maps_it used.img
    rule '{used,idle,twin}.img' direct
    kill -HUP "${SERVER_PID[shared]}"
    for ((turn = 0; turn < 200; turn++)); do
        (($("$PROGRAM" ctl "$WORK/shared.socket" statistics | sed -nE "$withdrawn") < 2)) || break
        sleep 0.1
    done
    printf 'of host' | dd of="$served/used.img" bs=1 seek=4096 conv=notrunc status=none
    tells 'load 4096 7'
    expect "what a guest has mapped stays" "$ANSWER" "of host"
    unmaps_it
    # Those that are closed are opened at the first attempt: the guest's kernel looks them up again by itself.
    same "files of a rule" idle.img twin.img
    # The last close is told without waiting. EBUSY until then.
    asks guest 'cd /shared; for ((n = 0; n < 100; n++)); do
        md5sum used.img >/tmp/log 2>&1 && break; sleep 0.1; done; cat /tmp/log'
    expect "a file of a rule that was open" "$ANSWER" "$(md5 used.img)"
    mapped '' used.img idle.img twin.img
    rule none direct
    kill -HUP "${SERVER_PID[shared]}"
    asks guest 'cd /shared; for ((n = 0; n < 100; n++)); do
        echo 2 >/proc/sys/vm/drop_caches
        (($(xfs_io -r -c "statx -r" idle.img | sed -n "s/^stat.attributes = //p") & 0x200000)) && break
        sleep 0.1; done'
    mapped "used.img idle.img twin.img" used.img idle.img twin.img
    same "files whose rule is gone" used.img idle.img twin.img
    say "files that rules restrict are not mapped any more, and read right"
}

# exchange: other bytes under each name.
exchange() {
    mv "$served/one.img" "$served/was"
    mv "$served/two.img" "$served/one.img"
    mv "$served/was" "$served/two.img"
    head -c 4M /dev/urandom >"$served/three.img"
}

# fill WHEN: the window has parts of all three.
fill() {
    mapped "one.img two.img three.img" one.img two.img three.img
    same "$1" one.img two.img three.img
}

# Between two mounts the host exchanges the files.
remounts() {
    local turn
    for turn in {1..4}; do
        fill "turn $turn"
        asks guest 'umount /shared'
        exchange
        asks guest 'mount -t virtiofs shared /shared'
    done
    say "mounted again, with nothing of before"
}

# The same, and the driver stops the device as soon as the unmount has returned.
unbinds() {
    local turn
    for turn in {1..4}; do
        fill "turn $turn"
        asks guest 'cd /sys/bus/virtio/drivers/virtiofs
            tag=$(grep -lx shared /sys/fs/virtiofs/*/tag) && device=$(basename "$(realpath "${tag%/tag}/device")")
            umount /shared && echo $device >unbind && echo $device >bind && mount -t virtiofs shared /shared'
    done
    say "stopped after an unmount"
}

# The same, and the guest starts again.
restarts() {
    starts_again reboot
    starts_again reboot
    say "started again, with nothing of before"
}

# The same without an unmount: the window has mappings of the guest of before.
reset() { starts_again reset; }

starts_again() { # starts_again HOW
    local how=$1 last
    fill "before a $how"
    asks guest 'cat /proc/sys/kernel/random/boot_id'
    last=$ANSWER
    asks guest "$how"
    exchange
    asks guest 'cat /proc/sys/kernel/random/boot_id'
    [[ $ANSWER != "$last" ]] || fail "after a $how, the guest is the same"
    fill "after a $how"
}

# The host makes a file smaller that the guest has mapped.
truncated() {
    random short.img 4M
    mapped short.img short.img
    same "a file before it is cut" short.img
    truncate -s 2M "$served/short.img"
    asks guest 'head -c 2M /shared/short.img | md5sum; timeout 10 cat /shared/short.img >/dev/null; echo over'
    expect "the end of a file that was cut on the host" "${ANSWER##*$'\n'}" over
}

lower "$WORK/lower" 512M
mkdir "$served"
files
rule none direct
share shared "${OPTIONS:+$OPTIONS,}dax=*.img,policy=$WORK/rules.toml"
share_beneath
monitored
boot guest shared beneath
qmp 1 qmp_capabilities
for part in $PARTS; do
    start=${EPOCHREALTIME/./}
    "$part"
    say "$part: $(((${EPOCHREALTIME/./} - start) / 1000)) ms"
done
dismiss guest
ended shared
ended beneath
