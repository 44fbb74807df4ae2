//! How the outcome of a check is written: for people, for programs, and for the log of a workflow at GitHub.

use config::{Diagnostic, Diagnostics};
use serde_json::{Value, json};

use super::{Checked, counted};
use crate::cli;
use crate::ending::Ending;

/// Writes the outcome in the form that was asked for.
pub(super) fn write(checked: &Checked, options: &cli::Check) -> Ending {
    match options.format {
        cli::CheckFormat::Text => text(checked, options.strict),
        cli::CheckFormat::Json => crate::print(&format!("{:#}\n", json(&checked.diagnostics))),
        cli::CheckFormat::Github => crate::print(&github(&checked.diagnostics)),
    }
}

/// Errors and warnings to standard error, what is good to standard output.
fn text(checked: &Checked, is_strict: bool) -> Ending {
    let diagnostics = &checked.diagnostics;
    let Some(summary) = &checked.summary else {
        eprintln!("{}", crate::escape::lines(&diagnostics.to_string()));
        return Ending::Good;
    };
    for warning in &diagnostics.warnings {
        eprintln!("{}\n", crate::escape::lines(&warning.to_string()));
    }
    let warnings = diagnostics.warnings.len();
    if is_strict && warnings > 0 {
        eprintln!(
            "{}, which `--strict` counts as {}",
            counted(warnings, "warning"),
            if warnings == 1 { "an error" } else { "errors" }
        );
        return Ending::Good;
    }
    let told = if warnings > 0 { format!("; {}", counted(warnings, "warning")) } else { String::new() };
    crate::print(&format!("{} is valid: {summary}{told}\n", checked.name))
}

/// Returns an array of objects, errors first.
fn json(diagnostics: &Diagnostics) -> Value {
    let one = |one: &Diagnostic| {
        json!({
            "file": one.file,
            "line": one.line,
            "column": one.column,
            "severity": one.severity().as_str(),
            "message": one.message,
            "help": one.suggestion,
        })
    };
    let mut all: Vec<Value> = diagnostics.list.iter().chain(&diagnostics.warnings).map(one).collect();
    if let (Some(message), Some(last)) = (left_out(diagnostics), diagnostics.list.last()) {
        let (file, severity) = (&last.file, "error");
        let message =
            json!({ "file": file, "line": 0, "column": 0, "severity": severity, "message": message, "help": null });
        all.push(message);
    }
    Value::Array(all)
}

/// Returns one workflow command on each line.
fn github(diagnostics: &Diagnostics) -> String {
    let mut out = String::new();
    for one in diagnostics.list.iter().chain(&diagnostics.warnings) {
        out.push_str(&format!("::{} file={}", one.severity().as_str(), property(&one.file)));
        if one.line > 0 {
            out.push_str(&format!(",line={},col={}", one.line, one.column));
        }
        let help = one.suggestion.as_ref().map_or_else(String::new, |help| format!("\nhelp: {help}"));
        out.push_str(&format!("::{}\n", data(&format!("{}{help}", one.message))));
    }
    if let (Some(message), Some(last)) = (left_out(diagnostics), diagnostics.list.last()) {
        out.push_str(&format!("::error file={}::{}\n", property(&last.file), data(&message)));
    }
    out
}

fn left_out(diagnostics: &Diagnostics) -> Option<String> {
    (diagnostics.left_out > 0).then(|| format!("{} not shown", counted(diagnostics.left_out, "more problem")))
}

/// Returns the text of a workflow command: a line end would end it.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Returns the value of a property, which also ends at a comma or at two colons.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnostics() -> Diagnostics {
        let error = Diagnostic {
            line: 3,
            column: 7,
            suggestion: Some("100%\r\nmore, or: less".into()),
            ..super::super::whole("a,b:c\n%.yaml", "50% of `x`: no\n::error::y".into())
        };
        let warning = Diagnostic { is_warning: true, ..super::super::whole("w.yaml", "odd".into()) };
        Diagnostics { list: vec![error], warnings: vec![warning], left_out: 2, ..Diagnostics::default() }
    }

    #[test]
    fn workflow_commands_stay_one_line_each_whatever_they_say() {
        let wanted = "::error file=a%2Cb%3Ac%0A%25.yaml,line=3,col=7::50%25 of `x`: no%0A::error::y%0Ahelp: 100%25%0D%0Amore, or: less\n\
                      ::warning file=w.yaml::odd\n::error file=a%2Cb%3Ac%0A%25.yaml::2 more problems not shown\n";
        assert_eq!(github(&diagnostics()), wanted);
        assert_eq!(github(&Diagnostics::default()), "");
    }

    #[test]
    fn json_has_errors_warnings_and_what_is_not_shown() {
        let told = json(&diagnostics());
        let severities: Vec<_> = told.as_array().unwrap().iter().map(|one| one["severity"].as_str().unwrap()).collect();
        assert_eq!(severities, ["error", "warning", "error"]);
        assert_eq!((told[0]["line"].as_u64(), told[0]["column"].as_u64()), (Some(3), Some(7)));
        assert_eq!((&told[1]["help"], &told[2]["message"]), (&Value::Null, &Value::from("2 more problems not shown")));
        assert_eq!(json(&Diagnostics::default()), serde_json::json!([]));
    }
}
