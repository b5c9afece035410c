//! The jobs that the scheduler holds: a slab of fixed size, the queues as lists threaded through it, and the heap of deadlines.
//!
//! Everything is O(1) but the heap, which is O(log n), and what is shown to scans, which follows a change in O(SCAN). Nothing is allocated after
//! construction.

use super::SCAN;
use super::event::{Job, JobRef};
use super::predict::{Prediction, PredictionSource};
use crate::types::{Class, Nanos};

/// No slot.
const NIL: u32 = u32::MAX;

/// Where a slot's job stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// The slot is free; `next` threads the free list.
    Free,
    /// In the queue of its class, in this part of it.
    Queued(Part),
    /// On its lanes.
    Running,
}

/// The two parts of a class's queue. Each is in arrival order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// May still be in time. A policy that does not distinguish leaves every job here.
    Fresh,
    /// Was seen to be too late for its target or deadline, and stands behind the others.
    Late,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) job: Job,
    /// The order of arrival over both classes.
    pub(super) seq: u64,
    pub(super) place: Place,
    prev: u32,
    heap_pos: u32,
}

/// What a scan along a queue reads of a slot, apart from the rest: a job is two cache lines, this is a quarter of one, and slots that
/// were filled one after the other lie beside each other.
#[derive(Clone, Copy, Debug)]
struct Link {
    prediction: Prediction,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl List {
    const EMPTY: Self = Self { head: NIL, tail: NIL, len: 0 };
}

/// The first [`SCAN`] jobs of the small class's fresh part, side by side: a scan reads a few cache lines in a row, where the list would have it
/// wait for one after the other.
///
/// It is made at a scan and kept while scans go on: by a change to the queue, in O(SCAN). A policy that does not scan pays nothing.
#[derive(Clone, Debug)]
struct Window {
    /// Whether it shows the queue as it is.
    kept: bool,
    /// How often it was changed since it was last looked at.
    unread: u32,
    /// Those shown are at `from..to`, in the queue's order.
    from: usize,
    to: usize,
    raw: [Nanos; 2 * SCAN],
    source: [PredictionSource; 2 * SCAN],
    slot: [u32; 2 * SCAN],
}

impl Window {
    /// So many changes without a look, and it is not kept any more.
    const UNREAD: u32 = 4 * SCAN as u32;

    const NEW: Self = Self {
        kept: false,
        unread: 0,
        from: 0,
        to: 0,
        raw: [Nanos::ZERO; 2 * SCAN],
        source: [PredictionSource::Class; 2 * SCAN],
        slot: [NIL; 2 * SCAN],
    };

    fn len(&self) -> usize {
        self.to - self.from
    }

    fn push(&mut self, slot: u32, prediction: Prediction) {
        debug_assert!(self.len() < SCAN);
        if self.to == 2 * SCAN {
            self.raw.copy_within(self.from..self.to, 0);
            self.source.copy_within(self.from..self.to, 0);
            self.slot.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.len());
        }
        (self.raw[self.to], self.source[self.to], self.slot[self.to]) = (prediction.raw(), prediction.source(), slot);
        self.to += 1;
    }

    /// Takes a job out, if it is shown.
    fn remove(&mut self, slot: u32) -> bool {
        let Some(at) = self.slot[self.from..self.to].iter().position(|&other| other == slot) else { return false };
        // Those before it move up: it is the first, as a rule.
        let to = self.from + at;
        self.raw.copy_within(self.from..to, self.from + 1);
        self.source.copy_within(self.from..to, self.from + 1);
        self.slot.copy_within(self.from..to, self.from + 1);
        self.from += 1;
        true
    }
}

/// A stretch of a queue, as a scan reads it: by place, the raw prediction, its source, and the slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown<'a> {
    pub(super) raw: &'a [Nanos],
    pub(super) source: &'a [PredictionSource],
    pub(super) slot: &'a [u32],
}

/// The slab, the four lists (two parts of two classes) and the heap.
#[derive(Clone, Debug)]
pub(super) struct Table {
    entries: Vec<Entry>,
    /// By slot. The queues' order, and the free list's.
    links: Vec<Link>,
    free_head: u32,
    lists: [[List; 2]; 2],
    heap: Vec<u32>,
    next_seq: u64,
    /// Starts of each class since one was started from its late part.
    since_late: [u32; 2],
    /// How often a job of each class left its place in a queue.
    unlinked: [u64; 2],
    window: Window,
}

