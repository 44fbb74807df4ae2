//! Asks the agents beside endpoints how much work these want.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use model::Name;
use model::fitness::{AdminState, AgentCheck};
use plan::{ClusterPlan, EndpointState, Plan};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::reasons::Reasons;
use super::schedule;

/// Bytes of an answer that are read: the line must end within them.
const ANSWER_BYTES_MAX: usize = 1_024;

/// The agents that are asked. Dropping it ends that.
pub(super) struct Agents {
    reasons: Arc<Reasons>,
    asked: HashMap<(Name, Name), Asked>,
}

struct Asked {
    what: (SocketAddr, AgentCheck),
    state: Arc<EndpointState>,
    seat: Rc<RefCell<Seat>>,
    task: JoinHandle<()>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Where answers go; changes from plan to plan.
struct Seat {
    cluster: Arc<ClusterPlan>,
    index: usize,
}

impl Agents {
    pub(super) fn new(reasons: Arc<Reasons>) -> Self {
        Self { reasons, asked: HashMap::new() }
    }

    /// Asks whom this plan says from now on.
    pub(super) fn follow(&mut self, plan: &Plan) {
        let mut before = std::mem::take(&mut self.asked);
        for cluster in &plan.clusters {
            let Some(check) = &cluster.cluster.fitness.agent else { continue };
            for (index, endpoint) in cluster.endpoints.iter().enumerate() {
                let port = endpoint.endpoint.agent_port.or(check.port);
                let Some(port) = port.filter(|_| endpoint.endpoint.state != AdminState::Maintenance) else { continue };
                let key = (cluster.cluster.name.clone(), endpoint.endpoint.name.clone());
                let Some(address) = endpoint.endpoint.address.ip() else { continue };
                if self.asked.contains_key(&key) {
                    continue;
                }
                let what = (SocketAddr::new(address.ip(), port), check.clone());
                let seat = Seat { cluster: Arc::clone(cluster), index };
                let asked = match before.remove(&key) {
                    Some(kept) if kept.what == what && Arc::ptr_eq(&kept.state, &endpoint.state) => {
                        kept.seat.replace(seat);
                        kept
                    }
                    _ => self.start(&key, what, seat, Arc::clone(&endpoint.state)),
                };
                self.asked.insert(key, asked);
            }
        }
        for key in before.keys() {
            self.reasons.agent.set(key, None);
        }
    }

    fn start(
        &self,
        key: &(Name, Name),
        what: (SocketAddr, AgentCheck),
        seat: Seat,
        state: Arc<EndpointState>,
    ) -> Asked {
        let seat = Rc::new(RefCell::new(seat));
        let rounds = rounds(key.clone(), what.clone(), Rc::clone(&seat), Arc::clone(&self.reasons));
        let task = tokio::task::spawn_local(rounds);
        Asked { what, state, seat, task }
    }
}

async fn rounds(
    key: (Name, Name),
    (address, check): (SocketAddr, AgentCheck),
    seat: Rc<RefCell<Seat>>,
    reasons: Arc<Reasons>,
) {
    let (cluster, endpoint) = (&key.0, &key.1);
    tokio::time::sleep(schedule::first_delay(cluster, endpoint, check.interval)).await;
    loop {
        let begun = Instant::now();
        // An agent that does not answer says nothing: whether the endpoint is well is found out by its checks.
        if let Ok(Ok(line)) = tokio::time::timeout(check.timeout, ask(address, &check.send)).await {
            let seat = seat.borrow();
            if let Some(report) = seat.cluster.report(seat.index, &line) {
                let why = line.split_once('#').map_or("", |(_, why)| why.trim());
                let reason = if why.is_empty() {
                    "the agent reports down".into()
                } else {
                    format!("the agent reports down: {why}")
                };
                reasons.agent.set(&key, report.is_down.then_some(reason.as_str()));
                let pairs: telemetry::log::Pairs<'_> =
                    &[("cluster", cluster), ("endpoint", endpoint), ("report", &report), ("reason", &why)];
                telemetry::log::info("agent reports", pairs);
            }
        }
        tokio::time::sleep_until(begun + check.interval).await;
    }
}

/// The line that an agent answers, or what came of it until the agent closed.
async fn ask(address: SocketAddr, send: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(send.as_bytes()).await?;
    let mut answer = Vec::new();
    let mut buffer = [0; ANSWER_BYTES_MAX];
    while answer.len() < ANSWER_BYTES_MAX && !answer.contains(&b'\n') {
        match stream.read(&mut buffer).await? {
            0 => break,
            read => answer.extend_from_slice(&buffer[..read]),
        }
    }
    answer.truncate(ANSWER_BYTES_MAX);
    let line = answer.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}
