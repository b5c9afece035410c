//! The event log as JSON lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;

use phalanx::LaneId;
use phalanx::observe::{Record, What};
use phalanx::scheduler::{Decision, Event};
use phalanx::types::MAX_SIM_LANES;
use serde::{Deserialize, Serialize};

use crate::InputError;
use crate::error::Place;

/// The schema of the event log.
pub const SCHEMA: &str = "phalanx.events/1";

/// How much is gathered before it is written.
const BUFFER: usize = 1 << 18;

/// The longest line that is read: the longest that is written is under 1 kB.
const MAX_LINE: usize = 1 << 16;

/// Whether time was the clock's or the simulator's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Threads and a clock.
    Real,
    /// The simulator.
    Virtual,
}

/// The first line of a log: what ran. The module's page has the table of its fields.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Header {
    /// Whose time it was.
    pub mode: Mode,
    /// How many lanes there are.
    pub lanes: usize,
    /// The policy and its settings.
    pub policy: String,
    /// The capacity of each class's queue, small first.
    pub queue: [usize; 2],
    /// The workload's text or the trace's name.
    pub workload: String,
    /// GPU time asked for over GPU time there is, where it can be told.
    pub load: Option<f64>,
    /// By what time and service were divided.
    pub speed: f64,
    /// The seed of everything that was drawn.
    pub seed: u64,
    /// What the lanes were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

/// The header as it stands in the file.
#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    #[serde(flatten)]
    header: &'a Header,
}

/// Writes a log, gathered into large writes.
///
/// Dropped without [`finish`](Self::finish) it leaves out what was gathered last.
#[derive(Debug)]
pub struct LogWriter<W> {
    out: W,
    buffer: Vec<u8>,
}

impl<W: Write> LogWriter<W> {
    /// A log of a run of this kind: its first line.
    ///
    /// # Errors
    /// None yet: what goes wrong with `out` comes when something is written to it.
    pub fn new(out: W, header: &Header) -> io::Result<Self> {
        let mut buffer = Vec::with_capacity(BUFFER + 1024);
        serde_json::to_writer(&mut buffer, &Line { schema: SCHEMA, header })?;
        buffer.push(b'\n');
        Ok(Self { out, buffer })
    }

    /// The next line.
    ///
    /// # Errors
    /// What goes wrong with the file behind.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        serde_json::to_writer(&mut self.buffer, record)?;
        self.buffer.push(b'\n');
        if self.buffer.len() >= BUFFER { self.spill() } else { Ok(()) }
    }

    fn spill(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes what was gathered and gives the file back.
    ///
    /// # Errors
    /// What goes wrong with the file behind.
    pub fn finish(mut self) -> io::Result<W> {
        self.spill()?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Reads a log, line by line: an iterator over its records, which ends at the first error.
///
/// ```
/// use phalanx_sim::record::LogReader;
///
/// let log = br#"{"schema":"phalanx.events/1","mode":"real","lanes":2,"policy":"fcfs","queue":[8,8],"workload":"mix","load":0.5,"speed":1,"seed":1}
/// {"now":5,"event":"tick"}
/// {"now":"soon","event":"tick"}
/// "#;
/// let mut log = LogReader::new("e.jsonl", log.as_slice())?;
/// assert_eq!(log.header().lanes, 2);
/// assert!(log.next().unwrap().is_ok());
/// assert!(log.next().unwrap().unwrap_err().to_string().starts_with("e.jsonl: line 3: is no record of an event log"));
/// # Ok::<(), phalanx_sim::InputError>(())
/// ```
#[derive(Debug)]
pub struct LogReader<R> {
    file: Arc<str>,
    input: R,
    header: Header,
    line: u64,
    text: Vec<u8>,
    ended: bool,
}

impl LogReader<BufReader<File>> {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// It cannot be opened, or does not begin as an event log does.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, InputError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Self::new(&name, BufReader::with_capacity(BUFFER, file)),
            Err(source) => Err(InputError::Open { file: name.into(), source }),
        }
    }
}

