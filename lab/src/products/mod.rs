//! The products that are compared: one file each, with how to configure, start and ask for the version.

mod envoy;
mod equipoise;
mod floor;
mod haproxy;
mod nginx;
mod traefik;

use crate::failure::Failure;
use crate::measure::child::{Launch, write_file};
use crate::paths::{Paths, text};
use crate::template;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// All products, in the order of the tables.
pub(crate) const ALL: &[&Product] = &[
    &floor::PRODUCT,
    &equipoise::PRODUCT,
    &equipoise::BASELINE,
    &nginx::PRODUCT,
    &haproxy::PRODUCT,
    &envoy::PRODUCT,
    &traefik::PRODUCT,
];

/// How one product is run.
pub(crate) struct Product {
    /// Its name in tables and on the command line.
    pub name: &'static str,
    /// It is somebody else's.
    pub is_peer: bool,
    /// Why it cannot do what a cell asks for, if it cannot.
    pub refuses: fn(&Features, usize) -> Option<&'static str>,
    /// Writes its configuration and says how to start it.
    pub launch: fn(&Setup<'_>) -> Result<Launch, Failure>,
    /// Its version and TLS library.
    pub version: fn(&Setup<'_>) -> Result<Version, Failure>,
}

/// What a cell asks of a product's configuration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    /// HTTP/2 is spoken with the clients.
    pub http2: bool,
    /// It is reached over TLS.
    pub tls: bool,
    /// It writes an access log.
    pub access_log: bool,
    /// It sets three headers of the request and two of the response.
    pub header_steps: bool,
    /// Routes beside the one that matches everything.
    pub routes: usize,
}

/// The version of a product.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Version {
    /// The product's.
    pub version: String,
    /// Its TLS library.
    pub tls: String,
}

/// The addresses of one run, all on loopback.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    /// The product's plain listener.
    pub web: u16,
    /// The product's TLS listener.
    pub secure: u16,
    /// Equipoise's admin API.
    pub admin: u16,
    /// The four endpoints.
    pub origin: [u16; 4],
}

impl Ports {
    /// Ports in a row, below the range that outgoing connections use.
    pub(crate) fn from_base(base: u16) -> Self {
        let origin = [base + 1, base + 2, base + 3, base + 4];
        Self { web: base + 80, secure: base + 443, admin: base + 90, origin }
    }
}

/// What a product needs to know to be started.
pub(crate) struct Setup<'a> {
    /// The lab's folders.
    pub paths: &'a Paths,
    /// A folder for the product's configuration and files.
    pub dir: &'a Path,
    /// Addresses.
    pub ports: Ports,
    /// What its configuration has to do.
    pub features: Features,
    /// Workers, threads, or what the product calls it.
    pub workers: usize,
    /// Limit of open files.
    pub files: u64,
    /// Equipoise's executable.
    pub equipoise: &'a Path,
    /// A second executable of Equipoise to compare with.
    pub baseline: Option<&'a Path>,
}

impl Setup<'_> {
    /// The certificate chain, the key, and a file with both.
    pub(crate) fn certificate(&self) -> [PathBuf; 3] {
        ["site.pem", "site.key", "site-both.pem"].map(|name| self.paths.out.join("tls").join(name))
    }

    /// Renders a template into the product's folder and returns where it is.
    pub(crate) fn render(&self, template_name: &str, more: &[(&str, String)]) -> Result<PathBuf, Failure> {
        let [chain, key, pem] = self.certificate();
        let mut values = vec![
            ("dir", text(self.dir)),
            ("workers", self.workers.to_string()),
            ("files", self.files.to_string()),
            ("web", self.ports.web.to_string()),
            ("secure", self.ports.secure.to_string()),
            ("admin", self.ports.admin.to_string()),
            ("origin_1", self.ports.origin[0].to_string()),
            ("origin_2", self.ports.origin[1].to_string()),
            ("origin_3", self.ports.origin[2].to_string()),
            ("origin_4", self.ports.origin[3].to_string()),
            ("chain", text(&chain)),
            ("key", text(&key)),
            ("pem", text(&pem)),
        ];
        values.extend(more.iter().cloned());
        let flags = [("access_log", self.features.access_log), ("header_steps", self.features.header_steps)];
        let rendered = template::render(&self.paths.template(template_name)?, &values, &flags)?;
        fs::create_dir_all(self.dir).map_err(|error| Failure::io(self.dir, &error))?;
        let file = self.dir.join(Path::new(template_name).file_name().unwrap_or_default());
        write_file(&file, &rendered)?;
        Ok(file)
    }
}

/// Finds a product by its name.
pub(crate) fn find(name: &str) -> Result<&'static Product, Failure> {
    ALL.iter().copied().find(|product| product.name == name).ok_or_else(|| {
        let known: Vec<&str> = ALL.iter().map(|product| product.name).collect();
        Failure::new(format!("no product is called {name:?}; there are {}", known.join(", ")))
    })
}

/// The first word that follows `after` in a text.
fn word_after<'a>(text: &'a str, after: &str) -> Option<&'a str> {
    let start = text.find(after)? + after.len();
    text[start..].split_ascii_whitespace().next()
}

/// Most products refuse a long table of routes: that cell compares Equipoise with itself.
fn one_route_only(features: &Features, _workers: usize) -> Option<&'static str> {
    (features.routes > 0).then_some("the cell compares Equipoise with itself")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_after_a_label_is_found() {
        assert_eq!(word_after("nginx version: nginx/1.30.6\nbuilt with OpenSSL 3.6.5", "nginx/"), Some("1.30.6"));
        assert_eq!(word_after("nothing", "nginx/"), None);
    }

    #[test]
    fn every_template_renders_with_all_features() {
        let paths = Paths::new().unwrap();
        let dir = std::env::temp_dir().join(format!("lab-test-{}-render", std::process::id()));
        let features = Features { http2: true, tls: true, access_log: true, header_steps: true, routes: 2 };
        let setup = Setup {
            paths: &paths,
            dir: &dir,
            ports: Ports::from_base(18000),
            features,
            workers: 2,
            files: 1000,
            equipoise: Path::new("equipoise"),
            baseline: None,
        };
        for name in ["nginx/nginx.conf", "haproxy/haproxy.cfg", "envoy/envoy.yaml", "traefik/traefik.yaml"] {
            setup.render(name, &[]).unwrap();
        }
        let routes = [("routes", equipoise::extra_routes(2))];
        let file = setup.render("equipoise/equipoise.yaml", &routes).unwrap();
        let text = fs::read_to_string(file).unwrap();
        assert!(text.contains("h0001.example.com") && text.contains("x-lab-five") && text.contains("/dev/null"));
        fs::remove_dir_all(dir).unwrap();
    }
}
