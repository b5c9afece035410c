//! Traces: the importers, and a file that can be read twice.
//!
//! The format is told by the content (or by [`TraceOptions::format`]), compression by the magic bytes of gzip; a name says nothing.
//!
//! | format | a line | time | class and service time |
//! |---|---|---|---|
//! | [`Format::Jsonl`] | a JSON object: Mooncake's `timestamp`, `input_length`, `output_length`, and ours: `class`, `gpus`, `service_ms`, `prefill_ms`, `expected_ms`, `slo_ms` (soft), `deadline_ms` (hard), `step_ms`, `tenant`, `model`; others are ignored | ms | the line's own, else rule and model |
//! | [`Format::Azure`] | `TIMESTAMP,ContextTokens,GeneratedTokens`; or `arrival_s` (or `arrival_ms`), `input_length`, `output_length`, and `service` as the tenant | date, s or ms | rule and model |
//! | [`Format::BurstGpt`] | `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type` (the tenant); no response tokens: failed, skipped | s | rule and model |
//! | [`Format::Vidur`] | `arrived_at,num_prefill_tokens,num_decode_tokens` | s | rule and model |
//! | [`Format::Splitwise`] | `request_id,request_type,application_id` (the tenant)`,arrival_timestamp,batch_size,prompt_size,token_size` | s | rule and model |
//! | [`Format::Swf`] | 18 numbers; `;` begins a comment; a run time of -1: never started, skipped; the user (else the group) is the tenant, the executable the model | s | processors, run time |
//!
//! Rule is [`TraceOptions::large_if`], model is [`TraceOptions::service`]. Requests must be in the order of their arrival, which is
//! counted from the first. Columns of CSV may stand in any order, among others. A service time below 1 ns counts as 1 ns.
//!
//! Limits: a line has at most 1 MiB ([`MAX_LINE`]), arrivals lie within 200 years, spans within 366 days, token counts within 100
//! million, and a file has at most [`Names::MOST`] distinct tenants or models.

mod csv;
mod jsonl;
mod lines;
mod raw;
mod rule;
mod service;
mod swf;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use phalanx::types::MAX_SIM_LANES;
use phalanx::{Class, Nanos};

pub use lines::MAX_LINE;
pub use rule::LargeIf;
pub use service::{ServiceModel, ServiceModels};

use self::lines::{Lines, Origin};
use self::raw::{FieldNames, Parsed, Raw};
use crate::error::{Place, excerpt};
use crate::units::Span;
use crate::{InputError, Names, Source, Summary, TraceRequest, Warning};

/// How a trace is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Format {
    /// Mooncake JSONL, and our superset of it.
    Jsonl,
    /// Azure LLM inference traces.
    Azure,
    /// BurstGPT.
    BurstGpt,
    /// Vidur.
    Vidur,
    /// Splitwise.
    Splitwise,
    /// Standard Workload Format.
    Swf,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Jsonl, Self::Azure, Self::BurstGpt, Self::Vidur, Self::Splitwise, Self::Swf];

    /// Its name, as `--format` takes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Azure => "azure",
            Self::BurstGpt => "burstgpt",
            Self::Vidur => "vidur",
            Self::Splitwise => "splitwise",
            Self::Swf => "swf",
        }
    }

    /// The format of a file whose first line that is not blank is this.
    fn detect(line: &[u8]) -> Option<Self> {
        if line.first() == Some(&b'{') {
            return Some(Self::Jsonl);
        }
        if swf::detect(line) { Some(Self::Swf) } else { csv::detect(line) }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Self, InputError> {
        Self::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            InputError::setting("--format", format!("`{}` is not a format", excerpt(text.as_bytes())), format!("known: {known}"))
        })
    }
}

