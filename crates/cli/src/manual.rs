//! The manual pages, from the table of options.

mod asking;
pub(crate) mod bench;
mod roff;
mod sharing;

use crate::options::{FOREIGN, Form, Group, MountOption, Use, Value};
use roff::Page;
use std::io;
use std::path::{Path, PathBuf};

/// Every page: its file name and its text.
pub(crate) fn pages() -> Vec<(&'static str, String)> {
    vec![
        ("thrufs.1", overview()),
        ("thrufs-mount.1", mount()),
        ("thrufs-share.1", sharing::share()),
        ("thrufs-virtiofsd.1", sharing::virtiofsd()),
        ("thrufs-unmount.1", unmount()),
        ("thrufs-bench.1", bench::bench()),
        ("thrufs-doctor.1", doctor()),
        ("thrufs-policy.1", policy()),
        ("thrufs-explain.1", asking::explain()),
        ("thrufs-ctl.1", asking::ctl()),
        ("mount.thrufs.8", helper()),
    ]
}

/// Writes every page into `directory`, which is made if it is not there.
///
/// # Errors
///
/// The path that could not be written, and why.
pub(crate) fn write_pages(directory: &Path) -> Result<(), (PathBuf, io::Error)> {
    std::fs::create_dir_all(directory).map_err(|error| (directory.into(), error))?;
    for (name, text) in pages() {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(|error| (path, error))?;
    }
    Ok(())
}

fn overview() -> String {
    let mut page = Page::new("thrufs", 1, "serve a directory through FUSE");
    page.section("SYNOPSIS");
    page.synopsis("thrufs mount", "[-f] [-o OPT[,OPT...]] SOURCE MOUNTPOINT");
    page.synopsis("thrufs unmount", "[-l] MOUNTPOINT...");
    page.synopsis("thrufs share", "--socket PATH [-o OPT[,OPT...]] DIR");
    page.synopsis(
        "thrufs virtiofsd",
        "--socket-path PATH --shared-dir DIR [OPTIONS]",
    );
    page.synopsis("thrufs bench", "[OPTIONS] [DIR]");
    page.synopsis("thrufs doctor", "[--json] [DIR]");
    page.synopsis("thrufs policy check", "[--OPT...] FILE [PATH...]");
    page.synopsis("thrufs explain", "[--json] [--control PATH] PATH...");
    page.synopsis("thrufs ctl", "[--json] [--control PATH] PATH COMMAND");
    page.synopsis("thrufs completions", "SHELL");
    page.synopsis("thrufs man", "[DIR]");
    page.section("DESCRIPTION");
    page.text(
        "thrufs mounts a directory somewhere else, or shares it with virtual machines, and serves it \
         from user space.",
    );
    page.section("COMMANDS");
    page.item("mount", "Mount a directory; see thrufs-mount(1).");
    page.item(
        "unmount",
        "Unmount it, and wait until its server has ended; see thrufs-unmount(1).",
    );
    page.item(
        "share",
        "Share a directory with virtual machines; see thrufs-share(1).",
    );
    page.item(
        "virtiofsd",
        "The same with the arguments of virtiofsd; see thrufs-virtiofsd(1).",
    );
    page.item(
        "bench",
        "Tell how fast a directory is through thrufs; see thrufs-bench(1).",
    );
    page.item(
        "doctor",
        "Tell what this machine offers to a mount; see thrufs-doctor(1).",
    );
    page.item(
        "policy",
        "Tell what a policy would say of files; see thrufs-policy(1).",
    );
    page.item(
        "explain",
        "Tell how files on a live mount are served, and why; see thrufs-explain(1).",
    );
    page.item("ctl", "Ask the server of a mount; see thrufs-ctl(1).");
    page.item(
        "completions",
        "Print the completions of the command line for bash, elvish, fish, powershell or zsh.",
    );
    page.item(
        "man",
        "Write these manual pages into DIR, or into the working directory.",
    );
    page.section("EXIT STATUS");
    exit_status(&mut page);
    page.see_also(&[
        "thrufs-mount(1)",
        "thrufs-unmount(1)",
        "thrufs-share(1)",
        "thrufs-bench(1)",
        "thrufs-doctor(1)",
        "thrufs-policy(1)",
        "thrufs-explain(1)",
        "thrufs-ctl(1)",
        "mount.thrufs(8)",
    ]);
    page.finish()
}

