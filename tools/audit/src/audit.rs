//! The checks.

use std::collections::BTreeMap;
use std::io::BufRead;

use crate::read::{Line, Lines, Unreadable};
use crate::report::{Report, Rule, Skew};

const SCHEMA: &str = "phalanx.events/1";
const TERMINALS: [&str; 6] = ["completed", "failed", "expired", "cancelled", "shut_down", "rejected"];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Never heard of by the scheduler.
    Unknown,
    Arrived,
    Queued,
    Refused,
    Started,
    /// Stopped between two steps.
    Parked,
    Finished,
    Expired,
    Withdrawn,
}

/// What was told of one request.
#[derive(Debug)]
struct Request {
    /// The line that told of it first.
    line: u64,
    large: Option<bool>,
    state: State,
    /// The lane that was decided; none for a large one.
    lane: Option<usize>,
    /// It arrived with steps.
    steps: bool,
    /// It was asked to stop since it last took its lanes.
    asked: bool,
    /// How often it took its lanes.
    stretches: usize,
    outcome: Option<Outcome>,
    outcomes: u32,
}

#[derive(Clone, Copy, Debug)]
struct Outcome {
    line: u64,
    terminal: usize,
    started: Option<u64>,
    ended: u64,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    line: u64,
    id: u64,
    large: bool,
    lane: usize,
    reserved: u64,
    started: u64,
    ended: u64,
}

/// Reads a log to its end and checks every rule of the crate's page.
///
/// # Errors
/// The log cannot be read: what is wrong, and at which line.
pub fn audit(log: impl BufRead) -> Result<Report, Unreadable> {
    let mut lines = Lines::new(log);
    let Some(header) = lines.next()? else {
        return Err(Unreadable::empty());
    };
    let schema = header.text("schema")?;
    if schema != SCHEMA {
        return Err(header.error(format!("schema `{schema}` is not `{SCHEMA}`")));
    }
    let lanes = header.number("lanes")?;
    if !(1..=64).contains(&lanes) {
        return Err(header.error(format!("{lanes} lanes: there are 1 to 64")));
    }
    let mut auditor = Auditor {
        lanes: lanes as usize,
        now: 0,
        requests: BTreeMap::new(),
        spans: Vec::new(),
        held: vec![None; lanes as usize],
        offline: vec![false; lanes as usize],
        care: vec![Care::Nothing; lanes as usize],
        draining: false,
        report: Report::new(),
    };
    while let Some(line) = lines.next()? {
        auditor.record(&line)?;
    }
    Ok(auditor.end())
}

struct Auditor {
    lanes: usize,
    now: u64,
    requests: BTreeMap<u64, Request>,
    spans: Vec<Span>,
    /// Who holds each lane by the decisions.
    held: Vec<Option<u64>>,
    offline: Vec<bool>,
    care: Vec<Care>,
    draining: bool,
    report: Report,
}

/// How far a lane is on its way back into service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Care {
    /// It is on none.
    Nothing,
    Faulty,
    Probing,
    Passed,
}

impl Auditor {
    fn record(&mut self, line: &Line) -> Result<(), Unreadable> {
        let now = line.number("now")?;
        let before = self.now;
        self.report.check(Rule::Order, line.number, now >= before, || format!("now {now} comes after {before}"));
        self.now = self.now.max(now);
        self.report.cover(Rule::Complete);
        if line.has("event") {
            self.event(line)
        } else if line.has("decision") {
            self.decision(line)
        } else if line.has("span") {
            self.span(line)
        } else if line.has("outcome") {
            self.outcome(line)
        } else if line.has("lane_care") {
            self.care(line)
        } else if line.has("lost") {
            let lost = line.number("lost")?;
            self.report.violate(Rule::Complete, line.number, format!("{lost} records were lost"));
            Ok(())
        } else {
            Err(line.error("is none of event, decision, span, outcome, lane_care, lost"))
        }
    }

    fn request(&mut self, id: u64, line: u64) -> &mut Request {
        let new = || Request {
            line,
            large: None,
            state: State::Unknown,
            lane: None,
            steps: false,
            asked: false,
            stretches: 0,
            outcome: None,
            outcomes: 0,
        };
        self.requests.entry(id).or_insert_with(new)
    }

