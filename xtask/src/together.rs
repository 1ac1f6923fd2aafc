//! Doing several things at a time.

use std::sync::Mutex;
use std::thread;

/// Does `work` with every item, `at_once` at a time, those at the front first: what came of each, in the
/// order in which they ended. `tell` is called with each as it ends, one call at a time.
pub(crate) fn each<T: Send, R: Send>(
    items: Vec<T>,
    at_once: usize,
    work: impl Fn(T) -> R + Sync,
    tell: impl Fn(&R) + Sync,
) -> Vec<R> {
    let waiting = Mutex::new(items.into_iter());
    let ended = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().expect("nobody panics with it").next();
                    let Some(item) = next else { return };
                    let outcome = work(item);
                    let mut ended = ended.lock().expect("nobody panics with it");
                    tell(&outcome);
                    ended.push(outcome);
                }
            });
        }
    });
    ended.into_inner().expect("nobody panics with it")
}

#[cfg(test)]
mod tests {
    use super::each;
    use std::sync::Barrier;

    #[test]
    fn all_are_done_and_several_at_a_time() {
        // Nobody passes alone.
        let two = Barrier::new(2);
        let work = |number: u32| {
            two.wait();
            number * 2
        };
        let mut done = each(vec![1, 2, 3, 4], 2, work, |_| {});
        done.sort_unstable();
        assert_eq!(done, [2, 4, 6, 8]);
    }
}
