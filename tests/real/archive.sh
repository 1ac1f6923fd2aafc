#!/bin/bash
# tar and rsync, both ways, of a tree in which a file is everything that a file can be.
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/mount.sh"
need tar rsync setfattr getfattr setfacl getfacl setcap sha256sum

# Xattr lists that tar restores; ACLs are among them as system.*.
TAR=(tar --xattrs --xattrs-include='*' --acls --sparse --numeric-owner --same-owner -p)

make_tree() {
    local top=$1 n
    mkdir -p "$top/plain/deep/deeper" "$top/empty" "$top/many"
    seq 1 100000 >"$top/plain/numbers"
    : >"$top/plain/nothing"
    head -c 3000001 /dev/urandom >"$top/plain/deep/random"
    for ((n = 0; n < 500; n++)); do echo "$n" >"$top/many/file $n"; done
    # Names: long, with a newline, not UTF-8, a leading dash.
    : >"$top/$(printf 'n%.0s' {1..255})"
    : >"$top/$(printf 'new\nline')"
    : >"$top/$(printf '\xff\xfe\x01')"
    : >"$top/-rf"
    # Hard links, symbolic links good, dangling and long.
    ln "$top/plain/numbers" "$top/plain/deep/numbers-again"
    ln "$top/plain/numbers" "$top/numbers-once-more"
    ln -s plain/numbers "$top/link"
    ln -s /no/such/place "$top/dangling"
    ln -s "$(printf 'x%.0s' {1..4000})" "$top/long-link"
    # Special files.
    mkfifo "$top/fifo"
    mknod "$top/null" c 1 3
    mknod "$top/block" b 7 200
    # Modes, owners, times from long ago, before the epoch and with nanoseconds.
    install -m 4755 /dev/null "$top/suid"
    install -m 2755 /dev/null "$top/sgid"
    mkdir -m 1777 "$top/sticky"
    install -m 000 /dev/null "$top/none"
    : >"$top/owned"
    chown 12345:54321 "$top/owned"
    chown -h 12345:54321 "$top/dangling"
    # Xattrs of every namespace, ACLs with a default one, a capability.
    setfattr -n user.text -v value "$top/plain/numbers"
    setfattr -n user.binary -v 0x00ff00ff "$top/plain/nothing"
    setfattr -n user.big -v "$(head -c 1000 /dev/zero | tr '\0' v)" "$top/plain/deep/random"
    setfattr -n trusted.secret -v hidden "$top/plain/numbers"
    setfattr -n user.directory -v yes "$top/plain/deep"
    setfacl -m u:12345:rw,g:54321:r,m:rw "$top/plain/numbers"
    setfacl -d -m u:12345:rwx,g:54321:rx "$top/plain/deep/deeper"
    cp /bin/true "$top/capable"
    setcap cap_net_raw+ep "$top/capable"
    # Holes: at the start, in the middle, at the end, nothing but.
    truncate -s 64M "$top/all-hole"
    truncate -s 32M "$top/sparse"
    printf start | dd of="$top/sparse" bs=1 seek=1048576 conv=notrunc status=none
    printf end | dd of="$top/sparse" bs=1 seek=20971520 conv=notrunc status=none
    touch -d '1990-01-02 03:04:05.123456789' "$top/plain/numbers" "$top/plain" "$top/sticky"
    touch -d '1960-01-02 03:04:05' "$top/plain/nothing"
    touch -h -d '2001-02-03 04:05:06' "$top/link"
    touch -d '2004-05-06 07:08:09.5' "$top/many" "$top/empty"
}

# Holes stay holes: no more blocks than a few for what was written.
holes_stay() {
    local blocks
    blocks=$(stat -c %b "$1/all-hole")
    ((blocks <= 16)) || fail "$1/all-hole takes $blocks blocks of 512 bytes"
    blocks=$(stat -c %b "$1/sparse")
    ((blocks >= 2 && blocks <= 256)) || fail "$1/sparse takes $blocks blocks of 512 bytes"
    # Groups of hard links are still such.
    expect "$1: links" "$(stat -c %h "$1/plain/numbers")" 3
    expect "$1: the same inode" "$(stat -c %i "$1/plain/numbers")" "$(stat -c %i "$1/numbers-once-more")"
}

