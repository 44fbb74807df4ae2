//! h2spec: a client that breaks each rule of RFC 9113 and RFC 7541 in turn, and looks at what comes of it.

use super::stage::Bench;
use super::verdicts::Verdict;
use crate::failure::Failure;
use crate::measure::child::Launch;
use std::net::SocketAddr;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(300);
/// Many cases send two frames of which the second is wrong. By then a response may be whole, and its stream gone, in which case the
/// second may be passed over (section 5.1): so the origin takes its time.
const PATH: &str = "/delay/100ms";

/// With TLS.
pub(crate) fn sealed(bench: &Bench<'_>) -> Result<Vec<Verdict>, Failure> {
    run(bench, true)
}

/// In clear, on a listener that speaks HTTP/1.1 too.
pub(crate) fn clear(bench: &Bench<'_>) -> Result<Vec<Verdict>, Failure> {
    run(bench, false)
}

fn run(bench: &Bench<'_>, tls: bool) -> Result<Vec<Verdict>, Failure> {
    let (endpoint, _origin) = bench.httpbin()?;
    let site = bench.site(endpoint, &[])?;
    let address: SocketAddr = if tls { site.sealed } else { site.clear };
    let report = bench.out.join("report.xml");
    let launch = Launch::new(bench.paths.peer_file("go-h2spec/bin/h2spec")?)
        .args(["-h", "127.0.0.1", "-p", &address.port().to_string(), "-P", PATH, "-o", "5", "-j"])
        .arg(&report);
    let launch = if tls { launch.args(["-t", "-k"]) } else { launch };
    let ended = bench.finish("h2spec", &launch, TIMEOUT)?;
    let text = std::fs::read_to_string(&report)
        .map_err(|_| Failure::new(format!("it wrote no report: {}", ended.last_words())))?;
    let found = cases(&text);
    if found.is_empty() { Err(Failure::new("its report holds no case")) } else { Ok(found) }
}

/// The cases of a report in the form of JUnit.
fn cases(report: &str) -> Vec<Verdict> {
    let mut found: Vec<Verdict> = Vec::new();
    for piece in report.split("<testcase ").skip(1) {
        let (tag, rest) = piece.split_once('>').unwrap_or((piece, ""));
        let inner = if tag.ends_with('/') { "" } else { rest.split("</testcase>").next().unwrap_or("") };
        let package = attribute(tag, "package");
        let number = 1 + found.iter().filter(|verdict| verdict.case.starts_with(&format!("{package}/"))).count();
        let case = format!("{package}/{number} {}", attribute(tag, "classname"));
        let is_wrong = inner.contains("<failure") || inner.contains("<error");
        let mut verdict = Verdict::of(case, if is_wrong { Err(plain(inner)) } else { Ok(()) });
        if inner.contains("<skipped") {
            "skipped".clone_into(&mut verdict.verdict);
        }
        found.push(verdict);
    }
    found
}

fn attribute(tag: &str, name: &str) -> String {
    let value = tag.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
    unescape(value.unwrap_or_default())
}

/// The text within tags, without them.
fn plain(inner: &str) -> String {
    let texts = inner.split('<').filter_map(|piece| piece.split_once('>').map(|(_, text)| text.trim()));
    unescape(&texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n"))
}

fn unescape(text: &str) -> String {
    let known = [("&lt;", "<"), ("&gt;", ">"), ("&#34;", "\""), ("&quot;", "\""), ("&#39;", "'"), ("&#xA;", "\n")];
    let text = known.iter().fold(text.to_owned(), |text, (code, letter)| text.replace(code, letter));
    text.replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "<testsuites><testsuite name=\"3.5. HTTP/2\" package=\"http2/3.5\">\
        <testcase package=\"http2/3.5\" classname=\"Sends &#34;PRI&#34;\" time=\"0.1\"></testcase>\
        <testcase package=\"http2/3.5\" classname=\"Sends another\" time=\"0\"><failure>Expect: close&#xA;\
        Actual: 400</failure></testcase>\
        <testcase package=\"http2/3.5.1\" classname=\"Sends\" time=\"0\"><skipped></skipped></testcase>\
        </testsuite></testsuites>";

    #[test]
    fn each_case_of_a_report_is_found_with_its_verdict() {
        let found = cases(REPORT);
        let short: Vec<_> = found.iter().map(|verdict| (verdict.case.as_str(), verdict.verdict.as_str())).collect();
        assert_eq!(
            short,
            [
                ("http2/3.5/1 Sends \"PRI\"", "passed"),
                ("http2/3.5/2 Sends another", "failed"),
                ("http2/3.5.1/1 Sends", "skipped")
            ]
        );
        assert_eq!(found[1].why, "Expect: close\nActual: 400");
    }
}
