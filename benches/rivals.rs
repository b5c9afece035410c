//! What one would otherwise use, doing the same job with less; `base` is Phalanx driven by `turn()`.

use criterion::{Criterion, criterion_group, criterion_main};

fn rivals(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rivals");
    for (name, figure) in [
        ("base: phalanx, turn()", "turn_rtt"),
        ("tokio semaphore", "rivals.tokio_semaphore"),
        ("tokio acquire_many", "rivals.tokio_acquire_many"),
        ("mutex and condvar", "rivals.mutex_condvar"),
        ("greedy compare-exchange", "rivals.greedy_cas"),
        ("crossbeam-channel, spinning", "rivals.crossbeam_spin"),
        ("crossbeam-channel, blocking", "rivals.crossbeam_block"),
        ("rayon broadcast", "rivals.rayon_broadcast"),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|n| phalanx_bench::time(figure, n).expect("it is a figure"));
        });
    }
    group.finish();
}

criterion_group!(benches, rivals);
criterion_main!(benches);
