#!/bin/bash
# sqlite in WAL mode (shared memory maps, POSIX locks) with two writers and a reader. One of them writes beneath.
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/mount.sh"
need sqlite3
ROWS=${SQLITE_ROWS:-400}

one() { # one OPTIONS JOURNAL [beneath]
    # Another name each time: what removes it beneath may be seen later.
    local name=db-${1//[,=]/-}-$2 writer place
    local database=$WORK/mnt/$name
    serve "$WORK/lower/served" "$WORK/mnt" "$1"
    sqlite3 "$database" "PRAGMA journal_mode=$2; CREATE TABLE t(writer INTEGER, n INTEGER, text TEXT,
        PRIMARY KEY(writer, n));" >/dev/null
    local pids=()
    for writer in 1 2; do
        place=$database
        [[ ${3-} != beneath || $writer != 2 ]] || place=$WORK/lower/served/$name
        {
            echo ".timeout 60000"
            echo "PRAGMA synchronous=NORMAL;"
            local n
            for ((n = 1; n <= ROWS; n++)); do
                echo "BEGIN IMMEDIATE; INSERT INTO t VALUES($writer, $n, hex(randomblob(200))); COMMIT;"
            done
        } | sqlite3 -bail "$place" >"$WORK/writer-$writer.log" 2>&1 &
        pids+=($!)
    done
    # A reader must never see rows of one writer out of order: each count equals its greatest number.
    local turn torn
    for ((turn = 0; turn < 20; turn++)); do
        torn=$(sqlite3 -cmd '.timeout 60000' "$database" \
            'SELECT count(*) FROM (SELECT writer FROM t GROUP BY writer HAVING count(*) != max(n));')
        expect "writers whose rows are torn" "$torn" 0
    done
    local pid
    for pid in "${pids[@]}"; do
        wait "$pid" || { cat "$WORK"/writer-*.log >&2; fail "a writer failed ($1, $2)"; }
    done
    local want=$((2 * ROWS))
    expect "rows" "$(sqlite3 "$database" 'SELECT count(*) FROM t;')" "$want"
    expect "integrity" "$(sqlite3 "$database" 'PRAGMA integrity_check;')" ok
    unserve "$WORK/mnt"
    expect "integrity beneath" "$(sqlite3 "$WORK/lower/served/$name" 'PRAGMA integrity_check;')" ok
    expect "rows beneath" "$(sqlite3 "$WORK/lower/served/$name" 'SELECT count(*) FROM t;')" "$want"
    rm -f "$WORK/lower/served"/db-*
    say "$1, journal_mode=$2${3:+, one $3}: two writers of $ROWS rows, a reader, integrity ok"
}

lower "$WORK/lower" 512M
mkdir "$WORK/lower/served"
one allow_other wal
one allow_other delete
one allow_other,locks=shared wal
one allow_other,writeback wal
# Refused on a share that is written.
if [[ $TRANSPORT != relay && $SERVE != guest ]]; then
    one allow_other,opens=local wal
    one allow_other,opens=local delete
fi
# In a guest these are two shares, which share their locks only when told to, and cache under them unless told not to.
if [[ $TRANSPORT != relay && ($SERVE != guest || ${OPTIONS-} == *cache=never*locks=shared*) ]]; then
    one allow_other wal beneath
    one allow_other delete beneath
    # A map above is another than one beneath: the sides take turns.
    one allow_other,nopassthrough wal beneath
    one allow_other,nopassthrough delete beneath
fi
