//! The question, put to the admin address of a running program.

use control::explain::Explanation;

use crate::cli;
use crate::client::{AdminAddress, Asked, Client, encoded};
use crate::ctl::refusal;

/// Asks the program whose admin address this is.
pub(super) fn ask(admin: AdminAddress, options: &cli::Explain) -> Result<Explanation, String> {
    let client = Client::new(admin, options.tls.clone());
    let answer = client
        .ask(&Asked { method: "GET", path: path(options), ..Asked::default() })
        .map_err(|unanswered| unanswered.to_string())?;
    match answer.status {
        200 => serde_json::from_str(&answer.body).map_err(|_| client.foreign()),
        400 | 401 | 403 | 503 => Err(refusal(&answer)),
        _ => Err(client.foreign()),
    }
}

fn path(options: &cli::Explain) -> String {
    let mut path = format!("/api/explain?request={}&client={}", encoded(&options.request), options.client);
    for (name, value) in &options.fields {
        path.push_str(&format!("&header={}", encoded(&format!("{name}: {value}"))));
    }
    if let Some(listener) = &options.listener {
        path.push_str(&format!("&listener={}", encoded(listener)));
    }
    path
}
