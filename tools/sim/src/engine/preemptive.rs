//! Server filling (Grosof, Scully, Harchol-Balter and Scheller-Wolf 2022): a preemptive reference. No node can do this: a request is
//! stopped anywhere and goes on later without a loss.
//!
//! At every event it takes the shortest prefix, in the order of arrival, of the requests in the system whose needs sum to at least
//! the lanes, and serves it widest first. Where a request needs one lane or all, this says: the first large one among the prefix if
//! there is one, else the small ones in it.

use super::run::{SimError, SimOptions};
use super::stats::{ClassAreas, ClassTally, RunResult, Trail};
use crate::Source;
use phalanx::Class;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
struct Present {
    arrival: u64,
    /// What is left of its service.
    left: u64,
    /// When it first ran.
    started: Option<u64>,
    due: u64,
    class: Class,
    measured: bool,
}

/// Simulates a source under preemptive server filling. Queues are unbounded, deadlines and predictions are not looked at; `wait` is
/// the time to the first start.
///
/// # Errors
/// As [`simulate`](super::simulate).
pub fn server_filling<S: Source + ?Sized>(source: &mut S, options: &SimOptions) -> Result<RunResult, SimError> {
    options.limits(source.lanes())?;
    let lanes = options.lanes;
    let mut present: VecDeque<Present> = VecDeque::new();
    let mut tallies = [ClassTally::new(), ClassTally::new()];
    let mut areas = [ClassAreas::default(); 2];
    let mut all_present = [0_u128; 2];
    let mut waiting_idle = 0_u128;
    let mut trail = Trail::new();
    let (mut now, mut from, mut taken, mut events) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut left_at_end = None;
    let mut next = source.next_request()?;
    if next.is_none() {
        return Err(SimError::Empty);
    }
    loop {
        if next.is_none() && left_at_end.is_none() {
            left_at_end = Some((now, [tallies[0].present, tallies[1].present]));
        }
        // Those served now are the first `small`, or the one at `large`.
        let prefix = present.len().min(lanes);
        let large = present.range(..prefix).position(|p| p.class == Class::Large);
        let served = large.map_or(0..prefix, |at| at..at + 1);
        for request in present.range_mut(served.clone()) {
            request.started.get_or_insert(now);
        }
        let end = present.range(served.clone()).map(|p| p.left).min().map(|left| now + left);
        let arrival = next.as_ref().map(|request| request.arrival.0);
        let Some(to) = [end, arrival].into_iter().flatten().min() else { break };
        let dt = to - now;
        let measured = taken > options.warm_up || options.warm_up == 0;
        if dt > 0 && left_at_end.is_none() {
            let holds = if large.is_some() { lanes } else { served.len() };
            for class in 0..2 {
                let area = u128::from(tallies[class].present) * u128::from(dt);
                all_present[class] += area;
                areas[class].present += if measured { area } else { 0 };
            }
            if measured {
                areas[usize::from(large.is_some())].busy += holds as u128 * u128::from(dt);
                if present.len() > served.len() {
                    waiting_idle += (lanes - holds) as u128 * u128::from(dt);
                }
            }
        }
        now = to;
        for request in present.range_mut(served.clone()) {
            request.left -= dt;
        }
        events += 1;
        if end == Some(now) {
            // One at a time: those that end at the same instant follow with dt = 0, in the order of arrival.
            let at = served.clone().find(|&at| present[at].left == 0).expect("one ends now");
            let ended = present.remove(at).expect("it is there");
            let tally = &mut tallies[ended.class.index()];
            tally.present -= 1;
            let met = now <= ended.due;
            if measured && left_at_end.is_none() {
                tally.ended_inside += 1;
                tally.met_inside += u64::from(met);
            }
            if ended.measured {
                tally.completed += 1;
                tally.met += u64::from(met);
                tally.wait.add(ended.started.unwrap_or(now) - ended.arrival);
                tally.response.add(now - ended.arrival);
            }
            continue;
        }
        let request = next.take().expect("there was an arrival");
        trail.arrival(now, all_present);
        taken += 1;
        let measured = taken > options.warm_up;
        if taken == options.warm_up + 1 {
            from = now;
        }
        let tally = &mut tallies[request.class.index()];
        tally.offered += 1;
        tally.present += 1;
        tally.submitted += u64::from(measured);
        tally.with_due += u64::from(measured && request.target.or(request.deadline).is_some());
        present.push_back(Present {
            arrival: now,
            left: request.service.0,
            started: None,
            due: request.target.or(request.deadline).map_or(u64::MAX, |span| now.saturating_add(span.0)),
            class: request.class,
            measured,
        });
        if options.requests.is_none_or(|most| taken < most) {
            next = source.next_request()?.filter(|request| options.until.is_none_or(|until| request.arrival <= until));
        }
    }
    let (last, left) = left_at_end.unwrap_or((now, [0; 2]));
    let span_ns = last.saturating_sub(from);
    let capacity_ns = span_ns as f64 * lanes as f64;
    let [small, large] = [0, 1].map(|i| tallies[i].result(&areas[i], span_ns, capacity_ns));
    Ok(RunResult {
        policy: "server-filling".to_owned(),
        lanes,
        span_s: span_ns as f64 * 1e-9,
        stability: trail.stability(&tallies, left, [usize::MAX; 2]),
        utilization: small.utilization + large.utilization,
        drain_idle_fraction: 0.0,
        idle_while_waiting_fraction: if capacity_ns > 0.0 { waiting_idle as f64 / capacity_ns } else { 0.0 },
        stopping_fraction: 0.0,
        idle_while_waiting_or_parked_fraction: 0.0,
        goodput_per_s: small.on_time_per_s + large.on_time_per_s,
        small,
        large,
        predictions: Vec::new(),
        events,
        requests: taken,
        policy_faults: 0,
    })
}
