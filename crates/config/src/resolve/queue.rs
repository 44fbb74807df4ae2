//! Waiting for a free endpoint.

use std::path::Path;

use model::LocalResponse;
use model::limits::QUEUE_PAGE_BYTES_MAX;
use model::queue::{Precedence, Queue, Shed, ShedFrom};

use super::Resolver;
use crate::file;

/// What a page without a known ending is.
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

impl Resolver<'_> {
    pub(super) fn queue(&mut self, at: &str, written: &file::Queue) -> Queue {
        let fair_by = written.fair_by.as_ref().map(|keys| self.hash_keys(&format!("{at}/fair_by"), keys));
        let seconds = written.retry_after.0.as_secs() + u64::from(written.retry_after.0.subsec_nanos() > 0);
        let page = written.page.as_ref().and_then(|page| self.page(&format!("{at}/page"), page, Some(seconds)));
        Queue {
            requests_max: written.requests_max,
            timeout: written.timeout.0,
            fair_by: fair_by.unwrap_or_default(),
            shed: written.shed.as_ref().map(|shed| Shed {
                target: shed.target.0,
                interval: shed.interval.0,
                from: match shed.from {
                    file::ShedFrom::Oldest => ShedFrom::Oldest,
                    file::ShedFrom::Newest => ShedFrom::Newest,
                },
            }),
            use_backups: written.use_backups,
            retry_after_seconds: seconds,
            page,
        }
    }

    /// Returns the answer; without `retry_after` that is reported when it is sent.
    pub(super) fn page(&mut self, at: &str, written: &file::Page, retry_after: Option<u64>) -> Option<LocalResponse> {
        let (body, kind) = match (&written.file, &written.body) {
            (Some(file), _) => (self.page_file(&format!("{at}/file"), file)?, kind_of(file)),
            (None, body) => (body.clone().unwrap_or_default().into_bytes(), PLAIN_TEXT),
        };
        if let Some(kind) = &written.content_type {
            self.field_value(&format!("{at}/content_type"), kind);
        }
        if body.len() > QUEUE_PAGE_BYTES_MAX {
            let mend = format!("at most {} KiB", QUEUE_PAGE_BYTES_MAX / 1024);
            self.report(&format!("{at}/body"), format!("the page has {} bytes", body.len()), Some(mend));
        }
        let kind = written.content_type.as_deref().unwrap_or(kind);
        let mut fields = vec![("content-type".to_owned(), kind.to_owned())];
        fields.extend(retry_after.map(|seconds| ("retry-after".to_owned(), seconds.to_string())));
        Some(LocalResponse { status: written.status.unwrap_or(503), fields, body })
    }

    fn page_file(&mut self, at: &str, written: &str) -> Option<Vec<u8>> {
        let path = self.beside(written);
        match self.file_bytes(&path, QUEUE_PAGE_BYTES_MAX) {
            Ok(bytes) => Some(bytes.to_vec()),
            Err(message) => {
                self.report_unread(at, &path, &message);
                self.loader.is_offline.then(Vec::new)
            }
        }
    }

    pub(super) fn precedence(&mut self, at: &str, route: &file::Route) -> Precedence {
        let Some(written) = &route.queue else { return Precedence::default() };
        if route.cluster.is_none() && route.clusters.is_none() {
            let mend = Some("leave it out, or name a cluster".to_owned());
            self.report(at, "`queue` has no effect for a route that forwards to no cluster", mend);
        }
        Precedence { class: written.class, offset_ms: written.offset.map_or(0, |shift| shift.0) }
    }
}

fn kind_of(file: &str) -> &'static str {
    match Path::new(file).extension().and_then(|ending| ending.to_str()) {
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("json") => "application/json",
        _ => PLAIN_TEXT,
    }
}
