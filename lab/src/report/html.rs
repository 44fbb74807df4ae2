//! A report as one HTML file that needs nothing but itself.
//!
//! Everything that is text stands in the page as HTML, so that it can be read without JavaScript; the scripts draw the
//! charts from the JSON at the end. Every text goes through [`escape`].

use super::colours::{self, Look};
use super::page::{File, Finding, Page, ProductLine};
use super::text::{escape, policy};
use super::{charts, tables};
use std::fmt::Write;

const STYLE: &str = include_str!("report.css");
/// Sets the theme before anything is shown.
const THEME: &str = include_str!("theme.js");
const SCRIPT: &str = concat!(
    include_str!("scales.js"),
    include_str!("frame.js"),
    include_str!("marks.js"),
    include_str!("kinds.js"),
    include_str!("report.js")
);

/// Draws a report.
pub(crate) fn render(page: &Page) -> String {
    let looks = colours::looks(page);
    let mut body = String::new();
    body.push_str("<nav class=\"bar\"><a href=\"../index.html\">All studies</a><span class=\"grow\"></span>");
    body.push_str(THEME_BUTTON);
    body.push_str("</nav>\n<main>\n");
    body.push_str(&head(page));
    body.push_str(&contents(page));
    body.push_str(&facts(page, &looks));
    body.push_str(&findings(&page.findings));
    body.push_str(&charts::section_of(page, &looks));
    body.push_str(&tables::section_of(&page.tables, &looks));
    body.push_str(&notes(&page.notes));
    body.push_str(&files(&page.files, &looks));
    body.push_str(&repeat(&page.repeat));
    body.push_str("</main>\n");
    let _ = writeln!(body, "<script type=\"application/json\" id=\"data\">{}</script>", charts::data(page, &looks));
    document(&page.title, &body)
}

const THEME_BUTTON: &str = "<button type=\"button\" id=\"theme\" hidden>Theme: as the system</button>";

/// A whole document around a body.
pub(super) fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title} – Equipoise lab</title>\n<style>{STYLE}</style>\n<script>{THEME}</script>\n</head>\n\
         <body>\n{body}<script>{SCRIPT}</script>\n</body>\n</html>\n",
        policy = escape(&policy(&[THEME, SCRIPT], STYLE)),
        title = escape(title),
    )
}

/// The bar of the index.
pub(super) fn index_bar() -> String {
    format!("<nav class=\"bar\"><span>Equipoise lab</span><span class=\"grow\"></span>{THEME_BUTTON}</nav>\n")
}

fn head(page: &Page) -> String {
    let mut html =
        format!("<header>\n<p class=\"over\">{}</p>\n<h1>{}</h1>\n", escape(&page.study), escape(&page.title));
    paragraph(&mut html, "lead", &page.question);
    paragraph(&mut html, "article", &page.article);
    html.push_str(&banners(page));
    html.push_str("</header>\n");
    html
}

/// What a reader must know before any figure.
pub(super) fn banners(page: &Page) -> String {
    let mut html = String::new();
    if page.quick {
        html.push_str(
            "<p class=\"banner quick\"><strong>Quick run, not to be quoted.</strong> \
             It shows that everything works; its figures come from too few requests.</p>\n",
        );
    }
    if page.interrupted {
        html.push_str(
            "<p class=\"banner interrupted\"><strong>Interrupted.</strong> \
             It was ended before its end: what is missing was not measured.</p>\n",
        );
    }
    html
}

fn paragraph(html: &mut String, class: &str, text: &str) {
    if !text.is_empty() {
        let _ = writeln!(html, "<p class=\"{class}\">{}</p>", escape(text));
    }
}