fn exit_status(page: &mut Page) {
    page.item("0", "It is done.");
    page.item(
        "1",
        "It could not be done; standard error says why, and what can be done about it.",
    );
    page.item("2", "The command line is wrong.");
}

fn mount() -> String {
    let mut page = Page::new("thrufs-mount", 1, "mount a directory, served by thrufs");
    page.section("SYNOPSIS");
    page.synopsis(
        "thrufs mount",
        "[-f] [-o OPT[,OPT...]] [--OPT...] SOURCE MOUNTPOINT",
    );
    page.section("DESCRIPTION");
    page.text(
        "Serves the directory SOURCE on the directory MOUNTPOINT. The command returns once the mount \
         answers, and leaves the server running in the background.",
    );
    page.text(
        "Root mounts by the kernel's own interface, other users with the help of fusermount3(1). \
         SOURCE may be MOUNTPOINT itself, which is then covered.",
    );
    page.section("OPTIONS");
    page.text(
        "Every option can be given in a list after -o, or as a flag of its own with hyphens for \
         underscores: -o attr_timeout=3 is --attr-timeout=3. Where two options are opposites, and \
         where one is given twice, the last one counts. A comma within a value is written with a \
         backslash before it.",
    );
    options(&mut page, Use::Mount);
    page.subsection("Of other FUSE servers");
    page.text("Taken without effect, because what they ask for is so anyway:");
    for foreign in FOREIGN.iter().filter(|foreign| foreign.accepted) {
        page.item(foreign.name, &format!("{}.", capital(foreign.note)));
    }
    page.section("SIGNALS");
    page.text("Both processes of the server, supervisor and worker, understand:");
    page.item(
        "SIGTERM, SIGINT",
        "Unmount and end. While the mount is in use, wait for stop_timeout seconds; then take it away \
         from its users. A second signal does not wait.",
    );
    page.item(
        "SIGUSR1",
        "Log how requests come, and figures: requests, inodes, descriptors.",
    );
    page.item(
        "SIGHUP",
        "In the foreground as SIGTERM; in the background without effect, and reserved.",
    );
    page.text("Whichever of the two processes ends, and however, the mount is gone at once.");
    page.section("FILES");
    page.item(
        "/run/thrufs/MAJOR-MINOR.socket, $XDG_RUNTIME_DIR/thrufs/MAJOR-MINOR.socket",
        "The control socket of a mount of root's, and of another user's, named after its device \
         number. It is there as long as the mount is, and only that user and root may connect. Without \
         XDG_RUNTIME_DIR, /run/user/UID stands for it; if that is not there either, there is no socket.",
    );
    page.section("ENVIRONMENT");
    page.item("THRUFS_LOG", "What to log, unless --log says it.");
    page.item(
        "NOTIFY_SOCKET",
        "Set by systemd for services of Type=notify, which are told when the mount is ready.",
    );
    page.section("EXIT STATUS");
    exit_status(&mut page);
    page.section("EXAMPLES");
    page.item("thrufs mount /srv/data /mnt", "For the one who says it.");
    page.item(
        "thrufs mount -o allow_other,ro /srv/data /mnt",
        "For everybody, and nobody can change anything.",
    );
    page.item(
        "thrufs mount -o uidmap=0:100000:65536,gidmap=0:100000:65536 /var/lib/box /mnt",
        "With the ids of a container.",
    );
    page.see_also(&[
        "thrufs-unmount(1)",
        "thrufs-doctor(1)",
        "mount.thrufs(8)",
        "mount(8)",
        "fusermount3(1)",
    ]);
    page.finish()
}

/// Every option that there is for this.
fn options(page: &mut Page, used: Use) {
    for group in Group::ALL {
        let mut options = group.options(used).peekable();
        if options.peek().is_some() {
            page.subsection(group.title());
        }
        if group == Group::Mount && used == Use::Mount {
            page.text("After -o alone, and without effect on the server:");
        }
        for option in options {
            page.item(&heading(option), &description(option));
        }
    }
}

