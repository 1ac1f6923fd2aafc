# The secrets of this group are of a rule by path: `vault/key` at any depth, and names of the profile.
os.chdir(tree)
# Looks go on for so long, and until there were so many. Where that takes longer than the limit, something hangs.
SECONDS, LOOKS, LIMIT = 1.2, 100, 90


def until_the_end(look):
    """Looks again and again; returns how that was answered."""
    said, count, begin = set(), 0, time.monotonic()
    while (elapsed := time.monotonic() - begin) < SECONDS or count < LOOKS:
        assert elapsed < LIMIT, f"{count} looks in {elapsed} s"
        count += 1
        try:
            said.add(look())
        except OSError as error:
            said.add(errno.errorcode[error.errno])
    return "SECRET" if any("SECRET" in it for it in said) else "never"


@attempt
def secrets_that_appear():
    """Outside, secrets are renamed into the tree and removed."""
    print("ready", flush=True)
    def look():
        shown = [name for name in os.listdir(".") + os.listdir("a") if name.endswith((".pem", ".env"))]
        assert not shown, shown
        return read("appears.pem") + read("a/.env")
    def look_deeper():
        try:
            return read("a/.env")
        except OSError:
            return look()
    return until_the_end(look_deeper)


@attempt
def hidden_in_a_directory_that_is_renamed():
    held = os.open("x/vault", os.O_RDONLY)
    above = os.open("x", os.O_RDONLY)
    is_over = threading.Event()

    def rename(first, second):
        while not is_over.is_set():
            try:
                os.rename(first, second)
                os.rename(second, first)
            except OSError:
                pass

    threads = [
        threading.Thread(target=rename, args=names)
        for names in [("x", "y"), ("x/vault", "x/open"), ("y/vault", "y/open"), ("x/vault", "open")]
    ]
    for thread in threads:
        thread.start()
    looks = [
        lambda: read("x/vault/key"),
        lambda: read("y/vault/key"),
        lambda: read("x/open/key"),
        lambda: read("open/key"),
        lambda: read("key", held),
        lambda: read("vault/key", above),
        lambda: read("open/key", above),
    ]
    try:
        return until_the_end(lambda: looks[os.urandom(1)[0] % len(looks)]())
    finally:
        is_over.set()


@attempt
def file_that_gets_a_hidden_name():
    """Outside, the file `temporary` gets a hidden name. What was opened before stays open."""
    read("temporary")
    print("rename", flush=True)
    while os.path.exists("temporary"):
        time.sleep(0.01)
    assert not [name for name in os.listdir(".") if "temporary" in name]
    return read("temporary.pem")