/// Links to the sections that there are.
fn contents(page: &Page) -> String {
    let sections = [
        ("facts", "Facts", !page.facts.is_empty() || !page.products.is_empty()),
        ("findings", "Findings", !page.findings.is_empty()),
        ("charts", "Charts", !page.charts.is_empty()),
        ("tables", "Tables", !page.tables.is_empty()),
        ("notes", "Notes", !page.notes.is_empty()),
        ("files", "Configurations", !page.files.is_empty()),
        ("repeat", "Repeat it", !page.repeat.is_empty()),
    ];
    let mut html = String::from("<nav class=\"contents\" aria-label=\"Sections\"><ul>");
    for (id, name, _) in sections.iter().filter(|(_, _, is_there)| *is_there) {
        let _ = write!(html, "<li><a href=\"#{id}\">{name}</a></li>");
    }
    html.push_str("</ul></nav>\n");
    html
}

/// A section with a heading; nothing when it is empty.
pub(super) fn section(id: &str, title: &str, inner: &str) -> String {
    if inner.is_empty() {
        return String::new();
    }
    format!(
        "<section id=\"{id}\" aria-labelledby=\"{id}-title\">\n<h2 id=\"{id}-title\">{title}</h2>\n{inner}</section>\n"
    )
}

fn facts(page: &Page, looks: &[Look]) -> String {
    let mut html = String::new();
    if !page.facts.is_empty() {
        html.push_str("<dl class=\"facts\">\n");
        for (name, value) in &page.facts {
            let _ = writeln!(html, "<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
        }
        html.push_str("</dl>\n");
    }
    if !page.products.is_empty() {
        html.push_str("<ul class=\"products\">\n");
        for product in &page.products {
            html.push_str(&product_line(product, looks));
        }
        html.push_str("</ul>\n");
    }
    section("facts", "Facts", &html)
}

fn product_line(product: &ProductLine, looks: &[Look]) -> String {
    let mut html = format!("<li>{}", name(&product.name, looks));
    for (class, text) in [("version", &product.version), ("tls", &product.tls)] {
        if !text.is_empty() {
            let _ = write!(html, "<span class=\"{class}\">{}</span>", escape(text));
        }
    }
    html.push_str("</li>\n");
    html
}

/// A product's name with its colour before it; another text as it is.
pub(super) fn name(text: &str, looks: &[Look]) -> String {
    match colours::find(looks, text) {
        None => escape(text),
        Some(Look { colour, variant, .. }) => {
            let broken = if *variant { " variant" } else { "" };
            let ours = if *colour == 0 { " ours" } else { "" };
            format!("<span class=\"name{ours}\"><i class=\"chip k{colour}{broken}\"></i>{}</span>", escape(text))
        }
    }
}

fn findings(findings: &[Finding]) -> String {
    let mut html = String::new();
    if !findings.is_empty() {
        html.push_str("<ol class=\"findings\">\n");
        for Finding { article, here } in findings {
            let (article, here) = (escape(article), escape(here));
            let _ = writeln!(
                html,
                "<li><div><h3>The article found</h3><p>{article}</p></div><div class=\"here\"><h3>Found here</h3><p>{here}</p></div></li>"
            );
        }
        html.push_str("</ol>\n");
    }
    section("findings", "What the article found, and what was found here", &html)
}

fn notes(notes: &[String]) -> String {
    let mut html = String::new();
    for note in notes {
        let _ = writeln!(html, "<p>{}</p>", escape(note));
    }
    section("notes", "Notes", &html)
}

fn files(files: &[File], looks: &[Look]) -> String {
    let mut html = String::new();
    for File { product, name: file, text } in files {
        let lines = text.lines().count();
        let _ = writeln!(
            html,
            "<details class=\"file\"><summary>{} <code>{}</code> <span class=\"count\">{lines} lines</span></summary>\n\
             <pre tabindex=\"0\"><code>{}</code></pre></details>",
            name(product, looks),
            escape(file),
            escape(text)
        );
    }
    section("files", "Configurations", &html)
}

fn repeat(command: &str) -> String {
    let inner = match command {
        "" => String::new(),
        command => format!("<pre tabindex=\"0\"><code>{}</code></pre>\n", escape(command)),
    };
    section("repeat", "How to repeat it", &inner)
}
