# What programs do to a tree, in a draft.
set -eu
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
is() { [ "$2" = "$3" ] || { echo "$1: $2, not $3"; exit 1; }; }

# Git, which renames, links and locks.
git init -q work && cd work
echo one >a && git add a && git commit -qm first && git checkout -qb branch
git mv a b && git commit -qm second && git checkout -q - && git merge -q branch && git gc -q && git fsck --strict
is git "$(git log --oneline | wc -l) $(git status --short)" "2 "
cd ..

# A file that an editor saves, and one that is appended to.
echo more >>file && is append "$(cat file)" contentmore
echo saved >file.new && mv file.new file && is save "$(cat file)" saved
# A directory of the tree, which is copied (EXDEV); what takes its place has nothing of it.
mv old moved && is move "$(cat moved/inner/deep)" deep && test ! -e old
mkdir old && is opaque "$(ls old)" ""
rm -r again && mkdir again && echo new >again/new && is opaque "$(ls again)" new
is devices "$(find . -xdev -type f | wc -l)" "$(find . -type f | wc -l)"
# Modes, links, holes.
ln file linked && is link "$(stat -c '%h %i' file)" "2 $(stat -c %i linked)"
chmod 4711 file && is mode "$(stat -c %a file)" 4711
ln -s nowhere symbolic && is symbolic "$(readlink symbolic)" nowhere
mkfifo fifo && truncate -s 1M hole && is hole "$(stat -c %b hole)" 0
python3 - <<'END'
import ctypes, fcntl, mmap, os, sqlite3
unnamed = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o644)
os.write(unnamed, b"unnamed")
link = ctypes.CDLL(None).linkat
assert link(-100, b"/proc/self/fd/%d" % unnamed, -100, b"named", 0x400) == 0
assert open("named").read() == "unnamed"
with open("mapped", "r+b") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    mapped = mmap.mmap(file.fileno(), 0)
    mapped[0:3] = b"MAP"
    mapped.flush()
assert open("mapped").read() == "MAPped"
for mode in "delete", "wal":
    base = sqlite3.connect(mode + ".db")
    assert base.execute("pragma journal_mode=" + mode).fetchone() == (mode,)
    base.execute("create table t (n)")
    with base:
        base.executemany("insert into t values (?)", ((n,) for n in range(500)))
    assert base.execute("select sum(n) from t").fetchone() == (124750,)
    base.close()
END
rm -r again && test ! -e again