impl<R: BufRead> LogReader<R> {
    /// The same from anything that can be read; `name` is for errors.
    ///
    /// # Errors
    /// It does not begin as an event log does.
    pub fn new(name: &str, input: R) -> Result<Self, InputError> {
        #[derive(Deserialize)]
        struct Schema {
            schema: String,
        }
        let mut reader = Self {
            file: name.into(),
            input,
            header: Header {
                mode: Mode::Real,
                lanes: 0,
                policy: String::new(),
                queue: [0; 2],
                workload: String::new(),
                load: None,
                speed: 1.0,
                seed: 0,
                device: None,
            },
            line: 0,
            text: Vec::new(),
            ended: false,
        };
        const REMEDY: &str = "give a file that `--events` wrote";
        if !reader.advance()? {
            return Err(reader.place().line("is missing: the file is empty", REMEDY));
        }
        match serde_json::from_slice::<Schema>(&reader.text) {
            Ok(Schema { schema }) if schema == SCHEMA => {}
            Ok(Schema { schema }) => {
                let what = format!("is of schema `{}`, not `{SCHEMA}`", crate::error::excerpt(schema.as_bytes()));
                return Err(reader.place().line(what, REMEDY));
            }
            Err(_) => return Err(reader.place().line(format!("is not the header of an event log (`{SCHEMA}`)"), REMEDY)),
        }
        let header: Header = serde_json::from_slice(&reader.text)
            .map_err(|e| reader.place().line(format!("is no header: {}", reason(&e)), REMEDY))?;
        if !(1..=MAX_SIM_LANES).contains(&header.lanes) {
            let what = format!("{} is out of range", header.lanes);
            return Err(reader.place().field("lanes", what, format!("a log has 1 to {MAX_SIM_LANES} lanes")));
        }
        reader.header = header;
        Ok(reader)
    }

    /// What ran.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// The line of the record that was read last, from 1.
    #[must_use]
    pub const fn line(&self) -> u64 {
        self.line
    }

    fn place(&self) -> Place<'_> {
        Place { file: &self.file, line: self.line.max(1) }
    }

    /// Reads the next line; whether there was one.
    fn advance(&mut self) -> Result<bool, InputError> {
        self.line += 1;
        self.text.clear();
        let read = (&mut self.input).take(MAX_LINE as u64 + 1).read_until(b'\n', &mut self.text);
        match read {
            Ok(0) => Ok(false),
            Ok(n) if n > MAX_LINE => Err(InputError::LongLine { file: Arc::clone(&self.file), line: self.line, limit: MAX_LINE }),
            Ok(_) => Ok(true),
            Err(source) => Err(InputError::Read { file: Arc::clone(&self.file), line: self.line, source }),
        }
    }

    fn read(&mut self) -> Result<Option<Record>, InputError> {
        if !self.advance()? {
            return Ok(None);
        }
        let record: Record = serde_json::from_slice(&self.text).map_err(|e| {
            let what = if self.text.ends_with(b"\n") {
                format!("is no record of an event log: {}", reason(&e))
            } else {
                "is cut off: the log was not written to its end".to_owned()
            };
            self.place().line(what, "give a file that `--events` wrote, as it is")
        })?;
        match lane(&record.what) {
            Some(lane) if lane.index() >= self.header.lanes => {
                let what = format!("{lane} is none of the {} lanes of the header", self.header.lanes);
                Err(self.place().field("lane", what, "give a file that `--events` wrote, as it is"))
            }
            _ => Ok(Some(record)),
        }
    }
}

/// What serde has to say, without its own line and column: every line is parsed by itself.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

fn lane(what: &What) -> Option<LaneId> {
    match *what {
        What::Event(Event::LaneDown { lane } | Event::LaneUp { lane }) | What::Decision(Decision::StartSmall { lane, .. }) => {
            Some(lane)
        }
        What::Decision(Decision::Ask { lanes, .. } | Decision::Unask { lanes, .. } | Decision::Resume { lanes, .. }) => {
            // The highest: it must be one of the header's.
            lanes.into_iter().last()
        }
        What::Span(span) => Some(span.lane),
        What::Lane(care) => Some(care.lane),
        _ => None,
    }
}

impl<R: BufRead> Iterator for LogReader<R> {
    type Item = Result<Record, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.read().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use phalanx::observe::{Care, LaneCare, LaneSpan, Outcome, Terminal};
    use phalanx::scheduler::{End, Job, JobRef, Refusal};
    use phalanx::{Class, Fault, ModelKey, Nanos, RequestId};

    pub(in super::super) fn header(lanes: usize) -> Header {
        Header {
            mode: Mode::Real,
            lanes,
            policy: "drain".into(),
            queue: [8, 8],
            workload: "mix".into(),
            load: Some(0.8),
            speed: 1.0,
            seed: 7,
            device: None,
        }
    }

