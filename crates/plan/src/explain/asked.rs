//! What an explanation of a cluster is asked for.

use std::net::IpAddr;

use model::RequestHead;

use crate::Moment;
use crate::plan::RoutePlan;

/// What a pick goes by.
pub(super) struct Asked<'a> {
    /// `None` for a connection.
    pub head: Option<&'a RequestHead>,
    pub route: Option<&'a RoutePlan>,
    pub client: IpAddr,
    pub at: Moment,
}
