//! What holds of the scheduler whatever the policy.

use super::*;
use crate::types::{ModelKey, RequestId};

fn scheduler(policy: &str) -> Scheduler {
    let limits = Limits::new(8).unwrap().queue(Class::Small, 64).unwrap().queue(Class::Large, 64).unwrap();
    Scheduler::new(limits, policy.parse::<PolicySpec>().unwrap().build(8))
}

/// Runs one job alone, from `at_ms`.
fn run(scheduler: &mut Scheduler, id: u64, at_ms: u64, job: Job, end: End, ran: Nanos) {
    let mut decisions = Decisions::new();
    let now = Nanos::from_millis(at_ms);
    scheduler.on(now, Event::Arrive(Job { id: RequestId(id), arrival: now, ..job }), &mut decisions);
    let Some(&Decision::Admit(job)) = decisions.as_slice().first() else { panic!("{decisions:?}") };
    scheduler.on(now + ran, Event::Finish { job, end, ran }, &mut decisions);
    scheduler.check_invariants();
}

#[test]
fn only_what_ran_to_its_end_teaches() {
    let mut scheduler = scheduler("balance");
    let job = Job { model: ModelKey(7), ..Job::new(RequestId(0), Class::Small, Nanos::ZERO) };
    for (i, end) in [End::Failed, End::Withdrawn, End::Failed].into_iter().enumerate() {
        run(&mut scheduler, i as u64, i as u64 * 100, job, end, Nanos::from_millis(50));
    }
    assert_eq!(scheduler.averages().mean_service_ns(Class::Small), None);
    for source in PredictionSource::ALL {
        assert_eq!(scheduler.prediction_error(source, Class::Small), None);
    }
    run(&mut scheduler, 9, 900, job, End::Completed, Nanos::from_millis(10));
    assert_eq!(scheduler.averages().mean_service_ns(Class::Small), Some(10e6));
}

#[test]
fn each_source_reports_its_own_error() {
    let mut scheduler = scheduler("fcfs");
    let plain = Job::new(RequestId(0), Class::Small, Nanos::ZERO);
    let keyed = Job { model: ModelKey(7), ..plain };
    let told = Job { expected: Some(Nanos::from_millis(5)), ..plain };
    for i in 0..300 {
        let job = [plain, keyed, told][i as usize % 3];
        run(&mut scheduler, i, i * 100, job, End::Completed, Nanos::from_millis(10));
    }
    let error = |source| scheduler.prediction_error(source, Class::Small).unwrap();
    assert_eq!(error(PredictionSource::Request).completed, 100);
    assert!((error(PredictionSource::Request).bias - 2.0).abs() < 1e-6, "it was told half of the time");
    assert!(error(PredictionSource::Request).relative_error < 0.3, "and is corrected");
    assert_eq!(error(PredictionSource::Key).completed, 99, "the first of a key has no history");
    assert!(error(PredictionSource::Key).relative_error < 1e-9);
    assert!(error(PredictionSource::Class).completed >= 100);
    assert_eq!(scheduler.prediction_error(PredictionSource::Request, Class::Large), None);
}

#[test]
fn an_overrun_is_predicted_to_last_half_of_its_age_again() {
    let mut scheduler = scheduler("easy");
    let mut decisions = Decisions::new();
    let at = Nanos::from_millis;
    let job = |id, class, ms| Job { expected: Some(at(ms)), ..Job::new(RequestId(id), class, Nanos::ZERO) };
    scheduler.on(at(0), Event::Arrive(job(1, Class::Small, 10)), &mut decisions);
    scheduler.on(at(0), Event::Arrive(job(2, Class::Large, 10)), &mut decisions);
    assert!(decisions.as_slice().contains(&Decision::DrainOn { shadow: at(10) }));
    // At 40 ms it has 20 to go, by the rule: one of 25 must wait, one of 15 may pass.
    scheduler.on(at(40), Event::Arrive(job(3, Class::Small, 25)), &mut decisions);
    assert_eq!(decisions.as_slice().len(), 1, "admitted alone: {decisions:?}");
    scheduler.on(at(40), Event::Arrive(job(4, Class::Small, 15)), &mut decisions);
    assert!(matches!(decisions.as_slice(), [_, Decision::StartSmall { backfill: true, .. }]), "{decisions:?}");
}

/// Asks for what cannot be, in every way there is.
#[derive(Debug)]
struct Wrong(u32);

impl Policy for Wrong {
    fn name(&self) -> &'static str {
        "wrong"
    }

    fn next(&mut self, view: &mut View<'_>) -> Action {
        self.0 += 1;
        let stale = JobRef { slot: u32::MAX - self.0 % 2, id: RequestId(3) };
        match self.0 % 4 {
            0 => Action::small(stale),
            1 => Action::StartLarge(stale),
            2 => view.oldest(Class::Small).map_or(Action::IDLE, |small| Action::StartLarge(small.job)),
            _ => Action::Hold(Hold { drain: true, wake_at: Some(Nanos::ZERO) }),
        }
    }
}

#[test]
fn a_wrong_policy_is_counted_and_breaks_nothing() {
    let limits = Limits::new(8).unwrap().queue(Class::Small, 64).unwrap().queue(Class::Large, 64).unwrap();
    let mut scheduler = Scheduler::new(limits, Box::new(Wrong(0)));
    let mut decisions = Decisions::new();
    for i in 0..100 {
        let class = Class::ALL[i as usize % 2];
        scheduler.on(Nanos(i), Event::Arrive(Job::new(RequestId(i), class, Nanos(i))), &mut decisions);
        assert_eq!(scheduler.wake_at(), None, "not woken at a moment that has passed");
    }
    assert!(scheduler.policy_faults() > 0);
    assert_eq!(scheduler.busy().count(), 0);
    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scheduler.check_invariants()));
    assert!(checked.is_err(), "the invariants say that the policy is at fault");
}
