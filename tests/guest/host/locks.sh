#!/bin/bash
# Locks between two guests, and between guests and the host, with locks=shared.
# shellcheck source=tests/guest/machine.sh
source "$(dirname "$0")/../machine.sh"
[[ $SERVER == thrufs ]] || fail "there are no such locks but with thrufs"

file() { echo "/shared/file-$1"; }

# held GUEST OWNER KIND START LENGTH: a process of the guest holds this lock from now on, or waits for it.
held() {
    asks "$1" "mkfifo /tmp/held-$2-$4; thrufs-test-helper lock-hold $2 $3 $(file "$2") $4 $5 \
        <>/tmp/held-$2-$4 >/tmp/state-$2-$4 2>&1 & echo \$! >/tmp/pid-$2-$4"
}

# state GUEST OWNER START WANTED: what that process has said last, within 20 s.
state() {
    asks "$1" "for ((n = 0; n < 200; n++)); do
        word=\$(tail -n 1 /tmp/state-$2-$3); [[ \$word != '$4' ]] || break; sleep 0.1; done; echo \"\$word\""
    expect "a lock of $1, $2 from $3" "$ANSWER" "$4"
}

released() { asks "$1" "kill \$(cat /tmp/pid-$2-$3); rm /tmp/held-$2-$3"; }

# tried WHERE OWNER KIND START LENGTH WANTED: taking the lock without waiting, in a guest or on the host.
tried() {
    local path
    path=$(file "$2")
    if [[ $1 == host ]]; then
        ANSWER=$("$HELPER" lock-try "$2" "$3" "$WORK/lower/served/${path#/shared/}" "$4" "$5")
    else
        asks "$1" "thrufs-test-helper lock-try $2 $3 $path $4 $5"
    fi
    expect "$1 tries a $3 lock, $2 from $4" "$ANSWER" "$6"
}

lower "$WORK/lower" 2G
mkdir "$WORK/lower/served"
for guest in one two; do
    share "shared-$guest" "$OPTIONS,locks=shared" "$WORK/lower/served" shared
    share_beneath "beneath-$guest"
    boot "$guest" "shared-$guest" "beneath-$guest"
done

for owner in flock process description; do
    # EAGAIN: another process has it.
    busy="errno 11" whole="0 0"
    : >"$WORK/lower/served/file-$owner"
    held one "$owner" write $whole
    state one "$owner" 0 ok
    tried two "$owner" write $whole "$busy"
    tried two "$owner" read $whole "$busy"
    tried host "$owner" write $whole "$busy"
    # A waiter gets it when it is free.
    held two "$owner" write $whole
    state two "$owner" 0 waiting
    released one "$owner" 0
    state two "$owner" 0 ok
    tried one "$owner" read $whole "$busy"
    tried host "$owner" read $whole "$busy"
    released two "$owner" 0
    tried host "$owner" write $whole ok
    # Several may read.
    held one "$owner" read $whole
    state one "$owner" 0 ok
    tried two "$owner" read $whole ok
    tried host "$owner" read $whole ok
    tried two "$owner" write $whole "$busy"
    released one "$owner" 0
    # The host holds.
    mkfifo "$WORK/hold-$owner"
    "$HELPER" lock-hold "$owner" write "$WORK/lower/served/file-$owner" 0 0 <>"$WORK/hold-$owner" >"$WORK/held-$owner" &
    holder=$!
    for ((turn = 0; turn < 100; turn++)); do
        [[ $(tail -n 1 "$WORK/held-$owner") != ok ]] || break
        sleep 0.1
    done
    tried one "$owner" write $whole "$busy"
    tried two "$owner" read $whole "$busy"
    kill "$holder"
    wait "$holder" 2>/dev/null || true
    tried one "$owner" write $whole ok
    [[ $owner == flock ]] || {
        # Ranges beside each other do not meet.
        held one "$owner" write 0 100
        state one "$owner" 0 ok
        tried two "$owner" write 100 100 ok
        tried two "$owner" write 99 1 "$busy"
        released one "$owner" 0
    }
    say "$owner: between guests and with the host"
done

# A guest that loses power leaves no lock.
held one process write 0 0
state one process 0 ok
held two process write 0 0
state two process 0 waiting
kill_guest one
state two process 0 ok
released two process 0
dismiss two
for guest in one two; do
    ended "shared-$guest"
    ended "beneath-$guest"
done
say "a guest that dies leaves no lock"
