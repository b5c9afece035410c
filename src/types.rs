//! The words of the design as types: lanes, requests, classes, time.
//!
//! Everything here is a plain `Copy` value without behaviour that could surprise: no clock, no atomic, no allocation.

use std::fmt;
use std::ops::{Add, AddAssign, BitAnd, BitOr, Not, Sub};
use std::time::Duration;

/// The most lanes that the state word, and therefore the runtime, can hold.
pub const MAX_LANES: usize = 8;

/// The most lanes that the pure scheduler and the simulator can hold: published settings have 32, and a mask is one `u64`.
pub const MAX_SIM_LANES: usize = 64;

/// One GPU with its worker thread and its mailbox, counted from 0.
///
/// The runtime has at most [`MAX_LANES`] of them, the scheduler and the simulator at most [`MAX_SIM_LANES`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct LaneId(u8);

impl LaneId {
    /// The lane with this index.
    ///
    /// # Panics
    /// If `index` is not below [`MAX_SIM_LANES`]: lane indices are made by loops over lanes, never by users.
    #[inline]
    #[must_use]
    pub const fn new(index: usize) -> Self {
        assert!(index < MAX_SIM_LANES, "a lane index is below MAX_SIM_LANES");
        Self(index as u8)
    }

    /// Its index, from 0.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The mask that holds this lane alone.
    #[inline]
    #[must_use]
    pub const fn mask(self) -> LaneMask {
        LaneMask(1 << self.0)
    }
}

impl fmt::Debug for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lane {}", self.0)
    }
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A set of lanes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct LaneMask(u64);

impl LaneMask {
    /// No lane.
    pub const NONE: Self = Self(0);

    /// The first `lanes` lanes.
    ///
    /// # Panics
    /// If `lanes` exceeds [`MAX_SIM_LANES`].
    #[inline]
    #[must_use]
    pub const fn first(lanes: usize) -> Self {
        assert!(lanes <= MAX_SIM_LANES, "a node has at most MAX_SIM_LANES lanes");
        if lanes == MAX_SIM_LANES { Self(u64::MAX) } else { Self((1 << lanes) - 1) }
    }

    /// The set with these bits, lane 0 lowest.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Its bits, lane 0 lowest.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether `lane` is in the set.
    #[inline]
    #[must_use]
    pub const fn contains(self, lane: LaneId) -> bool {
        self.0 >> lane.0 & 1 == 1
    }

    /// Whether every lane of `other` is in the set.
    #[inline]
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// How many lanes it has.
    #[inline]
    #[must_use]
    pub const fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether it has none.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The lowest lane of the set.
    #[inline]
    #[must_use]
    pub const fn lowest(self) -> Option<LaneId> {
        if self.0 == 0 { None } else { Some(LaneId(self.0.trailing_zeros() as u8)) }
    }

    /// The set with `lane` in it.
    #[inline]
    #[must_use]
    pub const fn with(self, lane: LaneId) -> Self {
        Self(self.0 | 1 << lane.0)
    }

    /// The set with `lane` not in it.
    #[inline]
    #[must_use]
    pub const fn without(self, lane: LaneId) -> Self {
        Self(self.0 & !(1 << lane.0))
    }
}

impl BitOr for LaneMask {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for LaneMask {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// The complement among all [`MAX_SIM_LANES`] lanes: intersect it with the lanes that exist.
impl Not for LaneMask {
    type Output = Self;
    #[inline]
    fn not(self) -> Self {
        Self(!self.0)
    }
}

impl IntoIterator for LaneMask {
    type Item = LaneId;
    type IntoIter = Lanes;
    #[inline]
    fn into_iter(self) -> Lanes {
        Lanes(self.0)
    }
}

impl FromIterator<LaneId> for LaneMask {
    fn from_iter<I: IntoIterator<Item = LaneId>>(lanes: I) -> Self {
        lanes.into_iter().fold(Self::NONE, Self::with)
    }
}

/// As a person reads it: `0, 3, 5`.
impl fmt::Display for LaneMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, lane) in self.into_iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            fmt::Display::fmt(&lane, f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for LaneMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LaneMask({:#b})", self.0)
    }
}

/// The lanes of a [`LaneMask`], lowest first.
#[derive(Clone, Debug)]
pub struct Lanes(u64);

impl Iterator for Lanes {
    type Item = LaneId;
    #[inline]
    fn next(&mut self) -> Option<LaneId> {
        let lane = LaneMask(self.0).lowest()?;
        self.0 &= self.0 - 1;
        Some(lane)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let n = self.0.count_ones() as usize;
        (n, Some(n))
    }
}

impl ExactSizeIterator for Lanes {}

/// A request's number, unique in a node's life and increasing in the order of submission.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The two kinds of request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum Class {
    /// Needs exactly one lane.
    Small,
    /// Needs every lane at the same instant: a gang.
    Large,
}

impl Class {
    /// Both classes, in the order in which tables print them and arrays hold them.
    pub const ALL: [Self; 2] = [Self::Small, Self::Large];

