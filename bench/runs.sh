#!/bin/bash
# Measures programs in `thrufs run` beside the same without, in interleaved rounds: of root and of an ordinary
# user, on ext4 and tmpfs. Each figure is of a whole `thrufs run`, its start included. Called by
# `cargo xtask bench --runs`.
#
#   runs.sh [--rounds N] [--name NAME] [ROW...]
#
# --rounds N: default 9.
# --name NAME: write every sample to bench/results/NAME-runs.json.
# ROW: of start, git-status, find-cat, make, cargo-check, npm-ci; all by default.
set -euo pipefail
: "${THRUFS:?the command}" "${PROJECT:?the repository}"

rounds=9 name='' rows=()
while [ $# -gt 0 ]; do
    case $1 in
        --rounds) rounds=$2 && shift 2 ;;
        --name) name=$2 && shift 2 ;;
        -*) echo "runs.sh: what is $1?" >&2 && exit 2 ;;
        *) rows+=("$1") && shift ;;
    esac
done
((${#rows[@]})) || rows=(start git-status find-cat make cargo-check npm-ci)

# shellcheck source=tests/real/mount.sh
source "$PROJECT/tests/real/mount.sh"
need gcc git make setpriv

USER_ID=65534
install -m 755 "$THRUFS" "$WORK/thrufs"
# The toolchain, where all users can read it.
path=/usr/local/bin:/usr/bin:/bin
if command -v rustc >/dev/null; then
    mount --bind "$(rustc --print sysroot)" /mnt
    path=/mnt/bin:$path
fi
tear_down() { ! mountpoint -q /mnt || umount /mnt; }

# project: in the working directory.
project() {
    local n
    git init -q -b main
    mkdir -p files c rust/src js dependencies
    for n in $(seq 2000); do
        mkdir -p "files/d$((n % 50))"
        head -c 2000 /dev/urandom >"files/d$((n % 50))/f$n"
    done
    for n in $(seq 60); do
        printf '#include <stdio.h>\n#include <stdlib.h>\nint f%d(int x) { return printf("%%d", x + %d); }\n' "$n" "$n" \
            >"c/f$n.c"
        printf 'pub fn f(x: &[u32]) -> Vec<String> {\n    x.iter().map(|x| format!("{x} %d")).collect()\n}\n' "$n" \
            >"rust/src/m$n.rs"
        echo "pub mod m$n;" >>rust/src/lib.rs
    done
    printf '%s\n' 'OBJECTS := $(patsubst %.c,%.o,$(wildcard *.c))' 'libf.a: $(OBJECTS)' \
        $'\t$(AR) rcs $@ $^' '%.o: %.c' $'\t$(CC) -O1 -c -o $@ $<' >c/Makefile
    printf '[package]\nname = "small"\nversion = "0.1.0"\nedition = "2024"\n' >rust/Cargo.toml
    echo '{"name": "js", "version": "1.0.0"}' >js/package.json
    for n in $(seq 20); do
        mkdir "dependencies/p$n"
        printf '{"name": "p%d", "version": "1.0.0"}' "$n" >"dependencies/p$n/package.json"
        echo 'module.exports = 1' >"dependencies/p$n/index.js"
    done
    printf '/c/*.o\n/c/libf.a\n/rust/target\n/js/node_modules\n' >.gitignore
    git add -A
    git -c user.name=A -c user.email=a@example.org commit -q -m first
}

# What is timed, in the tree; `before ROW` has made the same state for each.
declare -A COMMAND=(
    [start]=':'
    [git-status]='git status --porcelain >/dev/null'
    [find-cat]='find files -type f -exec cat {} + >/dev/null'
    [make]='make -s -j2 -C c'
    [cargo-check]='cd rust && cargo check -q --offline'
    [npm-ci]='cd js && npm ci --offline --no-audit --no-fund >/dev/null'
)
before() {
    case $1 in
        make) rm -f c/*.o c/libf.a ;;
        cargo-check) rm -rf rust/target ;;
        npm-ci)
            rm -rf js/node_modules
            [ -e js/package-lock.json ] ||
                as "$2" sh -c 'cd js && npm install --offline --no-audit --no-fund ../dependencies/*' >/dev/null
            ;;
    esac
}

as() {
    local user=$1
    shift
    env -i PATH="$path" HOME="$WORK/home-$user" LANG=C.UTF-8 npm_config_update_notifier=false \
        setpriv --reuid "$user" --regid "$user" --clear-groups "$@"
}

# timed USER ROW COMMAND...: seconds, in $seconds.
timed() {
    local user=$1 row=$2 from
    shift 2
    before "$row" "$user"
    from=$EPOCHREALTIME
    as "$user" "$@" sh -ec "${COMMAND[$row]}" </dev/null || fail "$row of $user"
    seconds=$(awk "BEGIN { printf \"%.6f\", $EPOCHREALTIME - $from }")
}

for user in 0 $USER_ID; do
    mkdir -m 700 "$WORK/home-$user"
    chown "$user:$user" "$WORK/home-$user"
    for LOWER in ext4 tmpfs; do
        mountpoint -q "$WORK/$LOWER" || lower "$WORK/$LOWER" 2G
        mkdir "$WORK/$LOWER/$user"
        cd "$WORK/$LOWER/$user"
        project
        chown -R "$user:$user" .
    done
done
[[ $(stat -c %a /dev/fuse) =~ 6$ ]] || fail "/dev/fuse is closed to ordinary users"

has() { as "$USER_ID" "$@" >/dev/null 2>&1; }
has cargo --version || rows=("${rows[@]/cargo-check/}")
has npm --version || rows=("${rows[@]/npm-ci/}")

declare -A samples=()
for round in $(seq 0 "$rounds"); do
    for LOWER in ext4 tmpfs; do
        for user in 0 $USER_ID; do
            cd "$WORK/$LOWER/$user"
            for row in ${rows[*]}; do
                # Every second round the other way round.
                if ((round % 2)); then
                    timed "$user" "$row" && plain=$seconds
                    timed "$user" "$row" "$WORK/thrufs" run -- && inside=$seconds
                else
                    timed "$user" "$row" "$WORK/thrufs" run -- && inside=$seconds
                    timed "$user" "$row" && plain=$seconds
                fi
                # The first warms caches.
                ((round == 0)) || samples[$row $LOWER $user]+="${samples[$row $LOWER $user]:+, }[$plain, $inside]"
            done
        done
    done
    ((round == 0)) || say "round $round of $rounds"
done
cd "$WORK"

series=()
for row in ${rows[*]}; do
    for LOWER in ext4 tmpfs; do
        for user in 0 $USER_ID; do
            who=user
            ((user)) || who=root
            series+=("
    {\"row\": \"$row\", \"lower\": \"$LOWER\", \"user\": \"$who\", \"seconds\": [${samples[$row $LOWER $user]}]}")
        done
    done
done
made=$(
    cat <<END
{
  "kind": "runs",
  "kernel": "$(uname -r)",
  "processor": "$(sed -n 's/^model name[^:]*: //p;T;q' /proc/cpuinfo)",
  "processors": $(nproc),
  "version": "$("$THRUFS" --version | head -1)",
  "commit": "$(git -C "$PROJECT" rev-parse --short HEAD)",
  "rounds": $rounds,
  "series": [$(IFS=, && echo "${series[*]}")
  ]
}
END
)
echo "$made"
[ -z "$name" ] || echo "$made" >"$PROJECT/bench/results/$name-runs.json"
