//! Trailers that do not pass: what a filter or a listener decides in the head must not come in by the back door.

use plan::filter::{Noted, ResponseSource, ResponseView};

use crate::exchange::Exchange;
use crate::relay::Pump;

impl Exchange<'_> {
    /// Keeps from the endpoint what the client must not bring.
    pub(crate) fn thin_request(&self, upload: &mut Pump) {
        if let Some(withheld) = self.progress.route.and_then(|route| self.plan.withheld(route)) {
            upload.withhold(withheld.clone());
        }
    }

    /// Keeps from the client what the endpoint must not bring.
    pub(crate) fn thin_response(&self, download: &mut Pump) {
        let Some(route) = self.progress.route.filter(|route| !route.chain.guarded_response().is_empty()) else {
            return;
        };
        let Some(response) = &self.response else { return };
        let facts = self.connection.facts.facts_by(self.scheme, self.client, self.request_id.as_str());
        let view = ResponseView {
            request: &self.incoming.head,
            cluster: self.progress.cluster.map(|cluster| &cluster.plan.cluster.name),
            endpoint: self.progress.endpoint.map(|(endpoint, _)| &endpoint.endpoint.name),
            source: ResponseSource::Endpoint,
            elapsed: self.progress.elapsed(),
        };
        let scratch = &mut self.worker.scratch.borrow_mut();
        let noted = Noted { facts: &facts, notes: &self.incoming.notes, now: self.progress.now };
        if let Some(withheld) = self.plan.withheld_response(route, (response, &view), noted, scratch) {
            download.withhold(withheld);
        }
    }
}
