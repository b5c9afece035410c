//! The state word, without contention: what each transition adds to the one atomic instruction that it cannot do without (`base`).

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use criterion::{Criterion, criterion_group, criterion_main};
use phalanx::LaneId;
use phalanx::word::new_word;

fn word(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("word");
    let bare = AtomicU64::new(0);
    group.bench_function("base: two compare-exchanges on a u64", |bencher| {
        bencher.iter(|| {
            for (from, to) in [(0, 1), (1, 0)] {
                let _ = black_box(bare.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire));
            }
        });
    });
    let word = new_word(8).expect("a word has room for 8 lanes");
    group.bench_function("load", |bencher| bencher.iter(|| black_box(word.load())));
    group.bench_function("is_asked: what a step costs", |bencher| {
        // As a worker has it: chosen at run time.
        let word = phalanx::word::new_word(8).expect("a word has up to 8 lanes");
        bencher.iter(|| black_box(black_box(&*word).is_asked(LaneId::new(3))));
    });
    group.bench_function("reserve, release", |bencher| {
        bencher.iter(|| {
            let _ = black_box(word.reserve(LaneId::new(3)));
            let _ = black_box(word.release(LaneId::new(3)));
        });
    });
    group.bench_function("reserve a gang, eight arrivals, eight releases, end", |bencher| {
        bencher.iter(|| {
            let epoch = word.reserve_gang().expect("every lane is free");
            for lane in (0..8).map(LaneId::new) {
                let _ = black_box(word.arrive(lane, epoch));
            }
            for lane in (0..8).map(LaneId::new) {
                let _ = black_box(word.release(lane));
            }
            let _ = black_box(word.end_gang());
        });
    });
    group.finish();
}

criterion_group!(benches, word);
criterion_main!(benches);