    /// One record of every kind.
    fn every_kind() -> Vec<Record> {
        let job = JobRef { slot: 3, id: RequestId(9) };
        let full = Job {
            deadline: Some(Nanos(50)),
            target: Some(Nanos(40)),
            expected: Some(Nanos(5)),
            model: ModelKey(u64::MAX),
            step: Some(Nanos(3)),
            ..Job::new(RequestId(9), Class::Large, Nanos(1))
        };
        let lane = LaneId::new(1);
        let span = LaneSpan {
            id: RequestId(9),
            class: Class::Small,
            lane,
            reserved: Nanos(1),
            started: Nanos(2),
            ended: Nanos(u64::MAX),
        };
        let outcome = |outcome| Outcome {
            outcome,
            id: RequestId(9),
            class: Class::Large,
            submitted: Nanos(1),
            started: (outcome == Terminal::Completed).then_some(Nanos(2)),
            ended: Nanos(3),
            slo_met: (outcome == Terminal::Completed).then_some(true),
        };
        let mut all = vec![
            What::Event(Event::Arrive(full)),
            What::Event(Event::Arrive(Job::new(RequestId(9), Class::Small, Nanos(1)))),
            What::Event(Event::Cancel(job)),
            What::Event(Event::LaneDown { lane }),
            What::Event(Event::LaneUp { lane }),
            What::Event(Event::Tick),
            What::Decision(Decision::Admit(job)),
            What::Decision(Decision::Refuse { id: job.id, reason: Refusal::QueueFull }),
            What::Decision(Decision::Expire(job)),
            What::Decision(Decision::StartSmall { job, lane, backfill: true }),
            What::Decision(Decision::StartLarge(job)),
            What::Decision(Decision::Ask { job, lanes: lane.mask() }),
            What::Decision(Decision::Unask { job, lanes: lane.mask() }),
            What::Decision(Decision::Resume { job, lanes: lane.mask() }),
            What::Event(Event::Parked { job, ran: Nanos(5) }),
            What::Decision(Decision::DrainOn { shadow: Nanos(77) }),
            What::Decision(Decision::DrainOff),
            What::Span(span),
            What::Lost { lost: 12 },
            What::Lane(LaneCare { care: Care::Fault, lane, fault: Some(Fault::Hung) }),
            What::Lane(LaneCare { care: Care::LetGo, lane, fault: None }),
        ];
        all.extend(
            [End::Completed, End::Failed, End::Withdrawn].map(|end| What::Event(Event::Finish { job, end, ran: Nanos(6) })),
        );
        all.extend(Terminal::ALL.map(|terminal| What::Outcome(outcome(terminal))));
        all.into_iter().enumerate().map(|(n, what)| Record { now: Nanos(n as u64), what }).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let mut log = LogWriter::new(Vec::new(), &header(2)).unwrap();
        for record in every_kind() {
            log.write(&record).unwrap();
        }
        let bytes = log.finish().unwrap();
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(text.starts_with(r#"{"schema":"phalanx.events/1","mode":"real","lanes":2,"policy":"drain","queue":[8,8],"#));
        assert!(text.contains(r#","event":"finish","slot":3,"id":9,"end":"completed","ran":6}"#), "{text}");
        assert!(text.contains(r#","lane_care":"fault","lane":1,"fault":"hung"}"#), "{text}");
        let log = LogReader::new("e", bytes.as_slice()).unwrap();
        assert_eq!(*log.header(), header(2));
        assert_eq!(log.map(Result::unwrap).collect::<Vec<_>>(), every_kind());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let mut head = LogWriter::new(Vec::new(), &header(2)).unwrap().finish().unwrap();
        let error = |bytes: &[u8]| {
            let text = match LogReader::new("e", bytes) {
                Err(error) => error.to_string(),
                Ok(log) => log.last().expect("a line").expect_err("an error").to_string(),
            };
            assert!(!text.contains('\n'), "{text}");
            text
        };
        assert!(error(b"").starts_with("e: line 1: is missing"));
        assert!(error(b"timestamp,x\n").starts_with("e: line 1: is not the header"));
        assert!(error(br#"{"schema":"phalanx.events/2"}"#).contains("is of schema `phalanx.events/2`"));
        assert!(error(br#"{"schema":"phalanx.events/1","mode":"odd"}"#).contains("is no header: unknown variant `odd`"));
        let wide = String::from_utf8(head.clone()).unwrap().replace("\"lanes\":2", "\"lanes\":65");
        assert!(error(wide.as_bytes()).contains("field `lanes`: 65 is out of range"));
        head.extend(b"{\"now\":1,\"event\":\"tick\"}\n");
        let with = |tail: &[u8]| error(&[&head, tail].concat());
        assert!(with(b"{\"now\":1,\"ev").contains("line 3: is cut off"));
        assert!(with(b"{\"now\":-1,\"event\":\"tick\"}\n").contains("line 3: is no record"));
        assert!(with(b"{\"now\":1,\"event\":\"tock\"}\n").contains("line 3: is no record"));
        assert!(with(b"{\"now\":1,\"event\":\"lane_down\",\"lane\":200}\n").contains("line 3: field `lane`: 200 is none"));
        assert!(with(&[b'x'; MAX_LINE + 5]).contains("line 3: longer than"));
    }
}
