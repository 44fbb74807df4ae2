//! `vegeta`: at a constant rate, or as fast as so many at a time allow. It keeps the time of every request, and the
//! fields of every answer.

use crate::failure::Failure;
use crate::measure::child::{Launch, Running};
use crate::paths::Paths;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

/// One request, as `vegeta encode --to csv` tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// When it began, ns since 1970.
    pub began_ns: u64,
    /// Until the answer was there, or it was clear that none comes.
    pub latency_ns: u64,
    /// The status; 0 without an answer.
    pub status: u16,
    /// What went wrong; empty: nothing.
    pub error: String,
    /// Its number, from 0, in the order in which they began.
    pub number: u64,
    /// The fields of the answer, a line each.
    pub fields: String,
}

/// What `vegeta` says when the list of targets ends. It is no request.
const END_OF_TARGETS: &str = "no targets to attack";

impl Row {
    /// The value of a field of the answer.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let lines = self.fields.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }

    /// It was answered with 2xx.
    pub(crate) fn is_good(&self) -> bool {
        (200..300).contains(&self.status) && self.error.is_empty()
    }
}

/// Where `vegeta` works: its files go to the folder.
pub(crate) struct Place<'a> {
    pub paths: &'a Paths,
    pub folder: &'a Path,
    pub cores: &'a [usize],
}

const RESULTS: &str = "vegeta.bin";
const ROWS: &str = "vegeta.csv";

impl Place<'_> {
    /// Starts an attack, without waiting for its end. Every product gets the same handshakes: it is a Go program, for
    /// which X25519 has to be said in its own way.
    pub(crate) fn attack(&self, args: &[String]) -> Result<Running, Failure> {
        let launch = self.paths.generator("vegeta")?.env("GODEBUG", "tlsmlkem=0").arg("attack");
        // No answer is to wait for its collection of garbage, which shares a core with the origins.
        let launch = launch.env("GOGC", "off").env("GOMEMLIMIT", "6GiB");
        let launch = launch.args(["-http2=false", "-max-body=0", "-redirects=-1"]).args(args);
        self.start(&launch.arg("-output").arg(self.folder.join(RESULTS)))
    }

    /// Hands on all requests of the attack, which must have ended, and forgets them.
    pub(crate) fn each_row(&self, take: impl FnMut(Row)) -> Result<(), Failure> {
        let (results, rows) = (self.folder.join(RESULTS), self.folder.join(ROWS));
        let launch = self.paths.generator("vegeta")?.args(["encode", "-to", "csv", "-output"]);
        let mut encoding = self.start(&launch.arg(&rows).arg(&results))?;
        let status = encoding.wait(ENCODE_TIMEOUT)?;
        if !status.success() {
            return Err(Failure::new(format!("vegeta encode ended with {status}: {}", encoding.log_end())));
        }
        let file = File::open(&rows).map_err(|error| Failure::io(&rows, &error))?;
        each_row(BufReader::new(file), take)?;
        // They are large, and what matters of them is kept elsewhere.
        for file in [results, rows] {
            fs::remove_file(&file).map_err(|error| Failure::io(&file, &error))?;
        }
        Ok(())
    }

    fn start(&self, launch: &Launch) -> Result<Running, Failure> {
        Running::start("vegeta", launch, self.cores, &self.folder.join("vegeta.log"))
    }
}

const ENCODE_TIMEOUT: Duration = Duration::from_secs(300);

/// Reads rows one after the other and hands them on; there may be more than fit into memory.
fn each_row(mut input: impl BufRead, mut take: impl FnMut(Row)) -> io::Result<()> {
    let mut record = String::new();
    loop {
        if input.read_line(&mut record)? == 0 {
            return if record.trim().is_empty() { Ok(()) } else { Err(no_row(&record)) };
        }
        // An error may hold a line break: then the quotes are still open.
        if !record.bytes().filter(|byte| *byte == b'"').count().is_multiple_of(2) {
            continue;
        }
        if !record.trim().is_empty() {
            let row = parse(record.trim_end_matches(['\r', '\n'])).ok_or_else(|| no_row(&record))?;
            if row.error != END_OF_TARGETS {
                take(row);
            }
        }
        record.clear();
    }
}

