//! The page of the benchmark.

use super::roff::Page;

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
        "Values of the mount option cache: a contestant for each, in every mode.",
    ),
    (
        "--suite SUITE",
        "What is measured and with whom; quick unless given.",
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
        "Print the suites, rows and sets; with --rows, all that there is to say of those, job files of \
         fio included.",
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
pub(crate) const SUITES: [(&str, &str); 10] = [
    ("quick", "the headline rows in two to three minutes"),
    ("full", "every row, in about an hour"),
    (
        "usual",
        "Thrufs and libfuse's passthrough_hp, on tmpfs and on ext4",
    ),
    (
        "transports",
        "/dev/fuse and io_uring, of Thrufs, libfuse and the floor",
    ),
    (
        "passthrough",
        "files that the kernel uses by itself, of Thrufs and libfuse",
    ),
    (
        "passthrough-only",
        "the same without those whose data go by a server, which take most of the time",
    ),
    ("builds", "building a C project and this one"),
    ("killpriv", "small writes with KILLPRIV_V2 and without"),
    (
        "goals",
        "what the project's goals and its table of peers need, of all modes, in half an hour",
    ),
    (
        "published",
        "published measurements again, each beside the original's figures",
    ),
];

pub(super) fn bench() -> String {
    let mut page = Page::new(
        "thrufs-bench",
        1,
        "tell how fast a directory is through thrufs, and against other mounts",
    );
    page.section("SYNOPSIS");
    page.synopsis(
        "thrufs bench",
        "[--against NAME=MOUNTPOINT]... [--modes LIST] [--cache LIST] [--suite SUITE] [--rows LIST] [--jobs \
         LIST] [--rounds N] [--time SECONDS] [--out DIR] [DIR]",
    );
    page.synopsis("thrufs bench", "--repeat FILE [--out DIR] [DIR]");
    page.synopsis("thrufs bench", "--list [--rows LIST]");
    page.section("DESCRIPTION");
    description(&mut page);
    page.section("OPTIONS");
    for (option, about) in OPTIONS {
        page.item(option, about);
    }
    page.section("SUITES");
    for (name, about) in SUITES {
        page.item(name, &format!("{}.", super::capital(about)));
    }
    page.text(
        "All but quick and full make their own file systems (--lower), unless a DIR is named, and turn \
         FUSE over io_uring on in the kernel, for the whole machine, until they have ended. Those that \
         compare with libfuse need the project's sources: cargo xtask bench runs them.",
    );
    page.section("SAFETY");
    safety(&mut page);
    page.section("AS AN ORDINARY USER");
    page.text(
        "What needs root is left out, and said: passthrough, counting, dropping the kernel's caches. In rows \
         that begin with empty caches, each measurement has a new mount then, so that nothing is cached by \
         it, and everything by the file system beneath. Mounts of others, which cannot be mounted anew, do \
         not have those rows.",
    );
    page.section("SIGNALS");
    page.item(
        "SIGINT, SIGTERM, SIGHUP",
        "End with what was measured so far: table and report are made of that. A second one does not wait \
         for them.",
    );
    page.section("EXIT STATUS");
    super::exit_status(&mut page);
    page.item(
        "128+N",
        "Signal N has ended it, whether there is a report or not.",
    );
    page.section("FILES");
    page.item(
        "DIR/.thrufs-bench-XXXXXXXX",
        "The scratch folder, as long as the run lasts. There is one on a mount of --against as well, where \
         that does not show the same tree.",
    );
    page.item(
        "thrufs-bench-DATE",
        "The report, in the working directory: report.html for the browser, report.txt, results.json \
         (everything that was found), results.csv (a line for each sample), and fio/, the job files that fio \
         was given.",
    );
    page.section("EXAMPLES");
    page.item(
        "thrufs bench ~/projects",
        "The headline rows in two to three minutes.",
    );
    page.item(
        "thrufs bench /srv --against old=/mnt/old --modes ring+pt --suite full",
        "One mode, against a mount that is there already.",
    );
    page.item(
        "thrufs bench --repeat thrufs-bench-2026-11-21/results.json",
        "The same again, after a change of the machine or of thrufs.",
    );
    page.item(
        "thrufs bench --list --rows git-status",
        "What a row measures.",
    );
    page.see_also(&["thrufs-mount(1)", "thrufs-doctor(1)"]);
    page.finish()
}

fn description(page: &mut Page) {
    page.text(
        "Makes files in a folder of its own in DIR (the working directory unless given), serves them by \
         thrufs in every mode that this machine offers, and measures reading, writing, and using names \
         there: natively, through each of these mounts, and through mounts of others.",
    );
    page.text(
        "A round measures every contestant once in every row, in an order that rotates. What counts is the \
         ratio to native of one round, and of all rounds the median with the interval in which it lies \
         nine times in ten. There are as many rounds as there is time for, three at least: on a slow disk, \
         rows are left out, and said. After the rounds, requests and system calls of each operation are \
         counted, and the times of single operations taken, in every row: of fewer operations where time is \
         short.",
    );
    page.text(
        "A table goes to standard output, what is going on to standard error. A mode that this machine does \
         not offer is left out with the reason; thrufs-doctor(1) tells what can be done.",
    );
}

fn safety(page: &mut Page) {
    page.text(
        "Nothing is touched but the scratch folder, which only its user can enter. It refuses to run in a \
         directory that is read-only or keeps no files, and where disk, quota or memory have no room for \
         what it needs and a margin.",
    );
    page.text(
        "All mounts, servers and measurements live in namespaces of their own and end with the run, in \
         whichever way that ends; a process that waits outside for the end removes the folder. When that is \
         killed in the same moment as all others, the folder stays until the next run in DIR, which removes \
         it.",
    );
    page.text(
        "Whoever may rename what lies in DIR can put something else in the folder's place. As root, run it \
         where only those you trust can do that; the sticky bit, as in /tmp, is enough.",
    );
    page.text(
        "As root, the kernel's caches are dropped again and again, those of everybody: other programs read \
         from the disk again what they had read before.",
    );
}
