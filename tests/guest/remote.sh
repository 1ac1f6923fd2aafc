#!/bin/bash
# Does what the host says, one command after the other: see `order` in tests/guest/machine.sh. The way is
# the share `beneath`, which caches nothing; the share under test may be broken meanwhile.
set -u
place=$BENEATH/remote/$GUEST

done_with() { : >"$place/$number.out"; echo 0 >"$place/$number.code"; }

for ((number = 1; ; number++)); do
    # Those of before a reboot are done.
    [[ ! -e $place/$number.code ]] || continue
    until [[ -e $place/$number.command ]]; do sleep 0.02; done
    command=$(<"$place/$number.command")
    code=0
    case $command in
        quit) done_with; exit 0 ;;
        # The first process knows what these mean.
        reboot) done_with; exit 121 ;;
        reset) done_with; exit 122 ;;
    esac
    timeout --kill-after=5 100 bash -c "$command" >"$place/$number.out" 2>&1 </dev/null || code=$?
    echo "$code" >"$place/new"
    mv "$place/new" "$place/$number.code"
done
