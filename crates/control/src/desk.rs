//! Where the administrator's listener leaves what somebody wants to be changed, and where the owner of the configuration
//! takes it from, one after the other.

use std::sync::Arc;

use config::{Diagnostic, EndpointEdit};
use tokio::sync::{mpsc, oneshot};

use crate::difference::Differences;
use crate::effects::Effects;
use crate::reconciler::Refusal;

/// Orders that wait at once; who comes beyond that waits in front.
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
    /// The endpoints of a cluster.
    Endpoints {
        /// The cluster.
        cluster: String,
        /// What of them.
        edit: EndpointEdit,
    },
    /// What is wished of an endpoint.
    Wish {
        /// The cluster.
        cluster: String,
        /// The endpoint, by its name.
        endpoint: String,
        /// One of [`crate::wishes::STATES`]; `None` takes the wish back.
        state: Option<&'static str>,
    },
}

/// Who wants what.
#[derive(Clone, Debug)]
pub struct Order {
    /// What.
    pub change: Change,
    /// Who, as the history tells it.
    pub author: Arc<str>,
    /// Only while this is the generation that brought the configuration as it is.
    pub expected: Option<u64>,
    /// Only tell what it would do.
    pub is_dry: bool,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Done {
    /// The generation in force.
    pub generation: u64,
    /// The generation that brought the configuration as it is.
    pub revision: u64,
    /// What is different now, or would be.
    pub differences: Arc<Differences>,
    /// What it does to what is alive, or would.
    pub effects: Effects,
    /// What in the configuration is allowed but does nothing.
    pub warnings: Vec<Diagnostic>,
}

type Answer = oneshot::Sender<Result<Done, Refusal>>;

/// Takes orders in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Desk(mpsc::Sender<(Order, Answer)>);

/// Orders as they came in.
#[derive(Debug)]
pub struct Orders(mpsc::Receiver<(Order, Answer)>);

impl Desk {
    /// A desk with what comes in at it.
    pub fn new() -> (Self, Orders) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Self(sender), Orders(receiver))
    }

    /// Leaves an order and waits for what comes of it. It is carried out also when the waiting is given up.
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
    /// The next order, with where its answer goes. Dropping the future loses none.
    pub async fn next(&mut self) -> (Order, Answer) {
        match self.0.recv().await {
            Some(order) => order,
            // Nobody can leave one any more.
            None => std::future::pending().await,
        }
    }
}
