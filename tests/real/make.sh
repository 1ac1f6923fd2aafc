#!/bin/bash
# Building on the mount: a C project with make.
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/mount.sh"
need gcc make

lower "$WORK/lower" 1G
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
unserve "$WORK/mnt"