impl Table {
    pub(super) fn new(slots: usize) -> Self {
        assert!(slots < NIL as usize, "slots are counted in 32 bits");
        let vacant = Entry {
            job: Job::new(crate::types::RequestId(u64::MAX), Class::Small, Nanos::ZERO),
            seq: 0,
            place: Place::Free,
            prev: NIL,
            heap_pos: NIL,
        };
        let follow = |slot| if slot + 1 < slots { slot as u32 + 1 } else { NIL };
        Self {
            entries: vec![vacant; slots],
            links: (0..slots).map(|slot| Link { prediction: Prediction::UNKNOWN, next: follow(slot) }).collect(),
            free_head: if slots == 0 { NIL } else { 0 },
            lists: [[List::EMPTY; 2]; 2],
            heap: Vec::with_capacity(slots),
            next_seq: 0,
            since_late: [0; 2],
            unlinked: [0; 2],
            window: Window::NEW,
        }
    }

    /// Puts a job at the end of its class's queue. `None` if no slot is free.
    pub(super) fn insert(&mut self, job: Job, prediction: Prediction) -> Option<JobRef> {
        let slot = self.free_head;
        if slot == NIL {
            return None;
        }
        let entry = &mut self.entries[slot as usize];
        debug_assert_eq!(entry.place, Place::Free);
        self.free_head = self.links[slot as usize].next;
        *entry = Entry { job, seq: self.next_seq, place: Place::Free, prev: NIL, heap_pos: NIL };
        self.links[slot as usize] = Link { prediction, next: NIL };
        self.next_seq += 1;
        self.push_back(slot, Part::Fresh);
        if job.deadline.is_some() {
            self.heap_insert(slot);
        }
        Some(JobRef { slot, id: job.id })
    }

    /// Whether the reference names a job that is held, and where it stands.
    pub(super) fn find(&self, job: JobRef) -> Option<Place> {
        let entry = self.entries.get(job.slot as usize)?;
        (entry.place != Place::Free && entry.job.id == job.id).then_some(entry.place)
    }

    #[inline]
    pub(super) fn entry(&self, slot: u32) -> &Entry {
        &self.entries[slot as usize]
    }

    /// What the best source said of a job when it arrived.
    #[inline]
    pub(super) fn prediction(&self, slot: u32) -> Prediction {
        self.links[slot as usize].prediction
    }

    #[inline]
    pub(super) fn job_ref(&self, slot: u32) -> JobRef {
        JobRef { slot, id: self.entries[slot as usize].job.id }
    }

    /// How many jobs of a class are queued.
    #[inline]
    pub(super) fn queued(&self, class: Class) -> usize {
        let [fresh, late] = &self.lists[class.index()];
        (fresh.len + late.len) as usize
    }

    /// The first of one part of a class's queue.
    #[inline]
    pub(super) fn head(&self, class: Class, part: Part) -> Option<u32> {
        let head = self.lists[class.index()][part as usize].head;
        (head != NIL).then_some(head)
    }

    /// The one that follows in the same part of the queue.
    #[inline]
    pub(super) fn next(&self, slot: u32) -> Option<u32> {
        let next = self.links[slot as usize].next;
        (next != NIL).then_some(next)
    }

    /// The job of a class that arrived first, whatever its part.
    #[inline]
    pub(super) fn oldest(&self, class: Class) -> Option<u32> {
        match (self.head(class, Part::Fresh), self.head(class, Part::Late)) {
            (Some(a), Some(b)) => Some(if self.entry(a).seq < self.entry(b).seq { a } else { b }),
            (a, b) => a.or(b),
        }
    }

    /// Moves a queued job from the fresh part to the end of the late one.
    ///
    /// Only heads of the fresh part are moved, so the late part keeps the order of arrival.
    pub(super) fn mark_late(&mut self, slot: u32) {
        debug_assert_eq!(self.entry(slot).place, Place::Queued(Part::Fresh));
        debug_assert_eq!(self.head(self.entry(slot).job.class, Part::Fresh), Some(slot), "only a head is found late");
        self.unlink(slot);
        self.push_back(slot, Part::Late);
    }

