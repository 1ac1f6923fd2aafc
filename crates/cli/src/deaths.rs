//! Deaths of the workers that serve one session after the other. One of its requests may be the cause, so they
//! are limited.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Earlier deaths do not count.
const PERIOD: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Deaths {
    times: VecDeque<Instant>,
    most: usize,
}

impl Deaths {
    /// `most` of a minute are survived.
    pub(crate) fn new(most: usize) -> Deaths {
        let times = VecDeque::new();
        Deaths { times, most }
    }

    /// How long ago they were, for another program of this process.
    pub(crate) fn ages(&self) -> Vec<Duration> {
        self.times.iter().map(Instant::elapsed).collect()
    }

    /// Those of an earlier program of this process: `ages`, the oldest first.
    pub(crate) fn resume(most: usize, ages: &[Duration]) -> Deaths {
        let now = Instant::now();
        // Before the machine started, none died.
        let times = ages.iter().filter_map(|age| now.checked_sub(*age));
        let times = times.collect();
        Deaths { times, most }
    }

    /// Counts one more.
    ///
    /// # Errors
    ///
    /// When no other worker is to go on: the reason, if any was to.
    pub(crate) fn count(&mut self) -> Result<(), Option<String>> {
        let now = Instant::now();
        self.times.push_back(now);
        self.times
            .retain(|death| now.duration_since(*death) < PERIOD);
        let times = self.times.len();
        if times <= self.most {
            return Ok(());
        }
        Err((self.most > 0).then(|| {
            format!("its workers died {times} times within a minute, possibly because of a request")
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_deaths_are_not_survived() {
        let mut deaths = Deaths::new(2);
        assert_eq!(deaths.count(), Ok(()));
        assert_eq!(deaths.count(), Ok(()));
        let why = deaths.count().unwrap_err().unwrap();
        assert!(why.contains("died 3 times within a minute"), "{why}");
        assert_eq!(Deaths::new(0).count(), Err(None));
        let mut next = Deaths::resume(2, &deaths.ages());
        assert!(next.count().is_err(), "earlier deaths count");
    }
}
