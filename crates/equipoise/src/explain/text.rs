//! An explanation for people.

use std::fmt::Write;

use control::explain::{
    ClusterExplanation, EndpointExplanation, Explanation, FilterExplanation, Outcome, RouteExplanation,
};

use crate::escape;

/// Routes that are reported before and after the one that is taken.
const ROUTES_MAX: usize = 10;

/// Returns the whole answer.
pub(super) fn render(told: &Explanation) -> String {
    let mut out = String::new();
    line(&mut out, "", &told.request);
    line(&mut out, "arrives at", &format!("listener {}", told.listener));
    if let Some(port) = told.port_unheard {
        line(
            &mut out,
            "",
            &format!("no such listener has port {port}: this is the first that fits; `--listener` names another"),
        );
    }
    routes(&mut out, &told.routes, told.routes_unfit);
    filters(&mut out, &told.filters);
    match &told.outcome {
        Outcome::Forward(clusters) => clusters.iter().for_each(|cluster| forward(&mut out, cluster)),
        Outcome::Answer { status, why } => line(&mut out, "is answered", &format!("{status}: {why}")),
        Outcome::Close { why } => line(&mut out, "is closed", why),
    }
    out
}

/// Writes one line with its label in the first column.
fn line(out: &mut String, label: &str, text: &str) {
    let indent = if label.is_empty() && out.is_empty() { 0 } else { 2 };
    let text = escape::line(text);
    let width = if indent == 0 { 0 } else { 12 };
    let _ = writeln!(out, "{:indent$}{label:width$} {text}", "", indent = indent, width = width);
}

fn routes(out: &mut String, routes: &[RouteExplanation], unfit: usize) {
    let taken = routes.iter().position(|route| route.holds);
    let before = &routes[..taken.unwrap_or(routes.len())];
    for route in before.iter().take(ROUTES_MAX) {
        let unmet = route.unmet.as_deref().unwrap_or_default();
        line(out, "passes by", &format!("route `{}` ({}): {unmet}", route.way(), route.asks));
    }
    more(out, before.len());
    if let Some(taken) = taken {
        let route = &routes[taken];
        line(out, "takes", &format!("route `{}` ({})", route.way(), route.asks));
        let after: Vec<&RouteExplanation> = routes[taken + 1..].iter().filter(|route| route.holds).collect();
        for route in after.iter().take(ROUTES_MAX) {
            line(out, "", &format!("route `{}` ({}) matches too, but has lower precedence", route.way(), route.asks));
        }
        more(out, after.len());
    }
    if unfit > 0 {
        let s = if unfit == 1 { " does" } else { "s do" };
        line(out, "", &format!("{unfit} other route{s} not match by host or path"));
    }
}

fn more(out: &mut String, count: usize) {
    if count > ROUTES_MAX {
        line(out, "", &format!("and {} more; --json lists all", count - ROUTES_MAX));
    }
}

fn filters(out: &mut String, filters: &[FilterExplanation]) {
    for (place, filter) in filters.iter().enumerate() {
        let effect = match (filter.answers, filter.changes.is_empty(), filter.changes_response) {
            (Some(status), ..) => format!("answers {status}"),
            _ if filter.calls.is_some() => {
                let cluster = filter.calls.as_deref().unwrap_or_default();
                format!("asks the cluster `{cluster}`; the rest applies if it allows the request")
            }
            _ if filter.mirrors.is_some() => {
                format!("sends a copy to the cluster `{}`", filter.mirrors.as_deref().unwrap_or_default())
            }
            _ if filter.closes => "closes the connection or stream without an answer".to_owned(),
            (None, true, true) => "changes the response".to_owned(),
            (None, true, false) => "does not change this request".to_owned(),
            (None, false, true) => "changes the request, and the response".to_owned(),
            (None, false, false) => "changes the request".to_owned(),
        };
        line(out, if place == 0 { "filters" } else { "" }, &format!("{}: {effect}", filter.name));
        for change in &filter.changes {
            line(out, "", &format!("    {change}"));
        }
    }
}

fn forward(out: &mut String, cluster: &ClusterExplanation) {
    let share = if cluster.share < 100.0 { format!(" ({:.1} % of requests)", cluster.share) } else { String::new() };
    line(out, "goes to", &format!("cluster `{}`{share}, balance {}", cluster.name, cluster.balance));
    for note in &cluster.notes {
        line(out, "", note);
    }
    if cluster.waiting > 0 {
        line(out, "", &format!("{} wait for an endpoint", cluster.waiting));
    }
    let endpoint = cluster.endpoint.as_deref().map_or_else(|| "none".to_owned(), |name| format!("`{name}`"));
    let pick = cluster.pick.as_deref().map(|pick| format!(" (`{pick}`)")).unwrap_or_default();
    line(out, "endpoint", &format!("{endpoint}: {}{pick}", cluster.why));
    let width = cluster.endpoints.iter().map(|endpoint| endpoint.name.chars().count()).max().unwrap_or(0).max(8);
    line(out, "", &format!("  {:width$}  {:11}  {:>6}  {:>13}  {:>6}", "", "standing", "weight", "in flight", "share"));
    for endpoint in &cluster.endpoints {
        let mark = if Some(&endpoint.name) == cluster.endpoint.as_ref() { "→" } else { " " };
        line(out, "", &format!("{mark} {}", row(endpoint, width)));
    }
    if cluster.left_out > 0 {
        line(out, "", &format!("  and {} more endpoints", cluster.left_out));
    }
}

fn row(endpoint: &EndpointExplanation, width: usize) -> String {
    let EndpointExplanation { name, standing, is_backup, weight, in_flight, connections_max, share } = endpoint;
    let mark = if *is_backup { "  backup" } else { "" };
    let load = match connections_max {
        Some(max) => format!("{in_flight} of {max}"),
        None => in_flight.to_string(),
    };
    format!("{name:width$}  {standing:11}  {weight:>6}  {load:>13}  {share:>4.1} %{mark}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_closes_says_so_and_a_backup_is_marked() {
        let deny = FilterExplanation {
            name: "deny".to_owned(),
            changes: Vec::new(),
            changes_response: false,
            answers: None,
            closes: true,
            calls: None,
            mirrors: None,
        };
        let mut out = String::new();
        filters(&mut out, &[deny]);
        assert!(out.contains("deny: closes the connection or stream without an answer"), "{out}");
        let backup = EndpointExplanation {
            name: "a".to_owned(),
            standing: "fit".to_owned(),
            is_backup: true,
            weight: 1,
            in_flight: 0,
            connections_max: None,
            share: 100.0,
        };
        assert!(row(&backup, 8).ends_with("100.0 %  backup"));
        assert!(row(&EndpointExplanation { is_backup: false, ..backup }, 8).ends_with("100.0 %"));
    }
}
