//! The distribution of the times of single operations.

use crate::results::Latency;

/// The thousandths that are kept.
const SHARES: &[u32] = &[
    1, 5, 10, 25, 50, 100, 150, 200, 250, 300, 350, 400, 450, 500, 550, 600, 650, 700, 750, 800,
    850, 900, 925, 950, 975, 990, 995, 999, 1000,
];

/// Of nanoseconds; none of none.
pub(super) fn of(mut each: Vec<u64>) -> Option<Latency> {
    each.sort_unstable();
    let count = each.len();
    let mut within: Vec<(u32, u64)> = Vec::new();
    for &share in SHARES {
        // The least time within which at least that share was done.
        let rank = (share as usize * count).div_ceil(1000).max(1);
        let time = *each.get(rank - 1)?;
        match within.last_mut() {
            // Of those that took the same time, all were done within it.
            Some(last) if last.1 == time => last.0 = share,
            _ => within.push((share, time)),
        }
    }
    Some(Latency {
        operations: count as u64,
        within,
    })
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn half_were_done_within_the_median() {
        let latency = of((1..=1000).rev().collect()).unwrap();
        assert_eq!(latency.operations, 1000);
        assert!(latency.within.contains(&(500, 500)));
        assert_eq!(latency.within.last(), Some(&(1000, 1000)));
        let rising = |pair: &[(u32, u64)]| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1;
        assert!(latency.within.windows(2).all(rising));
    }

    #[test]
    fn times_that_are_the_same_are_one_point() {
        assert_eq!(of(vec![7; 10]).unwrap().within, [(1000, 7)]);
        assert_eq!(of(vec![7, 7, 7, 9]).unwrap().within, [(750, 7), (1000, 9)]);
        assert_eq!(of(Vec::new()), None);
    }
}
