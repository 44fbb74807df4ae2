//! Whether a product answers rightly, asked before it is measured by somebody who reads every byte: what generators count is
//! mostly statuses.

use super::Sample;
use super::bench::{Bench, loopback};
use super::child::{self, Running, output_of};
use super::loads::Requests;
use crate::failure::Failure;
use crate::net::{ask, echo, encoded, origin};
use crate::policy::{MAPPED_HOST, Policy};
use crate::products::{Compression, Features};
use std::fs;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// How long a product may take until it answers; some listen before they know where requests go.
const TIMEOUT: Duration = Duration::from_secs(15);

impl Bench {
    /// Asks as the generator of a cell will, until the answer is right; fails with what was wrong last. Returns the bytes of the
    /// answer's body as it was sent, if it is encoded.
    pub(crate) fn check(
        &self,
        product: &mut Running,
        features: &Features,
        asked: &Requests,
    ) -> Result<Option<u64>, Failure> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let problem = match self.ask(features, asked)? {
                Ok(bytes) => return Ok(bytes),
                Err(problem) => problem,
            };
            product.check_alive()?;
            if Instant::now() > deadline {
                return Err(Failure::new(format!("its answer is wrong: {problem}; {}", product.log_end())));
            }
            child::pause(Duration::from_millis(50))?;
        }
    }

    fn ask(&self, features: &Features, asked: &Requests) -> Result<Result<Option<u64>, String>, Failure> {
        if let Some(compression) = &features.compress {
            return Ok(self.ask_encoded(compression, asked).map(Some));
        }
        let answer = match features {
            Features { udp: true, .. } => Ok(self.ask_datagrams().map_err(|error| error.to_string())),
            Features { grpc: true, .. } => self.ask_call(),
            // The generator compares each message; that the product proxies at all was seen when it was started.
            Features { websocket: true, .. } => Ok(Ok(())),
            Features { http3: true, .. } => self.ask_curl("--http3-only", "3", asked),
            Features { http2: true, .. } if asked.tls => self.ask_curl("--http2", "2", asked),
            Features { http2: true, .. } => self.ask_curl("--http2-prior-knowledge", "2", asked),
            _ => self.ask_plainly(asked),
        };
        answer.map(|answer| answer.map(|()| None))
    }

    /// Once as a client that accepts nothing, which must get the document as it is, and once as the generator will.
    fn ask_encoded(&self, compression: &Compression, asked: &Requests) -> Result<u64, String> {
        let wanted = compression.encoding;
        for (accept, encoding) in [("identity", ""), (asked.accept_encoding.unwrap_or(wanted), wanted)] {
            let answer = encoded::ask(self.target(false), asked.path, accept).map_err(|error| error.to_string())?;
            if answer.encoding != encoding {
                let found = answer.encoding;
                return Err(format!(
                    "accept-encoding {accept} is answered with the coding {found:?}, not {encoding:?}"
                ));
            }
            if encoding.is_empty() {
                expect_body(asked.path, &answer.status.to_string(), "200", &answer.body)?;
                continue;
            }
            let body = encoded::decode(encoding, &answer.body).map_err(|error| format!("{encoding}: {error}"))?;
            expect_body(asked.path, &answer.status.to_string(), "200", &body)?;
            return Ok(answer.body.len() as u64);
        }
        Err("nothing was asked".to_owned())
    }

    fn ask_plainly(&self, asked: &Requests) -> Result<Result<(), String>, Failure> {
        let (to, trust) = (self.target(asked.tls), asked.tls.then(|| self.certificate()));
        let host = asked.host.map_or_else(|| format!("Host: {to}"), |host| format!("Host: {host}"));
        let credential = asked.policy.credential(&self.paths.policy())?;
        let whole = credential.map_or_else(|| host.clone(), |(name, value)| format!("{host}\r\n{name}: {value}"));
        let ask =
            |path: &str, fields: &str| ask::body(to, trust.as_deref(), path, fields).map_err(|error| error.to_string());
        let expect = |(status, body): (u16, Vec<u8>)| expect_body(asked.path, &status.to_string(), "200", &body);
        Ok(ask(asked.path, &whole).and_then(expect).and_then(|()| expect_policy(asked.policy, ask)))
    }

    /// By curl, in a version that it must find.
    fn ask_curl(&self, option: &str, version: &str, asked: &Requests) -> Result<Result<(), String>, Failure> {
        let (file, port) = (self.paths.out.join("check.body"), self.target(asked.tls).port());
        let _ = fs::remove_file(&file);
        let scheme = if asked.tls { "https" } else { "http" };
        let launch = self.curl()?.arg(option).arg("-o").arg(&file).args(["-w", "%{http_version} %{response_code}"]);
        let said = output_of(&launch.arg(format!("{scheme}://localhost:{port}{}", asked.path)))?;
        let body = fs::read(&file).unwrap_or_default();
        Ok(expect_body(asked.path, said.trim(), &format!("{version} 200"), &body))
    }

    fn curl(&self) -> Result<child::Launch, Failure> {
        let resolve = |port: u16| ["--resolve".to_owned(), format!("localhost:{port}:127.0.0.1")];
        let launch = self.paths.generator("curl")?.args(["-q", "-s", "-S", "--max-time", "5", "--cacert"]);
        Ok(launch.arg(self.certificate()).args(resolve(self.ports.web)).args(resolve(self.ports.secure)))
    }

    /// A call of gRPC's benchmark that asks for 100 bytes, and what has to come of it to the last byte: the message, and the
    /// status in the trailers.
    fn ask_call(&self) -> Result<Result<(), String>, Failure> {
        let file = |name: &str| self.paths.out.join(name);
        let (question, body, head) = (file("check.call"), file("check.body"), file("check.head"));
        fs::write(&question, CALL).map_err(|error| Failure::io(&question, &error))?;
        let _ = fs::remove_file(&body);
        let launch = self.curl()?.args(["--http2-prior-knowledge", "-H", "content-type: application/grpc"]);
        let launch = launch.args(["-H", "te: trailers", "--data-binary"]).arg(format!("@{}", question.display()));
        let launch = launch.arg("-o").arg(&body).arg("-D").arg(&head);
        let url = format!("http://localhost:{}/grpc.testing.BenchmarkService/UnaryCall", self.ports.web);
        let said = output_of(&launch.arg(url))?;
        let (body, head) = (fs::read(&body).unwrap_or_default(), fs::read_to_string(&head).unwrap_or_default());
        if body != answer_to_call() {
            return Ok(Err(format!("{} bytes that are not the answer to the call; {}", body.len(), said.trim())));
        }
        let is_good = head.lines().any(|line| line.trim().eq_ignore_ascii_case("grpc-status: 0"));
        Ok(if is_good { Ok(()) } else { Err("no grpc-status: 0 in the trailers".to_owned()) })
    }

    /// Datagrams of several clients, each of its own content, each of which has to come back to its sender.
    fn ask_datagrams(&self) -> std::io::Result<()> {
        let sockets = (0..4).map(|_| UdpSocket::bind(loopback(0))).collect::<std::io::Result<Vec<_>>>()?;
        for (client, socket) in sockets.iter().enumerate() {
            socket.connect(loopback(self.ports.datagrams))?;
            socket.set_read_timeout(Some(Duration::from_millis(500)))?;
            for number in 0..10 {
                let mut datagram = format!("{number:02}\u{1}datagram {number} of client {client}").into_bytes();
                datagram.resize(echo::DNS_HEAD + number * 100, b'x');
                socket.send(&datagram)?;
                let mut buffer = [0; 2048];
                let count = socket.recv(&mut buffer)?;
                echo::answer(&mut datagram);
                if buffer[..count] != datagram[..] {
                    return Err(std::io::Error::other(format!("{count} bytes that are not what was sent")));
                }
            }
        }
        Ok(())
    }

    fn certificate(&self) -> std::path::PathBuf {
        self.paths.out.join("tls/site.pem")
    }
}

