//! `dnsperf`: datagrams that are questions of DNS, several at a time, each of which waits for its answer.

use super::Load;

/// What `dnsperf` found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// The counts. A question that was not answered in time is an error, as is an answer that says so.
    pub load: Load,
    /// How many bytes questions and answers had, as a mean.
    pub sizes: (u64, u64),
}

/// Parses the output of `dnsperf`, version 2.9 or later.
pub(crate) fn parse(text: &str) -> Option<Outcome> {
    let mut load = Load::default();
    let (mut completed, mut sizes, mut good) = (None, None, 0);
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().map(|word| word.trim_end_matches(',')).collect();
        match words.as_slice() {
            ["Queries", "completed:", count, ..] => completed = count.parse::<u64>().ok(),
            ["Queries", "lost:", count, ..] => load.fail("lost", count.parse().ok()?),
            ["Queries", "per", "second:", rate] => load.rps = rate.parse().ok()?,
            ["Response", "codes:", "NOERROR", count, ..] => good = count.parse().ok()?,
            ["Average", "packet", "size:", "request", asked, "response", answered] => {
                sizes = Some((asked.parse().ok()?, answered.parse().ok()?));
            }
            _ => {}
        }
    }
    load.requests = completed?;
    load.fail("not NOERROR", load.requests.saturating_sub(good));
    Some(Outcome { load, sizes: sizes? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "DNS Performance Testing Tool

Statistics:

  Queries sent:         70013
  Queries completed:    70010 (100.00%)
  Queries lost:         3 (0.00%)

  Response codes:       NOERROR 70008 (100.00%), SERVFAIL 2 (0.00%)
  Average packet size:  request 33, response 33
  Run time (s):         1.000815
  Queries per second:   69952.988315

  Average Latency (s):  0.001417 (min 0.000120, max 0.004231)
";

    #[test]
    fn lost_questions_and_bad_answers_are_errors() {
        let outcome = parse(OUTPUT).unwrap();
        assert_eq!((outcome.load.requests, outcome.load.errors, outcome.sizes), (70_010, 5, (33, 33)));
        assert_eq!((outcome.load.error_kinds["lost"], outcome.load.error_kinds["not NOERROR"]), (3, 2));
        assert!((outcome.load.rps - 69_952.988_315).abs() < 1e-6);
    }

    #[test]
    fn something_else_is_no_result() {
        assert_eq!(parse("[Timeout] Network unreachable"), None);
    }
}
