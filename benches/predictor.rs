//! What predictions add to an event: by the request's own, by the history of one and of very many models; `base` has the class mean alone.

use criterion::{Criterion, criterion_group, criterion_main};
use phalanx::scheduler::PolicySpec;
use phalanx_bench::Events;

fn predictor(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("predictor");
    let cases = [
        ("base: class mean", 0, false),
        ("own", 0, true),
        ("history of one model", 1, false),
        ("history of 100000 models", 100_000, false),
    ];
    for (name, models, told) in cases {
        group.bench_function(name, |bencher| {
            let mut events = Events::new(PolicySpec::default().build(8), 10).with_models(models, told);
            bencher.iter(|| events.next_event());
        });
    }
    group.finish();
}

criterion_group!(benches, predictor);
criterion_main!(benches);
