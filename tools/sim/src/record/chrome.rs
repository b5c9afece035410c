//! A trace in Chrome's format, for Perfetto and `chrome://tracing`.

use std::io::{self, Seek, SeekFrom, Write};

use phalanx::observe::{Care, LaneCare, LaneSpan, Record, What};
use phalanx::{Class, Fault, Nanos};

use super::{Book, Header};

/// How much is gathered before it is written.
const BUFFER: usize = 1 << 18;

/// What makes what is written so far a whole document.
const TAIL: &[u8] = b"\n]}\n";

/// A small's reservation is drawn as a slice of its own only where it can be seen.
const VISIBLE_HANDOVER: Nanos = Nanos::from_micros(100);

/// Writes a run as a trace that [Perfetto](https://ui.perfetto.dev) opens: a row a lane, with a slice for each span; a row of drains;
/// the queue depths as counters. The slices of a gang stand one above the other in every row, and have one name, hence one colour.
///
/// It writes in large pieces, and ends each with the end of the document, over which the next is written: a run that is killed
/// leaves a trace that opens.
#[derive(Debug)]
pub struct ChromeTrace<W> {
    out: W,
    buffer: Vec<u8>,
    book: Book,
    now: Nanos,
    /// Since when there is a drain.
    draining: Option<Nanos>,
    queued: [usize; 2],
    any: bool,
}

