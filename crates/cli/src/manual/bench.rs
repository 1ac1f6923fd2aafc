//! What the benchmark can be asked for: for its page and for shells.

/// Every option, and what it is for: shells show the first clause.
pub(crate) const OPTIONS: [(&str, &str); 13] = [
    (
        "--against NAME=MOUNTPOINT",
        "Another mounted file system, of any kind, and what to call it. Where it shows the same tree as \
         DIR, at its top or below, files are prepared beneath it; otherwise in it. May be given several \
         times.",
    ),
    (
        "--modes LIST",
        "How thrufs serves: over /dev/fuse (dev) or io_uring (ring), without passthrough or with it \
         (dev+pt, ring+pt), parted by commas; none for no mode. All unless given. All other options are \
         those of a mount by default, but for control=none.",
    ),
    (
        "--cache LIST",
        "Values of the mount option cache: a target for each, in every mode.",
    ),
    (
        "--suite SUITE",
        "What is measured, and at which targets; quick unless given.",
    ),
    (
        "--rows LIST",
        "Rows, or sets of them, instead of the suite's.",
    ),
    (
        "--repeat FILE",
        "Repeat the run that has left this results.json: its suite, the rows that it had, its modes, caches, \
         processes, rounds, time and amount of work, in its DIR unless another is given; a relative one is \
         beneath the working directory. A second table, at the end, tells how each ratio to native differs from \
         then, and whether the intervals of the two are apart. No other option goes with it but --out.",
    ),
    (
        "--list",
        "Print the suites, rows and sets; with --rows, all that there is to say of those.",
    ),
    (
        "--jobs LIST",
        "How many processes measure at once, all rows for each number. Unless given, one, and in a few rows \
         the suite's number.",
    ),
    (
        "--rounds N",
        "So many rounds. With --time as well, fewer if there is no time for them.",
    ),
    (
        "--time SECONDS",
        "How long it may take: 120 in the suite quick. It is kept roughly: a measurement that has begun \
         comes to its end.",
    ),
    (
        "--percent N",
        "Work of a measurement and size of its files, in hundredths of the usual.",
    ),
    (
        "--lower LIST",
        "Make file systems for the run, and measure on those: tmpfs, ext4 (on an image in the directory for \
         temporary files), or both. For root alone.",
    ),
    (
        "--out DIR",
        "A new folder for the report. Nothing is overwritten.",
    ),
];

/// Every suite, and what it is.
pub(crate) const SUITES: [(&str, &str); 2] = [
    ("quick", "the headline rows in two to three minutes"),
    ("full", "every row, in about an hour"),
];
