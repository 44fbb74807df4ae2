//! The products that are compared: one file each, with how to configure, start and ask for the version.

pub(crate) mod build;
mod caddy;
mod direct;
mod envoy;
mod equipoise;
mod floor;
mod haproxy;
mod nginx;
mod traefik;

pub(crate) use equipoise::extra_routes;

use crate::failure::Failure;
use crate::measure::child::{Launch, write_file};
use crate::paths::{Paths, text};
use crate::policy::Policy;
use crate::template;
use serde::{Deserialize, Serialize};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// All products, in the order of the tables.
pub(crate) const ALL: &[&Product] = &[
    &floor::PRODUCT,
    &equipoise::PRODUCT,
    &equipoise::BASELINE,
    &equipoise::ALB,
    &nginx::PRODUCT,
    &nginx::DEBIAN,
    &haproxy::PRODUCT,
    &haproxy::DEBIAN,
    &envoy::PRODUCT,
    &traefik::PRODUCT,
    &caddy::PRODUCT,
    &direct::PRODUCT,
];

/// How one product is run.
pub(crate) struct Product {
    /// Its name in tables and on the command line.
    pub name: &'static str,
    /// It is somebody else's.
    pub is_peer: bool,
    /// The folder in `lab/.peers` that holds it; empty: it is no peer.
    pub home: &'static str,
    /// Why it cannot do what a cell asks for, if it cannot.
    pub refuses: fn(&Features, usize) -> Option<&'static str>,
    /// Its templates in a study's folder. It is started with the first.
    pub templates: &'static [&'static str],
    /// How to start it with that file.
    pub launch: fn(&Setup<'_>, &Path) -> Result<Launch, Failure>,
    /// Its version and TLS library.
    pub version: fn(&Setup<'_>) -> Result<Version, Failure>,
    /// What it does otherwise than a cell asks for, if it takes part all the same.
    pub remark: fn(&Features) -> Option<&'static str>,
}

/// What a cell asks of a product's configuration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    /// HTTP/2 is spoken with the clients.
    pub http2: bool,
    /// HTTP/3 is spoken with the clients.
    pub http3: bool,
    /// HTTP/2 is spoken with the endpoints, too.
    pub grpc: bool,
    /// Connections become WebSockets.
    pub websocket: bool,
    /// Datagrams are passed on.
    pub udp: bool,
    /// It is reached over TLS.
    pub tls: bool,
    /// It writes an access log.
    pub access_log: bool,
    /// It sets three headers of the request and two of the response.
    pub header_steps: bool,
    /// It compresses the bodies of responses.
    pub compress: Option<Compression>,
    /// What it does to requests.
    pub policy: Policy,
    /// Routes beside the one that matches everything.
    pub routes: usize,
}

/// A coding, and how hard it tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compression {
    /// As it stands in `content-encoding`.
    pub encoding: &'static str,
    pub level: u8,
    /// The level of products with the classic zlib, whose low levels make larger bodies than those of zlib-ng and zlib-rs.
    pub zlib_level: u8,
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
    /// The product's socket for datagrams.
    pub datagrams: u16,
    /// The four endpoints.
    pub origin: [u16; 4],
    /// Four endpoints that speak something other than HTTP/1.1.
    pub other_origin: [u16; 4],
}

impl Ports {
    /// Ports in a row, below the range that outgoing connections use.
    pub(crate) fn from_base(base: u16) -> Self {
        let four = |first: u16| [first, first + 1, first + 2, first + 3];
        let (origin, other_origin) = (four(base + 1), four(base + 11));
        Self { web: base + 80, secure: base + 443, admin: base + 90, datagrams: base + 53, origin, other_origin }
    }
}

