#!/bin/bash
# A share is taken out of a running machine and put in again, unmounted and mounted.
# shellcheck source=tests/guest/machine.sh
source "$(dirname "$0")/../machine.sh"
[[ $GUEST == qemu ]] || fail "this needs a PCI bus: --guest qemu"
[[ $SERVER == thrufs ]] || fail "this is about a server that stays: thrufs"

# The monitor of QEMU: we write to monitor.in, and take what it says from monitor.out.
mkfifo "$WORK/monitor.in" "$WORK/monitor.out"
QEMU_MORE=(-chardev "pipe,id=monitor,path=$WORK/monitor" -mon chardev=monitor,mode=readline
    -device pcie-root-port,id=outer,chassis=1,slot=1)
BUS[shared]=outer
cat <>"$WORK/monitor.out" >>"$WORK/monitor.log" &
SERVER_LOG[monitor]=$WORK/monitor.log
SERVER_PID[monitor]=$!
exec 8<>"$WORK/monitor.in"
times=0
monitor() { echo "$1" >&8; }

# devices COUNT: waits until the guest has that many of virtio-fs.
devices() {
    asks guest "while count=\$(ls -d /sys/bus/virtio/drivers/virtiofs/virtio* 2>/dev/null | wc -l)
        [[ \$count != $1 ]] && ((SECONDS < 60)); do sleep 0.1; done; echo \$count"
    expect "devices of the guest ($(tail -n 3 "$WORK/monitor.log" | tr -d '\r'))" "$ANSWER" "$1"
}

take_out() {
    monitor 'device_del device-shared'
    devices 1
    # The device closes the socket's end soon.
    local turn
    for ((turn = 0; turn < 100; turn++)); do
        : >"$WORK/monitor.log"
        monitor "chardev-remove $( ((times == 0)) && echo shared || echo "again-$times")"
        sleep 0.2
        ! grep -q 'is busy' "$WORK/monitor.log" || continue
        return
    done
    fail "QEMU keeps the character device of a device that is gone"
}

put_in() {
    local words id
    mapfile -t words < <(fs shared)
    # QEMU gives the name of a character device that its command line has to no other.
    times=$((times + 1))
    id=again-$times
    monitor "chardev-add ${words[1]/id=shared/id=$id}"
    monitor "device_add ${words[3]/chardev=shared/chardev=$id}"
    devices 2
}

lower "$WORK/lower" 512M
mkdir "$WORK/lower/served"
share shared "$OPTIONS"
share_beneath
boot guest shared beneath
devices 2
for turn in 1 2 3; do
    asks guest "echo $turn >/shared/turn; umount /shared"
    take_out
    put_in
    asks guest 'mount -t virtiofs shared /shared && cat /shared/turn'
    expect "what was written before turn $turn" "$ANSWER" "$turn"
done
say "unmounted: out and in, 3 times"
# With a file open and a writer: errors, and nothing that waits.
asks guest '(exec 7<>/shared/open; while echo x >&7; do sleep 0.01; done; echo ended >/tmp/writer) >/tmp/errors 2>&1 &
    sleep 0.5'
take_out
asks guest 'for ((turn = 0; turn < 100; turn++)); do [[ ! -e /tmp/writer ]] || break; sleep 0.1; done
    cat /tmp/writer; timeout -k 1 10 stat /shared/open >/dev/null; echo $?'
expect "a writer on the removed share, and stat" "$ANSWER" "ended
stat: cannot statx '/shared/open': Transport endpoint is not connected
1"
asks guest 'umount /shared'
put_in
asks guest 'mount -t virtiofs shared /shared && cat /shared/turn && head -c 2 /shared/open'
expect "what is there once it is back" "$ANSWER" $'3\nx'
dismiss guest
ended shared
ended beneath
say "mounted: errors when it is taken out, all there when it is back"