# Of the whole tree through two paths, the same must be seen.
lower "$WORK/lower" 1G -I 512
native "$WORK/lower/native"
mkdir "$WORK/lower/served"
serve "$WORK/lower/served" "$WORK/mnt"

make_tree "$WORK/lower/native/tree"
make_tree "$WORK/mnt/made"
# With writeback, what was written is beneath when it was synced.
sync --file-system "$WORK/mnt"
same_trees "a tree made on the mount, seen above and beneath" "$WORK/mnt/made" "$WORK/lower/served/made"
holes_stay "$WORK/mnt/made"
holes_stay "$WORK/lower/served/made"

# tar: native tree -> archive -> mount -> archive -> native.
(cd "$WORK/lower/native/tree" && "${TAR[@]}" -cf "$WORK/one.tar" .)
mkdir "$WORK/mnt/tar"
(cd "$WORK/mnt/tar" && "${TAR[@]}" -xf "$WORK/one.tar")
touch -r "$WORK/lower/native/tree" "$WORK/mnt/tar"
same_trees "tar onto the mount" "$WORK/lower/native/tree" "$WORK/mnt/tar"
holes_stay "$WORK/mnt/tar"
drop_caches
same_trees "tar onto the mount, cold" "$WORK/lower/native/tree" "$WORK/mnt/tar"
same_trees "tar onto the mount, seen beneath" "$WORK/lower/native/tree" "$WORK/lower/served/tar"
(cd "$WORK/mnt/tar" && "${TAR[@]}" -cf "$WORK/two.tar" .)
mkdir "$WORK/lower/native/tar"
(cd "$WORK/lower/native/tar" && "${TAR[@]}" -xf "$WORK/two.tar")
same_trees "tar from the mount" "$WORK/lower/native/tree" "$WORK/lower/native/tar"
holes_stay "$WORK/lower/native/tar"
say "tar: both ways, everything the same, holes are holes"

# rsync: native -> mount -> native; a second run must find nothing to do.
# Without a window of -1, rsync takes times within one second for the same.
RSYNC=(rsync -aHAXS --numeric-ids --devices --specials --modify-window=-1)
"${RSYNC[@]}" "$WORK/lower/native/tree/" "$WORK/mnt/rsync/"
same_trees "rsync onto the mount" "$WORK/lower/native/tree" "$WORK/mnt/rsync"
holes_stay "$WORK/mnt/rsync"
"${RSYNC[@]}" "$WORK/mnt/rsync/" "$WORK/lower/native/rsync/"
same_trees "rsync from the mount" "$WORK/lower/native/tree" "$WORK/lower/native/rsync"
drop_caches
left=$("${RSYNC[@]}" --checksum --itemize-changes --dry-run "$WORK/lower/native/tree/" "$WORK/mnt/rsync/")
expect "what rsync --checksum still finds to do" "$left" ""
# An update in place, and a deletion.
echo changed >>"$WORK/lower/native/tree/plain/deep/random"
rm "$WORK/lower/native/tree/many/file 7"
"${RSYNC[@]}" --delete-before --no-whole-file "$WORK/lower/native/tree/" "$WORK/mnt/rsync/"
same_trees "rsync of changes onto the mount" "$WORK/lower/native/tree" "$WORK/mnt/rsync"
echo again >>"$WORK/lower/native/tree/plain/deep/random"
rsync -a --inplace --no-whole-file "$WORK/lower/native/tree/plain/deep/random" "$WORK/mnt/rsync/plain/deep/"
cmp "$WORK/lower/native/tree/plain/deep/random" "$WORK/mnt/rsync/plain/deep/random" || fail "rsync --inplace"
say "rsync: both ways, everything the same"
unserve "$WORK/mnt"
