//! The state word: one `u64` that is the only truth about who holds which lane.
//!
//! ```text
//!  63          40 39    32 31     24 23     16 15      8 7       0
//! ┌──────────────┬────────┬─────────┬─────────┬─────────┬─────────┐
//! │  epoch (24)  │  ask   │  flags  │ offline │ arrived │  busy   │
//! └──────────────┴────────┴─────────┴─────────┴─────────┴─────────┘
//!  flags:  DRAIN 1   GANG 2   ABORT 4   CLOSED 8   STOP 16
//! ```
//!
//! Each field of lanes has one byte, lane 0 in its lowest bit, whatever the lane count; the unused bits stay 0. The epoch is the
//! highest field, so that its carry leaves the word.
//!
//! A gang takes all lanes, or none, in one compare-exchange: there are no locks to take one after the other, hence no order in
//! which to take them, no back-off, and no half of a gang.
//!
//! [`Snapshot`] is a value of the word with the transitions as pure functions; [`StateWord`] is the atomic around it; [`Word`] is
//! the same for a lane count chosen at run time. No other module touches the atomic.
//!
//! # Who changes a bit
//!
//! | bit | turned on by | turned off by |
//! |---|---|---|
//! | busy | the dispatcher: reserve, reserve_probe, reserve_gang | the holder's release: the worker, a lease, or the dispatcher before it has handed the lane over |
//! | arrived | the member: arrive | the completing arrive, reserve_gang, end_gang |
//! | offline | quarantine, by the worker that holds the lane or by the dispatcher | the dispatcher: restore |
//! | ask | the dispatcher: ask | unask, reserve, reserve_probe, reserve_gang, release, end_gang |
//! | DRAIN | the dispatcher: drain | the dispatcher: drain, reserve_gang |
//! | GANG | the dispatcher: reserve_gang | the dispatcher: end_gang |
//! | ABORT | abort_gang by a member or the dispatcher; quarantine | reserve_gang, end_gang |
//! | CLOSED | the dispatcher: close | nobody |
//! | STOP | the completing arrive | reserve_gang |
//! | epoch | reserve_gang and the completing arrive, by one each | |
//!
//! # What each bit refuses
//!
//! The first row that applies, from the top, is the reason given; `l` is the lane in question. A dash lets the transition pass.
//!
//! | on | reserve | reserve_probe | reserve_gang | arrive | abort_gang | quarantine | end_gang | restore |
//! |---|---|---|---|---|---|---|---|---|
//! | CLOSED | `Closed` | - | `Closed` | - | - | - | - | - |
//! | GANG | `Gang` | - | `Gang` | needed: `NoGang` | needed: `NoGang` | - | needed: `NoGang` | - |
//! | ABORT | - | - | - | `Aborted` | `Aborted` | - | - | - |
//! | epoch differs | - | - | - | `OtherEpoch` | `OtherEpoch` for a member | - | - | - |
//! | busy, `l` | `Busy` | `Busy` | `Busy`, any lane | all needed: `MembersLeft` | - | - | `Busy`, any lane not offline | `Busy` |
//! | offline, `l` | `Offline` | needed: `Online` | `Offline`, any lane | - | - | `AlreadyOffline` | excuses busy | needed: `Online` |
//! | DRAIN, STOP, arrived, ask | - | - | - | - | - | - | - | - |
//!
//! `judge`, `release`, `ask`, `unask`, `drain` and `close` are never refused. `judge` looks at the epoch first: moved is through,
//! and stays so. In the same epoch it is wait while GANG is on, ABORT off and every lane busy; otherwise it is broken, and stays so.
//!
//! # Why the rules are as they are
//!
//! All but the last were broken on purpose, and the search in `explore.rs` failed on each.
//!
//! - **The last arrival does everything at once.** It clears the others' bits, moves the epoch and decides whether the gang steps
//!   aside, in one exchange. Every member's verdict hangs on that single moment: a break before it breaks the barrier for all, one
//!   after it for none. In two steps (set my bit; if I am last, move the epoch) a break can come between them: those who
//!   judged by then are told broken, those who judge later are told through. For the same reason a member reads STOP, and not the
//!   asks, which go on changing.
//! - **The end of a gang moves neither the epoch nor STOP.** Together they are the verdict of the last barrier. A member may have
//!   been quarantined for being slow just between its barrier and its look at the verdict, and the gang may have ended over its
//!   head. A moved epoch would tell it that a barrier was passed which nobody passed; a cleared STOP would have it go on where all
//!   its peers stepped aside. Neither can change before it reads them, since its own busy bit keeps the next gang out.
//! - **Three things break a gang**: ABORT, a member's lane released, GANG gone. So a member that returns early, panics or is
//!   taken out of service frees its peers whatever else it does or fails to do.
//! - **A hung lane does not hold the node up.** `end_gang` excuses busy lanes that are offline: small requests go on, and the lane
//!   is probed once its holder has let go after all. "Every lane is free at the end" excepts such lanes, which are reported.
//! - **A quarantine aborts.** Otherwise members would wait for one that has been given up.
//! - **A member's time-out names its epoch.** Its barrier may complete in the very moment in which it gives up; then all went
//!   through, and it goes along.
//! - **The transition that breaks the gang wakes those who wait**, and its outcome lists them. After it nobody can arrive any
//!   more, so later ones find nobody to wake; they list none.
//! - **A lane's ask ends with its request.** The dispatcher may ask a lane that has just been released; the next reservation
//!   clears that, so that it never hits somebody else.
//! - **A lease has an atomic of its own.** The busy bit cannot tell an old owner from a new one: a revoked holder that released
//!   late would free the lane of the next request. Whoever changes the lease's atomic first is the one who releases.
//! - **Nobody stores.** Every change is a read-modify-write, which loses no other's change and breaks no release sequence.
//!
//! Two guards have no mutant, since another already covers what they do: `reserve_gang` clears arrived bits that `end_gang` has
//! cleared (dropping both is seen), and `arrive` is refused when members have left, where it would only wait in vain until it judges.
//! They stay: each makes one function right by itself.
//!
//! # What always holds
//!
//! Of every value of the word, asserted by [`StateWord`] in debug builds and by the search in each state:
//!
//! - unused bits are 0;
//! - without GANG there is no arrived bit and no ABORT;
//! - a gang with an offline lane has ABORT;
//! - some member's arrived bit is off: the last one does not leave all on.
//!
//! Not so, though it looks so: that arrived lanes are busy. A member that leaves a broken gang leaves its arrived bit behind until
//! the gang is ended. Nor does STOP imply GANG, nor GANG exclude a probe: a member's lane that was quarantined and released may be
//! probed before the gang has been ended, and ABORT is on by then.
//!
//! # Orderings
//!
//! | publishes | reads | so that |
//! |---|---|---|
//! | `release` (Release) | `reserve`, `reserve_probe`, `reserve_gang` (Acquire) | a lane's next request finds what the last one did |
//! | `release` (Release) | `load`, `end_gang`, `restore`, `close` (Acquire) | the dispatcher finds the outcome of what was held |
//! | `arrive` (Release) | the completing `arrive`, `judge` (Acquire) | every member finds what every other did before the barrier |
//! | `abort_gang`, `quarantine` (Release) | `judge`, a refused `arrive` or `abort_gang` (Acquire) | who is told broken may read why |
//! | `arrive` (Release) | `quarantine` (Acquire) | the dispatcher that gives a lane up finds how far its holder came |
//! | `end_gang`, `restore`, `close` (Release) | `load`, `judge` (Acquire) | the dispatcher's notes go with its flags |
//! | `ask`, `unask`, `drain` (Relaxed) | anyone | the bit is the whole message |
//!
//! Each of them is needed: `tools/ci/mutants.sh` weakens them one at a time, and a model fails. A transition that acquires does so
//! when it looks at the word; its exchange then succeeds on the very bits that it looked at, and need not acquire again.
//!
//! The pairs hold at a distance: what one transition releases, a later one acquires through any number of others in between, the
//! relaxed ones included, because all of them are read-modify-writes and so continue the release sequence. No two words are
//! ordered against each other here, so nothing is `SeqCst`; who sleeps on this word keeps its own sleeping flag.
//!
//! # Bounded
//!
//! A transition repeats only when another one succeeded in between, and there are only so many of those. While one member is in
//! its `arrive`, no barrier can complete, so each peer can at most arrive, abort, quarantine and release: four exchanges each.
//! The holder of a lane that is not in a gang competes with its N - 1 peers in the same way, and with the dispatcher, which
//! alone reserves: it takes one step at a time and has no loop that does not wait for somebody. The `fetch_and` of `release` is no
//! exception: on x86-64 it is such a loop too, since its prior value is used.

#[cfg(all(test, not(any(loom, shuttle))))]
mod explore;
mod layout;
mod snapshot;
mod state_word;

pub use layout::{EPOCH_BITS, Flags};
pub use snapshot::{
    AbortRefused, Aborted, AlreadyOffline, Arrival, ArriveRefused, EndRefused, Ended, GangRefused, ProbeRefused, Quarantined,
    Released, ReserveRefused, RestoreRefused, Snapshot, Verdict, View,
};
pub use state_word::{StateWord, Word, new_word};

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
