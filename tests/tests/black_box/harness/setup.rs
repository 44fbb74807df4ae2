//! The configuration that most tests begin with: one HTTP listener `web`, one route `main`, one cluster `site`,
//! the administrator's address and a JSON access log. A test adds lines to one of its objects.

use std::net::SocketAddr;
use std::path::Path;

use super::{Origin, Product, product};

/// Such a configuration under construction.
#[derive(Clone, Default)]
pub(crate) struct Setup {
    endpoints: Vec<String>,
    listener: Vec<String>,
    listeners_more: Vec<String>,
    route: Vec<String>,
    cluster: Vec<String>,
    routes_before: Vec<String>,
    clusters_more: Vec<String>,
    top: Vec<String>,
    workers: usize,
}

impl Setup {
    /// With this origin as the only endpoint.
    pub(crate) fn to(origin: &Origin) -> Self {
        Self::to_addresses(&[origin.address()])
    }

    /// With these endpoints, in order.
    pub(crate) fn to_all(origins: &[Origin]) -> Self {
        Self::to_addresses(&origins.iter().map(Origin::address).collect::<Vec<_>>())
    }

    /// With endpoints at these addresses, in order.
    pub(crate) fn to_addresses(addresses: &[SocketAddr]) -> Self {
        let endpoints = addresses.iter().map(|address| format!("\"{address}\"")).collect();
        Self { endpoints, workers: 2, ..Self::default() }
    }

    /// With endpoints written out, such as `{ address: "127.0.0.1:1", weight: 2 }`.
    pub(crate) fn to_endpoints(endpoints: impl IntoIterator<Item = String>) -> Self {
        Self { endpoints: endpoints.into_iter().collect(), workers: 2, ..Self::default() }
    }

    /// Adds a line to the listener `web`.
    pub(crate) fn listener(mut self, line: impl Into<String>) -> Self {
        self.listener.push(line.into());
        self
    }

    /// Adds a whole listener, on one line beginning with its name.
    pub(crate) fn listener_more(mut self, listener: impl Into<String>) -> Self {
        self.listeners_more.push(listener.into());
        self
    }

    /// Adds a line to the route `main`.
    pub(crate) fn route(mut self, line: impl Into<String>) -> Self {
        self.route.push(line.into());
        self
    }

    /// Adds a line to the cluster `site`.
    pub(crate) fn cluster(mut self, line: impl Into<String>) -> Self {
        self.cluster.push(line.into());
        self
    }

    /// Adds a whole route, on one line, before `main`.
    pub(crate) fn route_before(mut self, route: impl Into<String>) -> Self {
        self.routes_before.push(route.into());
        self
    }

    /// Adds a whole cluster, on one line beginning with its name.
    pub(crate) fn cluster_more(mut self, cluster: impl Into<String>) -> Self {
        self.clusters_more.push(cluster.into());
        self
    }

    /// Adds a line at the top level.
    pub(crate) fn top(mut self, line: impl Into<String>) -> Self {
        self.top.push(line.into());
        self
    }

    /// Runs with this many workers instead of two.
    pub(crate) fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// The configuration as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::from("version: 1\nlisteners:\n  web:\n    bind: \"127.0.0.1:0\"\n");
        push(&mut text, "    ", &self.listener);
        push(&mut text, "  ", &self.listeners_more);
        text.push_str("routes:\n");
        push(&mut text, "  - ", &self.routes_before);
        text.push_str("  - name: main\n    cluster: site\n");
        push(&mut text, "    ", &self.route);
        text.push_str(&format!("clusters:\n  site:\n    endpoints: [{}]\n", self.endpoints.join(", ")));
        push(&mut text, "    ", &self.cluster);
        push(&mut text, "  ", &self.clusters_more);
        text.push_str("admin: { bind: \"127.0.0.1:0\" }\n");
        text.push_str("access_logs: [{ path: \"DIR/access.json\", format: json }]\n");
        push(&mut text, "", &self.top);
        text
    }

    /// The same for a program that runs in `folder`, with so many clusters that nobody asks for that a debug build needs a while
    /// for them.
    pub(crate) fn large_text(&self, folder: &Path) -> String {
        let clusters = (0..5000)
            .map(|number| format!("idle{number}: {{ endpoints: [\"127.1.{}.{}:9000\"] }}", number / 250, number % 250));
        let mut large = self.clone();
        large.clusters_more.extend(clusters);
        large.text().replace("DIR", folder.to_str().expect("a path in UTF-8"))
    }

    /// Runs it.
    pub(crate) fn start(&self) -> Product {
        Product::start_in(product::folder(), &self.text(), self.workers)
    }
}

fn push(text: &mut String, indent: &str, lines: &[String]) {
    for line in lines {
        text.push_str(indent);
        text.push_str(line);
        text.push('\n');
    }
}