    /// Takes a queued job out of its queue, to run.
    pub(super) fn start(&mut self, slot: u32) {
        let entry = self.entry(slot);
        let (class, late) = (entry.job.class.index(), entry.place == Place::Queued(Part::Late));
        self.since_late[class] = if late { 0 } else { self.since_late[class].saturating_add(1) };
        self.unlink(slot);
        self.heap_remove(slot);
        self.entries[slot as usize].place = Place::Running;
    }

    /// Forgets a job, queued or running; its slot is free from now on.
    pub(super) fn remove(&mut self, slot: u32) {
        match self.entries[slot as usize].place {
            Place::Free => unreachable!("a free slot is never removed"),
            Place::Queued(_) => {
                self.unlink(slot);
                self.heap_remove(slot);
            }
            Place::Running => {}
        }
        let entry = &mut self.entries[slot as usize];
        entry.place = Place::Free;
        entry.prev = NIL;
        self.links[slot as usize].next = self.free_head;
        self.free_head = slot;
    }

    /// How many jobs of a class were started since one from its late part was.
    #[inline]
    pub(super) fn since_late(&self, class: Class) -> u32 {
        self.since_late[class.index()]
    }

    /// Changes whenever a queued job of the class leaves its place: while it stands still, the queue has at most grown at its end.
    #[inline]
    pub(super) fn unlinked(&self, class: Class) -> u64 {
        self.unlinked[class.index()]
    }

    /// The queued job whose deadline comes first, and that deadline.
    #[inline]
    pub(super) fn first_deadline(&self) -> Option<(u32, Nanos)> {
        let &slot = self.heap.first()?;
        Some((slot, self.deadline(slot)))
    }

