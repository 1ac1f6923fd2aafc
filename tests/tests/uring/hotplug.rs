//! A CPU that goes while its callers and its thread are busy, and comes back.

use crate::load::{Load, own_cpus, serve_alone};
use thrufs_tests::machine::Changed;
use thrufs_tests::prelude::*;

/// The last CPU that can be taken away.
fn removable_cpu() -> Option<PathBuf> {
    cpus()
        .into_iter()
        .rev()
        .map(|cpu| PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/online")))
        .find(|path| path.exists())
}

#[test]
#[ignore = "soak: takes a CPU away from the whole machine"]
fn callers_go_on_when_a_cpu_goes_and_comes_back() {
    skip_if!(must_skip_ring());
    let Some(cpu) = removable_cpu() else {
        return skipped("no CPU here can be taken offline");
    };
    let _alone = own_cpus();
    for options in ["", "queues_per_thread=2"] {
        let (ground, server) = serve_alone(Lower::Tmpfs, options);
        let mut load = Load::start(&ground, "load", 0);
        load.wait_for_progress();
        for _ in 0..3 {
            go_and_come_back(&cpu, &mut load);
        }
        load.kill();
        server.stop();
    }
}

fn go_and_come_back(cpu: &Path, load: &mut Load) {
    let offline = while_load_goes_on(load, || {
        Changed::to(cpu, "0").unwrap_or_else(|error| panic!("{}: {error}", cpu.display()))
    });
    while_load_goes_on(load, || ());
    while_load_goes_on(load, || drop(offline));
    while_load_goes_on(load, || ());
    thread::sleep(Duration::from_millis(100));
}

/// Runs `change`, and checks that all callers make rounds meanwhile and after. The kernel may take minutes
/// to remove a CPU: its thread `cpuhp` was seen to wait so long for an RCU grace period (Linux 6.18), while
/// requests were answered.
fn while_load_goes_on<T: Send>(load: &mut Load, change: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let changing = scope.spawn(change);
        loop {
            let is_changed = changing.is_finished();
            load.listen();
            load.wait_for_progress();
            if is_changed {
                return changing.join().unwrap();
            }
        }
    })
}