fn heading(option: &MountOption) -> String {
    let flag = option.flag();
    let flag = match (option.value, option.value.pattern()) {
        (Value::None | Value::Any, _) => format!("--{flag}"),
        (_, pattern) => format!("--{flag}={pattern}"),
    };
    match option.form {
        Form::List => option.pattern(),
        Form::Flag => format!("-{}, {flag}", &option.name[..1]),
        Form::Both => format!("{}, {flag}", option.pattern()),
    }
}

fn description(option: &MountOption) -> String {
    let mut text = format!("{}.", capital(option.help));
    if !option.long.is_empty() {
        text.push(' ');
        text.push_str(option.long);
    }
    for conflict in option.conflicts {
        text.push_str(&format!(" Not together with {}.", conflict.with));
    }
    match option.default {
        "" => {}
        "on" => text.push_str(" This is the default."),
        default => text.push_str(&format!(" The default is {default}.")),
    }
    if !option.aliases.is_empty() {
        text.push_str(&format!(" Also written {}.", option.aliases.join(", ")));
    }
    text
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters
        .next()
        .map(char::to_uppercase)
        .into_iter()
        .flatten();
    first.chain(characters).collect()
}

fn unmount() -> String {
    let mut page = Page::new("thrufs-unmount", 1, "unmount what thrufs mounted");
    page.section("SYNOPSIS");
    page.synopsis("thrufs unmount", "[-l] MOUNTPOINT...");
    page.section("DESCRIPTION");
    page.text(
        "Unmounts each MOUNTPOINT and returns when its server has ended, so that everything written \
         is settled. thrufs umount is the same. What thrufs has not mounted is left alone. A mount whose \
         server was killed (it answers \"Transport endpoint is not connected\") is taken away even when it \
         is in use.",
    );
    page.section("OPTIONS");
    page.item(
        "-l, --lazy",
        "Unmount although the mount is in use. Its users keep what they have open, and the server \
         goes on until they let go of it; it is not waited for then.",
    );
    page.section("EXIT STATUS");
    exit_status(&mut page);
    page.see_also(&["thrufs-mount(1)", "umount(8)", "fusermount3(1)"]);
    page.finish()
}

fn doctor() -> String {
    let mut page = Page::new(
        "thrufs-doctor",
        1,
        "tell what this machine offers to a mount",
    );
    page.section("SYNOPSIS");
    page.synopsis("thrufs doctor", "[--json] [DIR]");
    page.section("DESCRIPTION");
    page.text(
        "Tells what a mount with the defaults, made by the same user, would find: the kernel, \
         /dev/fuse, how this user mounts, whether requests would come by io_uring and if not, why, \
         and what else makes a mount fast or slow. With DIR, also what serving that directory would \
         find there. Nothing is mounted and nothing is changed.",
    );
    page.text(
        "Each line begins with ok, no or --. What is no has a line below it that tells what to do \
         about it; -- stands before what is good to know.",
    );
    page.section("OPTIONS");
    page.item(
        "--json",
        "Print the same as a JSON array of objects with name, state, detail and remedy, which is \
         null where there is none.",
    );
    page.section("EXIT STATUS");
    page.item("0", "A mount would work, if not as fast as it could.");
    page.item(
        "1",
        "No mount would work, for what is no of kernel, /dev/fuse and mounting; or DIR cannot be \
         opened.",
    );
    page.item("2", "The command line is wrong.");
    page.see_also(&["thrufs-mount(1)", "name_to_handle_at(2)", "io_uring(7)"]);
    page.finish()
}