    /// A request's class, which every record must tell alike.
    fn class(&mut self, id: u64, line: u64, large: bool) {
        let known = *self.request(id, line).large.get_or_insert(large);
        if known != large {
            self.report.violate(Rule::Agreement, line, format!("request {id} was of the other class before"));
        }
    }

    fn event(&mut self, line: &Line) -> Result<(), Unreadable> {
        match line.text("event")? {
            "arrive" => {
                let (id, large) = (line.number("id")?, line.large()?);
                self.class(id, line.number, large);
                let steps = line.optional("step")?.is_some();
                let request = self.request(id, line.number);
                request.steps = steps;
                if request.state == State::Unknown {
                    request.state = State::Arrived;
                } else {
                    self.report.violate(Rule::OneEnd, line.number, format!("request {id} arrives a second time"));
                }
            }
            "cancel" => {
                let id = line.number("id")?;
                let request = self.request(id, line.number);
                // What runs or is over already is not changed by it.
                if request.state == State::Queued {
                    request.state = State::Withdrawn;
                }
            }
            "finish" => self.finish(line)?,
            "parked" => self.parked(line)?,
            "lane_down" => {
                let lane = line.lane(self.lanes)?;
                self.offline[lane] = true;
            }
            "lane_up" => {
                let lane = line.lane(self.lanes)?;
                let (out, care) = (std::mem::replace(&mut self.offline[lane], false), self.care[lane]);
                self.report.check(Rule::ProbedFirst, line.number, out && care == Care::Passed, || {
                    let out = if out { "" } else { ", and was in service" };
                    format!("lane {lane} is back in service, and was {care:?} before{out}")
                });
                self.care[lane] = Care::Nothing;
            }
            "tick" | "close" | "refused" => {}
            other => return Err(line.error(format!("event `{other}` is not known"))),
        }
        Ok(())
    }

    fn care(&mut self, line: &Line) -> Result<(), Unreadable> {
        let lane = line.lane(self.lanes)?;
        let was = self.care[lane];
        let (becomes, right) = match line.text("lane_care")? {
            "fault" => (Care::Faulty, true),
            "probe" => (Care::Probing, self.offline[lane] && self.held[lane].is_none() && was != Care::Probing),
            "passed" => (Care::Passed, was == Care::Probing),
            "failed" => (Care::Faulty, was == Care::Probing),
            "let_go" => (was, was == Care::Faulty),
            other => return Err(line.error(format!("lane care `{other}` is not known"))),
        };
        self.care[lane] = becomes;
        self.report.check(Rule::ProbedFirst, line.number, right, || {
            let held = self.held[lane].map_or(String::new(), |holder| format!(", held by request {holder}"));
            format!("lane {lane} becomes {becomes:?}, and was {was:?} before{held}")
        });
        Ok(())
    }

    fn finish(&mut self, line: &Line) -> Result<(), Unreadable> {
        let (id, end) = (line.number("id")?, line.text("end")?);
        let withdrawn = end == "withdrawn";
        let request = self.request(id, line.number);
        let (was, large, lane) = (request.state, request.large == Some(true), request.lane);
        request.state = if withdrawn { State::Withdrawn } else { State::Finished };
        // One that is parked ends with its lane or with the node, and does not complete.
        let may = was == State::Started || was == State::Parked && end != "completed";
        self.report.check(Rule::Books, line.number, may, || format!("request {id} finishes, and was {was:?} before"));
        if was == State::Started {
            self.leave(id, large, lane);
        }
        Ok(())
    }

    /// The lanes of a request, by decisions and ends, are free again.
    fn leave(&mut self, id: u64, large: bool, lane: Option<usize>) {
        for lane in self.lanes_of(large, lane) {
            if self.held[lane] == Some(id) {
                self.held[lane] = None;
            }
        }
    }

    fn lanes_of(&self, large: bool, lane: Option<usize>) -> std::ops::Range<usize> {
        if large { 0..self.lanes } else { lane.map_or(0..0, |lane| lane..lane + 1) }
    }

