#!/bin/bash
# A running guest moves to another QEMU and back, each with servers of its own on one tree. It works
# meanwhile, and verifies what it does; open files, locks and waits for locks go on.
#
#   MODES, LOCKS  what is tried of migration_mode and locks (default: all, each with each)
#   TURNS         how often the guest moves there and back (default: 1)
# shellcheck source=tests/guest/machine.sh
source "$(dirname "$0")/../machine.sh"
need fio
[[ $GUEST == qemu ]] || fail "this needs QEMU: --guest qemu"
[[ $SERVER == thrufs ]] || fail "this is about thrufs"

MODES=${MODES:-find-paths file-handles}
LOCKS=${LOCKS:-local shared}
TURNS=${TURNS:-1}
# Lines of a file that is read all the while.
LINES=200000
# Otherwise the guest itself writes to each page just before a server fills it, and no check would see that
# the server does not note it.
KERNEL_MORE=init_on_alloc=0
# Where the guest is.
here=0

# sides OPTIONS: two servers, `a` and `b`, for each of the guest's shares.
sides() {
    local side
    for side in a b; do
        share "shared-$side" "$1" "$WORK/lower/served" shared
        share_beneath "beneath-$side"
    done
}

# receive SIDE: starts a machine with the servers of this side that waits for the guest.
receive() {
    local side=$1 console=$WORK/console-moved
    monitored
    QEMU_MORE+=(-incoming "unix:$WORK/incoming")
    rm -f "$console" "$WORK/incoming"
    mkfifo "$console"
    console guest yes <"$console" &
    CONSOLE_PID[moved]=$!
    qemu guest "shared-$side" "beneath-$side" </dev/null >"$console" 2>&1 &
    GUEST_PID[moved]=$!
    qmp "$machines" qmp_capabilities
}

# send MACHINE: has it send its guest to the one that waits; returns once all is sent. False when the other
# does not take it.
send() {
    local turn
    # For some seconds, so that much is written meanwhile to memory that was sent already.
    qmp "$1" migrate-set-parameters '{"max-bandwidth":60000000,"downtime-limit":500}'
    qmp "$1" migrate "{\"uri\":\"unix:$WORK/incoming\"}"
    for ((turn = 0; turn < 1200; turn++)); do
        qmp "$1" query-migrate
        case $RETURNED in
            *'"status": "completed"'*) return ;;
            *'"status": "failed"'*) return 1 ;;
        esac
        sleep 0.1
    done
    fail "the guest does not come to move: $RETURNED"
}

# move SIDE: the guest moves to a machine with the servers of this side.
move() {
    local side=$1 from=$here sent start turn
    receive "$side"
    start=${EPOCHREALTIME/./}
    send "$from" || fail "the guest does not move: $RETURNED"
    sent=$RETURNED
    # The other may not have read all yet. Until it has, the servers of this side keep what has no name.
    for ((turn = 0; turn < 1200; turn++)); do
        runs moved || fail "the machine that the guest was to move to has ended"
        qmp "$machines" query-status
        [[ $RETURNED != *'"running": true'* ]] || break
        sleep 0.05
    done
    [[ $RETURNED == *'"running": true'* ]] || fail "the guest does not go on where it has moved to: $RETURNED"
    say "moved to $side in $(((${EPOCHREALTIME/./} - start) / 1000)) ms," \
        "stopped for $(sed -nE 's/.*"downtime": ([0-9]+).*/\1/p' <<<"$sent") ms"
    here=$machines
    qmp "$from" quit
    wait "${GUEST_PID[guest]}" "${CONSOLE_PID[guest]}" || true
    GUEST_PID[guest]=${GUEST_PID[moved]}
    CONSOLE_PID[guest]=${CONSOLE_PID[moved]}
    unset "GUEST_PID[moved]" "CONSOLE_PID[moved]"
}

# stay SIDE: the guest does not move there, as it has a file open that has no name: it goes on where it is.
stay() {
    local side=$1 from=$here turn
    asks guest '(exec 9<>/shared/nameless; rm /shared/nameless; echo kept >&9; : >/tmp/nameless
            while [[ -e /tmp/nameless ]]; do sleep 0.1; done; cat /proc/self/fd/9; : >/tmp/named) >/tmp/lost 2>&1 &
        until [[ -e /tmp/nameless ]]; do sleep 0.05; done'
    receive "$side"
    # The other may have refused before or after all was sent.
    send "$from" || true
    for ((turn = 0; turn < 1200; turn++)); do
        runs moved || break
        sleep 0.1
    done
    ! runs moved || fail "the guest moves with a file that cannot be found there"
    wait "${GUEST_PID[moved]}" "${CONSOLE_PID[moved]}" || true
    unset "GUEST_PID[moved]" "CONSOLE_PID[moved]"
    grep -q 'Stale\|cannot be had here' "${SERVER_LOG[shared-$side]}" || fail "the server of $side does not say what it misses"
    qmp "$from" cont
    asks guest 'rm /tmp/nameless; until [[ -e /tmp/named ]]; do sleep 0.1; done; cat /tmp/lost'
    expect "a file without a name, after the guest has stayed" "$ANSWER" kept
    say "stayed, as a file that it has open cannot be found at $side"
}

