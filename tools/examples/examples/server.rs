//! `cargo run --release -p phalanx-examples --example server -- 127.0.0.1:8000`, then
//!
//! ```sh
//! curl -s localhost:8000/v2/models/large/infer -H 'content-type: application/json' -H 'x-deadline-ms: 500' \
//!   -d '{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[3],"data":[1,2,3]}]}'
//! ```

use std::sync::Arc;

use phalanx::scheduler::Sharing;
use phalanx::{Class, Phalanx, Shutdown};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8000".to_owned());
    let node = Phalanx::builder()
        .queue(Class::Small, 1_000)
        .queue(Class::Large, 50)
        .sharing(Sharing { lines: 64, most: 200 })
        .build()?;
    let node = Arc::new(node);
    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!(
        "Open Inference Protocol at http://{}/v2; models `small` and `large`; threads: {}",
        listener.local_addr()?,
        node.placement()
    );
    let stop = async {
        // Without a way to be told it serves until it is killed.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    axum::serve(listener, phalanx_examples::router(Arc::clone(&node))).with_graceful_shutdown(stop).await?;
    // It blocks, and is short: nothing waits any more.
    node.shutdown(Shutdown::Finish);
    Ok(())
}
