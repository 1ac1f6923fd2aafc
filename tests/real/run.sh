#!/bin/bash
# Programs in `thrufs run`: git, make, python, cargo, npm, an editor in a terminal multiplexer; of root and of an
# ordinary user, on ext4 and tmpfs.
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/mount.sh"
need gcc git make python3 script setpriv tmux vim

install -m 755 "$THRUFS" "$WORK/thrufs"
USER_ID=65534

# The toolchain, where all users can read it.
cargo=
if command -v rustc >/dev/null; then
    mount --bind "$(rustc --print sysroot)" /mnt
    cargo=/mnt/bin
else
    skipped cargo "no toolchain"
fi
npm=
if npm --version >/dev/null 2>&1; then npm=yes; else skipped npm "no npm"; fi
tear_down() { [[ -z $cargo ]] || umount /mnt; }

# as USER COMMAND...: with a home of its own, not visible inside as it is in /tmp.
as() {
    local user=$1 path=${cargo:+$cargo:}/usr/local/bin:/usr/bin:/bin
    shift
    env -i PATH="$path" HOME="$WORK/home-$user" LANG=C.UTF-8 SHELL=/bin/sh TERM=xterm npm_config_update_notifier=false \
        setpriv --reuid "$user" --regid "$user" --clear-groups "$@"
}

# project: in the working directory.
project() {
    git init -q -b main
    mkdir -p c python rust/src dependency js
    printf 'program: a.o b.o\n\t$(CC) -o $@ $^\n' >c/Makefile
    echo 'int b(void); int main(void) { return b(); }' >c/a.c
    echo 'int b(void) { return 7; }' >c/b.c
    echo 'VALUE = 7' >python/b.py
    echo 'import b; print(b.VALUE)' >python/a.py
    printf '[package]\nname = "small"\nversion = "0.1.0"\nedition = "2024"\n' >rust/Cargo.toml
    printf 'fn main() { println!("7"); }\n#[test]\nfn passes() {}\n' >rust/src/main.rs
    echo '{"name": "js", "version": "1.0.0"}' >js/package.json
    echo '{"name": "dependency", "version": "1.0.0"}' >dependency/package.json
    echo 'console.log(7)' >dependency/index.js
    echo 'PASSWORD=7' >.env
    echo .env >.gitignore
}

# Scripts, inside.
GIT='
    export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org
    git add -A && git commit -qm first
    git checkout -qb side && echo 1 >one && git add one && git commit -qm one
    git checkout -q main && echo 2 >two && git add two && git commit -qm two
    git merge -q -m merge side && git checkout -q side
    echo 3 >three && git add three && git commit -qm three && git rebase -q main
    echo 4 >>three && git stash -q && git stash pop -q && git commit -qam four
    git gc -q && git fsck --full --strict --no-progress >/dev/null
    git clone -q --no-local . /tmp/clone && git -C /tmp/clone log --oneline | wc -l
    git status --porcelain'
MAKE='make -s -C c && { c/program || echo $?; } && make -s -C c --question program'
PYTHON='python3 -m venv --without-pip venv && python3 -m compileall -q python && venv/bin/python python/a.py'
CARGO='cd rust && cargo build -q --offline && cargo test -q --offline >/dev/null && target/debug/small'
NPM='cd js && npm install --offline --no-audit --no-fund ../dependency >/dev/null &&
    npm ci --offline --no-audit --no-fund >/dev/null && node -e "require(\"dependency\")"'
EDITOR='script -qec "tmux -f /dev/null new-session '"'vim -u NONE -c \\\"normal i7\\\" -c wq edited'"'" /dev/null >/dev/null
    cat edited'

# inside USER WHAT WANTED SCRIPT
inside() {
    local said
    said=$(as "$1" "$WORK/thrufs" run -- bash -ec "$4" 2>&1 </dev/null) || fail "$2 of $1 on $LOWER: $said"
    expect "$2 of $1 on $LOWER" "$said" "$3"
}

for user in 0 $USER_ID; do
    mkdir -m 700 "$WORK/home-$user"
    chown "$user:$user" "$WORK/home-$user"
done
for LOWER in ext4 tmpfs; do
    lower "$WORK/$LOWER" 1G
    for user in 0 $USER_ID; do
        if ((user)) && [[ ! $(stat -c %a /dev/fuse) =~ 6$ ]]; then
            skipped user "/dev/fuse is closed to ordinary users"
            continue
        fi
        mkdir "$WORK/$LOWER/$user"
        cd "$WORK/$LOWER/$user"
        project
        chown -R "$user:$user" .
        inside "$user" secret "" "[ ! -e .env ]"
        inside "$user" git 6 "$GIT"
        inside "$user" make 7 "$MAKE"
        inside "$user" python 7 "$PYTHON"
        [[ -z $cargo ]] || inside "$user" cargo 7 "$CARGO"
        [[ -z $npm ]] || inside "$user" npm 7 "$NPM"
        inside "$user" "vim in tmux" 7 "$EDITOR"
        # Outside, all is there, and the user's.
        expect "git status of $user" "$(as "$user" git status --porcelain --untracked-files=no -- . ':!js')" ""
        expect "the secret of $user" "$(cat .env)" PASSWORD=7
        expect "files of others in the tree of $user" "$(find . ! -uid "$user")" ""
        cd "$WORK"
        say "$LOWER, user $user: git, make, python${cargo:+, cargo}${npm:+, npm}, vim in tmux"
    done
done
