//! How many readers are of use.
//!
//! The kernel wakes idle readers in turn. If one would do, a second one doubles the distance between
//! a caller and the thread that answers it: other CPU, other caches, another CPU to be woken. If one
//! is not enough, requests wait. So unless a number was given, a session starts with one reader and
//! follows what it sees:
//!
//! * **More**, when requests wait: a reader that has just read one finds another waiting, in a
//!   quarter of the cases in which it looks.
//! * **Fewer**, when nobody else is ever at work: a reader that hardly ever finds another one busy
//!   when it takes up a request.
//!
//! It looks at every sixteenth request, which costs a `poll(2)` then.

/// One request in this many is looked at.
const LOOK_EVERY: u32 = 16;
/// Looks between two decisions for more, and between two for fewer.
const MORE_WINDOW: u32 = 8;
const FEWER_WINDOW: u32 = 64;

/// What a reader should do about the number of readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// Go on.
    Keep,
    /// Call another one.
    More,
    /// Stand by.
    Fewer,
}

/// What one reader has seen of late.
#[derive(Debug, Default)]
pub(super) struct Pace {
    requests: u32,
    looks: u32,
    waiting: u32,
    looks_around: u32,
    accompanied: u32,
}

impl Pace {
    /// A request was read. `waiting` says whether another one waits; `others_busy` whether another
    /// reader, or one that sleeps in a request, is at work, and `None` when there is no other.
    pub(super) fn read(
        &mut self,
        waiting: impl FnOnce() -> bool,
        others_busy: impl FnOnce() -> Option<bool>,
    ) -> Advice {
        self.requests = self.requests.wrapping_add(1);
        if !self.requests.is_multiple_of(LOOK_EVERY) {
            return Advice::Keep;
        }
        match self.look(waiting()) {
            Advice::Keep => others_busy().map_or(Advice::Keep, |busy| self.look_around(busy)),
            advice => advice,
        }
    }

    fn look(&mut self, waiting: bool) -> Advice {
        self.looks += 1;
        self.waiting += u32::from(waiting);
        if self.looks < MORE_WINDOW {
            return Advice::Keep;
        }
        let often = self.waiting * 4 >= self.looks;
        (self.looks, self.waiting) = (0, 0);
        if often { Advice::More } else { Advice::Keep }
    }

    fn look_around(&mut self, others_busy: bool) -> Advice {
        self.looks_around += 1;
        self.accompanied += u32::from(others_busy);
        if self.looks_around < FEWER_WINDOW {
            return Advice::Keep;
        }
        let alone = self.accompanied * 20 < self.looks_around;
        (self.looks_around, self.accompanied) = (0, 0);
        if alone { Advice::Fewer } else { Advice::Keep }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_wait_call_for_more() {
        let mut pace = Pace::default();
        let mut advices = |often: u32| -> Vec<Advice> {
            (0..MORE_WINDOW)
                .map(|number| pace.look(number < often))
                .collect()
        };
        assert_eq!(advices(1), [Advice::Keep; 8]);
        assert_eq!(advices(2).pop(), Some(Advice::More));
        assert_eq!(advices(0), [Advice::Keep; 8], "and again from the start");
    }

    #[test]
    fn who_is_always_alone_is_one_too_many() {
        let mut pace = Pace::default();
        let mut last = |busy: u32| {
            let advices = (0..FEWER_WINDOW).map(|number| pace.look_around(number < busy));
            advices.last()
        };
        assert_eq!(last(3), Some(Advice::Fewer));
        assert_eq!(last(4), Some(Advice::Keep));
        assert_eq!(last(64), Some(Advice::Keep));
    }

    #[test]
    fn looking_is_rare() {
        let mut pace = Pace::default();
        let (mut looks, mut looks_around) = (0, 0);
        for _ in 0..1600 {
            let waiting = || {
                looks += 1;
                false
            };
            let others = || {
                looks_around += 1;
                Some(true)
            };
            assert_eq!(pace.read(waiting, others), Advice::Keep);
        }
        assert_eq!((looks, looks_around), (100, 100));
    }
}