/// How to read a trace.
#[derive(Clone, PartialEq, Debug)]
pub struct TraceOptions {
    /// The format; `None`: told by the content.
    pub format: Option<Format>,
    /// The lanes that a large request holds, 1 to 64.
    pub lanes: usize,
    /// Which requests are large; `None`: as the trace says.
    pub large_if: Option<LargeIf>,
    /// How tokens become time where the trace gives no service time.
    pub service: ServiceModels,
}

impl Default for TraceOptions {
    /// The format by content, 8 lanes, classes as the trace says, and the built-in service models.
    fn default() -> Self {
        Self { format: None, lanes: 8, large_if: None, service: ServiceModels::default() }
    }
}

/// A trace that can be read as often as need be, each time as a stream.
///
/// ```
/// use phalanx::Class;
/// use phalanx_sim::{TraceFile, TraceOptions};
///
/// let csv = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,100,20\n1.5,30000,5\n";
/// let options = TraceOptions { large_if: Some("input>8000".parse()?), ..TraceOptions::default() };
/// let trace = TraceFile::from_bytes("vidur.csv", csv.as_bytes(), options)?;
/// let summary = trace.summary()?;
/// assert_eq!((summary.class(Class::Small).count, summary.class(Class::Large).count), (1, 1));
/// # Ok::<(), phalanx_sim::InputError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TraceFile {
    file: Arc<str>,
    origin: Origin,
    format: Format,
    options: Arc<TraceOptions>,
}

impl TraceFile {
    /// Opens a file and tells its format; nothing else is read yet.
    ///
    /// # Errors
    /// It cannot be opened or unpacked, is empty, or is of no known format; or the lane count of the options is not from 1 to 64.
    pub fn open(path: impl AsRef<Path>, options: TraceOptions) -> Result<Self, InputError> {
        let path = path.as_ref();
        Self::new(path.display().to_string().into(), Origin::Path(path.to_owned()), options)
    }

    /// The same from bytes, plain or gzip; `name` is for errors.
    ///
    /// # Errors
    /// As [`TraceFile::open`].
    pub fn from_bytes(name: &str, bytes: impl Into<Arc<[u8]>>, options: TraceOptions) -> Result<Self, InputError> {
        Self::new(name.into(), Origin::Bytes(bytes.into()), options)
    }

    fn new(file: Arc<str>, origin: Origin, options: TraceOptions) -> Result<Self, InputError> {
        if !(1..=MAX_SIM_LANES).contains(&options.lanes) {
            let remedy = format!("give a whole number from 1 to {MAX_SIM_LANES}");
            return Err(InputError::setting("--lanes", format!("{} is out of range", options.lanes), remedy));
        }
        let mut lines = Lines::open(&file, &origin)?;
        if !lines.advance()? {
            return Err(InputError::Empty { file });
        }
        let format = match options.format.or_else(|| Format::detect(lines.line())) {
            Some(format) => format,
            None => {
                let line = lines.place().line;
                return Err(InputError::UnknownFormat { file, line, begins: excerpt(lines.line()) });
            }
        };
        Ok(Self { file, origin, format, options: Arc::new(options) })
    }

