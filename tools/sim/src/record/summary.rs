//! The figures of one run.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use phalanx::observe::{LaneSpan, Outcome, Record, Terminal, What};
use phalanx::scheduler::{Decision, Event};
use phalanx::{Class, LaneId, Nanos, RequestId};

use super::{Book, ClassResult, Classes, Figures, Header, Mode, MsFigures, RunResult};

/// A distribution of spans, measured one by one, of bounded size.
#[derive(Clone, Debug)]
pub struct Stage {
    histogram: Histogram<u64>,
    sum: u128,
    max: Nanos,
}

impl Default for Stage {
    fn default() -> Self {
        Self::new()
    }
}

impl Stage {
    /// Nothing measured yet.
    #[must_use]
    pub fn new() -> Self {
        // Three digits are allowed (0 to 5), and it grows with the values: nothing here can fail.
        let histogram = Histogram::new(3).expect("3 significant digits are allowed");
        Self { histogram, sum: 0, max: Nanos::ZERO }
    }

    /// Takes a measurement.
    pub fn add(&mut self, span: Nanos) {
        // Half of the range is 292 years: what is longer counts as that. It grows as far, so recording does not fail.
        let value = span.0.min(i64::MAX as u64);
        if self.histogram.record(value).is_err() {
            self.histogram.saturating_record(value);
        }
        self.sum += u128::from(span.0);
        self.max = self.max.max(span);
    }

    /// The distribution, if anything was measured.
    #[must_use]
    pub fn figures(&self) -> Option<Figures> {
        let n = self.histogram.len();
        // A bucket's upper end may lie above the largest value in it.
        let at = |quantile| self.histogram.value_at_quantile(quantile).min(self.max.0);
        (n > 0).then(|| Figures {
            mean: self.sum as f64 / n as f64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: self.max.0,
            n,
        })
    }

    fn ms(&self) -> MsFigures {
        self.figures().map_or_else(MsFigures::default, |figures| {
            let ms = |ns: u64| Some(Nanos(ns).as_millis_f64());
            MsFigures {
                mean: Some(figures.mean * 1e-6),
                p50: ms(figures.p50),
                p90: ms(figures.p90),
                p99: ms(figures.p99),
                p999: ms(figures.p999),
                max: ms(figures.max),
            }
        })
    }
}

/// Takes the records of a run one by one and gives its [`RunResult`] at any moment.
///
/// Its size is that of the histograms and of what is queued at the moment, however long the run.
///
/// ```
/// use phalanx::observe::{Outcome, Record, Terminal, What};
/// use phalanx::{Class, Nanos, RequestId};
/// use phalanx_sim::record::{Header, Mode, Summary};
///
/// let header = Header {
///     mode: Mode::Real, lanes: 8, policy: "drain".into(), queue: [8, 8], workload: "mix".into(),
///     load: None, speed: 1.0, seed: 1, device: None,
/// };
/// let mut summary = Summary::new(header);
/// summary.add(&Record {
///     now: Nanos::from_millis(9),
///     what: What::Outcome(Outcome {
///         outcome: Terminal::Completed, id: RequestId(1), class: Class::Small, submitted: Nanos::from_millis(1),
///         started: Some(Nanos::from_millis(3)), ended: Nanos::from_millis(9), slo_met: Some(true),
///     }),
/// });
/// let result = summary.result();
/// assert_eq!((result.classes.small.completed, result.classes.small.slo_met), (1, Some(1.0)));
/// assert_eq!((result.classes.small.wait_ms.max, result.span_s), (Some(2.0), 0.008));
/// ```
#[derive(Debug)]
pub struct Summary {
    header: Header,
    book: Book,
    classes: [ClassTally; 2],
    first: Option<Nanos>,
    last: Nanos,
    now: Nanos,
    ran_ns: u128,
    drain_idle_ns: u128,
    good: u64,
    lost: u64,
    stages: Stages,
    latest: Vec<LaneLatest>,
    gangs: [Option<OpenGang>; 4],
}

#[derive(Debug, Default)]
struct ClassTally {
    outcomes: [u64; 6],
    arrived: u64,
    refused_after_arrival: u64,
    with_target: u64,
    met: u64,
    wait: Stage,
    response: Stage,
}