    fn parked(&mut self, line: &Line) -> Result<(), Unreadable> {
        let id = line.number("id")?;
        let request = self.request(id, line.number);
        let (was, asked, steps) = (request.state, request.asked, request.steps);
        let (large, lane) = (request.large == Some(true), request.lane);
        request.state = State::Parked;
        self.report.check(Rule::StopsAsked, line.number, was == State::Started && asked && steps, || {
            let why = if steps { "was not asked to" } else { "has no steps" };
            format!(
                "request {id} stops, and {}",
                if was == State::Started { why.to_owned() } else { format!("was {was:?} before") }
            )
        });
        self.leave(id, large, lane);
        Ok(())
    }

    /// A request is asked to stop, need not any more, or goes on.
    fn step(&mut self, line: &Line, kind: &str) -> Result<(), Unreadable> {
        let (id, mask) = (line.number("id")?, line.number("lanes")?);
        let request = self.request(id, line.number);
        let (was, steps, large, lane) = (request.state, request.steps, request.large == Some(true), request.lane);
        let resumes = kind == "resume";
        if kind == "ask" {
            request.asked = true;
        } else if resumes {
            (request.asked, request.state) = (false, State::Started);
            request.stretches += 1;
        }
        let lanes = self.lanes_of(large, lane);
        let here = lanes.clone().fold(0, |mask, lane| mask | 1_u64 << lane);
        let needs = if resumes { State::Parked } else { State::Started };
        self.report.check(Rule::StopsAsked, line.number, was == needs && steps && mask == here, || {
            format!("`{kind}` of request {id} on lanes {mask:#b}, which was {was:?} on {here:#b}")
        });
        if resumes {
            self.take(id, lanes, line.number);
        }
        Ok(())
    }

    /// A request takes its lanes: they must be free and in service.
    fn take(&mut self, id: u64, lanes: std::ops::Range<usize>, line: u64) {
        let taken = lanes.clone().find(|&lane| self.held[lane].is_some() || self.offline[lane]);
        self.report.check(Rule::DecidedAlone, line, taken.is_none(), || {
            let lane = taken.unwrap_or_default();
            match self.held[lane] {
                Some(holder) => format!("request {id} is started on lane {lane}, which request {holder} holds"),
                None => format!("request {id} is started on lane {lane}, which is out of service"),
            }
        });
        for lane in lanes {
            self.held[lane] = Some(id);
        }
    }

    fn decision(&mut self, line: &Line) -> Result<(), Unreadable> {
        let kind = line.text("decision")?;
        match kind {
            "drain_on" | "drain_off" => {
                let on = kind == "drain_on";
                if self.draining == on {
                    self.report.violate(Rule::Order, line.number, format!("`{kind}` follows another"));
                }
                self.draining = on;
                return Ok(());
            }
            "ask" | "unask" | "resume" => return self.step(line, kind),
            "admit" | "refuse" | "expire" | "shed" | "start_small" | "start_large" => {}
            other => return Err(line.error(format!("decision `{other}` is not known"))),
        }
        let id = line.number("id")?;
        let request = self.request(id, line.number);
        let was = request.state;
        let (needs, becomes) = match kind {
            "admit" => (State::Arrived, State::Queued),
            "refuse" => (State::Arrived, State::Refused),
            "expire" | "shed" => (State::Queued, State::Expired),
            _ => (State::Queued, State::Started),
        };
        request.state = becomes;
        request.stretches += usize::from(becomes == State::Started);
        if becomes != State::Started {
            if was != needs {
                self.report.violate(Rule::OneEnd, line.number, format!("`{kind}` of request {id}, which was {was:?}"));
            }
            return Ok(());
        }
        let (large, class) = (kind == "start_large", request.large);
        let lanes = if large {
            0..self.lanes
        } else {
            let lane = line.lane(self.lanes)?;
            self.request(id, line.number).lane = Some(lane);
            lane..lane + 1
        };
        self.report.check(Rule::AdmittedFirst, line.number, was == State::Queued && class == Some(large), || {
            let of = match class {
                Some(class) if class != large => " and is of the other class",
                _ => "",
            };
            format!("request {id} is started, and was {was:?} before{of}")
        });
        self.take(id, lanes, line.number);
        Ok(())
    }