impl<W: Write + Seek> ChromeTrace<W> {
    /// The trace of a run of this kind, into an empty file.
    ///
    /// # Errors
    /// What goes wrong with the file behind.
    pub fn new(out: W, header: &Header) -> io::Result<Self> {
        let mut trace = Self {
            out,
            buffer: Vec::with_capacity(BUFFER + 4096),
            book: Book::new(header.lanes),
            now: Nanos::ZERO,
            draining: None,
            queued: [0; 2],
            any: false,
        };
        trace.buffer.extend_from_slice(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
        // The one text here that is not ours is quoted by the one who knows how.
        let name = serde_json::to_string(&format!("phalanx {} · {}", header.policy, header.workload))?;
        trace.event(format_args!(r#"{{"ph":"M","pid":1,"name":"process_name","args":{{"name":{name}}}}}"#))?;
        let row = |tid: usize| if tid == 0 { "drain".to_owned() } else { format!("lane {}", tid - 1) };
        for tid in 0..=header.lanes {
            let name = row(tid);
            trace.event(format_args!(r#"{{"ph":"M","pid":1,"tid":{tid},"name":"thread_name","args":{{"name":"{name}"}}}}"#))?;
            trace.event(format_args!(
                r#"{{"ph":"M","pid":1,"tid":{tid},"name":"thread_sort_index","args":{{"sort_index":{tid}}}}}"#
            ))?;
        }
        trace.spill()?;
        Ok(trace)
    }

    /// Takes the next record.
    ///
    /// # Errors
    /// What goes wrong with the file behind.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        if matches!(record.what, What::Event(_)) {
            // What the event before brought is complete.
            self.counters()?;
        }
        self.now = self.now.max(record.now);
        self.book.on(record);
        match (self.draining, self.book.draining()) {
            (None, true) => self.draining = Some(record.now),
            (Some(since), false) => self.drain(since)?,
            _ => {}
        }
        match record.what {
            What::Span(span) => self.span(&span)?,
            What::Lost { lost } => {
                let ts = Micros(record.now);
                self.event(format_args!(r#"{{"ph":"i","s":"g","pid":1,"tid":0,"ts":{ts},"name":"{lost} records lost"}}"#))?;
            }
            What::Lane(LaneCare { care, lane, fault }) => {
                let (ts, tid) = (Micros(record.now), lane.index() + 1);
                let name = match (care, fault) {
                    (Care::Fault, Some(Fault::Hung)) => "hung",
                    (Care::Fault, Some(Fault::Lost)) => "lost",
                    (Care::Fault, _) => "out of service",
                    (Care::Probe, _) => "probe",
                    (Care::Passed, _) => "in service",
                    (Care::Failed, _) => "probe failed",
                    (Care::LetGo, _) => "let go",
                };
                self.event(format_args!(r#"{{"ph":"i","s":"t","pid":1,"tid":{tid},"ts":{ts},"cat":"care","name":"{name}"}}"#))?;
            }
            _ => {}
        }
        if self.buffer.len() >= BUFFER { self.spill() } else { Ok(()) }
    }

    fn span(&mut self, span: &LaneSpan) -> io::Result<()> {
        let (id, class, tid) = (span.id, span.class, span.lane.index() + 1);
        let handover = span.started - span.reserved;
        if handover > Nanos::ZERO && (class == Class::Large || handover >= VISIBLE_HANDOVER) {
            let (ts, dur) = (Micros(span.reserved), Micros(handover));
            self.event(format_args!(
                r#"{{"ph":"X","pid":1,"tid":{tid},"ts":{ts},"dur":{dur},"cat":"reserved","name":"reserved","args":{{"request":{id}}}}}"#
            ))?;
        }
        let (ts, dur) = (Micros(span.started), Micros(span.ended - span.started));
        self.event(format_args!(
            r#"{{"ph":"X","pid":1,"tid":{tid},"ts":{ts},"dur":{dur},"cat":"{class}","name":"{class} {id}","args":{{"request":{id}}}}}"#
        ))
    }

    fn drain(&mut self, since: Nanos) -> io::Result<()> {
        self.draining = None;
        let (ts, dur) = (Micros(since), Micros(self.now - since));
        self.event(format_args!(r#"{{"ph":"X","pid":1,"tid":0,"ts":{ts},"dur":{dur},"cat":"drain","name":"drain"}}"#))
    }

    fn counters(&mut self) -> io::Result<()> {
        let queued = Class::ALL.map(|class| self.book.queued(class));
        if queued == self.queued {
            return Ok(());
        }
        self.queued = queued;
        let ([small, large], ts) = (queued, Micros(self.now));
        self.event(format_args!(r#"{{"ph":"C","pid":1,"ts":{ts},"name":"queued","args":{{"small":{small},"large":{large}}}}}"#))
    }

    fn event(&mut self, event: std::fmt::Arguments<'_>) -> io::Result<()> {
        if self.any {
            self.buffer.extend_from_slice(b",\n");
        }
        self.any = true;
        self.buffer.write_fmt(event)
    }

    /// Writes what was gathered, and the end of the document behind it, over which the next piece is written.
    fn spill(&mut self) -> io::Result<()> {
        self.buffer.extend_from_slice(TAIL);
        self.out.write_all(&self.buffer)?;
        self.out.flush()?;
        self.out.seek(SeekFrom::Current(-(TAIL.len() as i64)))?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes what was gathered, a drain that is still open included, and gives the file back.
    ///
    /// # Errors
    /// What goes wrong with the file behind.
    pub fn finish(mut self) -> io::Result<W> {
        self.counters()?;
        if let Some(since) = self.draining {
            self.drain(since)?;
        }
        self.spill()?;
        self.out.seek(SeekFrom::End(0))?;
        Ok(self.out)
    }
}

/// Nanoseconds as the format's microseconds, exactly.
struct Micros(Nanos);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0.0 / 1_000, self.0.0 % 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::tests::header;
    use super::*;
    use phalanx::scheduler::{Decision, Event, Job, JobRef};
    use phalanx::{LaneId, RequestId};
    use serde_json::Value;
    use std::cell::RefCell;
    use std::io::Cursor;
    use std::rc::Rc;

    /// A file that can be looked at while it is written.
    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Cursor<Vec<u8>>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Seek for Shared {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.0.borrow_mut().seek(to)
        }
    }

    impl Shared {
        fn events(&self) -> Vec<Value> {
            let document: Value = serde_json::from_slice(self.0.borrow().get_ref()).expect("a whole document");
            document["traceEvents"].as_array().unwrap().clone()
        }
    }

    #[test]
    fn it_is_a_whole_document_at_any_time() {
        let file = Shared::default();
        let head = Header { workload: "a \"quoted\" \\ name".into(), ..header(2) };
        let mut trace = ChromeTrace::new(file.clone(), &head).unwrap();
        let rows = file.events();
        assert_eq!(rows.len(), 1 + 2 * 3);
        assert!(rows.iter().any(|row| row["args"]["name"] == "lane 1"));

        let job = Job::new(RequestId(4), Class::Large, Nanos(1_500));
        let at = |now, what| Record { now: Nanos(now), what };
        let reference = JobRef { slot: 0, id: job.id };
        for record in [
            at(1_500, What::Event(Event::Arrive(job))),
            at(1_500, What::Decision(Decision::Admit(reference))),
            at(1_500, What::Decision(Decision::DrainOn { shadow: Nanos(9) })),
            at(3_000, What::Event(Event::Tick)),
            at(3_000, What::Decision(Decision::StartLarge(reference))),
            at(3_000, What::Decision(Decision::DrainOff)),
        ] {
            trace.write(&record).unwrap();
        }
        for n in 0..20_000_u64 {
            let (id, reserved) = (RequestId(n), Nanos(n * 1_000));
            let lane = LaneId::new((n % 2) as usize);
            let span =
                LaneSpan { id, class: Class::Large, lane, reserved, started: reserved + Nanos(5), ended: reserved + Nanos(250) };
            trace.write(&at(3_000 + n, What::Span(span))).unwrap();
            if n % 997 == 0 {
                file.events();
            }
        }
        trace.write(&at(30_000, What::Decision(Decision::DrainOn { shadow: Nanos(9) }))).unwrap();
        trace.write(&at(40_000, What::Lost { lost: 2 })).unwrap();
        trace.finish().unwrap();
        let events = file.events();
        let named = |name: &str| events.iter().filter(|event| event["name"] == name).collect::<Vec<_>>();
        assert_eq!(named("queued").iter().map(|event| event["args"]["large"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(0)]);
        let drains: Vec<_> = named("drain").iter().map(|drain| (drain["ts"].as_f64(), drain["dur"].as_f64())).collect();
        assert_eq!(drains, [(Some(1.5), Some(1.5)), (Some(30.0), Some(10.0))]);
        assert_eq!((named("large 7")[0]["tid"].as_u64(), named("large 7")[0]["dur"].as_f64()), (Some(2), Some(0.245)));
        assert_eq!(named("reserved").len(), 20_000);
        assert_eq!(named("2 records lost").len(), 1);
    }
}