/// How a product is started for a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Start<'a> {
    pub product: &'static Product,
    /// What its configuration has to do.
    pub features: Features,
    /// Workers, threads, or what the product calls it.
    pub workers: usize,
    /// More names for its templates.
    pub values: &'a [(&'a str, String)],
    /// More flags for its templates.
    pub flags: &'a [(&'a str, bool)],
    /// Templates instead of its own, when it is started as something else.
    pub templates: Option<&'a [&'a str]>,
    /// More templates beside them.
    pub more: &'a [&'a str],
    /// The one of them that it is told by its API once that listens.
    pub told: Option<&'a str>,
    /// A folder for its files within its own, so that those of several starts are kept; empty: its own.
    pub variant: &'a str,
    /// Its standard output, the access log, goes there as syslog messages; `None`: to its log file.
    pub syslog: Option<SocketAddr>,
    /// The path that is asked for on its plain listener until it answers 200; `None`: it only has to listen.
    pub probe: Option<&'a str>,
}

impl Start<'_> {
    /// One worker, nothing special, probed with a small answer of the lab's origin.
    pub(crate) fn new(product: &'static Product) -> Self {
        let features = Features::default();
        Self {
            product,
            features,
            workers: 1,
            values: &[],
            flags: &[],
            templates: None,
            more: &[],
            told: None,
            variant: "",
            syslog: None,
            probe: Some("/12"),
        }
    }
}

/// What a product needs to know to be started.
pub(crate) struct Setup<'a> {
    /// The product.
    pub product: &'a Product,
    /// The lab's folders.
    pub paths: &'a Paths,
    /// The folder of the templates.
    pub templates: &'a Path,
    /// A folder for the product's configuration and files.
    pub dir: &'a Path,
    /// Addresses.
    pub ports: Ports,
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

    /// Writes all files of a product into its folder and returns the first.
    pub(crate) fn configure(&self, start: &Start<'_>) -> Result<PathBuf, Failure> {
        fs::create_dir_all(self.dir).map_err(|error| Failure::io(self.dir, &error))?;
        let mut first = None;
        for name in start.templates.unwrap_or(start.product.templates).iter().chain(start.more) {
            let file = self.render(name, start)?;
            first.get_or_insert(file);
        }
        Ok(first.unwrap_or_else(|| self.dir.to_owned()))
    }

    fn render(&self, name: &str, start: &Start<'_>) -> Result<PathBuf, Failure> {
        let [chain, key, pem] = self.certificate();
        let compress = start.features.compress;
        let own = [
            ("dir", text(self.dir)),
            ("workers", self.workers.to_string()),
            ("files", self.files.to_string()),
            ("web", self.ports.web.to_string()),
            ("secure", self.ports.secure.to_string()),
            ("admin", self.ports.admin.to_string()),
            ("datagrams", self.ports.datagrams.to_string()),
            ("origin_1", self.ports.origin[0].to_string()),
            ("origin_2", self.ports.origin[1].to_string()),
            ("origin_3", self.ports.origin[2].to_string()),
            ("origin_4", self.ports.origin[3].to_string()),
            ("chain", text(&chain)),
            ("key", text(&key)),
            ("pem", text(&pem)),
            ("encoding", compress.map_or_else(String::new, |compression| compression.encoding.to_owned())),
            ("level", compress.map_or_else(String::new, |compression| compression.level.to_string())),
            ("zlib_level", compress.map_or_else(String::new, |compression| compression.zlib_level.to_string())),
            ("policy", text(&self.paths.policy())),
            ("algorithm", start.features.policy.algorithm().to_owned()),
            ("keys", start.features.policy.algorithm().to_ascii_lowercase()),
            ("modules", text(&self.paths.peers.join(self.product.home).join("usr/lib/nginx/modules"))),
        ];
        // A study's own values go before those that are always there.
        let values: Vec<(&str, String)> = start.values.iter().cloned().chain(own).collect();
        let Features { tls, access_log, header_steps, http3, grpc, websocket, udp, policy, .. } = start.features;
        let is_coding = |encoding: &str| compress.is_some_and(|compression| compression.encoding == encoding);
        let own = [
            ("compress", compress.is_some()),
            ("gzip", is_coding("gzip")),
            ("br", is_coding("br")),
            ("zstd", is_coding("zstd")),
            ("jwt", !policy.algorithm().is_empty()),
            ("tls", tls),
            ("http3", http3),
            ("grpc", grpc),
            ("proxies", !grpc && policy != Policy::Files),
            ("websocket", websocket),
            ("udp", udp),
            ("access_log", access_log),
            ("header_steps", header_steps),
            ("debian", start.product.name.ends_with("-debian")),
        ];
        let policies = Policy::ALL.map(|other| (other.flag(), other == policy));
        let flags: Vec<(&str, bool)> = start.flags.iter().copied().chain(own).chain(policies).collect();
        let path = self.templates.join(name);
        let template = fs::read_to_string(&path).map_err(|error| Failure::io(&path, &error))?;
        let rendered = template::render(&template, &values, &flags)
            .map_err(|failure| Failure::new(format!("{}: {failure}", path.display())))?;
        let file = self.dir.join(name);
        write_file(&file, &rendered)?;
        Ok(file)
    }
}

