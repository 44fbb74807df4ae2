//! Tables: of figures that a study made, and of any rows.

use super::colours::Look;
use super::html::{name, section};
use super::page::{Table, TableCell, Tone};
use super::text::escape;
use std::fmt::Write;

/// All tables of a page.
pub(super) fn section_of(tables: &[Table], looks: &[Look]) -> String {
    let html: String = tables.iter().map(|table| one(table, looks)).collect();
    section("tables", "Tables", &html)
}

fn one(table: &Table, looks: &[Look]) -> String {
    let mut html = String::from("<div class=\"card\">\n");
    if !table.title.is_empty() {
        let _ = writeln!(html, "<h3>{}</h3>", escape(&table.title));
    }
    if !table.note.is_empty() {
        let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(&table.note));
    }
    html.push_str(&grid(&table.title, &table.columns, &table.rows, looks));
    html.push_str(&key(&table.rows));
    html.push_str("</div>\n");
    html
}

/// Columns and rows in a frame that scrolls by itself when the screen is narrow.
pub(super) fn grid(title: &str, columns: &[String], rows: &[Vec<TableCell>], looks: &[Look]) -> String {
    let title = escape(title);
    let mut html =
        format!("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{title}\"><table>\n<thead><tr>");
    let numeric: Vec<bool> = (0..columns.len()).map(|column| is_numeric(rows, column)).collect();
    let class = |column: usize| if numeric.get(column) == Some(&true) { " class=\"n\"" } else { "" };
    for (column, text) in columns.iter().enumerate() {
        let _ = write!(html, "<th scope=\"col\"{}>{}</th>", class(column), name(text, looks));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        html.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let inner = place(cell, looks);
            let tone = tone_class(cell.tone);
            let class = if numeric.get(column) == Some(&true) { format!("n {tone}") } else { tone.to_owned() };
            let _ = match column {
                0 => write!(html, "<th scope=\"row\" class=\"{class}\">{inner}</th>"),
                _ => write!(html, "<td class=\"{class}\">{inner}</td>"),
            };
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div>\n");
    html
}

/// Whether most of what stands in a column begins like a number.
fn is_numeric(rows: &[Vec<TableCell>], column: usize) -> bool {
    let texts = rows.iter().filter_map(|row| row.get(column)).filter(|cell| cell.tone != Tone::Failed);
    let (mut numbers, mut others) = (0, 0);
    for cell in texts.filter(|cell| cell.tone != Tone::LeftOut && !cell.text.is_empty()) {
        let digits = cell.text.trim_start_matches(['-', '+', '~', '×', '≈', '<', '>', ' ', '±']);
        let is_number = digits.starts_with(|c: char| c.is_ascii_digit()) && cell.text.chars().count() < 24;
        *(if is_number { &mut numbers } else { &mut others }) += 1;
    }
    // Where all is left out, figures would have stood.
    numbers > others || (column > 0 && numbers + others == 0)
}

fn tone_class(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "plain",
        Tone::Best => "best",
        Tone::Doubtful => "doubtful",
        Tone::Failed => "failed",
        Tone::LeftOut => "left-out",
    }
}

/// The sign of a tone and what it means: nothing is told by colour alone.
fn sign(tone: Tone) -> Option<(&'static str, &'static str)> {
    match tone {
        Tone::Plain => None,
        Tone::Best => Some(("★", "best")),
        Tone::Doubtful => Some(("!", "doubtful")),
        Tone::Failed => Some(("✕", "failed")),
        Tone::LeftOut => Some(("–", "left out")),
    }
}

fn place(cell: &TableCell, looks: &[Look]) -> String {
    let mut shown = String::new();
    if let Some((sign, word)) = sign(cell.tone) {
        let _ =
            write!(shown, "<span class=\"sign\" aria-hidden=\"true\">{sign}</span><span class=\"sr\">{word}: </span>");
    }
    // The sign of what is left out says it already.
    if cell.tone != Tone::LeftOut || !matches!(cell.text.as_str(), "–" | "-" | "—") {
        shown.push_str(&name(&cell.text, looks));
    }
    if cell.detail.is_empty() {
        return shown;
    }
    let detail = escape(&cell.detail);
    format!("<details class=\"more\"><summary title=\"{detail}\">{shown}</summary><div>{detail}</div></details>")
}

/// What the signs of a table mean: those that it has.
fn key(rows: &[Vec<TableCell>]) -> String {
    let has = |tone: Tone| rows.iter().flatten().any(|cell| cell.tone == tone);
    let tones = [Tone::Best, Tone::Doubtful, Tone::Failed, Tone::LeftOut];
    let mut html = String::new();
    for tone in tones.into_iter().filter(|tone| has(*tone)) {
        let (sign, word) = sign(tone).unwrap_or_default();
        let class = tone_class(tone);
        let _ = write!(
            html,
            "<span class=\"{class}\"><span class=\"sign\" aria-hidden=\"true\">{sign}</span> {word}</span>"
        );
    }
    if rows.iter().flatten().any(|cell| !cell.detail.is_empty()) {
        html.push_str("<span class=\"dots\">dotted: more when opened</span>");
    }
    if html.is_empty() { html } else { format!("<p class=\"key\">{html}</p>\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(text: &str, tone: Tone, detail: &str) -> TableCell {
        TableCell { text: text.to_owned(), tone, detail: detail.to_owned() }
    }

    #[test]
    fn a_tone_has_a_sign_and_a_word_beside_its_colour() {
        let rows =
            vec![vec![cell("a", Tone::Plain, ""), cell("12.5", Tone::Best, ""), cell("err", Tone::Failed, "<i>")]];
        let columns = ["", "x", "y"].map(str::to_owned);
        let table = Table { columns: columns.to_vec(), rows, ..Table::default() };
        let html = one(&table, &[]);
        assert!(html.contains("★") && html.contains("<span class=\"sr\">best: </span>12.5"), "{html}");
        assert!(html.contains("title=\"&lt;i&gt;\"") && html.contains("<div>&lt;i&gt;</div>"), "{html}");
        assert!(html.contains("<th scope=\"col\" class=\"n\">x</th>"), "{html}");
        assert!(html.contains("dotted") && !html.contains("doubtful"), "{html}");
    }

    #[test]
    fn a_ragged_table_is_shown_as_far_as_it_goes() {
        let rows = vec![vec![cell("a", Tone::Plain, "")], vec![]];
        let html = grid("t", &["x".to_owned(), "y".to_owned()], &rows, &[]);
        assert_eq!(html.matches("<tr>").count(), 3);
    }
}
