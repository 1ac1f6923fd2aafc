#!/bin/bash
# Random operations on one file, every read verified, in several mixtures and cache modes.
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/mount.sh"
need fsx
OPERATIONS=${FSX_OPERATIONS:-5000}

cat >"$WORK/whole.toml" <<'TOML'
flen = 1048576
[opsize]
max = 131072
[weights]
close_open = 1
read = 10
write = 10
mapread = 5
mapwrite = 5
invalidate = 1
truncate = 2
fsync = 0.2
fdatasync = 0.2
posix_fallocate = 1
punch_hole = 2
sendfile = 2
posix_fadvise = 1
copy_file_range = 2
TOML
cat >"$WORK/small.toml" <<'TOML'
flen = 65536
[opsize]
max = 8192
[weights]
close_open = 20
read = 10
write = 20
mapread = 5
mapwrite = 5
invalidate = 5
truncate = 10
punch_hole = 5
copy_file_range = 5
TOML

lower "$WORK/lower" 512M
native "$WORK/lower/native"
mkdir "$WORK/lower/served"

# Drawn anew each time, unless THRUFS_SEED gives the first.
FIRST_SEED=${THRUFS_SEED:-$((SRANDOM % 1000000))}
SEEDS=("$FIRST_SEED" $((FIRST_SEED + 1)))
say "THRUFS_SEED=$FIRST_SEED"

one() { # one WHERE CONFIGURATION SEED
    local log=$WORK/fsx.log
    # The artifacts of a failure go into $WORK too; fsx prints what it did last.
    if ! fsx -N "$OPERATIONS" -S "$3" -f "$WORK/$2.toml" -P "$WORK" "$1/file-$2-$3" >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        return 1
    fi
}

for configuration in whole small; do
    for seed in "${SEEDS[@]}"; do
        one "$WORK/lower/native" $configuration $seed || fail "fsx fails natively: $configuration, seed $seed"
    done
done
all=(allow_other allow_other,cache=never allow_other,cache=always allow_other,writeback)
# Refused on a share that is written.
[[ $TRANSPORT == relay ]] || all+=(allow_other,opens=local)
for options in "${all[@]}"; do
    serve "$WORK/lower/served" "$WORK/mnt" "$options"
    for configuration in whole small; do
        for seed in "${SEEDS[@]}"; do
            one "$WORK/mnt" $configuration $seed ||
                fail "fsx fails with $options: $configuration, seed $seed"
            cmp "$WORK/lower/native/file-$configuration-$seed" "$WORK/mnt/file-$configuration-$seed" ||
                fail "with $options, the file is not what the same operations make natively"
        done
    done
    unserve "$WORK/mnt"
    for file in "$WORK"/lower/native/file-*; do
        cmp "$file" "$WORK/lower/served/$(basename "$file")" ||
            fail "with $options, the file beneath is not what the same operations make natively"
    done
    rm "$WORK"/lower/served/file-*
    say "$options: 4 runs of $OPERATIONS operations"
    # A guest's share has the options that it has.
    [[ $SERVE != guest ]] || break
done