# part NAME ROUND [BEFORE]: has the guest do ROUND over and over, until /tmp/stop is there or something of it
# fails. $n is the number of the round.
part() {
    WORKERS+=("$1")
    asks guest "{ (set -e; ${3:-}
            for ((n = 1; ; n++)); do
                $2
                echo \$n >/tmp/rounds/$1; [[ ! -e /tmp/stop ]] || break
            done); echo \$? >/tmp/ends/$1; } >/tmp/said-$1 2>&1 &"
}

work() {
    local engine direct turn served=$WORK/lower/served
    WORKERS=()
    seq -f '%015.0f' "$LINES" >"$served/known"
    mkdir "$served/filled"
    for turn in {0..7}; do head -c 1M /dev/urandom >"$served/filled/$turn"; done
    asks guest 'mkdir /tmp/rounds /tmp/ends /shared/fio /shared/names; cp -r /beneath/filled /tmp'
    for engine in psync mmap libaio; do
        direct=0
        [[ $engine != libaio ]] || direct=1
        part $engine "fio --name=$engine --directory=/shared/fio --ioengine=$engine --direct=$direct --rw=randrw \
            --bs=4k --size=2m --iodepth=8 --verify=crc32c --verify_backlog=64 --verify_fatal=1 \
            --randseed=\$n --end_fsync=1 --thread >/tmp/fio-$engine 2>&1"
    done
    # A file that stays open is written at its end, another is read.
    part append 'printf "%015d\n" $n >&7' 'exec 7>>/shared/appended'
    part read 'read -r line <&7; [[ $line == $(printf %015d $n) ]]' 'exec 7</shared/known'
    # What the server reads into the memory of the guest while that is copied is there afterwards too. Of
    # four files that are cached the first is dropped, and another is read, into pages that had that.
    part fill 'dd if=/shared/filled/$((n % 8)) iflag=nocache count=0 status=none
        for next in {4..1}; do file=$(((n + next) % 8)); cmp /shared/filled/$file /tmp/filled/$file; done'
    # Names come and go.
    part names 'echo $n >made-$n; mv made-$n moved-$n; [[ $(<moved-$n) == $n ]]; ((n % 3 == 0)) || rm moved-$n
        mkdir sub-$n; rmdir sub-$n' 'cd /shared/names'
}

# rounds: how many each part of the work has done, in the order of WORKERS.
rounds() {
    asks guest "cd /tmp; for part in ${WORKERS[*]}; do
        code=\$(cat ends/\$part 2>/dev/null)
        [[ \${code:-0} == 0 ]] || { echo \$part: exit status \$code; cat said-\$part fio-\$part 2>/dev/null; exit 1; }
        count=\$(cat rounds/\$part 2>/dev/null); echo \${count:-0}
    done"
    mapfile -t ROUNDS <<<"$ANSWER"
}

# goes_on: every part of the work does more than it is in the midst of.
goes_on() {
    local before part turn behind=''
    rounds
    before=("${ROUNDS[@]}")
    for ((turn = 0; turn < 600; turn++)); do
        rounds
        behind=''
        for part in "${!WORKERS[@]}"; do
            ((ROUNDS[part] > before[part] + 1)) || behind+=" ${WORKERS[part]}"
        done
        [[ -n $behind ]] || return 0
        sleep 0.5
    done
    ask guest "cd /tmp; tail -n 20 said-* fio-*; ps -e -o pid,stat,wchan:30,args; echo w >/proc/sysrq-trigger" || true
    sleep 2
    tail -n 80 "$ACCOUNT" >&2
    fail "does not go on after a move:$behind: $ANSWER"
}

