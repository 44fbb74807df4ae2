//! The index: every study on a card, with what was found first.

use super::colours::looks;
use super::html::{document, index_bar, name};
use super::page::Page;
use super::text::escape;
use std::fmt::Write;

/// Draws the index over all reports. A study's report lies in the folder of its name.
pub(crate) fn index(pages: &[Page]) -> String {
    let mut body = index_bar();
    body.push_str(
        "<main>\n<header>\n<h1>The studies</h1>\n<p class=\"lead\">Published comparisons of load balancers, \
         made again on one machine with today's versions, with Equipoise beside every product.</p>\n</header>\n",
    );
    if pages.is_empty() {
        body.push_str("<p>No study has been run yet. <code>lab study all</code> runs them.</p>\n");
    }
    body.push_str("<ul class=\"cards\">\n");
    pages.iter().for_each(|page| body.push_str(&card(page)));
    body.push_str("</ul>\n</main>\n");
    document("The studies", &body)
}

fn card(page: &Page) -> String {
    let mut html = format!(
        "<li class=\"card study\">\n<p class=\"over\">{}</p>\n<h2><a href=\"{}/report.html\">{}</a></h2>\n",
        escape(&page.study),
        escape(&folder(&page.study)),
        escape(if page.title.is_empty() { &page.study } else { &page.title }),
    );
    if !page.question.is_empty() {
        let _ = writeln!(html, "<p class=\"question\">{}</p>", escape(&page.question));
    }
    if let Some(finding) = page.findings.first() {
        let _ = writeln!(html, "<p class=\"headline\">{}</p>", escape(&finding.here));
        if !finding.article.is_empty() {
            let _ = writeln!(html, "<p class=\"article\">The article: {}</p>", escape(&finding.article));
        }
    }
    html.push_str(&badges(page));
    let looks = looks(page);
    if !page.products.is_empty() {
        let names = page.products.iter().map(|product| format!("<li>{}</li>", name(&product.name, &looks)));
        let _ = writeln!(html, "<ul class=\"names\">{}</ul>", names.collect::<String>());
    }
    if let Some((_, date)) = page.facts.iter().find(|(name, _)| name.eq_ignore_ascii_case("date")) {
        let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(date));
    }
    html.push_str("</li>\n");
    html
}

fn badges(page: &Page) -> String {
    let mut html = String::new();
    if page.quick {
        html.push_str("<span class=\"badge quick\">quick run, not to be quoted</span>");
    }
    if page.interrupted {
        html.push_str("<span class=\"badge interrupted\">interrupted</span>");
    }
    if html.is_empty() { html } else { format!("<p>{html}</p>\n") }
}

/// A study's folder as part of a link: nothing that could lead elsewhere.
fn folder(study: &str) -> String {
    study.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::page::Finding;

    #[test]
    fn a_card_links_to_the_report_and_says_what_was_found() {
        let finding = Finding { article: "a & b".into(), here: "here <it> is".into() };
        let page = Page { study: "elb".into(), title: "E".into(), findings: vec![finding], ..Page::default() };
        let html = index(&[Page { quick: true, ..page }]);
        for text in ["href=\"elb/report.html\">E</a>", "here &lt;it&gt; is", "a &amp; b", "not to be quoted"] {
            assert!(html.contains(text), "{text}");
        }
        assert!(!html.contains("badge interrupted\">"));
    }

    #[test]
    fn a_link_leads_nowhere_else() {
        assert_eq!(folder("javascript:alert(1)//../x"), "javascriptalert1x");
    }

    #[test]
    fn an_empty_index_says_what_to_do() {
        assert!(index(&[]).contains("lab study all"));
    }
}
