//! Generated workloads: a spec as a text, and the endless source that it describes.

mod mix;
mod spec;

pub use mix::MixSource;
pub use spec::{Arrivals, Service, WorkloadSpec};