#[derive(Debug, Default)]
struct Stages {
    submit_to_reserved: Stage,
    reserved_to_started: Stage,
    gang_reserved_to_started: Stage,
    gang_skew: Stage,
    ended_to_finish: Stage,
}

/// The latest of a lane that its spans are matched with. The log may tell of a lane's next start before it tells of the span that
/// ended, so two starts are kept.
#[derive(Clone, Copy, Debug, Default)]
struct LaneLatest {
    immediate: [Option<(RequestId, Nanos)>; 2],
    /// The small that ended on it last, and when, until the dispatcher has noticed.
    ended: Option<(RequestId, Nanos)>,
}

/// A large request of which some spans have come.
#[derive(Clone, Copy, Debug)]
struct OpenGang {
    id: RequestId,
    members: usize,
    first: Nanos,
    last: Nanos,
}

impl Summary {
    /// Nothing recorded yet of a run of this kind.
    ///
    /// # Panics
    /// If the header has more lanes than there can be; one that a [`LogReader`](super::LogReader) gave has not.
    #[must_use]
    pub fn new(header: Header) -> Self {
        Self {
            book: Book::new(header.lanes),
            latest: vec![LaneLatest::default(); header.lanes],
            header,
            classes: Default::default(),
            first: None,
            last: Nanos::ZERO,
            now: Nanos::ZERO,
            ran_ns: 0,
            drain_idle_ns: 0,
            good: 0,
            lost: 0,
            stages: Stages::default(),
            gangs: [None; 4],
        }
    }

    /// Takes the next record.
    pub fn add(&mut self, record: &Record) {
        if self.book.draining() && !self.book.gang_running() {
            let idle = self.book.idle().count() as u128;
            self.drain_idle_ns += idle * u128::from((record.now - self.now).0);
        }
        self.now = self.now.max(record.now);
        self.book.on(record);
        match record.what {
            What::Event(Event::Arrive(job)) => {
                self.classes[job.class.index()].arrived += 1;
                self.begin(job.arrival);
            }
            What::Event(Event::Finish { job, .. }) => self.finished(job.id, record.now),
            What::Decision(Decision::Refuse { .. }) => {
                if let Some(job) = self.book.arriving() {
                    self.classes[job.class.index()].refused_after_arrival += 1;
                }
            }
            What::Decision(Decision::StartSmall { job, lane, .. }) => {
                let arriving = self.book.arriving().filter(|arriving| arriving.id == job.id);
                if let Some(latest) = self.latest.get_mut(lane.index()) {
                    latest.immediate = [arriving.map(|arriving| (job.id, arriving.arrival)), latest.immediate[0]];
                }
            }
            What::Span(span) => self.span(&span),
            What::Outcome(outcome) => self.outcome(&outcome),
            What::Lost { lost } => self.lost += lost,
            What::Event(_) | What::Decision(_) | What::Lane(_) => {}
        }
    }

    fn begin(&mut self, at: Nanos) {
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
    }

    /// A small's end as the dispatcher noticed it; matched by its number, on whichever lane it was.
    fn finished(&mut self, id: RequestId, now: Nanos) {
        for latest in &mut self.latest {
            if let Some((ended_id, ended)) = latest.ended
                && ended_id == id
            {
                latest.ended = None;
                self.stages.ended_to_finish.add(now - ended);
                return;
            }
        }
    }

    fn span(&mut self, span: &LaneSpan) {
        self.ran_ns += u128::from((span.ended - span.started).0);
        self.last = self.last.max(span.ended);
        let start = span.started - span.reserved;
        match span.class {
            Class::Small => {
                self.stages.reserved_to_started.add(start);
                self.small_span(span, span.lane);
            }
            Class::Large => {
                self.stages.gang_reserved_to_started.add(start);
                self.member(span);
            }
        }
    }

    fn small_span(&mut self, span: &LaneSpan, lane: LaneId) {
        let Some(latest) = self.latest.get_mut(lane.index()) else { return };
        latest.ended = Some((span.id, span.ended));
        for slot in &mut latest.immediate {
            if let Some((id, submitted)) = *slot
                && id == span.id
            {
                *slot = None;
                self.stages.submit_to_reserved.add(span.reserved - submitted);
            }
        }
    }

