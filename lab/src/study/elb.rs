//! The study `elb`.

use super::{Run, Study};
use crate::failure::Failure;
use crate::report::page::Page;

/// The study.
pub(crate) const STUDY: Study =
    Study { name: "elb", title: "", question: "", article: "", products: &["equipoise", "nginx"], tools: &[], run };

fn run(run: &Run<'_>) -> Result<Page, Failure> {
    Ok(run.page())
}
