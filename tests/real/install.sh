#!/bin/bash
# Installs, uses and removes, in a copy of this system whose changes are dropped: the single program; or with DIST, a
# directory that `cargo xtask dist` made, the tarball and the package for Debian.
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/mount.sh"
need man mount pivot_root setpriv unshare

# In the copy: $WAY, and in /given what is installed. Writes what it skips to /given/skipped.
INSIDE='
set -euo pipefail
shopt -s inherit_errexit
fail() { echo "FAILED: $*" >&2; exit 1; }
expect() { [[ $2 == "$3" ]] || fail "$1: got \"$2\", wanted \"$3\""; }
cd /given
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/given MANWIDTH=80
changed() { find /changes ! -type d ! -path "/changes/var/lib/dpkg/*" ! -path "/changes/var/log/*" ! -path "/changes/var/cache/*"; }

prefix=/usr/local
case $WAY in
    program) add() { /given/thrufs install; }; remove() { thrufs uninstall; } ;;
    tarball)
        sha256sum --quiet --check --ignore-missing SHA256SUMS
        tar -xf thrufs-*.tar.gz
        add() { /given/thrufs-*/bin/thrufs install; }
        remove() { thrufs uninstall; } ;;
    deb)
        prefix=/usr
        sha256sum --quiet --check --ignore-missing SHA256SUMS
        # A parser that knows the profile, where there is none.
        command -v apparmor_parser >/dev/null || {
            mkdir -p /etc/apparmor.d
            ln -s /bin/true /usr/local/sbin/apparmor_parser
        }
        # Containers leave out documents.
        add() { dpkg --path-include="/usr/share/*" -i thrufs_*.deb; }
        remove() { dpkg --purge thrufs; } ;;
esac
units=$prefix/lib/systemd/system
examples=$prefix/share/doc/thrufs/examples
add >added
hash -r
expect "the program" "$(command -v thrufs)" "$prefix/bin/thrufs"
read -r name version < <(thrufs --version)
expect "the first line of --version" "$name $version" "$(thrufs -V)"
if [[ -n $COMMIT ]]; then
    expect "the commit" "$(thrufs --version | sed -n "s/^commit: //p")" "$COMMIT"
    expect "how it is linked" "$(thrufs --version | grep -o "static$")" static
    thrufs bench --list >/dev/null
fi

# A mount of fstab, by each type, by each of its names; and the program is replaced while it serves.
mkdir -p src mnt
echo content >src/file
mount --bind /given/fstab /etc/fstab
for type in thrufs fuse.thrufs; do
    expect "the helper of $type" "$(realpath "/sbin/mount.$type")" "$prefix/bin/thrufs"
    echo "/given/src /given/mnt $type allow_other,nofail 0 0" >fstab
    mount /given/mnt
    expect "a file, by $type" "$(cat mnt/file)" content
    expect "the type" "$(findmnt -no FSTYPE,SOURCE /given/mnt)" "fuse.thrufs /given/src"
    add >>added
    echo more >>mnt/file
    expect "the file beneath" "$(tail -n 1 src/file)" more
    echo content >src/file
    thrufs unmount /given/mnt
done

