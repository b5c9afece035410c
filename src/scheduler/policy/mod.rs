//! The policies: who starts next, and when small jobs must wait for a large one.
//!
//! A policy is asked for one [`Action`] at a time until it holds; the scheduler carries each out before it asks again, so a
//! policy always sees the node as it is. One file each; [`POLICIES`] lists them all, with the settings that each understands.
//!
//! A policy of your own implements [`Policy`] and goes into [`Scheduler::new`](super::Scheduler::new) or into the runtime's builder.

mod backfill;
mod balance;
mod drain;
mod easy;
mod fcfs;
mod msf;
mod msfq;
mod settings;
mod small_first;
mod swap;

pub use settings::{PolicyError, Settings, Span};

use super::event::JobRef;
use super::view::View;
use crate::types::{LaneId, Nanos};
use std::fmt;
use std::str::FromStr;

/// What is to be done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Start this queued small job on a free lane; there must be one.
    StartSmall {
        /// Which.
        job: JobRef,
        /// Whether it passes a waiting large one because it is predicted to end in time. For the record only.
        backfill: bool,
    },
    /// Start this queued small job on this lane, which must be free.
    StartSmallOn {
        /// Which.
        job: JobRef,
        /// Where.
        lane: LaneId,
    },
    /// Let this parked job go on; its lane, or all of them, must be free.
    Resume(JobRef),
    /// Ask this running job, which has steps and is not asked yet, to stop at its next one. There must be room for it to be parked.
    Ask(JobRef),
    /// A running job that is asked to stop need not any more.
    Unask(JobRef),
    /// Start this queued large job; every lane must be free.
    StartLarge(JobRef),
    /// Nothing, until something happens.
    Hold(Hold),
}

/// Why nothing starts, and until when.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hold {
    /// Lanes are kept free for a large job that waits.
    pub drain: bool,
    /// Ask again at this moment even if nothing happens.
    pub wake_at: Option<Nanos>,
}

impl Action {
    /// Nothing to start, or nowhere to start it.
    pub const IDLE: Self = Self::Hold(Hold { drain: false, wake_at: None });
    /// Lanes are kept free for a large job that waits.
    pub const DRAIN: Self = Self::Hold(Hold { drain: true, wake_at: None });

    /// Start this small job.
    #[inline]
    #[must_use]
    pub const fn small(job: JobRef) -> Self {
        Self::StartSmall { job, backfill: false }
    }

    /// Start this small job past a waiting large one.
    #[inline]
    #[must_use]
    pub const fn backfill(job: JobRef) -> Self {
        Self::StartSmall { job, backfill: true }
    }
}

/// Decides who starts next.
///
/// It may keep state, must not look at a clock, and must answer in bounded time whatever is queued: [`View::scan`] is
/// bounded for this reason.
pub trait Policy: fmt::Debug + Send {
    /// The name in `--policy` and in reports.
    fn name(&self) -> &str;

    /// Whether it asks [`View::ranked`] and [`View::latest_start`]: only then are the queues kept in those orders. Asked once. A
    /// policy that wraps another hands this on.
    fn ranks(&self) -> bool {
        false
    }

    /// The next thing to do. Asked again after each start, until it holds.
    fn next(&mut self, view: &mut View<'_>) -> Action;
}

/// One policy that can be chosen by name.
#[derive(Debug)]
pub struct PolicyInfo {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// The settings it knows: key, default, meaning.
    pub settings: &'static [(&'static str, &'static str, &'static str)],
    make: Make,
}

/// Makes a policy from its settings, for a node of so many lanes.
type Make = fn(&Settings, usize) -> Result<Box<dyn Policy>, PolicyError>;

/// Every policy that can be chosen by name.
pub static POLICIES: &[PolicyInfo] =
    &[balance::INFO, drain::INFO, easy::INFO, fcfs::INFO, msf::INFO, msfq::INFO, small_first::INFO, swap::INFO];

/// A policy and its settings, checked: what `--policy` takes, and a report names.
///
/// ```
/// use phalanx::scheduler::PolicySpec;
/// let spec: PolicySpec = "drain:batch=all:backfill=on".parse().unwrap();
/// assert_eq!(spec.to_string(), "drain:batch=all:backfill=on");
/// assert!("drian".parse::<PolicySpec>().unwrap_err().to_string().contains("drain"));
/// ```
#[derive(Clone, Debug)]
pub struct PolicySpec {
    info: &'static PolicyInfo,
    settings: Settings,
}

impl PolicySpec {
    /// The policy, for a node of so many lanes. A setting that is too large for them (`msfq:l=20` on 8 lanes) counts as the largest
    /// that is not; [`check`](Self::check) says so beforehand.
    ///
    /// # Panics
    /// If `lanes` is not 1 to [`MAX_SIM_LANES`](crate::types::MAX_SIM_LANES): [`Limits`](super::Limits) admits no other.
    #[must_use]
    pub fn build(&self, lanes: usize) -> Box<dyn Policy> {
        assert!((1..=crate::types::MAX_SIM_LANES).contains(&lanes), "a node has 1 to MAX_SIM_LANES lanes");
        let mut settings = self.settings.clone();
        settings.clamp();
        (self.info.make)(&settings, lanes).expect("the settings were checked when the spec was parsed")
    }

    /// Whether its settings fit a node of so many lanes.
    ///
    /// # Errors
    /// The setting that does not, and what it may be.
    pub fn check(&self, lanes: usize) -> Result<(), PolicyError> {
        if !(1..=crate::types::MAX_SIM_LANES).contains(&lanes) {
            return Err(PolicyError::new(format!("{lanes} lanes: a node has 1 to {}", crate::types::MAX_SIM_LANES)));
        }
        (self.info.make)(&self.settings, lanes).map(drop)
    }

    /// Its name, without settings.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.info.name
    }
}

impl Default for PolicySpec {
    /// `balance`, with its default settings.
    fn default() -> Self {
        Self { info: &balance::INFO, settings: Settings::of(&balance::INFO) }
    }
}

impl FromStr for PolicySpec {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let info = POLICIES.iter().find(|info| info.name == name).ok_or_else(|| PolicyError::unknown(name))?;
        let settings = Settings::parse(info, parts)?;
        (info.make)(&settings, crate::types::MAX_SIM_LANES)?;
        Ok(Self { info, settings })
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.info.name, self.settings)
    }
}

#[cfg(test)]
mod tests;