    /// Its format.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.file
    }

    /// How it is read.
    #[must_use]
    pub fn options(&self) -> &TraceOptions {
        &self.options
    }

    /// A pass over its requests, from the first.
    ///
    /// # Errors
    /// It can no longer be opened, or its header is wrong; what is wrong with a request comes when it is reached.
    pub fn requests(&self) -> Result<Requests, InputError> {
        let mut lines = Lines::open(&self.file, &self.origin)?;
        let importer = match self.format {
            Format::Jsonl => Importer::Jsonl,
            Format::Swf => Importer::Swf,
            Format::Azure | Format::BurstGpt | Format::Vidur | Format::Splitwise => {
                if !lines.advance()? {
                    return Err(InputError::Empty { file: Arc::clone(&self.file) });
                }
                Importer::Csv(Box::new(csv::Header::parse(self.format, lines.line(), lines.place())?))
            }
        };
        let fields = match &importer {
            Importer::Jsonl => jsonl::field_names(),
            Importer::Csv(header) => header.field_names(),
            Importer::Swf => swf::field_names(),
        };
        let settler = Settler {
            options: Arc::clone(&self.options),
            fields,
            tenants: Names::new(),
            models: Names::new(),
            first: None,
            last: Nanos::ZERO,
            number: 0,
            skipped: 0,
            with_rule_field: 0,
            classed: 0,
        };
        Ok(Requests { lines, importer, settler, ended: false })
    }

    /// Reads it through and says what it holds.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn summary(&self) -> Result<Summary, InputError> {
        let mut requests = self.requests()?;
        let mut summary = Summary::of(&mut requests)?;
        let settler = &requests.settler;
        summary.skipped = settler.skipped;
        let large = summary.class(Class::Large).count;
        if let Some(rule) = &self.options.large_if {
            let rule = rule.to_string();
            if large == 0 {
                summary.warnings.push(Warning::RuleMatchesNothing { rule, field_seen: settler.with_rule_field > 0 });
            } else if large == summary.count() {
                summary.warnings.push(Warning::RuleMatchesAll { rule });
            }
        } else if settler.classed == 0 {
            summary.warnings.push(Warning::NoClasses);
        }
        Ok(summary)
    }
}

#[derive(Debug)]
enum Importer {
    Jsonl,
    Csv(Box<csv::Header>),
    Swf,
}

/// One pass over a trace: made by [`TraceFile::requests`].
#[derive(Debug)]
pub struct Requests {
    lines: Lines,
    importer: Importer,
    settler: Settler,
    ended: bool,
}

/// What turns a line of any format into a request.
#[derive(Debug)]
struct Settler {
    options: Arc<TraceOptions>,
    fields: FieldNames,
    tenants: Names,
    models: Names,
    first: Option<Nanos>,
    last: Nanos,
    number: u64,
    skipped: u64,
    /// Requests that have the field which the rule reads.
    with_rule_field: u64,
    /// Requests that say their class or their GPUs.
    classed: u64,
}

impl Settler {
    fn settle(&mut self, raw: &Raw<'_>, place: Place<'_>) -> Result<TraceRequest, InputError> {
        let class = self.class(raw, place)?;
        let (prefill, service) = self.times(raw, class, place)?;
        if raw.arrival < self.last {
            let what =
                format!("arrives {} before the request above it", Span((self.last - raw.arrival).min(crate::units::MAX_SPAN)));
            return Err(place.field(&self.fields.arrival, what, "sort the file by arrival"));
        }
        self.last = raw.arrival;
        let first = *self.first.get_or_insert(raw.arrival);
        let key = |names: &mut Names, name: Option<&str>, field| match names.intern(name.unwrap_or_default()) {
            Some(key) => Ok(key),
            None => Err(place.field(field, format!("is the one after {} distinct names", Names::MOST), "use fewer names")),
        };
        let tenant = key(&mut self.tenants, raw.tenant.as_deref(), "tenant")?;
        let model = key(&mut self.models, raw.model.as_deref(), "model")?;
        let number = self.number;
        self.number += 1;
        Ok(TraceRequest {
            number,
            arrival: raw.arrival - first,
            class,
            service,
            expected: raw.expected,
            deadline: raw.deadline,
            target: raw.target,
            tenant,
            model,
            prefill,
            input_tokens: raw.input,
            output_tokens: raw.output,
            step: raw.step,
        })
    }

