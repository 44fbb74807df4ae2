//! The administrator's side: metrics, health of the process, status, and the page that shows them.
//!
//! It refuses to know how anything is done: it reads a [`control::View`] and changes nothing. It runs on one thread of
//! its own, so that a slow reader costs no worker anything. Start reading at [`Admin`]; the paths are in one table below
//! it.

mod bounded;
mod explain;
mod host;
mod json;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::thread::JoinHandle;

use axum::Router;
use axum::extract::{RawQuery, Request, State};
use axum::http::{HeaderName, Method, StatusCode, Version, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use control::View;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};

use crate::bounded::{BoundedListener, Bounds};

/// The page. It reads nothing but `/api/status`.
const PAGE: &str = include_str!("../../../dashboard/index.html");

/// The version that the API tells.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a page of ours may do: run the one script in it and ask this listener. Nothing foreign can be loaded, nobody can
/// frame it.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
     img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// An address that is bound already, so that a configuration whose address is taken can be refused before it is in
/// force.
#[derive(Debug)]
pub struct Bound {
    listener: std::net::TcpListener,
    configured: SocketAddr,
    address: SocketAddr,
}

impl Bound {
    /// Binds.
    ///
    /// # Errors
    /// The address is in use or cannot be had.
    pub fn bind(configured: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(configured)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, configured, address })
    }
}

/// The running listener of the administrator. Dropping it ends it at once.
pub struct Admin {
    configured: SocketAddr,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Answers on a thread of its own from now on.
    ///
    /// # Errors
    /// The system has no thread or no poll instance left.
    pub fn start(bound: Bound, view: View) -> io::Result<Self> {
        Self::start_with(bound, view, Bounds::default())
    }

    fn start_with(bound: Bound, view: View, bounds: Bounds) -> io::Result<Self> {
        let Bound { listener, configured, address } = bound;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _entered = runtime.enter();
            BoundedListener::new(TcpListener::from_std(listener)?, bounds)
        };
        let (stop, stopped) = oneshot::channel();
        let router = router(view, address);
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    ended = axum::serve(listener, router) => {
                        if let Err(error) = ended {
                            telemetry::log::error("the admin listener ended", &[("error", &error)]);
                        }
                    }
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { configured, address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it was asked to listen.
    pub fn configured(&self) -> SocketAddr {
        self.configured
    }

    /// Where it really listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by the thread.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Admin({})", self.address)
    }
}

/// Every path there is. All of them only read.
fn router(view: View, address: SocketAddr) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/api/status", get(status))
        .route("/api/config", get(config))
        .route("/api/explain", get(explained))
        .layer(middleware::from_fn_with_state(address, guard))
        .with_state(view)
}

/// Looks at each request before anything else does, and puts the same fields on each answer.
async fn guard(State(address): State<SocketAddr>, request: Request, next: Next) -> Response {
    let mut answer = match refusal(&request, address) {
        Some((status, message)) => (status, message).into_response(),
        None => next.run(request).await,
    };
    let fields: [(HeaderName, &str); 5] = [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fields {
        answer.headers_mut().insert(name, header::HeaderValue::from_static(value));
    }
    answer
}

fn refusal(request: &Request, address: SocketAddr) -> Option<(StatusCode, &'static str)> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Some((StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered here\n"));
    }
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().unwrap_or_default(),
        // HTTP/1.0 knows no `host`, and no browser speaks it.
        (None, None) if request.version() == Version::HTTP_10 => return None,
        _ => return Some((StatusCode::BAD_REQUEST, "one `host` field is needed\n")),
    };
    // RFC 9112 section 3.2.2: the host of an absolute target counts, not the field.
    let host = request.uri().authority().map_or(host, |authority| authority.as_str());
    if host::is_ours(address, host) {
        return None;
    }
    Some((
        StatusCode::MISDIRECTED_REQUEST,
        "this listener does not go by that name; ask for its address or localhost\n",
    ))
}

async fn page() -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], PAGE).into_response()
}

/// The process is alive.
async fn healthz() -> &'static str {
    "alive\n"
}

/// A plan is live and the program is not ending.
async fn readyz(State(view): State<View>) -> Response {
    let state = view.state();
    let status = if state == control::State::Ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, format!("{}\n", state.as_str())).into_response()
}

async fn metrics(State(view): State<View>) -> Response {
    let mut text = String::with_capacity(16 * 1024);
    view.expose(VERSION, &mut text);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

async fn status(State(view): State<View>) -> Response {
    axum::Json(json::status(&view.status(), VERSION)).into_response()
}

async fn config(State(view): State<View>) -> Response {
    axum::Json(&*view.effective()).into_response()
}

async fn explained(State(view): State<View>, RawQuery(query): RawQuery) -> Response {
    // It looks at all of a cluster: never on this thread, which answers for the health of the process, and never twice at
    // a time.
    static ONE: Semaphore = Semaphore::const_new(1);
    let Ok(_turn) = ONE.acquire().await else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    let query = query.unwrap_or_default();
    match tokio::task::spawn_blocking(move || explain::explain(&view, &query)).await {
        Ok(Ok(explanation)) => axum::Json(explanation).into_response(),
        Ok(Err(refused)) => refused.into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