    fn member(&mut self, span: &LaneSpan) {
        let found = self.gangs.iter().position(|gang| gang.is_some_and(|gang| gang.id == span.id));
        let at = found.or_else(|| self.gangs.iter().position(Option::is_none)).unwrap_or_else(|| {
            // A gang that broke leaves fewer spans than lanes: the oldest of four open ones is such a one.
            (0..self.gangs.len()).min_by_key(|&at| self.gangs[at].map(|gang| gang.first)).unwrap_or(0)
        });
        let slot = &mut self.gangs[at];
        let gang = match slot {
            Some(gang) if gang.id == span.id => gang,
            _ => slot.insert(OpenGang { id: span.id, members: 0, first: span.started, last: span.started }),
        };
        gang.members += 1;
        gang.first = gang.first.min(span.started);
        gang.last = gang.last.max(span.started);
        if gang.members == self.header.lanes {
            self.stages.gang_skew.add(gang.last - gang.first);
            *slot = None;
        }
    }

    fn outcome(&mut self, outcome: &Outcome) {
        self.begin(outcome.submitted);
        self.last = self.last.max(outcome.ended);
        let tally = &mut self.classes[outcome.class.index()];
        tally.outcomes[index(outcome.outcome)] += 1;
        if let Some(started) = outcome.started {
            tally.wait.add(started - outcome.submitted);
        }
        let completed = outcome.outcome == Terminal::Completed;
        if completed {
            tally.response.add(outcome.ended - outcome.submitted);
        }
        tally.with_target += u64::from(outcome.slo_met.is_some());
        tally.met += u64::from(outcome.slo_met == Some(true));
        self.good += u64::from(completed && outcome.slo_met != Some(false));
    }

    /// What ran.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Who is queued and who runs where now.
    #[must_use]
    pub const fn book(&self) -> &Book {
        &self.book
    }

    /// How many requests of a class have ended so, so far.
    #[must_use]
    pub const fn ended(&self, class: Class, terminal: Terminal) -> u64 {
        self.classes[class.index()].outcomes[index(terminal)]
    }

    /// How many records were lost so far.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// The skew between the starts of a gang's members, so far.
    #[must_use]
    pub fn gang_skew(&self) -> Option<Figures> {
        self.stages.gang_skew.figures()
    }

    /// The figures so far.
    #[must_use]
    pub fn result(&self) -> RunResult {
        let span = self.last - self.first.unwrap_or(self.last);
        let lane_time = span.0 as f64 * self.header.lanes as f64;
        let of_lane_time = |ns: u128| if lane_time > 0.0 { ns as f64 / lane_time } else { 0.0 };
        let real = self.header.mode == Mode::Real;
        RunResult {
            mode: self.header.mode,
            policy: self.header.policy.clone(),
            workload: self.header.workload.clone(),
            load: self.header.load,
            speed: self.header.speed,
            seed: self.header.seed,
            lanes: self.header.lanes,
            device: self.header.device.clone(),
            span_s: span.as_secs_f64(),
            utilization: of_lane_time(self.ran_ns),
            drain_idle_fraction: of_lane_time(self.drain_idle_ns),
            goodput_per_s: if span.0 > 0 { self.good as f64 / span.as_secs_f64() } else { 0.0 },
            classes: Classes { small: self.class(Class::Small), large: self.class(Class::Large) },
            lost_records: self.lost,
            overhead_ns: real.then(|| self.stages.named()),
            simulated: None,
            cost: None,
            ratio: None,
        }
    }

