//! Counters over a WebSocket: a service with a page that speaks `throng.v1`, and a client in Rust.
//!
//! ```text
//! cargo run --example websocket -p throng-http [ADDRESS:PORT]
//! cargo run --example websocket -p throng-http -- talk ws://ADDRESS:PORT/api/ws
//! ```

pub(crate) mod client;
pub(crate) mod service;

use std::io::Write;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next().unwrap_or_else(|| "127.0.0.1:0".into());
    if first == "talk" {
        let url = arguments.next().ok_or("say where: talk ws://127.0.0.1:8080/api/ws")?;
        let frames = client::talk(&url, "rust", 1_000).await?;
        writeln!(
            std::io::stdout(),
            "1,000 commands and their events, answered in {frames} frames"
        )?;
        return Ok(());
    }
    let running = service::start(&first, service::PAGE.into(), axum::Router::new()).await?;
    writeln!(std::io::stdout(), "open {}", running.url())?;
    running.run_until_signal().await?;
    Ok(())
}
