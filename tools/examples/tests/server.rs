//! The server as a client sees it, over real connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx::observe::Terminal;
use phalanx::scheduler::Sharing;
use phalanx::{Class, Emulated, Phalanx, Shutdown};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

struct Served {
    node: Arc<Phalanx<Emulated>>,
    address: std::net::SocketAddr,
}

async fn serve(queue: [usize; 2]) -> Served {
    let node = Phalanx::builder()
        .lanes(2)
        .queue(Class::Small, queue[0])
        .queue(Class::Large, queue[1])
        .sharing(Sharing { lines: 64, most: queue[0] })
        .build()
        .unwrap();
    let node = Arc::new(node);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = phalanx_examples::router(Arc::clone(&node));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Served { node, address }
}

/// Status, headers in lower case, and body.
type Answer = (u16, String, String);

impl Served {
    async fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: phalanx\r\nconnection: close\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + body).as_bytes()).await.unwrap();
        stream
    }

    async fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let mut stream = self.send(method, path, headers, body).await;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_lowercase(), body.to_owned())
    }

    async fn get(&self, path: &str) -> u16 {
        self.ask("GET", path, "", "").await.0
    }

    async fn infer(&self, model: &str, headers: &str) -> Answer {
        self.ask("POST", &format!("/v2/models/{model}/infer"), headers, &body().to_string()).await
    }
}

fn body() -> Value {
    json!({ "id": "7", "inputs": [{ "name": "INPUT0", "datatype": "FP32", "shape": [5], "data": [1.0, 2.0, 3.0, 4.0, 5.0] }] })
}

#[tokio::test]
async fn both_models_answer_and_say_what_they_are() {
    let served = serve([10, 10]).await;
    for path in
        ["/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/small/ready", "/v2/models/large", "/v2/models/large/ready"]
    {
        assert_eq!(served.get(path).await, 200, "{path}");
    }
    for model in ["small", "large"] {
        let (status, _, body) = served.infer(model, "x-tenant: me\r\nx-deadline-ms: 5000\r\nx-finish-ms: 5000\r\n").await;
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["id"], &body["model_name"]), (200, &json!("7"), &json!(model)));
        assert_eq!(body["outputs"][0]["data"], json!([2.0, 4.0, 6.0, 8.0, 10.0]), "{model}");
    }
}

#[tokio::test]
async fn bad_input_gets_one_clear_error() {
    let served = serve([10, 10]).await;
    let infer = "/v2/models/small/infer";
    let mut shaped = body();
    shaped["inputs"][0]["shape"] = json!([i64::MAX, 3]);
    for (path, headers, body, status, says) in [
        ("/v2/models/none/infer", "", body().to_string(), 404, "no model `none`"),
        (infer, "", "{".to_owned(), 400, "EOF"),
        (infer, "", json!({ "inputs": [] }).to_string(), 400, "0 inputs"),
        (infer, "", shaped.to_string(), 400, "INPUT0: give FP32 data of its shape"),
        (infer, "x-deadline-ms: soon\r\n", body().to_string(), 400, "x-deadline-ms: give whole milliseconds"),
        (infer, "x-finish-ms: -1\r\n", body().to_string(), 400, "x-finish-ms"),
    ] {
        let (got, _, text) = served.ask("POST", path, headers, &body).await;
        let error: Value = serde_json::from_str(&text).unwrap();
        assert!(got == status && error["error"].as_str().unwrap().contains(says), "{path} {body}: {got} {text}");
    }
    assert_eq!(served.get("/v2/models/none").await, 404);
}

#[tokio::test]
async fn overload_is_said_at_once_with_the_time_to_come_again() {
    let served = Arc::new(serve([4, 4]).await);
    let answers: Vec<_> = (0..40)
        .map(|_| {
            let served = Arc::clone(&served);
            tokio::spawn(async move { served.infer("small", "").await })
        })
        .collect();
    let mut refused = 0;
    for answer in answers {
        let (status, head, text) = answer.await.unwrap();
        match status {
            200 => {}
            429 => {
                refused += 1;
                assert!(head.contains("retry-after: 1"), "{head}");
                assert!(text.contains("as many requests of its tenant") || text.contains("queue of its class"), "{text}");
            }
            other => panic!("{other}: {text}"),
        }
    }
    assert!(refused > 0 && refused < 40, "{refused} of 40");
    // A deadline that passes while every lane is busy.
    let (large, late) = tokio::join!(served.infer("large", ""), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        served.infer("small", "x-deadline-ms: 1\r\n").await
    });
    assert_eq!((large.0, late.0), (200, 504), "{} {}", large.2, late.2);
    served.node.shutdown(Shutdown::Finish);
    let closed = served.infer("small", "").await;
    assert!(closed.0 == 503 && closed.1.contains("retry-after"), "{closed:?}");
    assert_eq!(served.get("/v2/health/ready").await, 503);
}

#[tokio::test]
async fn a_client_that_hangs_up_takes_its_request_back() {
    let served = serve([10, 10]).await;
    // Both lanes are busy, and one request waits.
    let large = served.send("POST", "/v2/models/large/infer", "", &body().to_string()).await;
    let until = Instant::now() + Duration::from_secs(10);
    while served.node.snapshot().busy.is_empty() {
        assert!(Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let waits = served.send("POST", "/v2/models/large/infer", "", &body().to_string()).await;
    while served.node.snapshot().queued[Class::Large.index()] == 0 {
        assert!(Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(waits);
    while served.node.snapshot().count(Class::Large, Terminal::Cancelled) == 0 {
        assert!(Instant::now() < until, "{:?}", served.node.snapshot());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(large);
}
