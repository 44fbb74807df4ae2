//! `/api/explain`: what would become of a request. The question stands in the query; see [`Question::from_query`].

use axum::http::StatusCode;
use control::View;
use control::explain::{Explanation, Question};

/// Answers the question in a query.
pub(crate) fn explain(view: &View, query: &str) -> Result<Explanation, (StatusCode, String)> {
    let plan = view.plan().ok_or((StatusCode::SERVICE_UNAVAILABLE, "nothing runs yet\n".to_owned()))?;
    let explained = Question::from_query(query).and_then(|question| control::explain::explain(&plan, &question));
    explained.map_err(|message| (StatusCode::BAD_REQUEST, format!("{message}\n")))
}
