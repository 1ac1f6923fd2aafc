#!/bin/bash
# Building on the mount: a C project with make, and this project with cargo.
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/mount.sh"
need gcc make cargo

lower "$WORK/lower" 4G
mkdir "$WORK/lower/served"
serve "$WORK/lower/served" "$WORK/mnt"

# A C project: a generated library of many sources with a shared header, an archive, a program that
# checks what it was built from.
FILES=60
project=$WORK/mnt/c
mkdir "$project"
{
    echo '#pragma once'
    echo '#include <stdio.h>'
    echo '#include <stdlib.h>'
    echo '#include <string.h>'
    for n in $(seq 1 $FILES); do echo "int f$n(int x);"; done
} >"$project/all.h"
for n in $(seq 1 $FILES); do
    printf '#include "all.h"\nint f%d(int x) { return x + %d; }\n' "$n" "$n" >"$project/f$n.c"
done
{
    echo '#include "all.h"'
    echo 'int main(void) { int x = 0;'
    for n in $(seq 1 $FILES); do echo "x = f$n(x);"; done
    printf '%s\n' 'printf("%d\n", x); return 0; }'
} >"$project/main.c"
cat >"$project/Makefile" <<'MAKE'
SOURCES := $(wildcard f*.c)
OBJECTS := $(SOURCES:.c=.o)
program: main.o libf.a
	$(CC) -o $@ $^
libf.a: $(OBJECTS)
	$(AR) rcs $@ $^
%.o: %.c all.h
	$(CC) -O1 -c -o $@ $<
MAKE
make -s -j2 -C "$project"
expect "the C program" "$("$project/program")" $((FILES * (FILES + 1) / 2))
expect "what make still has to do" "$(make -s -j2 -C "$project" --question && echo nothing)" nothing
sleep 0.02
touch "$project/f7.c"
expect "what make does after one change" \
    "$(make -C "$project" --dry-run | grep -c -- '-O1 -c')" 1
make -s -j2 -C "$project"
say "make: $FILES sources, a library, a program that runs; make knows what changed"

# This project on the mount: sources and target directory, the command and what it needs, without the
# network: that was fetched when this project was built.
mkdir "$WORK/mnt/project"
tar -C "$PROJECT" --exclude=./target --exclude=./.git --exclude=./fuzz/target -cf - . |
    tar -C "$WORK/mnt/project" -xf -
packages=${BUILD_PACKAGES:-"-p thrufs-cli -p xtask"}
cd "$WORK/mnt/project"
# shellcheck disable=SC2086 # words
cargo build --offline --locked --quiet $packages --target-dir "$WORK/mnt/target" ||
    fail "cargo build on the mount"
# shellcheck disable=SC2086
again=$(cargo build --offline --locked $packages --target-dir "$WORK/mnt/target" 2>&1)
! grep -q Compiling <<<"$again" || { echo "$again" >&2; fail "cargo builds again what has not changed"; }
"$WORK/mnt/target/debug/thrufs" --version >/dev/null || fail "the program that cargo built does not run"
cd "$WORK"
say "cargo build: done, and nothing to do the second time"
unserve "$WORK/mnt"
