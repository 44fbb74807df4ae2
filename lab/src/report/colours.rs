//! Which colour a product has: the same in every chart, every table and every report.
//!
//! The colours themselves stand in `report.css` as `k0`, `k1` …; lines differ in their dashes and shapes, too, so that
//! nothing is told by colour alone.

use super::page::Page;
use serde::Serialize;

/// Products with a colour of their own, in the order of the colours.
const KNOWN: &[&str] = &["equipoise", "floor", "nginx", "haproxy", "envoy", "traefik", "caddy", "direct"];

/// Colours in all; those after the known ones go to whoever else comes.
const COLOURS: usize = 12;

/// How a product is drawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Look {
    pub name: String,
    /// Its colour: the number of a class.
    pub colour: usize,
    /// Another build or version of a known product: the same colour, drawn broken.
    pub variant: bool,
}

/// The looks of all products that a page names, in its order.
pub(super) fn looks(page: &Page) -> Vec<Look> {
    let mut looks: Vec<Look> = Vec::new();
    let in_tables = page.products.iter().map(|product| product.name.as_str());
    let in_charts = page.charts.iter().flat_map(|chart| chart.series.iter().map(|series| series.product.as_str()));
    for name in in_tables.chain(in_charts) {
        if !looks.iter().any(|look| look.name == name) {
            let (colour, variant) = choose(name, &looks);
            looks.push(Look { name: name.to_owned(), colour, variant });
        }
    }
    looks
}

/// The look of one product.
pub(super) fn find<'a>(looks: &'a [Look], name: &str) -> Option<&'a Look> {
    looks.iter().find(|look| look.name == name)
}

fn choose(name: &str, taken: &[Look]) -> (usize, bool) {
    let is_free =
        |colour: usize, variant: bool| !taken.iter().any(|look| look.colour == colour && look.variant == variant);
    let lower = name.to_lowercase();
    for (colour, known) in KNOWN.iter().enumerate() {
        let rest = lower.strip_prefix(known);
        let variant = rest.is_some_and(|rest| rest.starts_with(|c: char| !c.is_alphanumeric()));
        if (lower == *known || variant) && is_free(colour, variant) {
            return (colour, variant);
        }
    }
    let others = KNOWN.len()..COLOURS;
    let plain = others.clone().map(|colour| (colour, false));
    let broken = others.map(|colour| (colour, true));
    plain.chain(broken).find(|(colour, variant)| is_free(*colour, *variant)).unwrap_or((COLOURS - 1, true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::page::{Chart, ProductLine, Series};

    #[test]
    fn a_product_has_one_colour_wherever_it_stands() {
        let product = |name: &&str| ProductLine { name: (*name).to_owned(), ..ProductLine::default() };
        let products = ["nginx", "nginx-1.22", "nginx-1.18", "equipoise", "pound"].iter().map(product).collect();
        let series = vec![Series { product: "direct".to_owned(), ..Series::default() }];
        let page = Page { products, charts: vec![Chart { series, ..Chart::default() }], ..Page::default() };
        let looks = looks(&page);
        let found: Vec<_> = looks.iter().map(|look| (look.name.as_str(), look.colour, look.variant)).collect();
        let expected = [
            ("nginx", 2, false),
            ("nginx-1.22", 2, true),
            ("nginx-1.18", 8, false),
            ("equipoise", 0, false),
            ("pound", 9, false),
            ("direct", 7, false),
        ];
        assert_eq!(found, expected);
        assert_eq!(find(&looks, "direct").map(|look| look.colour), Some(7));
    }

    #[test]
    fn there_are_more_products_than_colours_and_nothing_breaks() {
        let product = |n: usize| ProductLine { name: format!("p{n}"), ..ProductLine::default() };
        let page = Page { products: (0..40).map(product).collect(), ..Page::default() };
        assert!(looks(&page).iter().all(|look| look.colour < COLOURS));
    }
}
