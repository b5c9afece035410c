//! One event of the pure scheduler under each policy, with few and with many requests queued; `base` is arrival order.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use phalanx::scheduler::PolicySpec;
use phalanx_bench::Events;

fn policy(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("policy");
    for policy in ["fcfs", "balance", "drain", "drain:backfill=on", "easy", "msf", "msfq", "small-first"] {
        let name = if policy == "fcfs" { "base: fcfs" } else { policy };
        for queued in [10, 10_000] {
            let spec: PolicySpec = policy.parse().expect("it is a policy");
            group.bench_function(BenchmarkId::new(name, queued), |bencher| {
                let mut events = Events::new(spec.build(8), queued).with_models(0, true);
                bencher.iter(|| events.next_event());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, policy);
criterion_main!(benches);
