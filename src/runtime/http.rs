//! The HTTP thread: `/healthz`, `/readyz`, `/metrics`. It knows nothing; it asks the control thread over a channel and
//! gives up with 503 and a reason when no answer comes.

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::{mpsc, oneshot};

use crate::metrics::NodeReport;
use crate::runtime::exporter::prometheus_text;

/// How long the control thread may take. It gives the cores one second itself.
const ANSWER_MS_MAX: u64 = 2_000;
/// Questions that may wait for the control thread.
const QUESTIONS_MAX: usize = 64;

/// What HTTP wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpAsk {
    /// Whether the control thread lives and the node serves; the report needs no cores.
    Status,
    /// Everything.
    Metrics,
}

/// One question, and where its answer goes. Dropping it unanswered is a "no".
#[derive(Debug)]
pub struct HttpQuery {
    /// What is asked.
    pub ask: HttpAsk,
    /// Takes the answer.
    pub reply: oneshot::Sender<NodeReport>,
}

/// The control thread's end of the channel.
pub type HttpQueries = mpsc::Receiver<HttpQuery>;

/// Starts the thread on a bound listener. It ends with the process: nothing that it does needs an end of its own.
///
/// # Errors
/// When the thread or its runtime cannot be had.
pub fn start(listener: TcpListener) -> std::io::Result<(JoinHandle<()>, HttpQueries)> {
    listener.set_nonblocking(true)?;
    let (asks, queries) = mpsc::channel(QUESTIONS_MAX);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let serve = move || {
        runtime.block_on(async move {
            let served = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => axum::serve(listener, router(asks)).await,
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                tracing::error!(%error, "HTTP has ended; /metrics is gone until the next start");
            }
        });
    };
    let thread = std::thread::Builder::new().name("http".to_string()).spawn(serve)?;
    Ok((thread, queries))
}

type Asks = Arc<mpsc::Sender<HttpQuery>>;

fn router(asks: mpsc::Sender<HttpQuery>) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/healthz", get(health))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(asks))
}

async fn index() -> &'static str {
    "pinion\n\n/healthz  200 while the control core answers\n/readyz   200 while the broker serves its partitions\n\
     /metrics  Prometheus\n"
}

async fn health(State(asks): State<Asks>) -> Response {
    match ask(&asks, HttpAsk::Status).await {
        Ok(_) => "ok\n".into_response(),
        Err(reason) => unavailable(&reason),
    }
}

async fn ready(State(asks): State<Asks>) -> Response {
    match ask(&asks, HttpAsk::Status).await {
        Ok(NodeReport { not_ready: None, .. }) => "ready\n".into_response(),
        Ok(NodeReport { not_ready: Some(reason), .. }) | Err(reason) => unavailable(&reason),
    }
}

async fn metrics(State(asks): State<Asks>) -> Response {
    match ask(&asks, HttpAsk::Metrics).await {
        Ok(report) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], prometheus_text(report)).into_response()
        }
        Err(reason) => unavailable(&reason),
    }
}

fn unavailable(reason: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response()
}

async fn ask(asks: &mpsc::Sender<HttpQuery>, ask: HttpAsk) -> Result<NodeReport, String> {
    let (reply, answer) = oneshot::channel();
    asks.try_send(HttpQuery { ask, reply }).map_err(|_| "the control core takes no questions".to_string())?;
    match tokio::time::timeout(Duration::from_millis(ANSWER_MS_MAX), answer).await {
        Ok(Ok(report)) => Ok(report),
        Ok(Err(_)) => Err("the control core is ending".to_string()),
        Err(_) => Err(format!("the control core has not answered for {ANSWER_MS_MAX} ms")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    use super::*;

    fn started() -> (SocketAddr, HttpQueries) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        (address, start(listener).expect("started").1)
    }

    fn fetch(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("connected");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer
    }

    /// Answers every question with this report, as the control thread would.
    fn answer_with(mut queries: HttpQueries, report: NodeReport) {
        std::thread::spawn(move || {
            while let Some(query) = queries.blocking_recv() {
                // The asker may have given up.
                let _ = query.reply.send(report.clone());
            }
        });
    }

    #[test]
    fn a_serving_node_is_healthy_and_ready_and_has_metrics() {
        let (address, queries) = started();
        answer_with(queries, NodeReport::default());
        assert!(fetch(address, "/healthz").starts_with("HTTP/1.1 200"));
        assert!(fetch(address, "/readyz").starts_with("HTTP/1.1 200"));
        assert!(fetch(address, "/metrics").contains("pinion_ready 1\n"));
        assert!(fetch(address, "/").contains("/metrics"));
        assert!(fetch(address, "/nothing").starts_with("HTTP/1.1 404"));
    }

    #[test]
    fn a_node_that_recovers_is_healthy_but_not_ready_and_says_why() {
        let (address, queries) = started();
        answer_with(queries, NodeReport { not_ready: Some("7 partitions recover".into()), ..NodeReport::default() });
        assert!(fetch(address, "/healthz").starts_with("HTTP/1.1 200"));
        let answer = fetch(address, "/readyz");
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("7 partitions recover"), "{answer}");
    }

    #[test]
    fn a_control_thread_that_is_gone_or_silent_is_a_503_with_a_reason() {
        let (address, queries) = started();
        let answer = fetch(address, "/healthz");
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("2000 ms"), "{answer}");
        drop(queries);
        assert!(fetch(address, "/metrics").contains("takes no questions"));
    }
}
