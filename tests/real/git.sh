#!/bin/bash
# git on the mount: a repository that grows, is cloned, branched, packed and checked.
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/mount.sh"
need git

export GIT_CONFIG_GLOBAL=$WORK/gitconfig GIT_CONFIG_NOSYSTEM=1
git config --global user.name Tester
git config --global user.email tester@example.org
git config --global safe.directory '*'
git config --global init.defaultBranch main
git config --global advice.detachedHead false
git config --global gc.auto 0

lower "$WORK/lower" 1G
mkdir "$WORK/lower/served"
serve "$WORK/lower/served" "$WORK/mnt"

# A history of our own beside this project's, which may be a shallow clone.
git init -q "$WORK/mnt/history"
cd "$WORK/mnt/history"
for commit in $(seq 1 40); do
    mkdir -p "d$((commit % 7))/e$((commit % 3))"
    seq 1 $((commit * 100)) >"d$((commit % 7))/e$((commit % 3))/f$commit"
    ln -sf "f$commit" "d$((commit % 7))/e$((commit % 3))/newest"
    chmod $((commit % 2 ? 755 : 644)) "d$((commit % 7))/e$((commit % 3))/f$commit"
    git add -A
    git commit -q -m "commit $commit"
done
git checkout -q -b side main~20
echo side >side
git add side
git commit -q -m side
git merge -q -m merge main
git checkout -q main
cd "$WORK"

sources=("$WORK/mnt/history")
if git -C "$PROJECT" rev-parse HEAD >/dev/null 2>&1; then
    sources+=("$PROJECT")
fi
for source in "${sources[@]}"; do
    name=$(basename "$source")
    clone=$WORK/mnt/clone-$name
    # --no-local: through the pack protocol, not by hard links.
    git clone -q --no-local "$source" "$clone"
    git -C "$clone" fsck --full --strict --no-progress >"$WORK/fsck.log" 2>&1 ||
        { cat "$WORK/fsck.log" >&2; fail "git fsck of a clone of $name"; }
    expect "git status of a clone of $name" "$(git -C "$clone" status --porcelain)" ""
    for revision in $(git -C "$clone" rev-list --max-count=3 HEAD); do
        git -C "$clone" checkout -q "$revision"
        expect "git status at $revision" "$(git -C "$clone" status --porcelain)" ""
    done
    git -C "$clone" gc -q --prune=now
    git -C "$clone" fsck --full --strict --no-progress >"$WORK/fsck.log" 2>&1 ||
        { cat "$WORK/fsck.log" >&2; fail "git fsck after gc of $name"; }
    git -C "$clone" worktree add -q "$WORK/mnt/worktree-$name" HEAD~0
    expect "git status of a worktree" "$(git -C "$WORK/mnt/worktree-$name" status --porcelain)" ""
    # What the mount holds is what the file system beneath holds, and git agrees there too.
    git -C "$WORK/lower/served/clone-$name" fsck --full --strict --no-progress >"$WORK/fsck.log" 2>&1 ||
        { cat "$WORK/fsck.log" >&2; fail "git fsck beneath the mount, $name"; }
    say "$name: clone, fsck, checkout, gc, fsck, worktree"
done
unserve "$WORK/mnt"
