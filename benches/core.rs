//! The core's pieces that run once or more per attempt: timer wheel, delay draw, classification, a whole turn of the
//! dispatcher. `cargo bench --bench core`.
#![allow(missing_docs)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use waypost::core::backoff;
use waypost::core::classify::{Answer, Outcome, classify};
use waypost::core::delivery::Progress;
use waypost::core::dispatcher::{Action, Dispatcher, EndpointMemory, Loaded};
use waypost::core::ids::{EndpointId, Seq};
use waypost::core::policy::EndpointPolicy;
use waypost::core::route::Terms;
use waypost::core::time::{Now, StoreTime, UnixMillis};
use waypost::core::wheel::Wheel;

const TIMERS: u64 = 1_000_000;

fn due(n: u64) -> StoreTime {
    StoreTime(n.wrapping_mul(2_654_435_761) % 600_000)
}

fn filled() -> Wheel<u64> {
    let mut wheel = Wheel::new(StoreTime(0));
    for n in 0..TIMERS {
        wheel.insert(due(n), n);
    }
    wheel
}

fn wheel(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wheel");
    group.throughput(Throughput::Elements(TIMERS)).sample_size(10);
    group.bench_function("insert a million", |bench| bench.iter(filled));
    group.bench_function("advance over a million by seconds", |bench| {
        bench.iter_batched(
            filled,
            |mut wheel| {
                let mut fired = Vec::new();
                for second in 0..=600 {
                    wheel.advance(StoreTime(second * 1000), &mut fired);
                    fired.clear();
                }
                assert!(wheel.is_empty());
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function("cancel a million", |bench| {
        bench.iter_batched(
            || {
                let mut wheel = Wheel::new(StoreTime(0));
                let ids: Vec<_> = (0..TIMERS).map(|n| wheel.insert(due(n), n)).collect();
                (wheel, ids)
            },
            |(mut wheel, ids)| {
                for id in ids {
                    wheel.cancel(id);
                }
                assert!(wheel.is_empty());
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn leaves(criterion: &mut Criterion) {
    let policy = EndpointPolicy::default();
    let mut rng = Pcg64::seed_from_u64(1);
    let mut previous = Duration::ZERO;
    criterion.bench_function("backoff draw", |bench| {
        bench.iter(|| {
            previous = backoff::draw(&policy.retry, black_box(3), previous, &mut rng);
            previous
        });
    });
    let now = Now { store: StoreTime(0), wall: UnixMillis(0), wall_trusted: true };
    let outcome = Outcome::Response(Answer { status: 503, ..Answer::default() });
    criterion.bench_function("classify", |bench| bench.iter(|| classify(black_box(&outcome), &policy, now)));
}

/// A thousand deliveries through page, attempt, outcome and settlement.
fn dispatcher(criterion: &mut Criterion) {
    const EVENTS: u64 = 1000;
    let id = EndpointId(1);
    let mut group = criterion.benchmark_group("dispatcher");
    group.throughput(Throughput::Elements(EVENTS));
    group.bench_function("deliver a thousand", |bench| {
        bench.iter(|| {
            let mut rng = Pcg64::seed_from_u64(1);
            let mut machine = Dispatcher::new();
            let mut at = StoreTime(0);
            machine.add_endpoint(id, EndpointPolicy::default(), EndpointMemory::default(), at);
            let outcome = Outcome::Response(Answer { status: 200, ..Answer::default() });
            let mut done = 0;
            while done < EVENTS {
                match machine.poll(at, &mut rng) {
                    Some(Action::LoadPage { after, limit, .. }) => {
                        let page = (after.0 + 1..=EVENTS.min(after.0 + limit as u64))
                            .map(|seq| Loaded {
                                seq: Seq(seq),
                                accepted: at,
                                progress: Progress::default(),
                                terms: Terms::default(),
                            })
                            .collect();
                        machine.handle_page(id, page, Seq(EVENTS), true, at);
                    }
                    Some(Action::LoadScheduled { until, .. }) => {
                        machine.handle_scheduled(id, Vec::new(), until, at);
                    }
                    Some(Action::Attempt { seq, .. }) => {
                        at = at + Duration::from_millis(1);
                        let now = Now { store: at, wall: UnixMillis(0), wall_trusted: true };
                        machine.handle_outcome(id, seq, &outcome, Duration::ZERO, now, &mut rng);
                        machine.handle_settled(id, seq, at);
                        done += 1;
                    }
                    Some(Action::Redrive { .. }) => machine.handle_redrive(id, None, at),
                    Some(Action::Settle { .. } | Action::Persist { .. }) => {}
                    None => at = at + Duration::from_millis(1),
                }
            }
        });
    });
    group.finish();
}

criterion_group!(benches, wheel, leaves, dispatcher);
criterion_main!(benches);