    /// Its place in an array that has one entry a class.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// `small` or `large`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a request runs, as a key for its history of run times: 64 bits of a name, or a number of the caller's.
///
/// Two names that fall on one key share a history, which costs accuracy and nothing else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct ModelKey(pub u64);

impl ModelKey {
    /// No key: the request is predicted by its class alone.
    pub const NONE: Self = Self(0);

    /// The key of a model's name (FNV-1a, 64 bits; never [`ModelKey::NONE`]).
    #[must_use]
    pub const fn of(name: &str) -> Self {
        let bytes = name.as_bytes();
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut i = 0;
        while i < bytes.len() {
            hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
            i += 1;
        }
        if hash == 0 { Self(1) } else { Self(hash) }
    }

    /// Whether there is a key.
    #[inline]
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }
}

/// Whom a request belongs to: 64 bits of a name, or a number of the caller's. It counts where the small queue is shared between tenants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct TenantKey(pub u64);

impl TenantKey {
    /// Nobody in particular. Those without a tenant are one tenant together.
    pub const NONE: Self = Self(0);

    /// The key of a tenant's name, made as [`ModelKey::of`] is.
    #[must_use]
    pub const fn of(name: &str) -> Self {
        Self(ModelKey::of(name).0)
    }

    /// Whether it is [`TenantKey::NONE`].
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0 == 0
    }
}

/// A moment or a span of the monotonic time, in nanoseconds; moments count from the node's start.
///
/// 2^64 ns are 584 years. Arithmetic saturates: a deadline that is "for ever" stays for ever, and a clock that steps back gives
/// a span of 0, never a wrapped one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Nanos(pub u64);

impl Nanos {
    /// The node's start, or a span of nothing.
    pub const ZERO: Self = Self(0);
    /// For ever.
    pub const MAX: Self = Self(u64::MAX);

    /// `us` microseconds, saturating.
    #[must_use]
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// `ms` milliseconds, saturating.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// `s` seconds, saturating.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }

    /// In seconds, for people and reports: never fed back into the core.
    #[must_use]
    pub const fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// In milliseconds, for people and reports: never fed back into the core.
    #[must_use]
    pub const fn as_millis_f64(self) -> f64 {
        self.0 as f64 * 1e-6
    }

    /// The later of the two.
    #[inline]
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        if self.0 >= other.0 { self } else { other }
    }

    /// The earlier of the two.
    #[inline]
    #[must_use]
    pub const fn min(self, other: Self) -> Self {
        if self.0 <= other.0 { self } else { other }
    }
}

impl From<Duration> for Nanos {
    /// Saturates at [`Nanos::MAX`].
    #[inline]
    fn from(d: Duration) -> Self {
        Self(d.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(d.subsec_nanos())))
    }
}

impl From<Nanos> for Duration {
    #[inline]
    fn from(n: Nanos) -> Self {
        Self::from_nanos(n.0)
    }
}

/// Saturating.
impl Add for Nanos {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// Saturating.
impl AddAssign for Nanos {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Saturating at 0.
impl Sub for Nanos {
    type Output = Self;
    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.0)
    }
}

impl fmt::Display for Nanos {
    /// As a person reads it: `850 ns`, `12.3 us`, `4.56 ms`, `7.89 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0;
        let text = match ns {
            0..1_000 => format!("{ns} ns"),
            1_000..1_000_000 => format!("{:.1} us", ns as f64 * 1e-3),
            1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 * 1e-6),
            _ => format!("{:.2} s", ns as f64 * 1e-9),
        };
        f.pad(&text)
    }
}

/// The generation of the gang barrier: it moves when a gang is reserved and each time all of its members have arrived.
///
/// The state word holds 24 bits of it (models: 2), so it wraps; only equality means anything. Two equal epochs 2^24 generations
/// apart cannot meet: a member compares its epoch only while its own busy bit keeps the gang, and with it the epoch, in place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Epoch(u32);

impl Epoch {
    /// The epoch with this number; the state word cuts it to its width.
    #[inline]
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_iterate_lowest_first_and_count() {
        let mask = LaneMask::from_bits(0b1010_0001);
        let lanes: Vec<usize> = mask.into_iter().map(LaneId::index).collect();
        assert_eq!(lanes, [0, 5, 7]);
        assert_eq!(mask.count(), 3);
        assert_eq!(mask.into_iter().collect::<LaneMask>(), mask);
        assert_eq!(LaneMask::first(64).count(), 64);
        assert!(LaneMask::first(8).covers(mask));
        assert!(!mask.covers(LaneMask::first(8)));
    }

    #[test]
    fn time_saturates_both_ways() {
        assert_eq!(Nanos::MAX + Nanos(1), Nanos::MAX);
        assert_eq!(Nanos(1) - Nanos(2), Nanos::ZERO);
        assert_eq!(Nanos::from(Duration::MAX), Nanos::MAX);
        assert_eq!(Nanos::from_secs(u64::MAX), Nanos::MAX);
        assert_eq!(format!("{}", Nanos(1_500)), "1.5 us");
    }
}
