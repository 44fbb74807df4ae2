//! Orders: changes that the admin listener asks for. They wait in a channel, and the owner of the configuration carries them out one by
//! one.

use std::sync::Arc;

use config::{Diagnostic, EndpointEdit};
use model::Snapshot;
use tokio::sync::{mpsc, oneshot};

use crate::canary::Terms;
use crate::difference::Differences;
use crate::effects::Effects;
use crate::refusal::Refusal;

/// Orders that wait at once; [`OrderSender::place`] waits beyond that.
const WAITING_MAX: usize = 16;

/// What is to be changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The whole configuration, as YAML or JSON.
    Replace(String),
    /// One object.
    ReplaceObject {
        /// `listeners`, `routes` or `clusters`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// As YAML or JSON; `None` takes it out.
        text: Option<String>,
    },
    /// The files alone decide again.
    Reset,
    /// The configuration of an earlier generation.
    Rollback(u64),
    /// The files are read again.
    Reload,
    /// A new process is started and takes over.
    Upgrade,
    /// The endpoints of a cluster.
    Endpoints {
        /// The cluster.
        cluster: String,
        /// What of them.
        edit: EndpointEdit,
    },
    /// The end of a canary: it is promoted or rolled back.
    EndCanary {
        /// It is promoted.
        promotes: bool,
    },
    /// What is wished of an endpoint.
    Wish {
        /// The cluster.
        cluster: String,
        /// The endpoint, by its name.
        endpoint: String,
        /// One of [`crate::admin_state::STATES`]; `None` takes the wish back.
        state: Option<&'static str>,
    },
}

/// A change, its author and its conditions.
#[derive(Clone, Debug)]
pub struct Order {
    /// What.
    pub change: Change,
    /// Who, as the history tells it.
    pub author: Arc<str>,
    /// Only while one of these is the generation that brought the configuration as it is.
    pub expected: Option<Vec<u64>>,
    /// Only tell what it would do.
    pub is_dry: bool,
    /// Try it first, on these terms.
    pub canary: Option<Terms>,
    /// Whether who asks has shown who he is, by a token or by a Unix socket that only some may open. Others cannot have the
    /// program reach further with its rights.
    pub is_trusted: bool,
    /// The rules of the admin listener when the client was authorized. If they have changed since, the order is rejected.
    pub under: Option<Arc<Snapshot>>,
}

impl Order {
    /// Whether the rules by which who asks was let in still hold.
    pub fn is_still_allowed(&self, now: &Snapshot) -> bool {
        self.under.as_ref().is_none_or(|under| under.admin == now.admin)
    }
}

/// The result of an order that was carried out.
#[derive(Clone, Debug)]
pub struct Done {
    /// The active generation.
    pub generation: u64,
    /// The generation that brought the configuration as it is.
    pub revision: u64,
    /// It differs from the active configuration. A change without a difference creates no generation.
    pub is_changed: bool,
    /// What is different now, or would be.
    pub differences: Arc<Differences>,
    /// What it does to what is alive, or would.
    pub effects: Effects,
    /// What in the configuration is allowed but does nothing.
    pub warnings: Vec<Diagnostic>,
    /// It runs as a canary and is not active yet on a share of what comes in.
    pub is_tried: bool,
    /// Why it is active, but could not be saved for the next start.
    pub not_kept: Option<String>,
    /// The process that has taken over.
    pub successor: Option<u32>,
}

type Answer = oneshot::Sender<Result<Done, Refusal>>;

/// The end of the channel at which orders are placed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct OrderSender(mpsc::Sender<(Order, Answer)>);

/// The end of the channel at which the owner takes them.
#[derive(Debug)]
pub struct Orders(mpsc::Receiver<(Order, Answer)>);

/// Returns both ends of a channel for orders.
pub fn channel() -> (OrderSender, Orders) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    (OrderSender(sender), Orders(receiver))
}

impl OrderSender {
    /// Places an order and waits for its result. An order that was begun is carried out even if the caller stops waiting.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub async fn place(&self, order: Order) -> Result<Done, Refusal> {
        let (answer, answered) = oneshot::channel();
        self.0.send((order, answer)).await.map_err(|_| Refusal::Ending)?;
        answered.await.map_err(|_| Refusal::Ending)?
    }
}

impl Orders {
    /// Returns the next order and the channel for its answer. Dropping the future loses no order.
    pub async fn next(&mut self) -> (Order, Answer) {
        match self.0.recv().await {
            Some(order) => order,
            // No sender is left.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use model::snapshot::{Admin, AdminRole, AdminToken};

    use super::*;

    #[test]
    fn an_order_is_carried_out_by_the_rules_under_which_it_was_given() {
        let token = |secret: &str| AdminToken {
            name: "me".into(),
            role: AdminRole::Admin,
            secret: model::persistence::Secret(secret.as_bytes().into()),
        };
        let with = |tokens: Vec<AdminToken>| {
            let bind = "127.0.0.1:9900".parse().unwrap();
            let (tls, identities, state) = (None, Vec::new(), None);
            let admin = Some(Admin { bind, mode: 0o600, tls, tokens, identities, state, changes_allowed: true });
            Arc::new(Snapshot { admin, ..Snapshot::default() })
        };
        let under = with(vec![token("0123456789abcdef")]);
        let order = Order {
            change: Change::Reload,
            author: "me".into(),
            expected: None,
            is_dry: false,
            canary: None,
            is_trusted: true,
            under: Some(Arc::clone(&under)),
        };
        assert!(order.is_still_allowed(&under));
        assert!(!order.is_still_allowed(&with(vec![token("fedcba9876543210")])), "another of that name");
        assert!(!order.is_still_allowed(&with(Vec::new())) && !order.is_still_allowed(&Snapshot::default()));
    }
}