/// Whether the answers of a measurement were as small as the one that was looked at. What the generator tells is rounded, and answers
/// that were under way at its end have come in part; so only a product that sends documents as they are is found.
pub(crate) fn expect_encoded(sample: &Sample, bytes: Option<u64>, asked: &Requests) -> Result<(), Failure> {
    let (Some(bytes), Some(rps), Some(transfer)) = (bytes, sample.rps, sample.transfer_bytes) else { return Ok(()) };
    let (each, plain) = (transfer / rps.max(1.0), origin::body(asked.path).len() as f64);
    if each > (bytes as f64 + plain) / 2.0 {
        return Err(Failure::new(format!("under load answers have {each:.0} bytes, before it one had {bytes}")));
    }
    Ok(())
}

/// Whether a product does what the policy says, asked by requests that the generator does not send.
fn expect_policy(policy: Policy, ask: impl Fn(&str, &str) -> Result<(u16, Vec<u8>), String>) -> Result<(), String> {
    let refusals = policy.refusals();
    if !refusals.is_empty() {
        let (status, _) = ask("/12", "Host: elsewhere.example")?;
        if !refusals.contains(&status) {
            return Err(format!("a request that is to be refused is answered with {status}"));
        }
    }
    if let Some(mark) = policy.mark() {
        let (_, request) = ask("/whoami", &format!("Host: {MAPPED_HOST}"))?;
        let request = String::from_utf8_lossy(&request).to_ascii_lowercase();
        if !request.contains(mark) {
            return Err(format!("the endpoint does not get {}", mark.trim_end()));
        }
    }
    if policy == Policy::Cache {
        let path = "/whoami?cached";
        let [first, second] = ["first", "second"].map(|name| ask(path, &format!("X-Asked: {name}")));
        if first?.1 != second?.1 {
            return Err("the second of two equal requests is not answered from the cache".to_owned());
        }
    }
    Ok(())
}

