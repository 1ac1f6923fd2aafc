#!/bin/bash
# Guests that come and go on one socket: mounts over and over, guests in turn, some that lose power,
# and some that start again.
# shellcheck source=tests/guest/machine.sh
source "$(dirname "$0")/../machine.sh"
[[ $SERVER == thrufs ]] || fail "this is about a server that stays: thrufs"
TURNS=${TURNS:-$([[ $GUEST == uml ]] && echo 60 || echo 15)}

# descriptors: how many the processes behind the share have open.
descriptors() {
    local pid count=0
    for pid in ${SERVER_PID[shared]} $(pgrep -P "${SERVER_PID[shared]}"); do
        count=$((count + $(find "/proc/$pid/fd" -mindepth 1 2>/dev/null | wc -l)))
    done
    echo "$count"
}

# With QEMU, a machine that starts again stays.
ON_REBOOT=
lower "$WORK/lower" 2G
mkdir "$WORK/lower/served"
served=$WORK/lower/served
share shared "$OPTIONS"
share_beneath

remount() { # remount COUNT
    asks guest "for ((n = 1; n <= $1; n++)); do
        echo \$n >/shared/count && mkdir /shared/d\$n && umount /shared && mount -t virtiofs shared /shared &&
        [[ \$(cat /shared/count) == \$n ]] && rmdir /shared/d\$n || { echo in turn \$n; exit 1; }
    done"
}

boot guest shared beneath
remount 5
before=$(descriptors)
remount "$TURNS"
expect "what the last turn wrote" "$(cat "$served/count")" "$TURNS"
after=$(descriptors)
((after <= before)) || fail "after $TURNS mounts, $after descriptors are open, before $before"
# What is open outlives an unmount that does not wait, and a mount after that.
asks guest 'exec 7<>/shared/open; echo one >&7; umount --lazy /shared; mount -t virtiofs shared /shared
    echo two >&7; cat /shared/open'
expect "a file open over a lazy unmount" "$ANSWER" $'one\ntwo'
dismiss guest
say "$TURNS mounts, $before descriptors before, $after after"

# The next on the same socket finds what the last has left.
boot guest shared beneath
asks guest 'cat /shared/open'
expect "what the guest before wrote" "$ANSWER" $'one\ntwo'
asks guest 'mkdir /shared/made; seq 1000 >/shared/made/numbers; sync /shared/made/numbers /shared/made
    dd if=/dev/zero of=/shared/big bs=1M count=4000 >/dev/null 2>&1 & sleep 0.5; cat /shared/made/numbers | wc -l'
expect "lines" "$ANSWER" 1000
kill_guest guest
boot guest shared beneath
asks guest 'sha256sum </shared/made/numbers; rm /shared/big'
expect "what was synced before the power failed" "$ANSWER" "$(seq 1000 | sha256sum)"
say "in turn, and after a power failure"

# Started again, in order and not.
identity='cat /proc/sys/kernel/random/boot_id'
# User-Mode Linux cannot do it out of order: it takes the driver out after it has broken its device, and
# waits for requests that never end.
ways=(reboot reboot)
[[ $GUEST != qemu ]] || ways=(reboot reset reboot reset)
for how in "${ways[@]}"; do
    asks guest "$identity"
    last=$ANSWER
    asks guest "echo $how >/shared/how; sync /shared/how"
    asks guest $how
    asks guest "$identity"
    [[ $ANSWER != "$last" ]] || fail "after a $how, the guest is the same"
    asks guest "cat /shared/how && touch /shared/after-$how && rm /shared/after-$how"
    expect "what was written before" "$ANSWER" "$how"
done
say "started again, in order and not"
dismiss guest
ended shared
ended beneath
