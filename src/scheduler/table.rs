//! The jobs that the scheduler holds: a slab of fixed size, the queues as lists threaded through it, and the heap of deadlines.
//!
//! Everything is O(1) but the heap, which is O(log n), and what is shown to scans, which follows a change in O(SCAN). Nothing is allocated after
//! construction.

use super::SCAN;
use super::event::{Job, JobRef};
use super::predict::{Prediction, PredictionSource};
use super::ranks::{Key, Ranks};
use super::share::{Sharing, Turns};
use crate::types::{Class, LaneId, Nanos};

/// No slot.
const NIL: u32 = u32::MAX;

/// Where a slot's job stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// The slot is free; `next` threads the free list.
    Free,
    /// In the queue of its class, in this part of it.
    Queued(Part),
    /// In the line of its tenant: it is queued, but no policy sees it yet.
    InLine,
    /// On its lanes.
    Running,
    /// Started, and stopped between two steps.
    Parked,
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
    /// Of the tenants' lines: which it came by.
    line: u8,
    /// Of a small one that runs: where, so that its end need not be searched for.
    lane: LaneId,
    /// Past it, it is not started any more; [`Nanos::MAX`]: never.
    latest_start: Nanos,
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
    /// The job that was put in last and is not watched for its latest start yet.
    newest: u32,
    lines: Option<Box<Lines>>,
    /// Where the policy asks for it: the queued jobs by size and urgency.
    ranks: Option<Box<Ranks>>,
    next_key: Key,
}

/// The tenants' lines, where the small queue is shared.
#[derive(Clone, Debug)]
struct Lines {
    sharing: Sharing,
    turns: Turns,
    lists: [List; Sharing::MAX_LINES],
    /// How many of each line are queued, in the line or ahead of it.
    queued: [u32; Sharing::MAX_LINES],
    /// How many stand in all the lines.
    in_line: usize,
    /// What one costs of which nothing is known.
    mean_run: Nanos,
}

impl Lines {
    /// What a job costs its line.
    fn cost(&self, prediction: Prediction) -> Nanos {
        if prediction.source() == PredictionSource::Class { self.mean_run } else { prediction.raw() }
    }
}

impl Table {
    pub(super) fn new(slots: usize, sharing: Option<Sharing>) -> Self {
        assert!(slots < NIL as usize, "slots are counted in 32 bits");
        let vacant = Entry {
            job: Job::new(crate::types::RequestId(u64::MAX), Class::Small, Nanos::ZERO),
            seq: 0,
            place: Place::Free,
            line: 0,
            lane: LaneId::new(0),
            latest_start: Nanos::MAX,
            prev: NIL,
            heap_pos: NIL,
        };
        let lines = |sharing| Lines {
            sharing,
            turns: Turns::NEW,
            lists: [List::EMPTY; Sharing::MAX_LINES],
            queued: [0; Sharing::MAX_LINES],
            in_line: 0,
            mean_run: Nanos::ZERO,
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
            newest: NIL,
            lines: sharing.map(lines).map(Box::new),
            ranks: None,
            next_key: Key::default(),
        }
    }

    /// From now on, and before the first job, queued ones are ranked.
    pub(super) fn rank(&mut self) {
        debug_assert!(self.entries.iter().all(|entry| entry.place == Place::Free));
        self.ranks = Some(Box::new(Ranks::new(self.entries.len())));
    }

    /// What the next job that is inserted is ranked by.
    #[inline]
    pub(super) fn set_next_key(&mut self, key: impl FnOnce() -> Key) {
        if self.ranks.is_some() {
            self.next_key = key();
        }
    }

    #[inline]
    pub(super) fn ranks(&self) -> Option<&Ranks> {
        self.ranks.as_deref()
    }

    #[inline]
    pub(super) fn ranks_mut(&mut self) -> Option<&mut Ranks> {
        self.ranks.as_deref_mut()
    }

    /// Whether the job's tenant has as many in the small queue as one may have.
    pub(super) fn is_tenant_full(&self, job: &Job) -> bool {
        self.lines.as_ref().is_some_and(|lines| {
            job.class == Class::Small && lines.queued[lines.sharing.line(job.tenant)] as usize >= lines.sharing.most
        })
    }

    /// What a small job costs its line of which nothing is known: the mean of its class.
    pub(super) fn set_mean_run(&mut self, mean: Nanos) {
        if let Some(lines) = &mut self.lines {
            lines.mean_run = mean;
        }
    }