    fn class(&self, class: Class) -> ClassResult {
        let tally = &self.classes[class.index()];
        let ended: u64 = tally.outcomes.iter().sum();
        // Refused at the door by the ingress, a request never arrives at the scheduler; refused by the scheduler it has.
        let refused_at_the_door = tally.outcomes[index(Terminal::Rejected)].saturating_sub(tally.refused_after_arrival);
        let submitted = ended.max(tally.arrived + refused_at_the_door);
        let count = |terminal| tally.outcomes[index(terminal)];
        ClassResult {
            submitted,
            completed: count(Terminal::Completed),
            failed: count(Terminal::Failed),
            expired: count(Terminal::Expired),
            cancelled: count(Terminal::Cancelled),
            rejected: count(Terminal::Rejected),
            shut_down: count(Terminal::ShutDown),
            unfinished: submitted - ended,
            slo_met: (tally.with_target > 0).then(|| tally.met as f64 / submitted as f64),
            wait_ms: tally.wait.ms(),
            response_ms: tally.response.ms(),
        }
    }
}

impl Stages {
    fn named(&self) -> BTreeMap<String, Figures> {
        [
            ("submit_to_reserved", &self.submit_to_reserved),
            ("reserved_to_started", &self.reserved_to_started),
            ("gang_reserved_to_started", &self.gang_reserved_to_started),
            ("gang_skew", &self.gang_skew),
            ("ended_to_finish", &self.ended_to_finish),
        ]
        .into_iter()
        .filter_map(|(name, stage)| Some((name.to_owned(), stage.figures()?)))
        .collect()
    }
}

