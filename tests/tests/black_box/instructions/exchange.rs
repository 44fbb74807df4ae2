//! Whole exchanges by the real program, from its start to its end.
//!
//! Each cell runs twice, with a few requests and with many, one after another on one connection to one worker; the difference is what
//! requests cost, without the start and the end. Clients and origins are not counted.

use std::fmt::Write as _;
use std::fs;

use crate::harness::tls::Authority;
use crate::harness::{Origin, Peer, Product, http2, http3, product};

const FEW: usize = 500;
const MANY: usize = 2_500;
const ENDPOINTS: usize = 4;

/// How clients speak.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Speech {
    H1,
    H2,
    H3,
}

/// One kind of exchange.
pub(super) struct Cell {
    pub(super) name: &'static str,
    speech: Speech,
    balance: &'static str,
    log: &'static str,
}

const PLAIN: Cell = Cell { name: "h1", speech: Speech::H1, balance: "round_robin", log: "" };

const fn balanced(name: &'static str, balance: &'static str) -> Cell {
    Cell { name, balance, ..PLAIN }
}

pub(super) const CELLS: &[Cell] = &[
    PLAIN,
    Cell { name: "h2", speech: Speech::H2, ..PLAIN },
    Cell { name: "h3", speech: Speech::H3, ..PLAIN },
    Cell { name: "h1/log=line", log: "line", ..PLAIN },
    Cell { name: "h1/log=json", log: "json", ..PLAIN },
    balanced("h1/balance=random", "random"),
    balanced("h1/balance=least_request", "least_request"),
    balanced("h1/balance=power_of_two", "power_of_two"),
    balanced("h1/balance=least_time", "least_time"),
    balanced("h1/balance=peak_ewma", "peak_ewma"),
    balanced("h1/balance=source_hash", "source_hash"),
    balanced("h1/balance=hash", "{ hash: { on: path } }"),
    balanced("h1/balance=first", "first"),
];

impl Cell {
    fn configuration(&self, origins: &[Origin]) -> String {
        let mut text = String::from("version: 1\nlisteners:\n  web:\n    bind: \"127.0.0.1:0\"\n");
        match self.speech {
            Speech::H1 => {}
            Speech::H2 => text.push_str("    http_versions: [h1, h2]\n"),
            Speech::H3 => text.push_str(
                "    http_versions: [h1, h2, h3]\n    tls: { certificates: [{ chain: site.pem, key: site.key }] }\n",
            ),
        }
        text.push_str("routes:\n  - cluster: site\n");
        let endpoints: Vec<String> = origins.iter().map(|origin| format!("\"{}\"", origin.address())).collect();
        let (endpoints, balance) = (endpoints.join(", "), self.balance);
        let _ = writeln!(text, "clusters:\n  site: {{ endpoints: [{endpoints}], balance: {balance} }}");
        if !self.log.is_empty() {
            let _ = writeln!(text, "access_logs: [{{ path: /dev/null, format: {} }}]", self.log);
        }
        text
    }

    /// Instructions of a whole run with so many requests.
    fn run(&self, requests: usize) -> u64 {
        let origins: Vec<Origin> = (0..ENDPOINTS).map(|_| Origin::saying("hello world\n")).collect();
        let folder = product::folder();
        let authority = Authority::new("the tests' own");
        authority.issue(&["shop.example"]).write(folder.path(), "site");
        let (file, counts) = (folder.path().join("equipoise.yaml"), folder.path().join("counts"));
        fs::write(&file, self.configuration(&origins)).expect("the folder is ours");
        let mut command = super::callgrind(&counts);
        command.arg(product::executable()).arg("run").arg("-c").arg(&file).args(["--workers", "1"]);
        let mut product = Product::spawn_command(&mut command, folder);
        self.ask(&product, &authority, requests);
        product.signal(libc::SIGTERM);
        assert!(product.wait_ended().success(), "{}", product.stderr());
        super::total(&counts)
    }

    fn ask(&self, product: &Product, authority: &Authority, requests: usize) {
        let place = |number: usize| format!("/api/items/{}", number % 10);
        match self.speech {
            Speech::H1 => {
                let mut client = Peer::connect(product.web());
                (0..requests).for_each(|number| assert_eq!(client.get(&place(number)).status(), 200));
            }
            Speech::H2 => {
                let mut client = http2::Client::connect(product.web());
                (0..requests).for_each(|number| assert_eq!(client.get(&place(number)).status, 200));
            }
            Speech::H3 => {
                let tls = http3::trusting(authority, None);
                let mut client = http3::Client::connect(product.web(), "shop.example", &tls);
                (0..requests).for_each(|number| assert_eq!(client.get(&place(number)).status, 200));
            }
        }
    }

    /// Instructions for each request.
    pub(super) fn measure(&self) -> f64 {
        let (few, many) = (self.run(FEW), self.run(MANY));
        (many.saturating_sub(few) / (MANY - FEW) as u64) as f64
    }
}