/// The configurations that were written into a product's folder, and into the folders in it.
pub(crate) fn rendered(folder: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
        paths.sort();
        paths
    };
    let nested = entries(folder).into_iter().flat_map(|path| if path.is_dir() { entries(&path) } else { vec![path] });
    let is_configuration = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or("");
        path.is_file() && ["conf", "cfg", "yaml", "caddyfile"].contains(&extension)
    };
    nested.filter(is_configuration).collect()
}

/// Finds a product by its name.
pub(crate) fn find(name: &str) -> Result<&'static Product, Failure> {
    ALL.iter().copied().find(|product| product.name == name).ok_or_else(|| {
        let known: Vec<&str> = ALL.iter().map(|product| product.name).collect();
        Failure::new(format!("no product is called {name:?}; there are {}", known.join(", ")))
    })
}

/// The version of a product that was installed.
pub(crate) fn installed_version(paths: &Paths, product: &Product) -> Result<Version, Failure> {
    (product.version)(&bare_setup(paths, product))
}

/// Enough to ask for a version.
fn bare_setup<'a>(paths: &'a Paths, product: &'a Product) -> Setup<'a> {
    let (nowhere, ports) = (Path::new(""), Ports::from_base(18000));
    let files = 1000;
    Setup {
        product,
        paths,
        templates: nowhere,
        dir: nowhere,
        ports,
        workers: 1,
        files,
        equipoise: nowhere,
        baseline: None,
    }
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

/// Most products do what is asked.
fn as_asked(_features: &Features) -> Option<&'static str> {
    None
}

/// As above, for those that have nothing for datagrams.
fn no_datagrams(features: &Features, workers: usize) -> Option<&'static str> {
    if features.udp { Some("it does not pass on datagrams") } else { one_route_only(features, workers) }
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
        let all = Features { http2: true, http3: true, udp: true, ..Features::default() };
        let compress = Some(Compression { encoding: "gzip", level: 4, zlib_level: 5 });
        let features = Features { tls: true, access_log: true, header_steps: true, routes: 2, ..all };
        let features = Features { compress, policy: Policy::RateLimit, ..features };
        let templates = paths.studies("cost");
        let setup = Setup { templates: &templates, dir: &dir, ..bare_setup(&paths, ALL[0]) };
        let values = [("routes", extra_routes(2))];
        for product in ALL.iter().filter(|product| templates.join(product.templates.first().unwrap_or(&"-")).exists()) {
            setup.configure(&Start { features, values: &values, ..Start::new(product) }).unwrap();
        }
        let names: Vec<_> = rendered(&dir).iter().map(|path| path.file_name().unwrap().to_owned()).collect();
        assert!(names.len() >= 6 && names.contains(&"traefik-dynamic.yaml".into()), "{names:?}");
        let text = fs::read_to_string(dir.join("equipoise.yaml")).unwrap();
        assert!(text.contains("h0001.example.com") && text.contains("x-lab-five") && text.contains("/dev/null"));
        assert!(text.contains("[gzip], levels: { gzip: 4 }") && text.contains("rate_limit:"), "{text}");
        fs::remove_dir_all(dir).unwrap();
    }
}
