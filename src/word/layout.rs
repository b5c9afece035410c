//! Where each field lies in the 64 bits.
//!
//! Every field of lanes has a byte of its own whatever the lane count, so that a hex dump of the word reads by eye.

use std::fmt;

use crate::types::{LaneMask, MAX_LANES};

/// The most epoch bits that the word has room for, and what the runtime uses. Models use 2, so that the wrap is searched.
pub const EPOCH_BITS: u32 = 24;

/// The epoch's lowest bit. It is the highest field, so a carry out of it leaves the word.
const EPOCH_SHIFT: u32 = 40;
const FLAGS_SHIFT: u32 = 24;

/// A field with one bit a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum LaneField {
    Busy = 0,
    Arrived = 8,
    Offline = 16,
    Ask = 32,
}

impl LaneField {
    const fn shift(self) -> u32 {
        self as u32
    }

    /// The lanes of this field in `bits`.
    #[inline]
    pub(super) const fn get(self, bits: u64) -> LaneMask {
        LaneMask::from_bits(bits >> self.shift() & 0xff)
    }

    /// `lanes` at this field's place, nothing elsewhere. Lanes that the word has no room for are cut off.
    #[inline]
    pub(super) const fn place(self, lanes: LaneMask) -> u64 {
        (lanes.bits() & 0xff) << self.shift()
    }
}

/// The flags of the word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u8);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// A large request waits for the lanes. It refuses nothing, since backfill goes on; it is there for those who look.
    pub const DRAIN: Self = Self(1);
    /// One request holds every lane.
    pub const GANG: Self = Self(2);
    /// The gang is broken: nobody passes its barrier any more.
    pub const ABORT: Self = Self(4);
    /// No new reservations; a probe is not one.
    pub const CLOSED: Self = Self(8);
    /// The gang steps aside at its next step, as its last completed barrier decided for all of its members.
    pub const STOP: Self = Self(16);

    const ALL: Self = Self(31);

    /// Whether every flag of `other` is on.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any flag of `other` is on.
    #[inline]
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The flags of both.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These flags but `other`'s.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    #[inline]
    pub(super) const fn get(bits: u64) -> Self {
        Self((bits >> FLAGS_SHIFT & 0xff) as u8)
    }

    /// These flags at their place in the word, nothing elsewhere.
    #[inline]
    pub(super) const fn place(self) -> u64 {
        (self.0 as u64) << FLAGS_SHIFT
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::DRAIN, "DRAIN"),
            (Self::GANG, "GANG"),
            (Self::ABORT, "ABORT"),
            (Self::CLOSED, "CLOSED"),
            (Self::STOP, "STOP"),
        ];
        let mut between = "";
        for (flag, name) in names {
            if self.contains(flag) {
                write!(f, "{between}{name}")?;
                between = "|";
            }
        }
        if between.is_empty() { f.write_str("-") } else { Ok(()) }
    }
}

/// The epoch of `bits`, when it is `width` bits wide.
#[inline]
pub(super) const fn epoch(bits: u64, width: u32) -> u32 {
    (bits >> EPOCH_SHIFT) as u32 & epoch_mask(width)
}

/// The epoch `number` at its place, cut to `width` bits, nothing elsewhere.
#[inline]
pub(super) const fn place_epoch(number: u32, width: u32) -> u64 {
    ((number & epoch_mask(width)) as u64) << EPOCH_SHIFT
}

const fn epoch_mask(width: u32) -> u32 {
    (1 << width) - 1
}

/// Every bit that a word of `lanes` lanes and an epoch of `width` bits may have on.
pub(super) const fn used(lanes: usize, width: u32) -> u64 {
    let all = LaneMask::first(lanes);
    LaneField::Busy.place(all)
        | LaneField::Arrived.place(all)
        | LaneField::Offline.place(all)
        | LaneField::Ask.place(all)
        | Flags::ALL.place()
        | place_epoch(u32::MAX, width)
}

// The fields lie side by side: none overlaps another, and together they are the whole word.
const _: () = assert!(used(MAX_LANES, EPOCH_BITS) | 0xe0 << FLAGS_SHIFT == u64::MAX);
const _: () = assert!(used(MAX_LANES, EPOCH_BITS).count_ones() == 4 * 8 + 5 + EPOCH_BITS);
