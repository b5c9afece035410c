//! What models need of the runtime's insides: each type here passes on to the real one, which stays private to the crate.
//!
//! Only under `--cfg loom` and `--cfg shuttle`.

#![allow(missing_docs, missing_debug_implementations, clippy::missing_safety_doc)]

use super::cell::Header;
use super::gang::Gang;
use super::health::LaneState;
use super::node::Phalanx;
use super::request::RejectReason;
use super::wait::{Wait, Waiting};
use super::{admission, health, mailbox, wait};
use crate::device::Device;
use crate::scheduler::Job;
use crate::types::{Class, Epoch, LaneId, LaneMask, Nanos, RequestId};
use crate::word::Word;

/// How every thread of a model waits: it parks at once, since a spin does not end there.
fn parking() -> Waiting {
    Wait::Park.resolve(1, 2)
}

/// With what its owner has taken, which only that looks at: no model needs to see it.
pub struct Mailbox<M>(mailbox::Mailbox<M>, std::sync::Mutex<mailbox::Taken>);

impl<M: Copy> Mailbox<M> {
    #[expect(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(mailbox::Mailbox::new(), std::sync::Mutex::default())
    }

    pub fn attach(&self) {
        self.0.attach();
    }

    pub fn unpark(&self) {
        self.0.unpark();
    }

    /// # Safety
    /// That of the mailbox itself.
    pub unsafe fn put(&self, mail: M) {
        // SAFETY: the caller's contract.
        unsafe { self.0.put(mail, true) }
    }

    pub fn take(&self) -> M {
        let mut taken = std::mem::take(&mut *self.1.lock().expect("only the owner takes"));
        let mail = self.0.take(&mut taken, &parking());
        *self.1.lock().expect("only the owner takes") = taken;
        mail
    }
}

pub struct Bell(wait::Bell);

impl Bell {
    #[expect(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(wait::Bell::new(false))
    }

    pub fn attach(&self) {
        self.0.attach();
    }

    pub fn ring(&self) {
        self.0.ring();
    }

    pub fn sleep(&self, idle: impl FnOnce() -> bool) {
        self.0.sleep(None, idle);
    }
}

pub struct Door(admission::Door);

impl Door {
    pub fn new(capacity: usize) -> Self {
        Self(admission::Door::new(capacity))
    }

    pub fn enter(&self) -> Result<(), RejectReason> {
        self.0.enter()
    }

    pub fn leave(&self) {
        self.0.leave();
    }

    pub fn close(&self) {
        self.0.close();
    }

    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

pub struct Plate(health::Plate);

impl Plate {
    #[expect(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(health::Plate::new())
    }

    pub fn write(&self, state: LaneState) {
        self.0.write(state);
    }

    /// One look, if it was whole.
    pub fn look(&self) -> Option<LaneState> {
        let (state, whole) = self.0.look();
        whole.then_some(state)
    }
}

/// Runs a member of a gang whose lanes are reserved.
pub fn member<R>(
    word: &dyn Word,
    wake: &dyn Fn(LaneMask),
    lane: LaneId,
    size: usize,
    epoch: Epoch,
    body: impl FnOnce(&Gang<'_>) -> R,
) -> R {
    let header = Header::new(Job::new(RequestId(0), Class::Large, Nanos::ZERO), None);
    body(&Gang::new(word, wake, parking(), lane, size, &header, epoch))
}

/// What a gang with steps does after each. Whether it is to stop.
pub fn pass(gang: &Gang<'_>) -> bool {
    gang.pass().expect("nobody breaks the gang")
}

/// What a worker does for a member that will not come to the barrier again.
pub fn abort(gang: &Gang<'_>) {
    gang.abort();
}

/// Lets the node's time pass.
pub fn advance<D: Device>(node: &Phalanx<D>, by: Nanos) {
    node.clock().advance(by);
}
