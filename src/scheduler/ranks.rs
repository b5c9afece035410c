//! The queued jobs by size and by urgency, for a policy that serves them so ([`Policy::ranks`](super::Policy::ranks)): heaps that know where
//! each slot stands, O(log n) for each change. A policy that does not ask for them pays nothing.

use crate::types::{Class, Nanos};

/// No place in a heap.
const NIL: u32 = u32::MAX;

/// By what a heap is ordered; ties go to the one that came first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    /// How long it is predicted to run.
    Size = 0,
    /// When it should have ended.
    Due = 1,
    /// When it must start to end in time, by its own prediction.
    Latest = 2,
}

/// What a job is ranked by; fixed when it arrives.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Key {
    /// How long it is predicted to run; the mean of its class if nothing else is known.
    pub(super) size: Nanos,
    /// The earlier of target and deadline; the end of time if it has neither.
    pub(super) due: Nanos,
    /// `due`, less its own prediction where it has one.
    pub(super) latest: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Ranked {
    key: Key,
    seq: u64,
    class: Class,
    /// Found too late to end in time: ranked behind the others.
    late: bool,
    /// Its place in the heap of each order.
    at: [u32; 3],
}

#[derive(Clone, Debug)]
pub(super) struct Ranks {
    slots: Vec<Ranked>,
    /// By order, class, and whether late. Late ones have no latest start.
    heaps: [[[Vec<u32>; 2]; 2]; 3],
}

impl Ranks {
    pub(super) fn new(slots: usize) -> Self {
        let nobody = Ranked { key: Key::default(), seq: 0, class: Class::Small, late: false, at: [NIL; 3] };
        let heaps = std::array::from_fn(|_| std::array::from_fn(|_| std::array::from_fn(|_| Vec::with_capacity(slots))));
        Self { slots: vec![nobody; slots], heaps }
    }

    /// What the job in this slot will be ranked by, once it is queued.
    pub(super) fn set_key(&mut self, slot: u32, class: Class, key: Key) {
        let ranked = &mut self.slots[slot as usize];
        debug_assert_eq!(ranked.at, [NIL; 3], "a ranked job keeps its key");
        (ranked.key, ranked.class, ranked.late) = (key, class, false);
    }

    /// It is queued, at this place in the order of arrival.
    pub(super) fn insert(&mut self, slot: u32, seq: u64) {
        self.slots[slot as usize].seq = seq;
        let orders: &[By] = if self.slots[slot as usize].late { &[By::Size, By::Due] } else { &[By::Size, By::Due, By::Latest] };
        for &by in orders {
            self.push(by, slot);
        }
    }

    /// It is not queued any more.
    pub(super) fn remove(&mut self, slot: u32) {
        for by in [By::Size, By::Due, By::Latest] {
            self.take(by, slot);
        }
    }

    /// The first of its class; of those found late if `late`.
    #[inline]
    pub(super) fn first(&self, by: By, class: Class, late: bool) -> Option<u32> {
        self.heaps[by as usize][class.index()][usize::from(late)].first().copied()
    }

    #[inline]
    pub(super) fn key(&self, slot: u32) -> &Key {
        &self.slots[slot as usize].key
    }

    /// It cannot end in time any more.
    pub(super) fn mark_late(&mut self, slot: u32) {
        debug_assert!(!self.slots[slot as usize].late);
        self.remove(slot);
        self.slots[slot as usize].late = true;
        self.insert(slot, self.slots[slot as usize].seq);
    }

    fn value(&self, by: By, slot: u32) -> (Nanos, u64) {
        let ranked = &self.slots[slot as usize];
        let value = match by {
            By::Size => ranked.key.size,
            By::Due => ranked.key.due,
            By::Latest => ranked.key.latest,
        };
        (value, ranked.seq)
    }

    fn heap(&mut self, by: By, slot: u32) -> &mut Vec<u32> {
        let ranked = &self.slots[slot as usize];
        &mut self.heaps[by as usize][ranked.class.index()][usize::from(ranked.late)]
    }

    fn push(&mut self, by: By, slot: u32) {
        debug_assert_eq!(self.slots[slot as usize].at[by as usize], NIL);
        // Cannot exceed the capacity reserved: a slot stands in a heap at most once.
        let heap = self.heap(by, slot);
        heap.push(slot);
        let pos = heap.len() - 1;
        self.slots[slot as usize].at[by as usize] = pos as u32;
        self.up(by, slot, pos);
    }

    fn take(&mut self, by: By, slot: u32) {
        let pos = std::mem::replace(&mut self.slots[slot as usize].at[by as usize], NIL);
        if pos == NIL {
            return;
        }
        let pos = pos as usize;
        let heap = self.heap(by, slot);
        heap.swap_remove(pos);
        if let Some(&moved) = heap.get(pos) {
            self.slots[moved as usize].at[by as usize] = pos as u32;
            let pos = self.up(by, moved, pos);
            self.down(by, moved, pos);
        }
    }

    fn up(&mut self, by: By, slot: u32, mut pos: usize) -> usize {
        while pos > 0 {
            let above = (pos - 1) / 2;
            let parent = self.heap(by, slot)[above];
            if self.value(by, parent) <= self.value(by, slot) {
                break;
            }
            self.swap(by, slot, above, pos);
            pos = above;
        }
        pos
    }

    fn down(&mut self, by: By, slot: u32, mut pos: usize) {
        loop {
            let mut least = pos;
            for child in [2 * pos + 1, 2 * pos + 2] {
                let heap = self.heap(by, slot);
                if let (Some(&other), best) = (heap.get(child), heap[least])
                    && self.value(by, other) < self.value(by, best)
                {
                    least = child;
                }
            }
            if least == pos {
                return;
            }
            self.swap(by, slot, least, pos);
            pos = least;
        }
    }

    fn swap(&mut self, by: By, slot: u32, a: usize, b: usize) {
        let heap = self.heap(by, slot);
        heap.swap(a, b);
        let (at_a, at_b) = (heap[a], heap[b]);
        self.slots[at_a as usize].at[by as usize] = a as u32;
        self.slots[at_b as usize].at[by as usize] = b as u32;
    }

    /// Walks everything: for tests and checkers. `queued` says whether a slot is queued where policies see it.
    pub(super) fn check(&self, queued: impl Fn(u32) -> bool) {
        for by in [By::Size, By::Due, By::Latest] {
            for class in Class::ALL {
                for late in [false, true] {
                    let heap = &self.heaps[by as usize][class.index()][usize::from(late)];
                    for (pos, &slot) in heap.iter().enumerate() {
                        let ranked = &self.slots[slot as usize];
                        assert_eq!(
                            (ranked.class, ranked.late, ranked.at[by as usize]),
                            (class, late, pos as u32),
                            "slot {slot}'s rank"
                        );
                        assert!(queued(slot), "slot {slot} is ranked but not queued");
                        assert!(
                            pos == 0 || self.value(by, heap[(pos - 1) / 2]) <= self.value(by, slot),
                            "ranks out of order at {pos}"
                        );
                    }
                }
            }
        }
        for (slot, ranked) in self.slots.iter().enumerate() {
            let in_all = [true, true, !ranked.late].map(|wanted| wanted && queued(slot as u32));
            assert_eq!(ranked.at.map(|at| at != NIL), in_all, "slot {slot} is ranked by some and not by others");
        }
    }
}
