//! The page of the reference about the API, made of the table of calls.

use model::snapshot::AdminRole;

use crate::table::CALLS;

/// The page, in Markdown.
pub fn reference() -> String {
    let mut text = String::from(
        "# The API\n\nMade from the program by `cargo run -p equipoise -- reference docs/reference`; do not edit.\n\n\
         How it is used is told in [Change a running Equipoise by its API](../guides/change-by-api.md). A running program tells all of\n\
         this as an OpenAPI 3.1 document at `/api/openapi.json`.\n\n\
         | Call | What it does | Token |\n|---|---|---|\n",
    );
    for call in CALLS {
        let role = match call.needs {
            None => "none",
            Some(AdminRole::Read) => "`read`",
            Some(AdminRole::Admin) => "`admin`",
        };
        let method = call.method.as_str().to_uppercase();
        text.push_str(&format!("| `{method} {}` | {} | {role} |\n", call.path, call.summary));
    }
    text.push_str("\n## Parameters of queries\n\n| Call | Parameter | What it does |\n|---|---|---|\n");
    for call in CALLS {
        for (name, what) in call.query {
            let method = call.method.as_str().to_uppercase();
            text.push_str(&format!("| `{method} {}` | `{name}` | {what} |\n", call.path));
        }
    }
    text
}
