//! The administrator's side: metrics, health of the process, status, the API by which a running program is changed, and the
//! page that shows it.
//!
//! It refuses to know how anything is done: it reads a [`control::View`], and leaves what is to be changed at a
//! [`control::OrderSender`]. It runs on one thread of its own, so that a slow reader costs no worker anything. Start reading at
//! [`table`]: the table of all that can be asked.

mod access;
mod bounded;
mod caches;
mod calls;
mod entry;
mod explain;
mod host;
mod json;
mod maps;
mod openapi;
mod place;
mod problem;
mod query;
mod read;
mod reference;
mod table;
mod tables;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::{HeaderName, StatusCode, Version, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use control::{OrderSender, View};
use model::Address;
use tokio::sync::oneshot;

use crate::bounded::{BoundedListener, Bounds};
use crate::place::SocketFile;
use crate::problem::Problem;

pub use place::Bound;
pub use reference::reference;

/// The page. It reads nothing but `/api/status`.
const PAGE: &str = include_str!("../../../dashboard/index.html");

/// Longest wait, once another process has the socket, for answers that are on their way; and between two looks.
const PARTING: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(2);

/// The version that the API tells.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a page of ours may do: run the one script in it and ask this listener. Nothing foreign can be loaded, no one can
/// frame it.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
     img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The running listener of the administrator. Dropping it ends it at once.
pub struct Admin {
    configured: Address,
    address: Address,
    file: Option<SocketFile>,
    socket: OwnedFd,
    /// Lets it end as its clients do.
    part: Option<oneshot::Sender<()>>,
    stop: Option<oneshot::Sender<()>>,
    is_closed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Answers on a thread of its own from now on.
    ///
    /// # Errors
    /// The system has no thread or no poll instance left.
    pub fn start(bound: Bound, view: View, orders: OrderSender) -> io::Result<Self> {
        Self::start_with(bound, (view, orders), Bounds::default())
    }

    fn start_with(bound: Bound, (view, orders): (View, OrderSender), bounds: Bounds) -> io::Result<Self> {
        let (configured, address, socket) = (bound.configured.clone(), bound.address.clone(), bound.duplicate()?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (door, file) = {
            let _entered = runtime.enter();
            bound.open()?
        };
        let listener = BoundedListener::new(door, address.clone(), bounds, view.clone());
        let (stop, stopped) = oneshot::channel();
        let (part, parted) = oneshot::channel::<()>();
        let ip = address.ip();
        let is_closed = Arc::new(AtomicBool::new(false));
        let router = calls::router(entry::Shared { view, orders, is_closed: Arc::clone(&is_closed) })
            .layer(middleware::from_fn(move |request, next| guarded(ip, request, next)))
            .into_make_service_with_connect_info::<bounded::Visit>();
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || {
            runtime.block_on(async move {
                let parting = async {
                    if parted.await.is_err() {
                        std::future::pending::<()>().await;
                    }
                };
                let until_parted = axum::serve(listener, router).with_graceful_shutdown(parting);
                tokio::select! {
                    ended = until_parted => {
                        if let Err(error) = ended {
                            telemetry::log::error("the admin listener ended", &[("error", &error)]);
                        }
                    }
                    _ = stopped => {}
                }
            });
        })?;
        let (part, stop, thread) = (Some(part), Some(stop), Some(thread));
        Ok(Self { configured, address, file, socket, part, stop, is_closed, thread })
    }

    /// Lets no one in any more, or again. Who is in is answered.
    pub fn close(&self, is_closed: bool) {
        self.is_closed.store(is_closed, Ordering::SeqCst);
    }

    /// Returns the configured address.
    pub fn configured(&self) -> &Address {
        &self.configured
    }

    /// Returns the address that the listener is bound to.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the same socket for another process.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    /// Takes over the socket file of the previous process, once this process replaces it.
    pub fn take_file(&mut self) {
        if let Some(file) = &mut self.file {
            file.take();
        }
    }

    /// Gives the socket to another process: answers pending requests, and accepts nothing new.
    pub fn part(&mut self) {
        if let Some(file) = self.file.take() {
            file.leave();
        }
        if let Some(part) = self.part.take() {
            // It may have ended by itself.
            let _ = part.send(());
        }
    }

    /// Sets the permissions of the Unix socket.
    ///
    /// # Errors
    /// What the system says against it.
    pub fn permit(&self, mode: u32) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.permit(mode))
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        let until = Instant::now() + PARTING;
        while self.part.is_none()
            && self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
            && Instant::now() < until
        {
            std::thread::sleep(STEP);
        }
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

/// Looks who asks before anything else, and says on every answer what a browser may do with it.
async fn guarded(address: Option<SocketAddr>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let mut answer = match refusal(&request, address) {
        Some((status, message)) => Problem::new(status, message).into_response(),
        None => next.run(request).await,
    };
    if answer.status() == StatusCode::METHOD_NOT_ALLOWED {
        let methods = table::methods_of(&path);
        let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("`{path}` does not know that method"));
        answer = problem.suggest(format!("it knows {methods}")).into_response();
        if let Ok(allow) = header::HeaderValue::from_str(&methods) {
            answer.headers_mut().insert(header::ALLOW, allow);
        }
    }
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

fn refusal(request: &Request, address: Option<SocketAddr>) -> Option<(StatusCode, &'static str)> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().unwrap_or_default(),
        // HTTP/1.0 knows no `host`, and no browser speaks it.
        (None, None) if request.version() == Version::HTTP_10 => return None,
        _ => return Some((StatusCode::BAD_REQUEST, "one `host` field is needed")),
    };
    // RFC 9112 section 3.2.2: the host of an absolute target counts, not the field.
    let host = request.uri().authority().map_or(host, |authority| authority.as_str());
    if host::is_ours(address, host) {
        return None;
    }
    let message = "this listener does not have that name; use its address or localhost";
    Some((StatusCode::MISDIRECTED_REQUEST, message))
}
