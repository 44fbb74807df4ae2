//! Where a request goes on whose endpoint has answered with a redirect.

use super::events::EventCounter;

/// Where a request goes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirected {
    /// The authority, if it is another one.
    pub authority: Option<Box<[u8]>>,
    /// Path and query; only what may stand in a target.
    pub target: Box<[u8]>,
    /// The request becomes a GET without a body.
    pub by_get: bool,
    /// It may take a route that no client reaches.
    pub is_internal: bool,
    /// How many redirects one request may follow.
    pub max: u8,
    /// Counts it, if it is followed.
    pub followed: Followed,
}

/// Counts redirects that were followed.
#[derive(Clone, Debug)]
pub struct Followed(EventCounter);

impl Followed {
    /// Counts by this counter.
    pub(super) fn of(counter: &EventCounter) -> Self {
        Self(counter.clone())
    }

    /// One was.
    pub fn note(&self) {
        self.0.add_one();
    }
}

/// It counts, and says nothing of where a request goes.
impl PartialEq for Followed {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Followed {}