    fn span(&mut self, line: &Line) -> Result<(), Unreadable> {
        let span = Span {
            line: line.number,
            id: line.number("span")?,
            large: line.large()?,
            lane: line.lane(self.lanes)?,
            reserved: line.number("reserved")?,
            started: line.number("started")?,
            ended: line.number("ended")?,
        };
        self.class(span.id, line.number, span.large);
        if !(span.reserved <= span.started && span.started <= span.ended) {
            self.report.violate(Rule::Order, line.number, "not reserved ≤ started ≤ ended".to_owned());
        }
        self.spans.push(span);
        Ok(())
    }

    fn outcome(&mut self, line: &Line) -> Result<(), Unreadable> {
        let (id, large, name) = (line.number("id")?, line.large()?, line.text("outcome")?);
        let Some(terminal) = TERMINALS.iter().position(|&terminal| terminal == name) else {
            return Err(line.error(format!("outcome `{name}` is not known")));
        };
        let (submitted, started, ended) = (line.number("submitted")?, line.optional("started")?, line.number("ended")?);
        let begun = started.unwrap_or(submitted);
        if !(submitted <= begun && begun <= ended) {
            self.report.violate(Rule::Order, line.number, "not submitted ≤ started ≤ ended".to_owned());
        }
        self.class(id, line.number, large);
        let request = self.request(id, line.number);
        request.outcomes += 1;
        request.outcome.get_or_insert(Outcome { line: line.number, terminal, started, ended });
        Ok(())
    }

    fn end(mut self) -> Report {
        self.lanes_alone();
        let mut spans = std::mem::take(&mut self.spans);
        spans.sort_by_key(|span| (span.id, span.lane, span.started));
        let mut skews = Vec::new();
        let mut counts = [[0_u64; 6]; 2];
        let mut rest = spans.as_slice();
        for (&id, request) in &self.requests {
            let (own, others) = rest.split_at(rest.partition_point(|span| span.id == id));
            rest = others;
            self.report.requests[usize::from(request.large == Some(true))] += 1;
            one_end(&mut self.report, id, request);
            let Some(outcome) = request.outcome else { continue };
            counts[usize::from(request.large == Some(true))][outcome.terminal] += 1;
            ran(&mut self.report, self.lanes, id, request, outcome, own, &mut skews);
        }
        self.books(&counts);
        self.report.completed = [counts[0][0], counts[1][0]];
        skews.sort_unstable();
        let at = |permille: usize| skews[((skews.len() * permille).div_ceil(1000)).clamp(1, skews.len()) - 1];
        self.report.skew = (!skews.is_empty()).then(|| Skew { p50: at(500), p99: at(990), max: at(1000) });
        self.report.trim();
        self.report
    }

    /// No two spans of one lane overlap.
    fn lanes_alone(&mut self) {
        for (rule, what) in [(Rule::RunningAlone, "runs"), (Rule::HoldingAlone, "is held")] {
            let begin = |span: &Span| if matches!(rule, Rule::RunningAlone) { span.started } else { span.reserved };
            self.spans.sort_by_key(|span| (span.lane, begin(span), span.ended));
            // The latest end so far on this lane, and whose it was: a long span overlaps more than its neighbour.
            let mut latest: Option<Span> = None;
            for span in &self.spans {
                let before = latest.filter(|before| before.lane == span.lane);
                self.report.check(rule, span.line, before.is_none_or(|before| before.ended <= begin(span)), || {
                    let (id, line) = before.map_or((0, 0), |before| (before.id, before.line));
                    format!("lane {} {what} for request {} while it {what} for request {id} of line {line}", span.lane, span.id)
                });
                latest = match before {
                    Some(before) if before.ended > span.ended => Some(before),
                    _ => Some(*span),
                };
            }
        }
    }

    fn books(&mut self, counts: &[[u64; 6]; 2]) {
        for (class, counts) in ["small", "large"].into_iter().zip(counts) {
            let submitted = self.report.requests[usize::from(class == "large")];
            let ended: u64 = counts.iter().sum();
            self.report.check(Rule::Books, 0, submitted == ended, || {
                format!("{submitted} {class} requests were submitted, and {ended} have an outcome")
            });
        }
        for (&id, request) in &self.requests {
            if matches!(request.state, State::Started | State::Parked | State::Queued | State::Arrived) {
                let state = request.state;
                self.report.violate(Rule::Books, request.line, format!("request {id} is still {state:?} at the end of the log"));
            }
        }
    }
}

