//! The pages about virtual machines.

use super::roff::Page;
use super::{exit_status, options};
use crate::options::Use;
use crate::virtiofsd;

pub(super) fn share() -> String {
    let mut page = Page::new("thrufs-share", 1, "share a directory with virtual machines");
    page.section("SYNOPSIS");
    page.synopsis(
        "thrufs share",
        "--socket PATH [--socket-group GROUP] [-o OPT[,OPT...]] [--OPT...] DIR",
    );
    page.synopsis("thrufs share", "--fd N [-o OPT[,OPT...]] [--OPT...] DIR");
    page.section("DESCRIPTION");
    page.text(
        "Serves the directory DIR to the guest of a virtual machine, as a virtio-fs device over \
         vhost-user. The machine monitor (QEMU, cloud-hypervisor, crosvm and others) connects to the \
         socket, and the guest mounts the device by its tag.",
    );
    page.text(
        "The command stays in the foreground. The socket has its name when somebody can connect, and \
         is removed at the end. Several machines may be connected at once (see machines); one more \
         waits until another has disconnected. They see each other's changes as soon as what each may \
         keep allows (see cache), and each other's locks with locks=shared. A guest may reboot, and unmount and mount again, as often \
         as it likes.",
    );
    page.text(
        "The process that was started holds the socket. Each machine has another, which parses what \
         its guest writes: it sees the directory and nothing else of the host's files, has no \
         capabilities but those that serving needs, and may make no other system calls. It ends with \
         its connection, and the next machine gets another. If it dies before \
         that, another goes on with the machine, which keeps its files open and notices a pause; how \
         often a minute, resume says. Under a policy it serves by what was read last.",
    );
    page.section("OPTIONS");
    page.item(
        "--socket=PATH, --socket-path=PATH",
        "Where to listen. The socket is for this user alone. One where nobody listens any more is \
         replaced, anything else that is there is left alone.",
    );
    page.item(
        "--socket-group=GROUP",
        "A group, by name or number, whose members may connect too.",
    );
    page.item(
        "--fd=N",
        "The number of a socket that listens already, made by whoever started the command.",
    );
    page.text(
        "Every other option can be given in a list after -o, or as a flag of its own with hyphens for \
         underscores. Where two options are opposites, and where one is given twice, the last one \
         counts. A comma within a value is written with a backslash before it. What means nothing for \
         a share is refused, with what to do instead.",
    );
    options(&mut page, Use::Share);
    page.section("USERS AND PRIVILEGES");
    page.text(
        "The kernel of the guest checks who may do what, by the owners and modes that it sees. \
         Whoever is root there can do with the files of DIR what root can do; nothing else of the \
         host is in reach. Programs with set-user-id bits and device files that a guest has made are \
         files of the host: share a directory that no other user of the host can enter, or mount its \
         file system with nosuid and nodev.",
    );
    page.text(
        "Without root, whatever the guest creates belongs to the user who shares, and in the sandbox \
         files of other users appear as owned by 65534.",
    );
    page.section("SIGNALS");
    page.item(
        "SIGTERM, SIGINT",
        "Answer the requests that are in progress, for at most stop_timeout seconds, disconnect and \
         end. A second signal does not wait.",
    );
    page.item("SIGUSR1", "Log figures: requests, inodes, descriptors.");
    page.item(
        "SIGHUP",
        "With a policy, read it again, unless on a terminal; otherwise as SIGTERM.",
    );
    page.section("FILES");
    page.item(
        "/run/thrufs/share-DEVICE-INODE.socket, $XDG_RUNTIME_DIR/thrufs/share-DEVICE-INODE.socket",
        "The control socket, named after the socket of the share: thrufs-ctl(1) finds it by that.",
    );
    page.section("ENVIRONMENT");
    page.item("THRUFS_LOG", "What to log, unless --log says it.");
    page.item(
        "NOTIFY_SOCKET",
        "Set by systemd for services of Type=notify, which are told when somebody can connect.",
    );
    page.section("EXIT STATUS");
    exit_status(&mut page);
    page.section("EXAMPLES");
    page.item(
        "thrufs share --socket /run/vm1-home.sock /home/vm1",
        "For a QEMU with -object memory-backend-memfd,id=mem,size=4G,share=on -numa node,memdev=mem \
         -chardev socket,id=home,path=/run/vm1-home.sock \
         -device vhost-user-fs-pci,chardev=home,tag=home,queue-size=1024,num-request-queues=2. In the \
         guest: mount -t virtiofs home /home.",
    );
    page.item(
        "thrufs share --socket /run/tools.sock -o ro,cache=always /srv/tools",
        "What nobody changes, as fast as it goes.",
    );
    page.see_also(&["thrufs-virtiofsd(1)", "thrufs-ctl(1)", "thrufs-policy(1)"]);
    page.finish()
}

pub(super) fn virtiofsd() -> String {
    let name = "thrufs-virtiofsd";
    let mut page = Page::new(name, 1, "share a directory as virtiofsd does");
    page.section("SYNOPSIS");
    page.synopsis(
        "thrufs virtiofsd",
        "--socket-path PATH|--fd N --shared-dir DIR [OPTIONS]",
    );
    page.synopsis(
        "virtiofsd",
        "--socket-path PATH|--fd N --shared-dir DIR [OPTIONS]",
    );
    page.section("DESCRIPTION");
    page.text(
        "The command thrufs behaves so when it is called by the name virtiofsd, through a link for \
         instance: it takes every argument of virtiofsd 1.14, serves one machine, and ends when that \
         disconnects. What cannot be done is refused with the reason. It is thrufs-share(1) \
         otherwise.",
    );
    page.section("OPTIONS");
    for (option, help) in virtiofsd::described() {
        page.item(&option, &help);
    }
    page.section("WHAT IS DIFFERENT");
    page.item(
        "Signals",
        "Requests that are in progress are answered before it ends, and SIGTERM is a success.",
    );
    page.item(
        "The socket",
        "Its mode is 0600, or 0660 with a group, instead of 0700 and 0770; one at which somebody \
         listens is not replaced.",
    );
    page.item(
        "--seccomp",
        "Unless it is given, a system call that is not needed fails and the process lives.",
    );
    page.item(
        "--sandbox=namespace",
        "Has no network namespace, and for an ordinary user no process namespace: processes and sockets \
         cannot be made at all, by the filter of system calls.",
    );
    page.item(
        "--inode-file-handles=never",
        "The default: who opens by handle can read every file of the file system. Files that are in no \
         descriptor are found again by name. migration-mode=file-handles means prefer.",
    );
    page.section("FILES");
    page.item(
        "PATH.pid",
        "The process that was started, where PATH is the socket: locked as long as it lives.",
    );
    page.section("EXIT STATUS");
    exit_status(&mut page);
    page.see_also(&["thrufs-share(1)"]);
    page.finish()
}
