#!/bin/bash
# The process that serves a guest is killed while the guest writes: another takes its place, the guest goes
# on, nothing acknowledged is lost, the guest turns off, and the next one is served.
# shellcheck source=tests/guest/machine.sh
source "$(dirname "$0")/../machine.sh"
[[ $SERVER == thrufs ]] || fail "this is about thrufs"

# workers: the processes behind the share that have a guest's memory mapped.
workers() {
    local pid
    for pid in $(pgrep -P "${SERVER_PID[shared]}"); do
        if grep -qE 'memfd:|/memory/' "/proc/$pid/maps"; then echo "$pid"; fi
    done
}

lower "$WORK/lower" 512M
mkdir "$WORK/lower/served"
share shared "$OPTIONS"
share_beneath
boot guest shared beneath
asks guest '(for ((n = 1; n < 1000000; n++)); do
        printf "%07d\n" $n | dd of=/shared/records oflag=append,dsync conv=notrunc status=none || break
        echo $n >/tmp/acknowledged
    done; echo ended >/tmp/writer) >/tmp/writer-errors 2>&1 &
    for ((turn = 0; turn < 300; turn++)); do
        [[ $(cat /tmp/acknowledged 2>/dev/null || echo 0) -lt 20 ]] || break; sleep 0.1; done'
mapfile -t serving < <(workers)
expect "processes that serve the guest" "${#serving[@]}" 1
kill -KILL "${serving[0]}"
asks guest 'timeout -k 1 20 stat /shared/records >/tmp/stat 2>&1; echo $?; cat /tmp/stat; tail -n 1 /tmp/writer-errors'
code=${ANSWER%%$'\n'*}
((code != 124 && code != 137)) || fail "a stat hangs after the worker was killed"
((code == 0)) || fail "after the worker was killed, stat: exit status $code: $ANSWER"
mapfile -t replacing < <(workers)
expect "processes that serve the guest after one was killed" "${#replacing[@]}" 1
[[ ${replacing[0]} != "${serving[0]}" ]] || fail "the worker that was killed still serves"
# The writer goes on as well.
asks guest 'a=$(cat /tmp/acknowledged)
    for ((turn = 0; turn < 200; turn++)); do
        b=$(cat /tmp/acknowledged)
        ((b == a)) || break
        sleep 0.1
    done
    echo $((b - a)); cat /tmp/writer-errors'
((${ANSWER%%$'\n'*} > 0)) || fail "the writer does not go on: $ANSWER"
asks guest 'cat /tmp/acknowledged'
acknowledged=$ANSWER
head -n "$acknowledged" "$WORK/lower/served/records" >"$WORK/records"
seq -f '%07.0f' 1 "$acknowledged" | cmp - "$WORK/records" || fail "acknowledged records were lost"
kill_guest guest
boot guest shared beneath
asks guest 'sort -c /shared/records && head -n 1 /shared/records'
expect "what the next guest reads" "$ANSWER" 0000001
dismiss guest
ended shared
ended beneath
say "killed worker: $acknowledged acknowledged records, all there; the next guest is served"
