//! The cost of a command in the engine alone: a batch of 256 commands, gathered into one commit, without HTTP and disk.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]

#[path = "../tests/engine/kinds/mod.rs"]
mod kinds;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kinds::{Account, Command, World};
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};
use throng::Engine;

/// The allocator that the binary `throng` runs on.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const COMMANDS: usize = 256;

/// Polls all commands, then the committer, then all commands again: what a gateway's loop does in one turn.
fn turn<T>(committer: &mut Pin<Box<dyn Future<Output = ()> + Send>>, mut asks: Vec<Pin<Box<dyn Future<Output = T>>>>) {
    let mut context = Context::from_waker(Waker::noop());
    let mut done = 0;
    while done < COMMANDS {
        asks.retain_mut(|ask| {
            let ready = ask.as_mut().poll(&mut context).is_ready();
            done += usize::from(ready);
            !ready
        });
        assert!(matches!(committer.as_mut().poll(&mut context), Poll::Pending));
    }
}

fn engine() -> (Engine, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let engine = runtime.block_on(async {
        let engine = World::new().engine().await;
        for n in 0..COMMANDS {
            kinds::open(&engine, &format!("account-{n}"), 0).await;
        }
        engine
    });
    (engine, (0..COMMANDS).map(|n| format!("account-{n}")).collect())
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("turn of 256");
    group.throughput(Throughput::Elements(COMMANDS as u64));
    let (engine, ids) = engine();
    let mut committer: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(engine.driver().committer());
    assert!(
        committer
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    group.bench_function("typed", |bencher| {
        bencher.iter(|| {
            let ask = |id: &String| {
                Box::pin(engine.entity::<Account>(id.clone()).ask(Command::Deposit { amount: 1 })) as Pin<Box<_>>
            };
            turn(
                &mut committer,
                ids.iter()
                    .map(ask)
                    .map(|ask: Pin<Box<dyn Future<Output = _>>>| ask)
                    .collect(),
            );
        });
    });
    let driver = engine.driver();
    group.bench_function("json", |bencher| {
        bencher.iter(|| {
            let ask = |id: &String| {
                let attempt = driver.command(0, id.clone(), "Deposit", br#"{"amount":1}"#.as_slice());
                let driver = driver.clone();
                Box::pin(async move { driver.answer(attempt?).await }) as Pin<Box<dyn Future<Output = _>>>
            };
            turn(&mut committer, ids.iter().map(ask).collect());
        });
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
