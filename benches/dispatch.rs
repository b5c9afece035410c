//! A request from its submission to its ticket, and the mailbox on the way, beside the bare ping-pong of a cache line (`base`).

use criterion::{Criterion, criterion_group, criterion_main};

fn dispatch(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("dispatch");
    for (name, figure) in [
        ("base: ping-pong", "pingpong_rtt"),
        ("turn", "turn_rtt"),
        ("dispatcher thread", "dispatcher_rtt"),
        ("mailbox: reserved to started", "stage.reserved_to_started"),
        ("one thread, no hop", "decision"),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|n| phalanx_bench::time(figure, n).expect("it is a figure"));
        });
    }
    group.finish();
}

criterion_group!(benches, dispatch);
criterion_main!(benches);
