//! What is answered when something does not work: a status, a sentence, how to mend it, and where a configuration is wrong.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use control::{Diagnostics, Refusal};
use serde_json::{Value, json};

/// Why a call was not done.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    message: String,
    suggestion: Option<String>,
    /// Boxed: most problems have none.
    diagnostics: Option<Box<Diagnostics>>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), suggestion: None, diagnostics: None }
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            Refusal::Bad(diagnostics) => Self {
                diagnostics: Some(Box::new(diagnostics)),
                ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, "the configuration is invalid; nothing was changed")
            },
            Refusal::Busy => {
                Self::new(StatusCode::CONFLICT, message).suggest("`/api/canary` shows it; promote or abort it first")
            }
            Refusal::Unpublished(_) => Self::new(StatusCode::CONFLICT, message),
            Refusal::Stale(_) => Self::new(StatusCode::PRECONDITION_FAILED, message)
                .suggest("read it again, and send its `etag` in `if-match`"),
            Refusal::Missing { suggestion, .. } => Self { suggestion, ..Self::new(StatusCode::NOT_FOUND, message) },
            Refusal::Denied { suggestion, .. } => Self::new(StatusCode::FORBIDDEN, message).suggest(suggestion),
            Refusal::Upgrading => Self::new(StatusCode::CONFLICT, message).suggest("try again in a moment"),
            Refusal::Failed => Self::new(StatusCode::INTERNAL_SERVER_ERROR, message),
            Refusal::Ending | Refusal::Outdated => Self::new(StatusCode::SERVICE_UNAVAILABLE, message),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = json!({ "message": self.message });
        if let Some(suggestion) = self.suggestion {
            body["suggestion"] = suggestion.into();
        }
        if let Some(diagnostics) = self.diagnostics {
            body["diagnostics"] = serde_json::to_value(&diagnostics.list).unwrap_or(Value::Null);
            body["diagnostics_left_out"] = diagnostics.left_out.into();
        }
        (self.status, Json(body)).into_response()
    }
}