/// A terminal state's place in an array that has one entry for each, in the order of [`Terminal::ALL`].
const fn index(terminal: Terminal) -> usize {
    match terminal {
        Terminal::Completed => 0,
        Terminal::Failed => 1,
        Terminal::Expired => 2,
        Terminal::Cancelled => 3,
        Terminal::ShutDown => 4,
        Terminal::Rejected => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::tests::header;
    use super::*;
    use phalanx::scheduler::{End, Job, JobRef, Refusal};

    const MS: u64 = 1_000_000;

    struct Run(Summary);

    impl Run {
        fn at(&mut self, ms: u64, what: What) -> &mut Self {
            self.0.add(&Record { now: Nanos(ms * MS), what });
            self
        }

        fn arrive(&mut self, ms: u64, id: u64, class: Class) -> &mut Self {
            let job = Job::new(RequestId(id), class, Nanos(ms * MS));
            self.at(ms, What::Event(Event::Arrive(job))).at(ms, What::Decision(Decision::Admit(job_ref(id))))
        }

        fn end(&mut self, ms: u64, id: u64, class: Class, outcome: Terminal, times: (u64, Option<u64>, u64)) -> &mut Self {
            let (submitted, started, ended) = times;
            let slo_met = Some(outcome == Terminal::Completed && ended - submitted <= 50);
            let times = (Nanos(submitted * MS), started.map(|ms| Nanos(ms * MS)), Nanos(ended * MS));
            let (submitted, started, ended) = times;
            self.at(ms, What::Outcome(Outcome { outcome, id: RequestId(id), class, submitted, started, ended, slo_met }))
        }

        fn span(&mut self, ms: u64, id: u64, class: Class, lane: usize, times: [u64; 3]) -> &mut Self {
            let [reserved, started, ended] = times.map(|ms| Nanos(ms * MS));
            self.at(ms, What::Span(LaneSpan { id: RequestId(id), class, lane: LaneId::new(lane), reserved, started, ended }))
        }
    }

    fn job_ref(id: u64) -> JobRef {
        JobRef { slot: id as u32, id: RequestId(id) }
    }

    /// Two lanes. A small runs 10..30 on lane 0; a large arrives at 15 and drains until 30, runs 31..51 and 33..51.
    #[test]
    fn the_figures_of_a_run_by_hand() {
        let mut run = Run(Summary::new(header(2)));
        run.arrive(10, 1, Class::Small)
            .at(10, What::Decision(Decision::StartSmall { job: job_ref(1), lane: LaneId::new(0), backfill: false }))
            .arrive(15, 2, Class::Large)
            .at(15, What::Decision(Decision::DrainOn { shadow: Nanos(30 * MS) }));
        assert!(run.0.book().draining() && run.0.book().queued(Class::Large) == 1);
        run.span(30, 1, Class::Small, 0, [12, 13, 30])
            .end(30, 1, Class::Small, Terminal::Completed, (10, Some(13), 30))
            .at(31, What::Event(Event::Finish { job: job_ref(1), end: End::Completed, ran: Nanos(17 * MS) }))
            .at(31, What::Decision(Decision::StartLarge(job_ref(2))))
            .at(31, What::Decision(Decision::DrainOff));
        let refused = Job::new(RequestId(3), Class::Small, Nanos(40 * MS));
        run.at(40, What::Event(Event::Arrive(refused)))
            .at(40, What::Decision(Decision::Refuse { id: refused.id, reason: Refusal::QueueFull }))
            .end(40, 3, Class::Small, Terminal::Rejected, (40, None, 40))
            // Refused at the door: it never arrives at the scheduler.
            .end(41, 4, Class::Small, Terminal::Rejected, (41, None, 41))
            .arrive(45, 5, Class::Small)
            .span(51, 2, Class::Large, 1, [31, 33, 51])
            .span(51, 2, Class::Large, 0, [31, 31, 51])
            .at(51, What::Event(Event::Finish { job: job_ref(2), end: End::Completed, ran: Nanos(20 * MS) }))
            .end(51, 2, Class::Large, Terminal::Completed, (15, Some(31), 51))
            .at(60, What::Lost { lost: 3 });

        let result = run.0.result();
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(result.span_s, 0.041);
        near(result.utilization, (17.0 + 18.0 + 20.0) / (2.0 * 41.0));
        // From 15 to 31 lane 1 was free: the book frees lane 0 when the dispatcher knows.
        near(result.drain_idle_fraction, 16.0 / (2.0 * 41.0));
        near(result.goodput_per_s, 2.0 / 0.041);
        assert_eq!(result.lost_records, 3);
        let small = &result.classes.small;
        assert_eq!((small.submitted, small.completed, small.rejected, small.unfinished), (4, 1, 2, 1));
        near(small.slo_met.unwrap(), 0.25);
        assert_eq!((small.wait_ms.p50, small.wait_ms.max, small.response_ms.mean), (Some(3.0), Some(3.0), Some(20.0)));
        let large = &result.classes.large;
        assert_eq!((large.submitted, large.completed, large.slo_met), (1, 1, Some(1.0)));
        assert_eq!((large.wait_ms.mean, large.response_ms.max), (Some(16.0), Some(36.0)));
        let overhead = result.overhead_ns.unwrap();
        let of = |stage: &str| (overhead[stage].max / MS, overhead[stage].n);
        assert_eq!(of("submit_to_reserved"), (2, 1));
        assert_eq!(of("reserved_to_started"), (1, 1));
        assert_eq!(of("gang_reserved_to_started"), (2, 2));
        assert_eq!(of("gang_skew"), (2, 1));
        assert_eq!(of("ended_to_finish"), (1, 1));
    }

    #[test]
    fn nothing_measured_is_null_and_virtual_time_has_no_overhead() {
        let result = Summary::new(Header { mode: Mode::Virtual, ..header(8) }).result();
        assert_eq!((result.utilization, result.goodput_per_s, result.overhead_ns.is_none()), (0.0, 0.0, true));
        let json = serde_json::to_value(&result.classes.large).unwrap();
        assert!(json["wait_ms"]["p999"].is_null() && json["slo_met"].is_null() && json["submitted"] == 0);
    }

    #[test]
    fn a_broken_gang_disturbs_no_other() {
        let mut run = Run(Summary::new(header(2)));
        for id in 0..9 {
            run.span(id, id, Class::Large, 0, [id, id, id]);
        }
        run.span(20, 20, Class::Large, 0, [20, 20, 30]).span(20, 20, Class::Large, 1, [20, 21, 30]);
        assert_eq!(run.0.gang_skew().map(|skew| (skew.max, skew.n)), Some((MS, 1)));
    }

    #[test]
    fn quantiles_hold_what_they_say() {
        let mut stage = Stage::new();
        for ns in 1..=10_000 {
            stage.add(Nanos(ns));
        }
        let figures = stage.figures().unwrap();
        assert!((figures.p999 as f64 / 9_990.0 - 1.0).abs() < 0.002 && figures.mean == 5000.5 && figures.max == 10_000);
        stage.add(Nanos::MAX);
        assert_eq!(stage.figures().unwrap().max, u64::MAX);
    }
}