    /// The first [`SCAN`] jobs of the fresh part of the small class, side by side.
    pub(super) fn window(&mut self) -> Shown<'_> {
        if !self.window.kept {
            (self.window.kept, self.window.from, self.window.to) = (true, 0, 0);
            let mut next = self.head(Class::Small, Part::Fresh);
            while let Some(slot) = next
                && self.window.len() < SCAN
            {
                self.window.push(slot, self.prediction(slot));
                next = self.next(slot);
            }
        }
        self.window.unread = 0;
        let shown = self.window.from..self.window.to;
        Shown { raw: &self.window.raw[shown.clone()], source: &self.window.source[shown.clone()], slot: &self.window.slot[shown] }
    }

    /// A job comes to the end of a queue, or is about to leave one: the window goes with it.
    fn window_follows(&mut self, slot: u32, comes: bool) {
        if !self.window.kept {
            return;
        }
        self.window.unread += 1;
        if self.window.unread > Window::UNREAD {
            self.window.kept = false;
        } else if comes {
            // Only if it showed the whole queue so far is the new one its next.
            let list = &self.lists[Class::Small.index()][Part::Fresh as usize];
            if self.window.len() < SCAN && list.len as usize == self.window.len() + 1 {
                self.window.push(slot, self.prediction(slot));
            }
        } else {
            let last = self.window.slot[self.window.to.saturating_sub(1)];
            let follows = if self.window.len() == SCAN { self.next(last) } else { None };
            if self.window.remove(slot)
                && let Some(follows) = follows
            {
                self.window.push(follows, self.prediction(follows));
            }
        }
    }

    fn push_back(&mut self, slot: u32, part: Part) {
        let list = &mut self.lists[self.entries[slot as usize].job.class.index()][part as usize];
        let tail = list.tail;
        list.tail = slot;
        list.len += 1;
        if tail == NIL {
            list.head = slot;
        } else {
            self.links[tail as usize].next = slot;
        }
        let entry = &mut self.entries[slot as usize];
        entry.prev = tail;
        self.links[slot as usize].next = NIL;
        entry.place = Place::Queued(part);
        if entry.job.class == Class::Small && part == Part::Fresh {
            self.window_follows(slot, true);
        }
    }

    fn unlink(&mut self, slot: u32) {
        let entry = &self.entries[slot as usize];
        let Place::Queued(part) = entry.place else { unreachable!("only a queued job is in a list") };
        let (prev, next, class) = (entry.prev, self.links[slot as usize].next, entry.job.class);
        if class == Class::Small && part == Part::Fresh {
            self.window_follows(slot, false);
        }
        self.unlinked[class.index()] += 1;
        let list = &mut self.lists[class.index()][part as usize];
        list.len -= 1;
        if prev == NIL {
            list.head = next;
        }
        if next == NIL {
            list.tail = prev;
        }
        if prev != NIL {
            self.links[prev as usize].next = next;
        }
        if next != NIL {
            self.entries[next as usize].prev = prev;
        }
    }

    fn deadline(&self, slot: u32) -> Nanos {
        self.entries[slot as usize].job.deadline.unwrap_or(Nanos::MAX)
    }

    fn heap_insert(&mut self, slot: u32) {
        // Cannot exceed the capacity reserved: a slot stands in the heap at most once.
        self.heap.push(slot);
        let pos = self.heap.len() - 1;
        self.entries[slot as usize].heap_pos = pos as u32;
        self.sift_up(pos);
    }

    fn heap_remove(&mut self, slot: u32) {
        let pos = self.entries[slot as usize].heap_pos;
        if pos == NIL {
            return;
        }
        self.entries[slot as usize].heap_pos = NIL;
        let pos = pos as usize;
        self.heap.swap_remove(pos);
        if pos < self.heap.len() {
            self.entries[self.heap[pos] as usize].heap_pos = pos as u32;
            let pos = self.sift_up(pos);
            self.sift_down(pos);
        }
    }

    fn sift_up(&mut self, mut pos: usize) -> usize {
        while pos > 0 {
            let parent = (pos - 1) / 2;
            if self.deadline(self.heap[parent]) <= self.deadline(self.heap[pos]) {
                break;
            }
            self.heap_swap(parent, pos);
            pos = parent;
        }
        pos
    }

    fn sift_down(&mut self, mut pos: usize) {
        loop {
            let mut least = pos;
            for child in [2 * pos + 1, 2 * pos + 2] {
                if child < self.heap.len() && self.deadline(self.heap[child]) < self.deadline(self.heap[least]) {
                    least = child;
                }
            }
            if least == pos {
                return;
            }
            self.heap_swap(least, pos);
            pos = least;
        }
    }

    fn heap_swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.entries[self.heap[a] as usize].heap_pos = a as u32;
        self.entries[self.heap[b] as usize].heap_pos = b as u32;
    }

    /// Walks everything: lists, links, order, heap, free list. For tests and checkers; O(slots).
    pub(super) fn check(&self) {
        let mut seen = vec![false; self.entries.len()];
        for class in Class::ALL {
            for part in [Part::Fresh, Part::Late] {
                let list = self.lists[class.index()][part as usize];
                let (mut slot, mut prev, mut len, mut seq) = (list.head, NIL, 0, None);
                while slot != NIL {
                    let entry = self.entry(slot);
                    assert!(!std::mem::replace(&mut seen[slot as usize], true), "slot {slot} stands in two lists");
                    assert_eq!(entry.place, Place::Queued(part), "slot {slot} is in a list that it does not name");
                    assert_eq!(entry.job.class, class, "slot {slot} is in the other class's list");
                    assert_eq!(entry.prev, prev, "slot {slot} has a broken link");
                    assert!(seq < Some(entry.seq), "slot {slot} is out of arrival order");
                    assert_eq!(entry.job.deadline.is_some(), entry.heap_pos != NIL, "slot {slot}: deadline and heap disagree");
                    (prev, slot, len, seq) = (slot, self.links[slot as usize].next, len + 1, Some(entry.seq));
                }
                assert_eq!((list.tail, list.len), (prev, len), "a list's end or length is wrong");
            }
        }
        for (pos, &slot) in self.heap.iter().enumerate() {
            let entry = self.entry(slot);
            assert_eq!(entry.heap_pos, pos as u32, "slot {slot} is not where it thinks in the heap");
            assert!(matches!(entry.place, Place::Queued(_)), "slot {slot} is in the heap but not queued");
            if pos > 0 {
                assert!(self.deadline(self.heap[(pos - 1) / 2]) <= self.deadline(slot), "the heap is out of order at {pos}");
            }
        }
        if self.window.kept {
            let queue = std::iter::successors(self.head(Class::Small, Part::Fresh), |&slot| self.next(slot)).take(SCAN);
            let shown = self.window.from..self.window.to;
            assert!(queue.eq(self.window.slot[shown.clone()].iter().copied()), "the window shows another queue than there is");
            for at in shown {
                let prediction = self.prediction(self.window.slot[at]);
                assert_eq!((self.window.raw[at], self.window.source[at]), (prediction.raw(), prediction.source()));
            }
        }
        let mut slot = self.free_head;
        while slot != NIL {
            assert!(!std::mem::replace(&mut seen[slot as usize], true), "slot {slot} is both free and not");
            assert_eq!(self.entry(slot).place, Place::Free);
            slot = self.links[slot as usize].next;
        }
        for (slot, seen) in seen.iter().enumerate() {
            assert!(seen ^ (self.entries[slot].place == Place::Running), "slot {slot} is lost, or runs while it waits");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::RequestId;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(Class, Option<u64>),
        Start(usize),
        Remove(usize),
        Late(Class),
        Look,
    }

    fn op() -> impl Strategy<Value = Op> {
        let class = prop_oneof![Just(Class::Small), Just(Class::Large)];
        prop_oneof![
            7 => (class.clone(), proptest::option::of(0u64..50)).prop_map(|(c, d)| Op::Insert(c, d)),
            2 => (0usize..32).prop_map(Op::Start),
            3 => (0usize..32).prop_map(Op::Remove),
            1 => class.prop_map(Op::Late),
            1 => Just(Op::Look),
        ]
    }

    proptest! {
        /// Against a model that is a plain vector: the same jobs, the same order, the same first deadline.
        #[test]
        fn behaves_as_plain_vectors_do(ops in prop::collection::vec(op(), 0..800)) {
            const SLOTS: usize = 160;
            let mut table = Table::new(SLOTS);
            let mut held: Vec<(JobRef, Job, bool)> = Vec::new();
            let mut order: [VecDeque<RequestId>; 2] = Default::default();
            let mut id = 0;
            for op in ops {
                match op {
                    Op::Insert(class, deadline) => {
                        id += 1;
                        let mut job = Job::new(RequestId(id), class, Nanos(id));
                        job.deadline = deadline.map(Nanos);
                        let slot = table.insert(job, Prediction::UNKNOWN);
                        prop_assert_eq!(slot.is_none(), held.len() == SLOTS);
                        if let Some(slot) = slot {
                            held.push((slot, job, false));
                            order[class.index()].push_back(job.id);
                        }
                    }
                    Op::Start(i) if !held.is_empty() => {
                        let i = i % held.len();
                        if !held[i].2 {
                            table.start(held[i].0.slot);
                            held[i].2 = true;
                            order[held[i].1.class.index()].retain(|&id| id != held[i].1.id);
                        }
                    }
                    Op::Remove(i) if !held.is_empty() => {
                        let (slot, job, _) = held.swap_remove(i % held.len());
                        prop_assert!(table.find(slot).is_some());
                        table.remove(slot.slot);
                        prop_assert!(table.find(slot).is_none());
                        order[job.class.index()].retain(|&id| id != job.id);
                    }
                    Op::Late(class) => {
                        if let Some(slot) = table.head(class, Part::Fresh) {
                            table.mark_late(slot);
                        }
                    }
                    Op::Look => {
                        let shown = table.window().slot.to_vec();
                        let fresh = std::iter::successors(table.head(Class::Small, Part::Fresh), |&slot| table.next(slot));
                        prop_assert!(fresh.take(SCAN).eq(shown));
                    }
                    _ => {}
                }
                table.check();
                for class in Class::ALL {
                    prop_assert_eq!(table.queued(class), order[class.index()].len());
                    prop_assert_eq!(table.oldest(class).map(|s| table.entry(s).job.id), order[class.index()].front().copied());
                }
                let first = held.iter().filter(|h| !h.2).filter_map(|h| h.1.deadline).min();
                prop_assert_eq!(table.first_deadline().map(|(_, d)| d), first);
            }
        }
    }
}
