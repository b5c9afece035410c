//! A gang of two from its reservation until both members run, beside the bare ping-pong of a cache line (`base`).

use criterion::{Criterion, criterion_group, criterion_main};

fn gang(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("gang");
    for (name, figure) in [("base: ping-pong", "pingpong_rtt"), ("start", "gang_start"), ("skew", "gang_skew")] {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|n| phalanx_bench::time(figure, n).expect("it is a figure"));
        });
    }
    group.finish();
}

criterion_group!(benches, gang);
criterion_main!(benches);
