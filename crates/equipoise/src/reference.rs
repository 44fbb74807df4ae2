//! `equipoise reference`: the pages of the reference that are made from the program itself. Hidden from users.

use std::path::Path;

use clap::CommandFactory;
use plan::expression::Scope;
use plan::filter::variables::{Stage, variables as all_variables};

use crate::cli::{self, Cli};
use crate::ending::Ending;

/// Runs the command.
pub(crate) fn run(options: &cli::Reference) -> Ending {
    let pages = pages();
    if options.check { check(&options.folder, &pages) } else { write(&options.folder, &pages) }
}

/// Path below the folder, and text.
type Page = (String, String);

fn pages() -> Vec<Page> {
    let balancers: Vec<_> = plan::balance::BALANCERS.iter().map(|balancer| (balancer.name, balancer.doc)).collect();
    let mut pages = config::reference(&plan::filter::specs(), &balancers);
    let filters = pages.iter_mut().find(|(name, _)| name == "filters.md");
    filters.expect("one of the pages of the configuration").1.push_str(&variables());
    pages.extend(telemetry::reference());
    pages.push(("expressions.md".to_owned(), expressions()));
    pages.push(("cli.md".to_owned(), cli_page()));
    pages.push(("api.md".to_owned(), admin::reference()));
    pages
}

/// Returns the section about the variables that settings of filters may hold.
fn variables() -> String {
    let mut text = String::from(
        "\n## Variables\n\nText in filters, redirects, `cluster: { from }` and PROXY TLVs may contain variables in braces; \
         `{{` and `}}` stand for the braces themselves. A variable without a value is empty.\n\n\
         | Variable | Available | Meaning |\n|---|---|---|\n",
    );
    for spec in all_variables() {
        let argument = if spec.takes_name { ":NAME" } else { "" };
        let stage = match spec.stage {
            Stage::Request => "always",
            Stage::Response => "in filters for responses",
        };
        text.push_str(&format!("| `{{{}{argument}}}` | {stage} | {} |\n", spec.name, spec.doc));
    }
    text
}

/// Returns the page about facts and functions of expressions.
fn expressions() -> String {
    let mut text = String::from(
        "# Expressions\n\nGenerated from the program by `cargo run -p equipoise -- reference docs/reference`; do not edit.\n\n\
         [Conditions and values by expression](../guides/expressions.md) shows how to use them.\n\n\
         ## Facts\n\nA fact that is missing has no value, and neither has what is computed of it; a condition is then false.\n\
         `has(fact)` asks for it, and `fact.orValue(\"\")` gives another value. `route` means: also in `match` of routes; `request`: in filters; `response`: in filters that act only on\n\
         responses; `log`: in access logs. What is known at one point is known at all later ones.\n\n\
         | Fact | Type | From | Meaning |\n|---|---|---|---|\n",
    );
    for fact in plan::expression::ATTRIBUTES {
        let since = match fact.since {
            Scope::Route => "route",
            Scope::Request => "request",
            Scope::Response => "response",
            Scope::Log => "log",
        };
        text.push_str(&format!("| `{}` | {} | {since} | {} |\n", fact.name, fact.kind(), fact.doc));
    }
    text.push_str(
        "| `maps.NAME[key]` | string | route | The value of a key in a [map](../guides/expressions.md#maps). |\n\
         | `tables.NAME.READING` | int | route | What a [table](../guides/limits.md#reject-clients-by-what-they-did) has counted by the \
         key of this request, such as `tables.abuse.errors_rate`. |\n\
         | `tables.NAME[key].READING` | int | route | The same of another key. |\n",
    );
    text.push_str("\n## Functions\n\n| Function | Meaning |\n|---|---|\n");
    for function in plan::expression::FUNCTIONS {
        let forms: Vec<String> = function.forms.iter().map(|form| format!("`{form}`")).collect();
        text.push_str(&format!("| {} | {} |\n", forms.join("<br>"), function.doc));
    }
    text.push_str(
        "\n## Operators\n\nFrom the weakest to the strongest: `? :`, `||`, `&&`, `== != < <= > >= in`, `+ -`, `* / %`, `! -`, \
         `. [] ()`.\n",
    );
    text
}

fn write(folder: &Path, pages: &[Page]) -> Ending {
    for (name, text) in pages {
        let path = folder.join(name);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        if let Err(error) = made.and_then(|()| std::fs::write(&path, text)) {
            eprintln!("equipoise: cannot write {}: {error}", path.display());
            return Ending::CannotStart;
        }
    }
    eprintln!("{} pages written to {}", pages.len(), folder.display());
    Ending::Good
}

fn check(folder: &Path, pages: &[Page]) -> Ending {
    let stale: Vec<&str> = pages
        .iter()
        .filter(|(name, text)| std::fs::read_to_string(folder.join(name)).ok().as_ref() != Some(text))
        .map(|(name, _)| name.as_str())
        .collect();
    if stale.is_empty() {
        return Ending::Good;
    }
    eprintln!("stale below {}: {}", folder.display(), stale.join(", "));
    eprintln!("`cargo run -p equipoise -- reference {}` regenerates them", folder.display());
    Ending::Bad
}

/// Returns the help of every command that users see.
fn cli_page() -> String {
    let mut program = Cli::command().term_width(100).color(clap::ColorChoice::Never);
    program.build();
    let mut text = String::from(
        "# The command line\n\nGenerated from the program by `cargo run -p equipoise -- reference docs/reference`; do not edit.\n",
    );
    push_help(&mut text, "equipoise", program.render_long_help().to_string());
    push_commands(&mut text, "equipoise", &mut program);
    text
}

/// Appends the subcommands of a command, recursively.
fn push_commands(text: &mut String, above: &str, program: &mut clap::Command) {
    for command in program.get_subcommands_mut() {
        if command.is_hide_set() || command.get_name() == "help" {
            continue;
        }
        let name = format!("{above} {}", command.get_name());
        push_help(text, &name, command.render_long_help().to_string());
        push_commands(text, &name, command);
    }
}

fn push_help(text: &mut String, name: &str, help: String) {
    text.push_str(&format!("\n## `{name}`\n\n```text\n"));
    for line in help.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push_str("```\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_command_line_shows_every_command_but_hidden_ones() {
        let page = cli_page();
        for command in
            ["run", "check", "config", "proxy", "demo", "schema", "version", "ctl", "ctl config put", "completion"]
        {
            assert!(page.contains(&format!("\n## `equipoise {command}`\n")), "{command}");
        }
        assert!(!page.contains("equipoise reference`\n\n```"), "{page}");
        assert_eq!(page, cli_page());
    }

    #[test]
    fn stale_pages_are_told_from_fresh_ones() {
        let folder = std::env::temp_dir().join(format!("equipoise-reference-{}", std::process::id()));
        let pages = [("a.md".to_owned(), "one\n".to_owned()), ("below/b.md".to_owned(), "two\n".to_owned())];
        assert_eq!(check(&folder, &pages), Ending::Bad);
        assert_eq!(write(&folder, &pages), Ending::Good);
        assert_eq!(check(&folder, &pages), Ending::Good);
        std::fs::write(folder.join("a.md"), "edited\n").unwrap();
        assert_eq!(check(&folder, &pages), Ending::Bad);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
