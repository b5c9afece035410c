//! When a request that came now would start.

use super::Scheduler;
use crate::types::{Class, Nanos};

impl Scheduler {
    /// How long a request of this class that came now would wait, as if all were served in the order of arrival: what runs ends as
    /// predicted, and what is queued takes the mean time of its class. A policy that lets one class pass makes it earlier for that class
    /// and later for the other.
    ///
    /// `None`: it cannot be told, since something is queued of whose class nothing has completed, or what runs has no prediction, or the
    /// class cannot start at all while lanes are out of service.
    #[must_use]
    pub fn estimate_wait(&self, class: Class) -> Option<Nanos> {
        let (lanes, now) = (&self.lanes, self.now);
        let in_service = lanes.in_service();
        if in_service.is_empty() || class == Class::Large && !lanes.offline().is_empty() {
            return None;
        }
        // What is queued, as work for the whole node.
        let work = |class: Class, at_once: usize| match self.table.queued(class) {
            0 => Some(Nanos::ZERO),
            queued => self.averages.mean_service_ns(class).map(|mean| Nanos((mean * queued as f64 / at_once as f64) as u64)),
        };
        // Larges that no lane will serve now are in nobody's way.
        let larges = if lanes.offline().is_empty() { work(Class::Large, 1)? } else { Nanos::ZERO };
        let queued = work(Class::Small, in_service.count())? + larges;
        let mut first = Nanos::MAX;
        let mut last = now;
        for lane in in_service {
            let end = if lanes.busy().contains(lane) {
                self.predicted_run(lane)?;
                lanes.gang().or_else(|| lanes.small(lane))?.end(now)
            } else {
                now
            };
            (first, last) = (first.min(end), last.max(end));
        }
        Some(queued + if class == Class::Small { first - now } else { last - now })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Decision, Decisions, End, Event, Job, Limits, PolicySpec};
    use super::*;
    use crate::types::{LaneId, RequestId};

    fn at(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    #[test]
    fn it_counts_what_runs_and_what_is_queued() {
        let mut scheduler = Scheduler::new(Limits::new(2).unwrap(), "fcfs".parse::<PolicySpec>().unwrap().build(2));
        let mut decisions = Decisions::new();
        let both = |scheduler: &Scheduler| Class::ALL.map(|class| scheduler.estimate_wait(class));
        assert_eq!(both(&scheduler), [Some(Nanos::ZERO); 2], "an idle node");
        let mut id = 0;
        let mut arrive = |scheduler: &mut Scheduler, class, ms: u64| {
            id += 1;
            let job = Job { expected: Some(at(ms)), ..Job::new(RequestId(id), class, Nanos::ZERO) };
            scheduler.on(Nanos::ZERO, Event::Arrive(job), &mut decisions);
            decisions.as_slice().iter().find_map(|d| if let Decision::Admit(job) = d { Some(*job) } else { None }).unwrap()
        };
        let first = arrive(&mut scheduler, Class::Small, 10);
        assert_eq!(both(&scheduler), [Some(Nanos::ZERO), Some(at(10))], "a lane is free, and one is not");
        arrive(&mut scheduler, Class::Small, 30);
        assert_eq!(both(&scheduler), [Some(at(10)), Some(at(30))]);
        arrive(&mut scheduler, Class::Small, 8);
        assert_eq!(both(&scheduler), [None; 2], "nothing is known of a small one's time");
        scheduler.on(at(10), Event::Finish { job: first, end: End::Completed, ran: at(10) }, &mut decisions);
        // The third started, and runs for 8 ms as it says.
        let wait = scheduler.estimate_wait(Class::Small).unwrap();
        assert!((at(7)..=at(9)).contains(&wait), "{wait}");
        scheduler.on(at(10), Event::LaneDown { lane: LaneId::new(1) }, &mut decisions);
        assert_eq!(scheduler.estimate_wait(Class::Large), None, "it cannot start");
        assert!(scheduler.estimate_wait(Class::Small).is_some());
        scheduler.on(at(10), Event::LaneDown { lane: LaneId::new(0) }, &mut decisions);
        assert_eq!(both(&scheduler), [None; 2]);
    }
}