    fn class(&mut self, raw: &Raw<'_>, place: Place<'_>) -> Result<Class, InputError> {
        let lanes = self.options.lanes;
        if let Some(gpus) = raw.gpus
            && gpus != 1
            && gpus as usize != lanes
        {
            let what = format!("{gpus} is neither 1 nor the lane count {lanes}");
            return Err(place.field(
                &self.fields.gpus,
                what,
                "leave such requests out of the trace, or set the lane count to it",
            ));
        }
        if let Some(rule) = &self.options.large_if {
            let large = rule.matches(raw, &self.options.service);
            self.with_rule_field += u64::from(large.is_some());
            return Ok(if large == Some(true) { Class::Large } else { Class::Small });
        }
        self.classed += u64::from(raw.class.is_some() || raw.gpus.is_some());
        let by_gpus = raw.gpus.map(|gpus| if gpus == 1 { Class::Small } else { Class::Large });
        let Some(name) = raw.class.as_deref() else {
            return Ok(by_gpus.unwrap_or(Class::Small));
        };
        let Some(class) = Class::ALL.into_iter().find(|class| class.name() == name) else {
            let what = format!("`{}` is not a class", excerpt(name.as_bytes()));
            return Err(place.field(
                "class",
                what,
                "write `small` or `large`, or give a rule that says which requests are large",
            ));
        };
        // With one lane both classes hold one.
        if by_gpus.is_some_and(|by_gpus| by_gpus != class) && lanes != 1 {
            let what = format!("`{class}` contradicts {} GPUs", raw.gpus.unwrap_or_default());
            return Err(place.field("class", what, format!("a small request has 1, a large one {lanes}")));
        }
        Ok(class)
    }

    /// Prefill and service time: the trace's own, else by the model of its class.
    fn times(&self, raw: &Raw<'_>, class: Class, place: Place<'_>) -> Result<(Option<Nanos>, Nanos), InputError> {
        if let Some(service) = raw.service {
            if raw.prefill.is_some_and(|prefill| prefill > service) {
                return Err(place.field("prefill_ms", "is longer than the service time that it is part of", "give at most that"));
            }
            return Ok((raw.prefill, service.max(Nanos(1))));
        }
        let missing = |field: &str| {
            let other = if field == self.fields.input { &self.fields.output } else { &self.fields.input };
            let remedy = format!("give `{}`, or both `{field}` and `{other}`", self.fields.service);
            place.field(&self.fields.service, format!("is missing, and so is `{field}`, from which it could be told"), remedy)
        };
        let input = raw.input.ok_or_else(|| missing(&self.fields.input))?;
        let output = raw.output.ok_or_else(|| missing(&self.fields.output))?;
        let Some((prefill, service)) = self.options.service.class(class).times(input, output) else {
            let what = format!("{input} tokens in and {output} out take more than 366 days by the service model");
            return Err(place.field(&self.fields.input, what, "check the tokens and the coefficients of the model"));
        };
        Ok((Some(raw.prefill.unwrap_or(prefill)), service.max(Nanos(1))))
    }
}

impl Requests {
    fn read(&mut self) -> Result<Option<TraceRequest>, InputError> {
        while self.lines.advance()? {
            let (line, place) = (self.lines.line(), self.lines.place());
            let parsed = match &mut self.importer {
                Importer::Jsonl => jsonl::parse(line, place)?,
                Importer::Csv(header) => header.parse_line(line, place)?,
                Importer::Swf => swf::parse(line, place)?,
            };
            match parsed {
                Parsed::Request(raw) => return self.settler.settle(&raw, place).map(Some),
                Parsed::Skipped => self.settler.skipped += 1,
                Parsed::Nothing => {}
            }
        }
        if self.settler.number == 0 {
            return Err(InputError::Empty { file: Arc::clone(self.lines.place().file) });
        }
        Ok(None)
    }

    /// How many lines were left out so far because they are no request that ran.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.settler.skipped
    }
}

impl Source for Requests {
    fn next_request(&mut self) -> Result<Option<TraceRequest>, InputError> {
        if self.ended {
            return Ok(None);
        }
        let next = self.read();
        self.ended = !matches!(next, Ok(Some(_)));
        next
    }

    fn lanes(&self) -> usize {
        self.settler.options.lanes
    }

    fn tenants(&self) -> &Names {
        &self.settler.tenants
    }

    fn models(&self) -> &Names {
        &self.settler.models
    }
}
