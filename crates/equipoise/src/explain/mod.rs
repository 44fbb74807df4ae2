//! `equipoise explain`: what would become of a request, and why.

mod ask;
mod text;

use clap::CommandFactory;
use clap::error::ErrorKind;
use control::Source;
use control::explain::{Explanation, Question, explain};

use crate::cli;
use crate::client::{ADMIN, AdminAddress};
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

/// Returns the address that `ctl` asks too. A wrong one counts as a wrong command line, and so does none.
fn admin_of_environment() -> Result<AdminAddress, String> {
    let refused = |kind, message: String| -> ! { cli::Cli::command().error(kind, message).exit() };
    let Some(text) = std::env::var_os(ADMIN).filter(|text| !text.is_empty()) else {
        let message = format!("one of --config FILE and --admin ADDR is needed, or the variable {ADMIN}");
        refused(ErrorKind::MissingRequiredArgument, message)
    };
    AdminAddress::parse(&text.to_string_lossy())
        .or_else(|message| refused(ErrorKind::ValueValidation, format!("the variable {ADMIN}: {message}")))
}

fn answer(options: &cli::Explain) -> Result<Explanation, String> {
    let Some(file) = options.config.clone() else {
        let admin = options.admin.clone().map_or_else(admin_of_environment, Ok)?;
        return ask::ask(admin, options);
    };
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