# ends_well: all of it ends, and what it left is right: in the guest, cold, and on the host.
ends_well() {
    local served=$WORK/lower/served turn count
    asks guest ': >/tmp/stop'
    for ((turn = 0; turn < 600; turn++)); do
        rounds
        asks guest 'ls /tmp/ends'
        (($(wc -w <<<"$ANSWER") < ${#WORKERS[@]})) || break
        sleep 0.5
    done
    rounds
    asks guest "cd /tmp/ends && cat ${WORKERS[*]} >/dev/null"
    say "rounds of the work: $(for turn in "${!WORKERS[@]}"; do printf '%s ' "${WORKERS[turn]} ${ROUNDS[turn]}"; done)"
    asks guest 'sync; echo 3 >/proc/sys/vm/drop_caches; cd /shared; sha256sum fio/* appended known filled/*'
    expect "what the guest reads" "$ANSWER" "$(cd "$served"; sha256sum fio/* appended known filled/*)"
    asks guest 'cat /tmp/rounds/append'
    cmp <(seq -f '%015.0f' "$ANSWER") "$served/appended" || fail "lines that were appended"
    asks guest 'cat /tmp/rounds/names'
    count=$((ANSWER / 3))
    expect "names that are left" "$(find "$served/names" -type f | wc -l)" "$count"
}

# hold WHERE NAME: a process takes the lock of the file of that name, and waits for it.
hold() {
    local take='thrufs-test-helper lock-hold'
    if [[ $1 == guest ]]; then
        asks guest "mkfifo /tmp/hold-$2; $take process write /shared/$2 0 0 <>/tmp/hold-$2 >/tmp/held-$2 2>&1 &
            echo \$! >/tmp/holder-$2"
    else
        mkfifo "$WORK/hold-$2"
        "$HELPER" lock-hold process write "$WORK/lower/served/$2" 0 0 <>"$WORK/hold-$2" >"$WORK/held-$2" &
        HOLDER=$!
        SERVER_PID[holder]=$!
        local turn
        for ((turn = 0; turn < 100; turn++)); do
            [[ $(tail -n 1 "$WORK/held-$2") != ok ]] || return 0
            sleep 0.1
        done
        fail "the host does not get the lock of $2"
    fi
}

# held NAME WANTED: what the guest's holder has said last, within 20 s.
held() {
    asks guest "for ((n = 0; n < 200; n++)); do
        word=\$(tail -n 1 /tmp/held-$1); [[ \$word != '$2' ]] || break; sleep 0.1; done; echo \"\$word\""
    expect "the lock of $1" "$ANSWER" "$2"
}

tried() { # tried NAME WANTED: another process of the guest tries to take the lock.
    asks guest "thrufs-test-helper lock-try process write /shared/$1 0 0"
    expect "the lock of $1, tried in the guest" "$ANSWER" "$2"
}

locks_are_held() {
    held mine ok
    tried mine 'errno 11'
    [[ $1 == shared ]] || return 0
    expect "the guest's lock, tried on the host" \
        "$("$HELPER" lock-try process write "$WORK/lower/served/mine" 0 0)" 'errno 11'
    held theirs waiting
}

# An open file, one of them without a name where that can go along.
open_files() {
    asks guest "rm -f /tmp/still /tmp/written /tmp/opened; (exec 7<>/shared/kept 8<>/shared/gone; echo one >&7; echo two >&8
        ${1:+rm /shared/gone;} : >/tmp/opened; until [[ -e /tmp/still ]]; do sleep 0.1; done
        echo three >&7; echo four >&8; cat /shared/kept; cat /proc/self/fd/8; : >/tmp/written) >/tmp/open 2>&1 &
        until [[ -e /tmp/opened ]]; do sleep 0.05; done"
}

# there_and_back MODE LOCKS
there_and_back() {
    local mode=$1 locks=$2 n side served=$WORK/lower/served
    lower "$WORK/lower" 512M
    mkdir "$served"
    OPTIONS=$GIVEN,locks=$locks
    sides "$OPTIONS,migration_mode=$mode"
    monitored
    boot guest shared-a beneath-a
    here=$machines
    qmp "$here" qmp_capabilities
    : >"$served/mine"
    : >"$served/theirs"
    hold guest mine
    held mine ok
    if [[ $locks == shared ]]; then
        hold host theirs
        hold guest theirs
        held theirs waiting
    fi
    open_files "$([[ $mode == find-paths ]] || echo removed)"
    work
    goes_on
    if [[ $mode == find-paths ]]; then
        stay b
        locks_are_held "$locks"
        goes_on
    fi
    for ((n = 0; n < TURNS; n++)); do
        for side in b a; do
            move "$side"
            locks_are_held "$locks"
            goes_on
        done
    done
    if [[ $locks == shared ]]; then
        kill "$HOLDER"
        wait "$HOLDER" 2>/dev/null || true
        unset "SERVER_PID[holder]"
        held theirs ok
        asks guest 'kill $(cat /tmp/holder-theirs)'
        rm "$WORK/hold-theirs" "$WORK/held-theirs"
    fi
    asks guest 'kill $(cat /tmp/holder-mine)'
    asks guest ': >/tmp/still; until [[ -e /tmp/written ]]; do sleep 0.1; done; cat /tmp/open'
    expect "files that were open" "$ANSWER" $'one\nthree\ntwo\nfour'
    ends_well
    dismiss guest
    for side in a b; do
        ended "shared-$side"
        ended "beneath-$side"
    done
    umount "$WORK/lower"
    rm -f "$WORK"/image-lower
    ASKED=()
    say "$mode, locks=$locks: there and back"
}

GIVEN=$OPTIONS
# What is cached is looked at after a move only so: with cache=auto the next open has it read again, as a
# new server does not remember which version of the data the guest has.
[[ $GIVEN == *cache=* ]] || GIVEN+=${GIVEN:+,}cache=always
for mode in $MODES; do
    for locks in $LOCKS; do
        there_and_back "$mode" "$locks"
    done
done