fn one_end(report: &mut Report, id: u64, request: &Request) {
    let n = request.outcomes;
    report.check(Rule::OneEnd, request.outcome.map_or(request.line, |outcome| outcome.line), n == 1, || {
        format!("request {id} has {n} outcomes")
    });
    let Some(outcome) = request.outcome else { return };
    let name = TERMINALS[outcome.terminal];
    let fits = match (name, request.state) {
        ("completed" | "failed", State::Finished) => true,
        // A large one that waited in vain for a lane out of service.
        ("failed", State::Withdrawn) => request.large == Some(true),
        // Ended at a step, or while it was parked.
        ("cancelled" | "expired" | "shut_down", State::Finished) => request.steps,
        // Found late or withdrawn by the ingress, before the scheduler had heard of it; or between decision and hand-over.
        ("expired", State::Expired | State::Withdrawn | State::Unknown) => true,
        ("cancelled" | "shut_down", State::Withdrawn | State::Unknown) => true,
        // Its owner took it back just when the scheduler decided to expire it.
        ("cancelled", State::Expired) => true,
        ("rejected", State::Refused | State::Unknown) => true,
        _ => false,
    };
    if !fits {
        let state = request.state;
        report.violate(Rule::OneEnd, outcome.line, format!("request {id} is {name}, and was {state:?} before"));
    }
}

/// What a request's spans must be, by how it ended.
fn ran(report: &mut Report, lanes: usize, id: u64, request: &Request, outcome: Outcome, own: &[Span], skews: &mut Vec<u64>) {
    let name = TERMINALS[outcome.terminal];
    // What stops at steps may also end there.
    if !matches!(name, "completed" | "failed") && (!request.steps || own.is_empty()) {
        report.check(Rule::NeverRan, outcome.line, own.is_empty() && outcome.started.is_none(), || {
            format!("request {id} is {name}, and ran")
        });
        return;
    }
    let first = own.iter().map(|span| span.started).min();
    let last = own.iter().map(|span| span.ended).max();
    if name == "completed" {
        if request.large == Some(true) {
            // Sorted by lane and time: all lanes, each once for each time that it took them.
            let each = request.stretches.max(1);
            let covers = own.len() == lanes * each && own.iter().enumerate().all(|(at, span)| span.lane == at / each);
            let stretch = |at: usize| own.iter().skip(at).step_by(each);
            let latest_start = |at| stretch(at).map(|span| span.started).max().unwrap_or_default();
            let earliest_end = |at| stretch(at).map(|span| span.ended).min().unwrap_or_default();
            let apart = (0..each).find(|&at| latest_start(at) > earliest_end(at));
            report.check(Rule::GangAtOnce, outcome.line, covers && apart.is_none(), || {
                if covers {
                    let (end, start) = (earliest_end(apart.unwrap_or_default()), latest_start(apart.unwrap_or_default()));
                    format!("a member of request {id} ended at {end}, before the last one began at {start}")
                } else {
                    format!("request {id} ran in {} spans, which are not {each} on each of {lanes} lanes", own.len())
                }
            });
            if let (true, Some(first)) = (covers, first) {
                skews.push(latest_start(0) - first);
            }
        } else {
            let right = own.len() == request.stretches.max(1) && own.iter().all(|span| Some(span.lane) == request.lane);
            report.check(Rule::OneLane, outcome.line, right, || {
                let ran_on: Vec<_> = own.iter().map(|span| span.lane).collect();
                format!("request {id} ran on lanes {ran_on:?}, decided was {:?}", request.lane)
            });
        }
    }
    // One that failed may have left no span at all.
    if let (Some(first), Some(last)) = (first, last) {
        // A gang that was given up over a member that hung leaves spans of the others, which ended before it was given up; and what ends while
        // it is parked ran before that.
        let later = name == "failed" || name != "completed" && request.steps;
        let ended = outcome.ended == last || later && outcome.ended > last;
        report.check(Rule::Agreement, outcome.line, outcome.started == Some(first) && ended, || {
            let started = outcome.started;
            format!("request {id} ran {first}..{last} by its spans, {started:?}..{} by its outcome", outcome.ended)
        });
    }
}
