//! The options of the benchmark, for its manual page and completions.

/// Option and description, of which completions show the first clause.
pub(crate) const OPTIONS: [(&str, &str); 13] = [
    (
        "--against NAME=MOUNTPOINT",
        "Another mounted file system, of any type, and a name for it. Where it shows the same tree as DIR, at \
         its top or below, files are prepared in DIR; otherwise on it. May be given several times.",
    ),
    (
        "--modes LIST",
        "How thrufs serves: over /dev/fuse (dev) or io_uring (ring), without passthrough or with it \
         (dev+pt, ring+pt), separated by commas; none for no mode. All unless given. All other options have \
         their defaults, but for control=none.",
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
        "Repeat the run that wrote this results.json: its suite, rows, modes, caches, processes, rounds, time \
         and amount of work, in its DIR unless another is given; a relative one is beneath the working \
         directory. A second table, at the end, shows how each ratio to native has changed, and whether the \
         two intervals are disjoint. Only --out can be given with it.",
    ),
    (
        "--list",
        "Print the suites, rows and sets; with --rows, the description of these.",
    ),
    (
        "--jobs LIST",
        "How many processes measure at once; all rows run for each number. Unless given, one, and in a few \
         rows the number of the suite.",
    ),
    (
        "--rounds N",
        "Number of rounds. With --time, fewer if time is short.",
    ),
    (
        "--time SECONDS",
        "Time limit: 120 in the suite quick. It is approximate: a measurement that has begun is completed.",
    ),
    (
        "--percent N",
        "Work of a measurement and size of its files, in percent of the default.",
    ),
    (
        "--lower LIST",
        "Create file systems for the run, and measure on them: tmpfs, ext4 (on an image in the directory for \
         temporary files), or both. Requires root.",
    ),
    (
        "--out DIR",
        "A new folder for the report. Nothing is overwritten.",
    ),
];

pub(crate) const SUITES: [(&str, &str); 2] = [
    ("quick", "the headline rows in two to three minutes"),
    ("full", "every row, in about an hour"),
];
