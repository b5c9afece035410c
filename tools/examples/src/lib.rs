//! An inference server on a node of Phalanx: the [Open Inference Protocol](https://github.com/kserve/open-inference-protocol) (v2, over HTTP)
//! for a small model, which needs one GPU, and a large one, which needs all.
//!
//! What it shows: a request becomes a [`Ticket`](phalanx::Ticket), which is a future; a client that goes away takes its request back; deadlines and
//! tenants come from headers; overload is said at once, with the time after which to come again.
//!
//! | header of a request | what becomes of it |
//! |---|---|
//! | `x-deadline-ms` | it must have started within so long, else 504 |
//! | `x-finish-ms` | it must end within so long: shed, with 504, once it could not any more |
//! | `x-tenant` | whose it is: tenants share the small queue |
//!
//! | status | when |
//! |---|---|
//! | 400, 404 | the request makes no sense; there is no such model |
//! | 429 with `Retry-After` | the queue is full, its tenant has too many in it, or it would start too late |
//! | 503 with `Retry-After` | lanes are missing that a large request needs; the node is shutting down |
//! | 504 | its deadline passed before it started, or it could not end in time any more |
//! | 500 | it ran and failed |

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use phalanx::{Class, Device, EmulatedLane, Gang, Phalanx, RejectReason, Rejected, Request, RequestError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A model that is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Model {
    /// Its name in the URL.
    pub name: &'static str,
    /// One GPU or all.
    pub class: Class,
    /// How long a request of it takes on the emulated GPUs.
    pub run: Duration,
}

/// What is served.
pub const MODELS: [Model; 2] = [
    Model { name: "small", class: Class::Small, run: Duration::from_millis(20) },
    Model { name: "large", class: Class::Large, run: Duration::from_millis(60) },
];

/// The server's paths.
pub fn router<D>(node: Arc<Phalanx<D>>) -> Router
where
    D: Device<Lane = EmulatedLane> + 'static,
{
    Router::new()
        .route("/v2", get(server))
        .route("/v2/health/live", get(live::<D>))
        .route("/v2/health/ready", get(ready::<D>))
        .route("/v2/models/{model}", get(model))
        .route("/v2/models/{model}/ready", get(model_ready::<D>))
        .route("/v2/models/{model}/infer", post(infer::<D>))
        .with_state(node)
}

async fn server() -> Json<Value> {
    Json(json!({ "name": "phalanx", "version": env!("CARGO_PKG_VERSION"), "extensions": [] }))
}

fn status(good: bool) -> StatusCode {
    if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

async fn live<D: Device>(State(node): State<Arc<Phalanx<D>>>) -> StatusCode {
    status(node.health().is_live())
}

async fn ready<D: Device>(State(node): State<Arc<Phalanx<D>>>) -> StatusCode {
    status(node.health().is_ready())
}

fn find(name: &str) -> Result<Model, Problem> {
    let unknown = || Problem::new(StatusCode::NOT_FOUND, format!("there is no model `{name}`: there are `small` and `large`"));
    MODELS.into_iter().find(|model| model.name == name).ok_or_else(unknown)
}

async fn model(Path(name): Path<String>) -> Result<Json<Value>, Problem> {
    let model = find(&name)?;
    let tensor = |name: &str| json!({ "name": name, "datatype": "FP32", "shape": [-1] });
    Ok(Json(json!({
        "name": model.name, "versions": ["1"], "platform": "phalanx_emulated",
        "inputs": [tensor("INPUT0")], "outputs": [tensor("OUTPUT0")],
    })))
}

async fn model_ready<D: Device>(State(node): State<Arc<Phalanx<D>>>, Path(name): Path<String>) -> Result<StatusCode, Problem> {
    let model = find(&name)?;
    Ok(status(node.health().is_ready_for(model.class)))
}

/// A request for an inference.
#[derive(Debug, Deserialize)]
struct Infer {
    #[serde(default)]
    id: Option<String>,
    inputs: Vec<Tensor>,
}

/// A tensor of numbers.
#[derive(Debug, Deserialize, Serialize)]
struct Tensor {
    name: String,
    datatype: String,
    shape: Vec<i64>,
    data: Vec<f32>,
}

/// What went wrong, as the protocol says it.
#[derive(Debug)]
struct Problem {
    status: StatusCode,
    error: String,
    retry_after: Option<Duration>,
}

impl Problem {
    fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), retry_after: None }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(json!({ "error": self.error }))).into_response();
        if let Some(after) = self.retry_after {
            // Whole seconds, as HTTP has them; at least one.
            let seconds = after.as_secs_f64().ceil().max(1.0) as u64;
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl<R> From<Rejected<R>> for Problem {
    fn from(rejected: Rejected<R>) -> Self {
        let status = match rejected.reason {
            RejectReason::QueueFull | RejectReason::TenantFull | RejectReason::TooLate { .. } => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        let after = rejected.starts_in.unwrap_or(Duration::from_secs(1));
        Self { status, error: rejected.reason.to_string(), retry_after: Some(after) }
    }
}

impl From<RequestError> for Problem {
    fn from(error: RequestError) -> Self {
        let status = match error {
            RequestError::Expired | RequestError::TooLate { .. } => StatusCode::GATEWAY_TIMEOUT,
            RequestError::LanesMissing { .. } | RequestError::ShutDown => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

/// A span from a header; `None` where it is missing.
fn span(headers: &HeaderMap, name: &'static str) -> Result<Option<Duration>, Problem> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let ms = value.to_str().ok().and_then(|text| text.parse().ok());
    ms.map(|ms| Some(Duration::from_millis(ms)))
        .ok_or_else(|| Problem::new(StatusCode::BAD_REQUEST, format!("{name}: give whole milliseconds")))
}

async fn infer<D>(
    State(node): State<Arc<Phalanx<D>>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Result<Json<Infer>, axum::extract::rejection::JsonRejection>,
) -> Result<Json<Value>, Problem>
where
    D: Device<Lane = EmulatedLane> + 'static,
{
    let model = find(&name)?;
    let Json(request) = body.map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.body_text()))?;
    let [input] = &request.inputs[..] else {
        return Err(Problem::new(StatusCode::BAD_REQUEST, format!("{} inputs: give one, INPUT0", request.inputs.len())));
    };
    let elements = input.shape.iter().try_fold(1_i64, |product, &size| product.checked_mul(size));
    if input.datatype != "FP32" || elements != Some(input.data.len() as i64) {
        let error = format!("{}: give FP32 data of its shape, not {} of {:?}", input.name, input.datatype, input.shape);
        return Err(Problem::new(StatusCode::BAD_REQUEST, error));
    }
    let told = Told { deadline: span(&headers, "x-deadline-ms")?, finish_by: span(&headers, "x-finish-ms")?, headers: &headers };
    let data: Arc<[f32]> = input.data.as_slice().into();
    let run = model.run;
    // Whoever waits for the ticket no longer takes the request back: a client that hangs up does.
    let data = match model.class {
        Class::Small => {
            let body =
                move |lane: &mut EmulatedLane| lane.launch(run).map(|()| data.iter().map(|x| 2.0 * x).collect::<Vec<f32>>());
            node.submit(told.of(Request::small(body), model))?.guard().await?.map_err(RequestError::from)?
        }
        Class::Large => {
            let body = move |lane: &mut EmulatedLane, gang: &Gang<'_>| {
                // Each lane has its part of the work; the barrier is where they would exchange what they have.
                let launched = lane.launch(run);
                gang.barrier()?;
                let mine = data.iter().skip(gang.rank()).step_by(gang.size()).map(|x| 2.0 * x).collect::<Vec<f32>>();
                Ok(launched.map(|()| mine))
            };
            let parts = node.submit(told.of(Request::large(body), model))?.guard().await?;
            let parts = parts.into_iter().collect::<Result<Vec<_>, _>>().map_err(RequestError::from)?;
            (0..input.data.len()).map(|i| parts[i % parts.len()][i / parts.len()]).collect()
        }
    };
    let output = Tensor { name: "OUTPUT0".to_owned(), datatype: "FP32".to_owned(), shape: input.shape.clone(), data };
    Ok(Json(json!({ "model_name": model.name, "model_version": "1", "id": request.id, "outputs": [output] })))
}

/// What a client says of its request.
struct Told<'a> {
    deadline: Option<Duration>,
    finish_by: Option<Duration>,
    headers: &'a HeaderMap,
}

impl Told<'_> {
    fn of<L: 'static, T: Send + 'static>(&self, mut request: Request<L, T>, model: Model) -> Request<L, T> {
        request = request.model(model.name).expected(model.run);
        if let Some(deadline) = self.deadline {
            request = request.deadline(deadline);
        }
        if let Some(finish_by) = self.finish_by {
            request = request.finish_by(finish_by);
        }
        if let Some(tenant) = self.headers.get("x-tenant").and_then(|tenant| tenant.to_str().ok()) {
            request = request.tenant(tenant);
        }
        request
    }
}