    /// Puts a job at the end of its class's queue, or of its tenant's line. It is to start by `latest_start`, if that is not
    /// [`Nanos::MAX`]. `None` if no slot is free.
    pub(super) fn insert(&mut self, job: Job, prediction: Prediction, latest_start: Nanos) -> Option<JobRef> {
        let slot = self.free_head;
        if slot == NIL {
            return None;
        }
        let line = match &mut self.lines {
            Some(lines) if job.class == Class::Small => lines.sharing.line(job.tenant),
            _ => 0,
        };
        let entry = &mut self.entries[slot as usize];
        debug_assert_eq!(entry.place, Place::Free);
        self.free_head = self.links[slot as usize].next;
        let (seq, lane) = (self.next_seq, LaneId::new(0));
        *entry = Entry { job, seq, place: Place::Free, line: line as u8, lane, latest_start, prev: NIL, heap_pos: NIL };
        self.links[slot as usize] = Link { prediction, next: NIL };
        self.next_seq += 1;
        if let Some(ranks) = &mut self.ranks {
            ranks.set_key(slot, job.class, self.next_key);
        }
        if self.lines.is_some() && job.class == Class::Small {
            self.line_up(slot);
            self.advance();
        } else {
            self.push_back(slot, Part::Fresh);
        }
        self.newest = if latest_start < Nanos::MAX { slot } else { NIL };
        Some(JobRef { slot, id: job.id })
    }

    /// Watches the job that was put in last for its latest start, if it has one and still waits.
    #[inline]
    pub(super) fn watch_newest(&mut self) {
        let slot = std::mem::replace(&mut self.newest, NIL);
        if slot != NIL && matches!(self.entries[slot as usize].place, Place::Queued(_) | Place::InLine) {
            self.heap_insert(slot);
        }
    }

