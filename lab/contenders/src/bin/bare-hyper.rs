//! Bare hyper: a runtime of one thread for each of `THREADS`, every one with its own listener, no router.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use std::{convert::Infallible, thread};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PREFIX: &str = "/primes/";

fn main() -> anyhow::Result<()> {
    let loops: Vec<_> = (0..contenders::threads()).map(|_| thread::spawn(serve)).collect();
    for one in loops {
        one.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
    }
    Ok(())
}

fn serve() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let listener = contenders::listen()?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::task::spawn_local(async move {
                let service = service_fn(|request| std::future::ready(Ok::<_, Infallible>(answer(&request))));
                let serving = http1::Builder::new()
                    .pipeline_flush(true)
                    .serve_connection(TokioIo::new(stream), service);
                // A client may close the connection at any time.
                let _ = serving.await;
            });
        }
    })
}

fn answer(request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let Some(n) = request.uri().path().strip_prefix(PREFIX) else {
        return refusal(StatusCode::NOT_FOUND, "there is nothing here");
    };
    if request.method() != Method::GET {
        return refusal(StatusCode::METHOD_NOT_ALLOWED, "use GET");
    }
    let Some(n) = contenders::count(n) else {
        return refusal(StatusCode::BAD_REQUEST, "n must be a number from 0 to 100000");
    };
    let mut response = Response::new(Full::new(Bytes::from(primes::json(n))));
    let media_type = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    response
}

fn refusal(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}
