//! The page of the reference about the API, made of the table of calls.

use model::snapshot::AdminRole;

use crate::table::CALLS;

/// What all calls have in common.
const RESPONSES: &str = r#"
## Responses

| Status | Meaning |
|---|---|
| 200 | done; the body has the generation, the differences and their effect on live traffic |
| 400 | the request is malformed |
| 401, 403 | credentials are missing; the role is `read`; the call needs credentials; or a foreign page sent it |
| 404 | the object does not exist; with a suggestion |
| 405, 415 | wrong method (`allow` lists the right ones), wrong content type |
| 408 | the body took longer than 15 s |
| 409 | valid, but the system does not allow it, such as a port in use; or a canary is running |
| 412, 428 | `if-match` does not match, or is missing |
| 413 | the body is larger than 8 MiB |
| 422 | the configuration is wrong: `diagnostics` lists each mistake with file, line, text, message and suggestion |
| 503 | the program is shutting down, or the rules of the admin listener have changed: reconnect and try again |

Host names of new endpoints have 10 s to resolve, all of one change together; a reload has 60 s. Signals do not wait for that. A `PUT` without a
response may have been carried out: `ctl` says so and exits with 5.

Errors are `{ "message": …, "suggestion": …, "diagnostics": […] }`, and nothing was changed. `ctl --json` prints the response as it is.
"#;

/// Returns the page, in Markdown.
pub fn reference() -> String {
    let mut text = String::from(
        "# The API\n\nGenerated from the program by `cargo run -p equipoise -- reference docs/reference`; do not edit.\n\n\
         [Change the configuration over the API](../guides/change-by-api.md) shows how to use it. A running program serves\n\
         the OpenAPI 3.1 document at `/api/openapi.json`.\n\n\
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
    text.push_str(RESPONSES);
    text
}