    /// Whether nothing is queued.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        Class::ALL.iter().all(|&class| self.queued(class) == 0)
    }

    /// Puts a small job at the end of its tenant's line.
    fn line_up(&mut self, slot: u32) {
        let Some(lines) = &mut self.lines else { return };
        let line = usize::from(self.entries[slot as usize].line);
        lines.in_line += 1;
        lines.queued[line] += 1;
        lines.turns.set_waiting(line, true);
        let list = &mut lines.lists[line];
        let tail = std::mem::replace(&mut list.tail, slot);
        list.len += 1;
        if tail == NIL {
            list.head = slot;
        } else {
            self.links[tail as usize].next = slot;
        }
        self.links[slot as usize].next = NIL;
        let entry = &mut self.entries[slot as usize];
        (entry.prev, entry.place) = (tail, Place::InLine);
    }

    /// Takes a job out of its tenant's line.
    fn leave_line(&mut self, slot: u32) {
        let Some(lines) = &mut self.lines else { return };
        let entry = &self.entries[slot as usize];
        let (line, prev, next) = (usize::from(entry.line), entry.prev, self.links[slot as usize].next);
        lines.in_line -= 1;
        let list = &mut lines.lists[line];
        list.len -= 1;
        if prev == NIL {
            list.head = next;
        } else {
            self.links[prev as usize].next = next;
        }
        if next == NIL {
            list.tail = prev;
        } else {
            self.entries[next as usize].prev = prev;
        }
        lines.turns.set_waiting(line, list.len > 0);
    }

    /// Fills the queue that policies see from the lines. To them a job arrives in this moment: it gets its place in the order of arrival.
    fn advance(&mut self) {
        while let Some(lines) = &mut self.lines
            && (self.lists[Class::Small.index()][Part::Fresh as usize].len as usize) < Sharing::AHEAD
            && let Some(line) = lines.turns.line()
        {
            let slot = lines.lists[line].head;
            lines.turns.take(line, lines.cost(self.links[slot as usize].prediction));
            self.leave_line(slot);
            self.entries[slot as usize].seq = self.next_seq;
            self.next_seq += 1;
            self.push_back(slot, Part::Fresh);
        }
    }

    /// A small job left the queue: its line may have one more.
    fn left_queue(&mut self, slot: u32) {
        let entry = &self.entries[slot as usize];
        if let Some(lines) = &mut self.lines
            && entry.job.class == Class::Small
        {
            lines.queued[usize::from(entry.line)] -= 1;
            self.advance();
        }
    }

    /// Whether the reference names a job that is held, and where it stands.
    pub(super) fn find(&self, job: JobRef) -> Option<Place> {
        let entry = self.entries.get(job.slot as usize)?;
        (entry.place != Place::Free && entry.job.id == job.id).then_some(entry.place)
    }

    /// A small job was started on this lane.
    #[inline]
    pub(super) fn set_lane(&mut self, slot: u32, lane: LaneId) {
        self.entries[slot as usize].lane = lane;
    }

    /// The lane of a small job that runs.
    #[inline]
    pub(super) fn lane(&self, slot: u32) -> LaneId {
        self.entries[slot as usize].lane
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
        let in_line = if class == Class::Small { self.lines.as_ref().map_or(0, |lines| lines.in_line) } else { 0 };
        (fresh.len + late.len) as usize + in_line
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
        if let Some(lines) = &mut self.lines
            && self.entries[slot as usize].job.class == Class::Small
        {
            // It may stand there for long, and the lanes' time is given to others meanwhile.
            let cost = lines.cost(self.links[slot as usize].prediction);
            lines.turns.put_off(usize::from(self.entries[slot as usize].line), cost);
        }
        self.advance();
    }

    /// Takes a queued job out of its queue, to run.
    pub(super) fn start(&mut self, slot: u32) {
        let entry = &self.entries[slot as usize];
        let (class, late) = (entry.job.class.index(), entry.place == Place::Queued(Part::Late));
        self.since_late[class] = if late { 0 } else { self.since_late[class].saturating_add(1) };
        if let Some(lines) = &mut self.lines
            && late
            && entry.job.class == Class::Small
        {
            lines.turns.charge(usize::from(entry.line), lines.cost(self.links[slot as usize].prediction));
        }
        self.unlink(slot);
        self.heap_remove(slot);
        self.entries[slot as usize].place = Place::Running;
        self.left_queue(slot);
    }

    /// How many jobs are parked, by walking them all: for checkers.
    pub(super) fn parked(&self) -> usize {
        self.entries.iter().filter(|entry| entry.place == Place::Parked).count()
    }

    /// A running job has stopped between two steps.
    pub(super) fn park(&mut self, slot: u32) {
        debug_assert_eq!(self.entries[slot as usize].place, Place::Running);
        self.entries[slot as usize].place = Place::Parked;
    }

    /// A parked job goes on.
    pub(super) fn resume(&mut self, slot: u32) {
        debug_assert_eq!(self.entries[slot as usize].place, Place::Parked);
        self.entries[slot as usize].place = Place::Running;
    }

    /// Forgets a job, queued, running or parked; its slot is free from now on.
    pub(super) fn remove(&mut self, slot: u32) {
        match self.entries[slot as usize].place {
            Place::Free => unreachable!("a free slot is never removed"),
            Place::Queued(_) => {
                self.unlink(slot);
                self.heap_remove(slot);
                self.left_queue(slot);
            }
            Place::InLine => {
                self.leave_line(slot);
                self.heap_remove(slot);
                self.left_queue(slot);
            }
            Place::Running | Place::Parked => {}
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

    /// The queued job whose latest start comes first, and that moment.
    #[inline]
    pub(super) fn first_latest_start(&self) -> Option<(u32, Nanos)> {
        let &slot = self.heap.first()?;
        Some((slot, self.latest_start(slot)))
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
        if let Some(ranks) = &mut self.ranks {
            ranks.insert(slot, entry.seq);
        }
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
        if let Some(ranks) = &mut self.ranks {
            ranks.remove(slot);
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

    fn latest_start(&self, slot: u32) -> Nanos {
        self.entries[slot as usize].latest_start
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
            if self.latest_start(self.heap[parent]) <= self.latest_start(self.heap[pos]) {
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
                if child < self.heap.len() && self.latest_start(self.heap[child]) < self.latest_start(self.heap[least]) {
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
                    assert_eq!(
                        entry.latest_start < Nanos::MAX,
                        entry.heap_pos != NIL,
                        "slot {slot}: latest start and heap disagree"
                    );
                    (prev, slot, len, seq) = (slot, self.links[slot as usize].next, len + 1, Some(entry.seq));
                }
                assert_eq!((list.tail, list.len), (prev, len), "a list's end or length is wrong");
            }
        }
        if let Some(lines) = &self.lines {
            let mut queued = [0; Sharing::MAX_LINES];
            let mut in_line = 0;
            for (line, list) in lines.lists.iter().enumerate() {
                let (mut slot, mut prev, mut seq) = (list.head, NIL, None);
                while slot != NIL {
                    let entry = self.entry(slot);
                    assert!(!std::mem::replace(&mut seen[slot as usize], true), "slot {slot} stands in two lists");
                    assert_eq!(
                        (entry.place, usize::from(entry.line), entry.prev),
                        (Place::InLine, line, prev),
                        "slot {slot}'s line"
                    );
                    assert!(seq < Some(entry.seq), "slot {slot} is out of its line's order");
                    queued[line] += 1;
                    in_line += 1;
                    (prev, seq, slot) = (slot, Some(entry.seq), self.links[slot as usize].next);
                }
                assert_eq!((list.tail, list.len), (prev, queued[line]), "a line's end or length is wrong");
            }
            let small = &self.lists[Class::Small.index()];
            let full = small[Part::Fresh as usize].len as usize >= Sharing::AHEAD;
            assert!(full || in_line == 0, "small jobs stand in line while there is room ahead");
            for part in [Part::Fresh, Part::Late] {
                let mut slot = small[part as usize].head;
                while slot != NIL {
                    queued[usize::from(self.entry(slot).line)] += 1;
                    slot = self.links[slot as usize].next;
                }
            }
            assert_eq!((in_line, queued), (lines.in_line, lines.queued), "the lines' counts are wrong");
        }
        for (pos, &slot) in self.heap.iter().enumerate() {
            let entry = self.entry(slot);
            assert_eq!(entry.heap_pos, pos as u32, "slot {slot} is not where it thinks in the heap");
            assert!(matches!(entry.place, Place::Queued(_) | Place::InLine), "slot {slot} is in the heap but not queued");
            if pos > 0 {
                assert!(
                    self.latest_start(self.heap[(pos - 1) / 2]) <= self.latest_start(slot),
                    "the heap is out of order at {pos}"
                );
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
            let started = matches!(self.entries[slot].place, Place::Running | Place::Parked);
            assert!(seen ^ started, "slot {slot} is lost, or runs while it waits");
        }
        if let Some(ranks) = &self.ranks {
            ranks.check(|slot| matches!(self.entry(slot).place, Place::Queued(_)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{RequestId, TenantKey};
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
            let mut table = Table::new(SLOTS, None);
            let mut held: Vec<(JobRef, Job, bool)> = Vec::new();
            let mut order: [VecDeque<RequestId>; 2] = Default::default();
            let mut id = 0;
            for op in ops {
                match op {
                    Op::Insert(class, deadline) => {
                        id += 1;
                        let mut job = Job::new(RequestId(id), class, Nanos(id));
                        job.deadline = deadline.map(Nanos);
                        let slot = table.insert(job, Prediction::UNKNOWN, job.deadline.unwrap_or(Nanos::MAX));
                        table.watch_newest();
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
                prop_assert_eq!(table.first_latest_start().map(|(_, d)| d), first);
            }
        }

        /// Each tenant's jobs come in their order, no job is lost, and no tenant holds more places than it may.
        #[test]
        fn lines_keep_every_tenants_order(
            sharing in (1usize..=4, 1usize..=30).prop_map(|(lines, most)| Sharing { lines, most }),
            ops in prop::collection::vec((op(), 0u64..6), 0..600),
        ) {
            let mut table = Table::new(160, Some(sharing));
            let mut waiting: Vec<Job> = Vec::new();
            let mut started: Vec<(usize, RequestId)> = Vec::new();
            let of_line = |jobs: &[Job], line| jobs.iter().filter(|job| sharing.line(job.tenant) == line).count();
            for (id, (op, tenant)) in (1..).zip(ops) {
                match op {
                    Op::Insert(_, deadline) => {
                        let mut job = Job::new(RequestId(id), Class::Small, Nanos(id));
                        job.tenant = TenantKey(tenant);
                        let line = of_line(&waiting, sharing.line(job.tenant));
                        prop_assert_eq!(table.is_tenant_full(&job), line == sharing.most);
                        if line < sharing.most && table.insert(job, Prediction::UNKNOWN, Nanos(deadline.unwrap_or(u64::MAX))).is_some() {
                            table.watch_newest();
                            waiting.push(job);
                        }
                    }
                    Op::Start(_) => {
                        if let Some(slot) = table.oldest(Class::Small) {
                            let job = table.entry(slot).job;
                            table.start(slot);
                            table.remove(slot);
                            started.push((sharing.line(job.tenant), job.id));
                            waiting.retain(|other| other.id != job.id);
                        }
                    }
                    Op::Remove(i) if !waiting.is_empty() => {
                        let id = waiting.swap_remove(i % waiting.len()).id;
                        let held = |slot: &u32| table.entry(*slot).place != Place::Free && table.entry(*slot).job.id == id;
                        let slot = (0..160).find(held).unwrap();
                        table.remove(slot);
                    }
                    _ => {}
                }
                table.check();
                prop_assert_eq!(table.queued(Class::Small), waiting.len());
            }
            for line in 0..sharing.lines {
                let ids: Vec<RequestId> = started.iter().filter(|s| s.0 == line).map(|s| s.1).collect();
                prop_assert!(ids.is_sorted(), "line {}: {:?}", line, ids);
            }
        }
    }
}
