//! Whether the machine was quiet enough for the figures to mean anything: processor time that others took. Only
//! remarks on it; no figure is dropped.

use std::fs;

/// Processors' time that others took, as a share of all there is, from which on it is said.
const OTHERS_MAX: f64 = 0.05;
/// The same of time that the hypervisor gave to others.
const STOLEN_MAX: f64 = 0.01;

/// What the processors had done at one moment, in hundredths of a second, all of them together; and for us.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Noise {
    busy: f64,
    stolen: f64,
    all: f64,
    ours: f64,
}

impl Noise {
    /// Until now.
    pub(super) fn watch() -> Noise {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Noise::of(&read("/proc/stat"), &read("/proc/self/stat"))
    }

    /// By proc_stat(5), and proc_pid_stat(5) of a process and those of its children that it has waited for: utime,
    /// stime, cutime and cstime are fields 14 to 17, and the state, which comes after the name, is field 3.
    fn of(machine: &str, process: &str) -> Noise {
        let numbers = |text: &str| -> Vec<f64> {
            let words = text.split_whitespace();
            words.map(|word| word.parse().unwrap_or(0.0)).collect()
        };
        let fields = numbers(machine.lines().next().unwrap_or_default());
        // cpu user nice system idle iowait irq softirq steal; what guests took is in user.
        let sum = |all: &[usize]| all.iter().filter_map(|&at| fields.get(at)).sum::<f64>();
        let process = numbers(process.rsplit(')').next().unwrap_or_default());
        Noise {
            busy: sum(&[1, 2, 3, 6, 7]),
            stolen: sum(&[8]),
            all: sum(&[1, 2, 3, 4, 5, 6, 7, 8]),
            ours: process.iter().skip(11).take(4).sum(),
        }
    }

    /// What is to be said of the time until `after`. Servers must have ended by then.
    pub(super) fn remarks(&self, after: Noise) -> Vec<String> {
        let all = (after.all - self.all).max(1.0);
        let stolen = (after.stolen - self.stolen) / all;
        let others = (after.busy - self.busy - (after.ours - self.ours)) / all;
        let mut remarks = Vec::new();
        if stolen > STOLEN_MAX {
            let percent = stolen * 100.0;
            remarks.push(format!(
                "the hypervisor gave {percent:.0} % of the processors' time to others"
            ));
        }
        if others > OTHERS_MAX {
            remarks.push(format!(
                "other processes, and the kernel for itself, took {:.0} % of the processors' time: measure on \
                 a quiet machine for narrower intervals",
                others * 100.0
            ));
        }
        remarks
    }
}

#[cfg(test)]
mod tests {
    use super::Noise;

    #[test]
    fn time_taken_by_others_is_remarked() {
        let stat = "cpu  10 1 20 300 5 2 3 7 4 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        let own = "7 (a ) b) S 1 7 7 0 -1 4194304 100 0 0 0 11 12 13 14 20 0 1 0 5 6 7";
        let (busy, stolen, all, ours) = (36.0, 7.0, 348.0, 50.0);
        assert_eq!(
            Noise::of(stat, own),
            Noise {
                busy,
                stolen,
                all,
                ours
            }
        );
        let before = Noise::default();
        let of = |busy, stolen, ours| {
            before.remarks(Noise {
                busy,
                stolen,
                all: 6000.0,
                ours,
            })
        };
        assert!(of(3000.0, 0.0, 2900.0).is_empty());
        let remarks = of(3000.0, 300.0, 1500.0);
        assert!(
            remarks[0].contains("5 %") && remarks[1].contains("25 %"),
            "{remarks:?}"
        );
    }
}