fn expect_body(path: &str, said: &str, due: &str, body: &[u8]) -> Result<(), String> {
    if said != due {
        return Err(format!("{due} was due, it says {said}"));
    }
    let wanted = origin::body(path);
    if body == wanted {
        Ok(())
    } else {
        Err(format!("{} bytes that are not the origin's {}", body.len(), wanted.len()))
    }
}

/// A message of gRPC: `SimpleRequest { response_size: 100 }`, in a frame.
const CALL: &[u8] = &[0, 0, 0, 0, 2, 0x10, 100];

/// `SimpleResponse { payload: { body: [0; 100] } }`, in a frame.
fn answer_to_call() -> Vec<u8> {
    let head = [0, 0, 0, 0, 104, 0x0a, 102, 0x12, 100];
    head.into_iter().chain([0; 100]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_that_are_not_encoded_under_load_are_told() {
        let asked = Requests {
            path: "/json/10k",
            host: None,
            accept_encoding: Some("gzip"),
            policy: Policy::None,
            connections: 1,
            keep_alive: true,
            tls: false,
            tls12: false,
        };
        let sample = |each: f64| Sample { rps: Some(100.0), transfer_bytes: Some(100.0 * each), ..Sample::default() };
        assert!(expect_encoded(&sample(2_300.0), Some(2_000), &asked).is_ok());
        assert!(
            expect_encoded(&sample(10_200.0), Some(2_000), &asked).unwrap_err().to_string().contains("10200 bytes")
        );
        assert!(expect_encoded(&sample(10_200.0), None, &asked).is_ok());
    }

    #[test]
    fn a_wrong_status_and_a_wrong_body_are_told() {
        let body = origin::body("/12");
        assert_eq!(expect_body("/12", "3 200", "3 200", &body), Ok(()));
        assert!(expect_body("/12", "2 200", "3 200", &body).unwrap_err().contains("3 200 was due"));
        assert!(expect_body("/10k", "200", "200", &body).unwrap_err().contains("12 bytes"));
        assert_eq!(answer_to_call().len(), 5 + 104);
    }
}