# Manual pages, by name and section; what a unit names as its documentation.
for page in thrufs thrufs-mount thrufs-install "8 mount.thrufs"; do
    # shellcheck disable=SC2086
    found=$(realpath "$(man -w $page)")
    [[ $found == "$prefix"/share/man/man?/*thrufs* ]] || fail "man $page: $found"
done
man thrufs-install | grep -q "thrufs uninstall" || fail "man thrufs-install does not show"

# Completions, as bash loads them: of commands, and of the options of one.
completed() {
    bash -c "source $prefix/share/bash-completion/completions/thrufs && complete -p thrufs >/dev/null
        COMP_WORDS=(thrufs \$1) COMP_CWORD=\$#; _thrufs thrufs \"\${!#}\" thrufs; echo \"\${COMPREPLY[*]}\"" completed "$1"
}
expect "completions of ins" "$(completed ins)" install

# Units, where systemd looks for them; the examples where they are.
if command -v systemd-analyze >/dev/null; then
    [[ $(systemd-analyze unit-paths) == *"$units"* ]] || [[ $units == /usr/lib/* ]] || fail "systemd does not look in $units"
    mkdir units
    cp "$examples"/*.service "$examples"/*.mount units
    # An instance is verified by its own name.
    cp "$units/thrufs-share@.service" units/thrufs-share@home.service
    systemd-analyze --man=no verify units/* >verified 2>&1 || fail "units: $(cat verified)"
    ! grep -i thrufs verified || fail "units: $(cat verified)"
else
    echo "units: there is no systemd-analyze" >>skipped
fi

# What libvirt finds: a program that can do what its description says.
descriptions=/usr/share/qemu/vhost-user
[[ $prefix == /usr ]] || descriptions=/etc/qemu/vhost-user
binary=$(sed -n "s/.*\"binary\": \"\(.*\)\".*/\1/p" $descriptions/60-thrufs.json)
expect "the virtiofsd" "$binary" "$prefix/libexec/thrufs/virtiofsd"
for feature in $("$binary" --print-capabilities | sed -n "s/^    //p" | tr -d ,); do
    grep -q -- "$feature" $descriptions/60-thrufs.json || fail "the description lacks $feature"
done

# The policy is one, the machine can mount.
thrufs policy check "$prefix/share/thrufs/policies/workspace.toml" >/dev/null
thrufs doctor /given/src >doctor || fail "doctor: $(cat doctor)"

profile=$prefix/share/thrufs/apparmor/thrufs
grep -q "^profile thrufs $prefix/bin/thrufs " "$profile" || fail "the profile is of another program"
if [[ -n $COMMIT ]]; then
    if [[ -e /etc/apparmor.d/abi/4.0 ]] && command -v apparmor_parser >/dev/null; then
        apparmor_parser -QK "$profile" || fail "apparmor_parser does not know the profile"
    else
        echo "apparmor: there is no AppArmor 4 to parse the profile" >>skipped
    fi
fi

if [[ $(readlink /usr/local/sbin/apparmor_parser) == /bin/true ]]; then
    expect "the profile that AppArmor loads" "$(realpath /etc/apparmor.d/thrufs)" "$profile"
    stand_in=/usr/local/sbin/apparmor_parser
fi

# An ordinary user, at home, without what needs root.
if [[ $WAY == program ]]; then
    install -d -o 65534 home
    user() { HOME=/given/home setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
    user "$prefix/bin/thrufs" install --prefix /given/home/.local >/dev/null 2>said
    expect "what a user cannot install" "$(grep -c "left out: it needs root" said)" 3
    expect "the version of a user" "$(user home/.local/bin/thrufs -V)" "thrufs $version"
    user home/.local/bin/thrufs uninstall --prefix /given/home/.local >/dev/null 2>&1
    expect "what is left of a user" "$(find home ! -type d)" ""
fi

# Nothing is left, but what others have put there.
[[ $WAY == deb ]] || ln -sf /elsewhere /sbin/mount.thrufs
remove >removed
rm -f ${stand_in:-}
hash -r
! command -v thrufs || fail "the program is still there"
if [[ $WAY != deb ]]; then
    expect "the link of another" "$(readlink /sbin/mount.thrufs)" /elsewhere
    rm /sbin/mount.thrufs
fi
umount /etc/fstab
expect "what is left" "$(changed)" ""
expect "directories that are left" "$(find /changes -type d -path "*thrufs*")" ""
'

# in_copy WAY FILE...
in_copy() {
    local way=$1 top=$WORK/$1
    shift
    mkdir "$top"
    mount -t tmpfs -o mode=755 tmpfs "$top"
    mkdir "$top"/{changes,work,root,given}
    cp "$@" "$top/given"
    touch "$top/given/fstab" "$top/given/skipped"
    mount -t overlay -o "lowerdir=/,upperdir=$top/changes,workdir=$top/work" overlay "$top/root" ||
        { skipped "$way" "no overlay above the root of this system"; return; }
    # The processes end with the namespace, and what they have mounted.
    WAY=$way COMMIT=${COMMIT:-} INSIDE=$INSIDE TMPDIR=/given \
        unshare --mount --propagation private --pid --fork --kill-child --mount-proc bash -euc '
            for directory in dev sys proc; do mount --rbind "/$directory" "$1/root/$directory"; done
            mount -t tmpfs tmpfs "$1/root/run"
            mkdir "$1"/root/{given,changes,old}
            mount --bind "$1/given" "$1/root/given"
            mount --bind "$1/changes" "$1/root/changes"
            cd "$1/root"
            pivot_root . old
            umount --lazy /old
            rmdir /old
            exec bash -c "$INSIDE" inside' in_copy "$top" </dev/null >"$WORK/said" 2>&1 ||
        fail "$way: $(tail -n 20 "$WORK/said")"
    local line
    while IFS= read -r line; do skipped "${line%%: *}" "${line#*: }"; done <"$top/given/skipped"
    say "$way: installed, used, removed"
}

if [[ -z ${DIST:-} ]]; then
    in_copy program "$THRUFS"
    exit
fi
COMMIT=$(git -c safe.directory='*' -C "$PROJECT" describe --always --dirty --abbrev=12 --exclude='*')
in_copy tarball "$DIST"/thrufs-*.tar.gz "$DIST/SHA256SUMS"
if command -v dpkg >/dev/null; then
    in_copy deb "$DIST"/thrufs_*.deb "$DIST/SHA256SUMS"
else
    skipped deb "no dpkg"
fi
