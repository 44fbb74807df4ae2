//! What stands in place of the matches of an expression: text that quotes groups.

use model::Issue;
use regex::bytes::Regex;

/// Text of the kind `T` with groups between, compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replacement<T>(Box<[Part<T>]>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part<T> {
    Text(T),
    Group(usize),
}

impl<T> Replacement<T> {
    /// Compiles `text`, in which `$1` and `${name}` quote groups of `pattern` and `$$` is a dollar sign. `compile` takes the text
    /// between them.
    ///
    /// The syntax is that of the regex crate. It would take `$1a` for a group of the name `1a` and unknown groups for nothing;
    /// here both are errors.
    ///
    /// # Errors
    /// See above, and what `compile` says. The path of the issue is empty.
    pub(super) fn compile(
        text: &str,
        pattern: &Regex,
        compile: impl Fn(&str) -> Result<T, Issue>,
    ) -> Result<Self, Issue> {
        let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
        let end = |plain: &mut String, parts: &mut Vec<Part<T>>| {
            if !plain.is_empty() {
                parts.push(Part::Text(compile(plain)?));
                plain.clear();
            }
            Ok(())
        };
        while let Some(at) = rest.find('$') {
            plain.push_str(&rest[..at]);
            let tail = &rest[at + 1..];
            if let Some(after) = tail.strip_prefix('$') {
                plain.push('$');
                rest = after;
                continue;
            }
            end(&mut plain, &mut parts)?;
            let (name, after) = group_name(tail)?;
            parts.push(Part::Group(find_group(name, pattern)?));
            rest = after;
        }
        plain.push_str(rest);
        end(&mut plain, &mut parts)?;
        Ok(Self(parts.into()))
    }

    /// Text without groups.
    pub(super) fn of_text(text: T) -> Self {
        Self([Part::Text(text)].into())
    }

    /// Returns how many groups it quotes.
    pub(super) fn groups(&self) -> usize {
        self.0.iter().filter(|part| matches!(part, Part::Group(_))).count()
    }

    /// Returns its texts.
    pub(super) fn texts(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text),
            Part::Group(_) => None,
        })
    }

    /// Makes the same of other texts.
    pub(super) fn map<U>(&self, mut of: impl FnMut(&T) -> U) -> Replacement<U> {
        let part = |part: &Part<T>| match part {
            Part::Text(text) => Part::Text(of(text)),
            Part::Group(number) => Part::Group(*number),
        };
        Replacement(self.0.iter().map(part).collect())
    }

    /// Appends what stands in place of one match.
    pub(super) fn write<'a>(
        &self,
        out: &mut Vec<u8>,
        text_of: impl Fn(&T, &mut Vec<u8>),
        group: impl Fn(usize) -> &'a [u8],
    ) {
        for part in &self.0 {
            match part {
                Part::Text(text) => text_of(text, out),
                Part::Group(number) => out.extend_from_slice(group(*number)),
            }
        }
    }

    /// Returns whether it is nothing at all.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces every match in `old`, and stops once the result is longer than `max`: a short pattern and a long replacement could
    /// grow a text a thousandfold. `write` writes the text between groups.
    pub(super) fn replace_all(
        &self,
        pattern: &Regex,
        (old, max): (&[u8], usize),
        out: &mut Vec<u8>,
        write: impl Fn(&T, &mut Vec<u8>),
    ) {
        let (mut end, bound) = (0, out.len() + max);
        for captures in pattern.captures_iter(old) {
            let Some(whole) = captures.get(0) else { continue };
            out.extend_from_slice(&old[end..whole.start()]);
            end = whole.end();
            self.write(out, &write, |number| captures.get(number).map_or(b"", |group| group.as_bytes()));
            if out.len() > bound {
                return;
            }
        }
        out.extend_from_slice(&old[end..]);
    }
}

/// Splits `{name}…` or `name…` after a dollar sign.
fn group_name(tail: &str) -> Result<(&str, &str), Issue> {
    if let Some(braced) = tail.strip_prefix('{') {
        return braced.split_once('}').ok_or_else(|| Issue::at("", "`${` is never closed"));
    }
    let end = tail.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(tail.len());
    let (name, after) = tail.split_at(end);
    let digits = name.bytes().take_while(u8::is_ascii_digit).count();
    if digits > 0 && digits < name.len() {
        let issue = Issue::at("", format!("`${name}` could mean group {} or group `{name}`", &name[..digits]));
        return Err(issue.suggest(format!("write `${{{}}}{}`", &name[..digits], &name[digits..])));
    }
    Ok((name, after))
}

fn find_group(name: &str, pattern: &Regex) -> Result<usize, Issue> {
    let found = match name.parse::<usize>() {
        Ok(number) => Some(number).filter(|number| *number < pattern.captures_len()),
        Err(_) => pattern.capture_names().position(|known| known == Some(name)),
    };
    found.ok_or_else(|| match name {
        "" => Issue::at("", "`$` names no group").suggest("write `$$` for a dollar sign"),
        name => Issue::at("", format!("the pattern has no group `{name}`")),
    })
}
