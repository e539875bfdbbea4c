//! Bare axum on tokio's usual runtime.

use anyhow::Context as _;
use axum::{
    Router,
    extract::Path,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
    serve::ListenerExt as _,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(contenders::threads())
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let router = Router::new().route("/primes/{n}", get(primes));
        let listener = contenders::listen()?.tap_io(|stream| {
            // Fails only if the connection is already closed.
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router).await.context("the server ended")
    })
}

async fn primes(Path(n): Path<String>) -> Response {
    match contenders::count(&n) {
        Some(n) => ([(header::CONTENT_TYPE, "application/json")], primes::json(n)).into_response(),
        None => (StatusCode::BAD_REQUEST, "n must be a number from 0 to 100000").into_response(),
    }
}