fn policy() -> String {
    let mut page = Page::new("thrufs-policy", 1, "tell what a policy would say of files");
    page.section("SYNOPSIS");
    page.synopsis(
        "thrufs policy check",
        "[--root=DIR] [--as=UID[:GID]] [--exe=PROGRAM] FILE [PATH...]",
    );
    page.section("DESCRIPTION");
    page.text(
        "Reads the policy FILE. If it has a fault, says which, with line and column, and fails. \
         Otherwise tells of each PATH, a file of the host, what would happen if it was opened through \
         a mount with this policy, and by which rule. Nothing is mounted and nothing is changed.",
    );
    page.text(
        "The line of a file says whether opening it is audited, whether it is hidden, denied or \
         read-only, and how its data would come: passthrough, cached, direct, or redact. Where a \
         policy looks at content, the type that the first bytes tell stands after the path. A \
         symbolic link is looked at itself, not what it leads to.",
    );
    page.section("OPTIONS");
    page.item(
        "--root=DIR",
        "The directory that would be served, from which the paths in the policy are counted. The \
         default is the working directory.",
    );
    page.item(
        "--as=UID[:GID]",
        "Who opens the files, by number or name. The group is that of the user in /etc/passwd unless \
         it is given. The default is the user of the command.",
    );
    page.item(
        "--exe=PROGRAM",
        "The path of the program that opens the files. The default is a program that cannot be found \
         out.",
    );
    page.section("EXIT STATUS");
    page.item(
        "0",
        "The policy has no fault, and every PATH was looked at.",
    );
    page.item(
        "1",
        "The policy has a fault or cannot be read, or a PATH cannot be looked at.",
    );
    page.item("2", "The command line is wrong.");
    page.see_also(&["thrufs-mount(1)"]);
    page.finish()
}

fn helper() -> String {
    let mut page = Page::new(
        "mount.thrufs",
        8,
        "mount a directory served by thrufs, from fstab",
    );
    page.section("SYNOPSIS");
    page.synopsis(
        "mount.thrufs",
        "SOURCE MOUNTPOINT [-sfnv] [-o OPT[,OPT...]] [-t TYPE]",
    );
    page.section("DESCRIPTION");
    page.text(
        "mount(8) and systemd call this for the type thrufs. It is the command thrufs by another \
         name: a symbolic link in /sbin. A line of fstab(5) looks like this:",
    );
    page.verbatim("/srv/data  /mnt  thrufs  defaults,allow_other  0  0");
    page.text(
        "With the type fuse.thrufs, the link is named mount.fuse.thrufs. Unmount with umount(8) or \
         thrufs-unmount(1).",
    );
    page.section("OPTIONS");
    page.item(
        "-s",
        "Leave out options that are unknown instead of failing.",
    );
    page.item("-f", "Check everything, and do not mount.");
    page.item("-n", "Taken without effect: there is no mtab.");
    page.item("-v", "Say what is done.");
    page.item("-t TYPE", "Taken without effect.");
    page.item(
        "-o OPT[,OPT...]",
        "Options; thrufs-mount(1) explains each of them:",
    );
    for group in Group::ALL {
        let options = group.options(Use::Mount).filter(|o| o.form != Form::Flag);
        let names: Vec<String> = options.map(MountOption::pattern).collect();
        if !names.is_empty() {
            page.subsection(group.title());
            page.text(&format!("{}.", names.join(", ")));
        }
    }
    page.section("EXIT STATUS");
    page.text("Those of mount(8):");
    page.item("0", "It is mounted.");
    page.item("1", "The arguments or options are wrong.");
    page.item(
        "2",
        "The system does not do it: no FUSE, no memory, no descriptors.",
    );
    page.item("32", "Mounting failed.");
    page.see_also(&[
        "thrufs-mount(1)",
        "mount(8)",
        "fstab(5)",
        "systemd.mount(5)",
    ]);
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::OPTIONS;

    #[test]
    fn every_option_is_explained() {
        let pages = pages();
        let text = |name| {
            pages
                .iter()
                .find(|page| page.0 == name)
                .map(|page| page.1.clone())
        };
        let mount = text("thrufs-mount.1").unwrap().replace("\\-", "-");
        let helper = text("mount.thrufs.8").unwrap().replace("\\-", "-");
        let share = text("thrufs-share.1").unwrap().replace("\\-", "-");
        for option in OPTIONS {
            let name = option.name;
            let heading = heading(option).replace('\\', "\\e");
            let is_in = |page: &str| page.contains(&format!("\\fB{heading}\\fR"));
            assert_eq!(is_in(&mount), option.used.includes(Use::Mount), "{name}");
            assert_eq!(is_in(&share), option.used.includes(Use::Share), "{name}");
            if option.form != Form::Flag && option.used.includes(Use::Mount) {
                assert!(helper.contains(&option.pattern()), "{name}");
            }
        }
        for foreign in FOREIGN.iter().filter(|foreign| foreign.accepted) {
            assert!(mount.contains(foreign.name), "{}", foreign.name);
        }
    }
}
