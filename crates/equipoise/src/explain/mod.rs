//! `equipoise explain`: what would become of a request, and why.

mod ask;
mod text;

use control::Source;
use control::explain::{Explanation, Question, explain};

use crate::cli;
use crate::ending::Ending;

/// Runs the command.
pub(crate) fn run(options: &cli::Explain) -> Ending {
    match answer(options) {
        Ok(explanation) if options.json => match serde_json::to_string_pretty(&explanation) {
            Ok(json) => crate::print(&format!("{json}\n")),
            Err(error) => refuse(&error.to_string()),
        },
        Ok(explanation) => crate::print(&text::render(&explanation)),
        Err(message) => refuse(&message),
    }
}

fn refuse(message: &str) -> Ending {
    eprintln!("{}", message.trim_end());
    Ending::Bad
}

fn answer(options: &cli::Explain) -> Result<Explanation, String> {
    if let Some(admin) = options.admin.clone() {
        return ask::ask(admin, options);
    }
    let file = options.config.clone().ok_or("a configuration is needed: -c FILE")?;
    let candidate = control::prepare(&Source::File(file), None, 1, proxy::check).map_err(|all| all.to_string())?;
    let question = Question {
        request: options.request.clone(),
        fields: options.fields.clone(),
        client: options.client,
        listener: options.listener.clone(),
        hides_values: false,
    };
    explain(candidate.plan(), &question)
}
