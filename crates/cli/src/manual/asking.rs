//! The pages of the commands that ask a server.

use super::roff::Page;

pub(super) fn explain() -> String {
    let mut page = Page::new(
        "thrufs-explain",
        1,
        "tell how files on a live mount are served",
    );
    page.section("SYNOPSIS");
    page.synopsis("thrufs explain", "[--json] [--control PATH] PATH...");
    page.section("DESCRIPTION");
    page.text(
        "Asks the server of the mount that each PATH lies on, by its control socket, and tells: what \
         the file is; how its data go between users and the file beneath, and why; how often it is \
         open; what the kernel may keep of it, and for how long; whether the kernel knows it; and \
         what file system it lies on beneath.",
    );
    page.text(
        "The mount is found from any path on it, also where it was bound or moved to. A symbolic link \
         at the end of PATH is explained itself and not followed; those on the way are. The last name \
         is not looked up through the mount, so asking about a file does not make it known to the \
         kernel.",
    );
    page.text("Only the user who mounted, and root, may ask.");
    page.section("DATA PATHS");
    page.item(
        "passthrough",
        "The kernel reads and writes the file beneath itself.",
    );
    page.item(
        "cached",
        "Through the server, and the kernel keeps what was read.",
    );
    page.item("direct", "Through the server, each time.");
    page.item("filtered", "Through the server, which alters them.");
    page.item(
        "none",
        "It has no data that are read or written through the server.",
    );
    page.section("OPTIONS");
    page.item(
        "--json",
        "Print an array of objects, one for each PATH that could be explained. In path and \
         mountpoint, bytes that are no UTF-8 text are written as % and two hexadecimal digits, and % \
         as %25.",
    );
    control(&mut page);
    page.section("EXIT STATUS");
    super::exit_status(&mut page);
    page.see_also(&["thrufs-mount(1)", "thrufs-ctl(1)"]);
    page.finish()
}

pub(super) fn ctl() -> String {
    let mut page = Page::new("thrufs-ctl", 1, "ask the server of a mount or share");
    page.section("SYNOPSIS");
    page.synopsis("thrufs ctl", "[--json] [--control PATH] PATH COMMAND");
    page.section("DESCRIPTION");
    page.text(
        "Asks the server of the mount that PATH lies on, or of the share whose socket PATH is, by its \
         control socket. Only the user who mounted or shared, and root, may ask.",
    );
    page.section("COMMANDS");
    page.item(
        "statistics",
        "How requests come, and figures: requests, inodes, descriptors. SIGUSR1 has them logged.",
    );
    page.section("OPTIONS");
    page.item("--json", "Print an object.");
    control(&mut page);
    page.section("EXIT STATUS");
    super::exit_status(&mut page);
    page.see_also(&["thrufs-mount(1)", "thrufs-share(1)", "thrufs-explain(1)"]);
    page.finish()
}

fn control(page: &mut Page) {
    page.item(
        "--control PATH",
        "The control socket, for a mount that was given control=PATH.",
    );
}
