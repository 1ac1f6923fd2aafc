#!/bin/bash
# The share into a virtual machine of docs/workspaces.md: the guest's root, by the policy for workspaces. The
# host has the share's directory at `project` in `beneath`.
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/../real/mount.sh"
need cat chmod ln ls mkdir mknod mount mv rm

HOST=$BENEATH/project
mkdir -p "$HOST"/.git/hooks "$HOST"/.docker
for name in .env deploy.pem .docker/config.json .git/config file; do echo "of the host" >"$HOST/$name"; done
mkdir "$WORK/work"
mount -t virtiofs project "$WORK/work"
cd "$WORK/work"

# refused ERROR COMMAND...: it fails with this error.
refused() {
    local error=$1
    shift
    ! "$@" >"$WORK/said" 2>&1 || fail "not refused: $*"
    grep -q "$error" "$WORK/said" || fail "$*: $(cat "$WORK/said")"
}
append() { echo x >>"$1"; }

expect "what is listed" "$(ls -A . .docker .git | paste -sd ' ')" \
    ".: .docker .git file  .docker:  .git: config hooks"
for name in .env deploy.pem .docker/config.json; do
    refused 'No such file' cat "$name"
    refused 'Permission denied' append "$name"
    refused 'Permission denied' mkdir "$name"
    refused 'Permission denied' mknod "$name" p
    refused 'Permission denied' ln -s file "$name"
    refused 'Permission denied' ln file "$name"
    refused 'Permission denied' mv -T file "$name"
done
for name in .git/config .git/hooks/pre-commit .envrc; do
    refused 'Read-only file system' append "$name"
    refused 'Read-only file system' mv -T file "$name"
done
refused 'Read-only file system' ln file .git/hooks/pre-commit
refused 'Read-only file system' chmod 777 .git/hooks
refused 'Read-only file system' rm -r .git/hooks
for name in .git .git/hooks .docker; do refused 'Read-only file system' mv "$name" other; done
mkdir "$WORK/bound"
mount --bind .git/hooks "$WORK/bound"
mount -o remount,rw,bind "$WORK/bound"
refused 'Read-only file system' append "$WORK/bound/pre-commit"

# What appears on the host is judged at once, also in a directory that the guest moves.
mkdir -p directory "$HOST/.aws"
echo "of the host" | tee "$HOST/directory/.env" >"$HOST/.aws/credentials"
mv directory moved
refused 'No such file' cat moved/.env
refused 'No such file' cat .aws/credentials

echo "of the guest" >new
expect "a file of the guest, on the host" "$(cat "$HOST/new")" "of the guest"
for name in .env deploy.pem .docker/config.json .git/config file moved/.env; do
    expect "$name on the host" "$(cat "$HOST/$name")" "of the host"
done
say "root in a guest is held to the policy"