fn no_row(record: &str) -> io::Error {
    let shown: String = record.trim().chars().take(100).collect();
    io::Error::new(io::ErrorKind::InvalidData, format!("vegeta: this is no request: {shown}"))
}

/// The columns: began, status, latency, bytes out, bytes in, error, body, name, number, method, address, fields.
fn parse(record: &str) -> Option<Row> {
    let columns = columns(record);
    let [began, status, latency, _, _, error, _, _, number, _, _, fields] = columns.as_slice() else { return None };
    Some(Row {
        began_ns: began.parse().ok()?,
        latency_ns: latency.parse().ok()?,
        status: status.parse().ok()?,
        error: error.clone(),
        number: number.parse().ok()?,
        fields: String::from_utf8_lossy(&base64(fields)?).into_owned(),
    })
}

/// Splits at commas outside quotes; a quote within quotes is doubled (RFC 4180).
fn columns(record: &str) -> Vec<String> {
    let mut columns = vec![String::new()];
    let mut is_quoted = false;
    let mut before = ',';
    for c in record.chars() {
        match c {
            '"' => {
                if !is_quoted && before == '"' {
                    columns.last_mut().expect("never empty").push('"');
                }
                is_quoted = !is_quoted;
            }
            ',' if !is_quoted => columns.push(String::new()),
            other => columns.last_mut().expect("never empty").push(other),
        }
        before = c;
    }
    columns
}

/// Standard base64 with padding (RFC 4648 section 4).
fn base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(value)) & 0xff_ffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
1795271365282924562,200,690680,0,0,,,,2,GET,http://127.0.0.1:29001/12?3,Q29udGVudC1MZW5ndGg6IDEyDQpDb250ZW50LVR5cGU6IHRleHQvcGxhaW4NCg0K
1795271365284211230,0,511,0,0,no targets to attack,,,7,,,
1795271365284211231,0,12000,0,0,\"Get \"\"https://127.0.0.1:18443/\"\": read: EOF,
or so\",,,8,GET,https://127.0.0.1:18443/,
";

    fn rows(text: &str) -> io::Result<Vec<Row>> {
        let mut rows = Vec::new();
        each_row(text.as_bytes(), |row| rows.push(row)).map(|()| rows)
    }

    #[test]
    fn rows_are_read_with_fields_and_errors_and_without_the_end_of_the_targets() {
        let rows = rows(OUTPUT).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].began_ns, rows[0].latency_ns, rows[0].number), (1_795_271_365_282_924_562, 690_680, 2));
        assert_eq!((rows[0].field("content-type"), rows[0].field("x")), (Some("text/plain"), None));
        assert!(rows[0].is_good() && !rows[1].is_good());
        assert_eq!(rows[1].error, "Get \"https://127.0.0.1:18443/\": read: EOF,\nor so");
    }

    #[test]
    fn an_answer_that_is_not_2xx_is_not_good() {
        let row = parse("1,503,2,0,0,503 Service Unavailable,,,0,GET,http://x/,").unwrap();
        assert!(!row.is_good() && row.status == 503);
    }

    #[test]
    fn something_else_is_an_error_and_no_panic() {
        for text in
            ["1,2,3\n", "x,200,1,0,0,,,,1,GET,u,\n", "1,200,1,0,0,,,,1,GET,u,a!b\n", "\"open\n", "a\u{301},\"\n"]
        {
            assert!(rows(text).is_err(), "{text}");
        }
        assert!(rows("\n\n").unwrap().is_empty());
    }

    #[test]
    fn base64_is_read_as_the_standard_says() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYmFy", "foobar")] {
            assert_eq!(base64(text).unwrap(), bytes.as_bytes());
        }
        assert_eq!(base64("+/+/").unwrap(), [0xfb, 0xff, 0xbf]);
    }
}
