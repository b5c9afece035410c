//! How the small queue is shared between tenants.

use crate::types::{Nanos, TenantKey};

/// Fair sharing of the small queue between tenants: a flood from one of them does not keep the others' requests waiting behind it.
///
/// Each tenant has a line of its own. From the lines the queue that the policy sees is filled up to [`Sharing::AHEAD`] requests, always from
/// the line that has had least of the lanes' time: fair queueing by start times (Goyal, Vin and Cheng, "Start-time Fair Queueing",
/// SIGCOMM 1996), with a request's predicted run as what it costs. Tenants are put into lines by their keys (McKenney, "Stochastic
/// Fairness Queueing", INFOCOM 1990), so that there are no more lines than [`lines`](Self::lines) however many tenants come; two that fall
/// into one line share its part.
///
/// What it is good for: with n lines in which somebody waits, the first request of a line is passed by no more than `AHEAD` requests, and
/// one run's worth from each of the other lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sharing {
    /// How many lines, 1 to [`Sharing::MAX_LINES`].
    pub lines: usize,
    /// How many requests the small queue may hold of one line; at least 1. One more is refused, so that a flood does not take the places
    /// of the others either.
    pub most: usize,
}

impl Sharing {
    /// The most lines.
    pub const MAX_LINES: usize = 64;

    /// So many requests are ahead of the lines, in the queue that the policy sees. Enough for it to choose from, and at eight lanes a wait of two
    /// runs.
    pub const AHEAD: usize = 16;

    /// The line of a tenant.
    #[inline]
    #[must_use]
    pub const fn line(&self, tenant: TenantKey) -> usize {
        // The high bits of a multiplicative hash: keys may be 1, 2, 3.
        ((tenant.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize * self.lines) >> 32
    }
}

/// When each line's next request begins, in the virtual time that passes as the lanes' time is given out.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    /// The virtual start of the next request of a line, by line.
    next: [Nanos; Sharing::MAX_LINES],
    /// The virtual start of the request that was taken last.
    clock: Nanos,
    /// The lines in which somebody waits, a bit each.
    waiting: u64,
}

impl Turns {
    pub(super) const NEW: Self = Self { next: [Nanos::ZERO; Sharing::MAX_LINES], clock: Nanos::ZERO, waiting: 0 };

    /// Somebody waits in a line, or nobody does any more.
    pub(super) fn set_waiting(&mut self, line: usize, waits: bool) {
        let bit = 1 << line;
        if !waits {
            self.waiting &= !bit;
        } else if self.waiting & bit == 0 {
            self.waiting |= bit;
            // A line that was empty has saved up nothing.
            self.next[line] = self.next[line].max(self.clock);
        }
    }

    /// The line whose turn it is: the lowest virtual start; the first of equals.
    pub(super) fn line(&self) -> Option<usize> {
        let (mut left, mut first) = (self.waiting, None);
        while left != 0 {
            let line = left.trailing_zeros() as usize;
            left &= left - 1;
            if first.is_none_or(|first: usize| self.next[line] < self.next[first]) {
                first = Some(line);
            }
        }
        first
    }

    /// The first of a line is taken, and will cost so much.
    pub(super) fn take(&mut self, line: usize, cost: Nanos) {
        self.clock = self.next[line];
        // So that lines of requests that cost nothing take turns, too.
        self.next[line] += cost.max(Nanos(1));
    }

    /// One that was taken is put off: what it costs is charged when it is started.
    pub(super) fn put_off(&mut self, line: usize, cost: Nanos) {
        self.next[line] = (self.next[line] - cost.max(Nanos(1))).max(self.clock);
    }

    /// One that was put off is started.
    pub(super) fn charge(&mut self, line: usize, cost: Nanos) {
        self.next[line] = self.next[line].max(self.clock) + cost.max(Nanos(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_get_equal_time_and_save_up_none() {
        let mut turns = Turns::NEW;
        turns.set_waiting(0, true);
        turns.set_waiting(1, true);
        let mut had = [0, 0];
        for _ in 0..300 {
            let line = turns.line().unwrap();
            let cost = [10, 20][line];
            had[line] += cost;
            turns.take(line, Nanos(cost));
        }
        assert!(had[0].abs_diff(had[1]) <= 20, "{had:?}");
        turns.set_waiting(1, false);
        for _ in 0..100 {
            assert_eq!(turns.line(), Some(0));
            turns.take(0, Nanos(10));
        }
        turns.set_waiting(1, true);
        let firsts = (0..8).filter(|_| {
            let line = turns.line().unwrap();
            turns.take(line, Nanos(10));
            line == 1
        });
        assert!((4..=5).contains(&firsts.count()), "it was away, and gets no more than its part for that");
        turns.set_waiting(0, false);
        turns.set_waiting(1, false);
        assert_eq!(turns.line(), None);
    }

    #[test]
    fn small_keys_spread_over_the_lines() {
        let sharing = Sharing { lines: 64, most: 1 };
        let mut lines: Vec<usize> = (1..=16).map(|key| sharing.line(TenantKey(key))).collect();
        assert!(lines.iter().all(|&line| line < 64));
        lines.sort_unstable();
        lines.dedup();
        assert!(lines.len() >= 14, "{lines:?}");
        assert_eq!(Sharing { lines: 1, most: 1 }.line(TenantKey(u64::MAX)), 0);
    }
}
