//! The templates of the products' configurations: `${name}` is replaced, and a line that ends in `#+flag` stays only
//! when the flag is on, one that ends in `#-flag` only when it is off.

use crate::failure::Failure;

/// Renders a template. An unknown name or flag is a failure, for a typing error must not go unseen.
pub(crate) fn render(text: &str, values: &[(&str, String)], flags: &[(&str, bool)]) -> Result<String, Failure> {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let Some(line) = keep(line, flags)? else { continue };
        replace(line, values, &mut out)?;
        out.push('\n');
    }
    Ok(out)
}

/// The line without its mark, or `None` when the mark says to leave it out.
fn keep<'a>(line: &'a str, flags: &[(&str, bool)]) -> Result<Option<&'a str>, Failure> {
    let last = line.rsplit(' ').next().unwrap_or("");
    let (wanted, flag) = match (last.strip_prefix("#+"), last.strip_prefix("#-")) {
        (Some(flag), _) => (true, flag),
        (_, Some(flag)) => (false, flag),
        _ => return Ok(Some(line)),
    };
    let (_, on) = flags
        .iter()
        .find(|(name, _)| *name == flag)
        .ok_or_else(|| Failure::new(format!("template: unknown flag {flag}")))?;
    Ok((*on == wanted).then(|| line[..line.len() - last.len()].trim_end()))
}

fn replace(line: &str, values: &[(&str, String)], out: &mut String) -> Result<(), Failure> {
    let mut rest = line;
    while let Some(start) = rest.find("${") {
        let end = rest[start..].find('}').map(|at| start + at);
        let end = end.ok_or_else(|| Failure::new(format!("template: no closing brace in {line:?}")))?;
        let name = &rest[start + 2..end];
        let (_, value) = values
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| Failure::new(format!("template: unknown name {name}")))?;
        out.push_str(&rest[..start]);
        out.push_str(value);
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_and_flags_keep_or_drop_lines() {
        let text = "listen ${web};\nlog on; #+log\nlog off; #-log\n# a comment\n";
        let values = [("web", "80".to_owned())];
        assert_eq!(render(text, &values, &[("log", false)]).unwrap(), "listen 80;\nlog off;\n# a comment\n");
        assert_eq!(render(text, &values, &[("log", true)]).unwrap(), "listen 80;\nlog on;\n# a comment\n");
    }

    #[test]
    fn typing_errors_are_failures() {
        assert!(render("${wbe}", &[], &[]).is_err());
        assert!(render("${web", &[], &[]).is_err());
        assert!(render("x #+lgo", &[], &[]).is_err());
    }
}
