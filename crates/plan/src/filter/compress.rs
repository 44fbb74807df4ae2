//! `compress`.

mod accept;
mod coders;
mod engine;
mod gzip;
mod kept;
#[cfg(test)]
mod tests;
mod whole;

use model::{Issue, RequestHead, ResponseHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::coding::{self, Names};
use super::media_types::Types;
use super::settings::{Settings, SizeText};
use super::{Compiling, Extent, FilterEntry, Rank, ResponseBodyStep, ResponseView, Stage, Steps, Turn};
use coders::BodyCoder;
use engine::Algorithm;
use kept::Kind;

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<Compress>("compress", DOC);

const DOC: &str = r#"Compresses the bodies of responses for clients that accept it, with zstd, brotli or gzip.

The coding is the client's preferred one (`accept-encoding`), and among equals the first of `algorithms`. Zstd comes first by default,
because at the default levels its bodies are as small as those of the others, in a third of the time; most browsers accept it. A
request without `accept-encoding`, or one that prefers `identity`, gets an uncompressed body.

A body is compressed if its media type is one of `types`, and it has at least `size_min` bytes or an unknown length. `types` may contain
names, `text/*`, `application/*+json` and `*/*`. These responses are never compressed:

- responses with a `content-encoding`;
- parts of a body (206, `content-range`), and responses to requests with `range`;
- with `cache-control: no-transform`, of the response or of the request;
- with `content-digest`, `repr-digest`, `digest` or `content-md5`, because the client could no longer verify the body;
- gRPC, tunnels, and responses to HTTP/1.0 clients, which do not support chunked bodies.

`vary: Accept-Encoding` is added to every response of such a type and size, compressed or not, so that caches keep the variants apart. When
a body is compressed, `content-encoding` is set, `content-length` and `accept-ranges` are removed, a strong `etag` becomes weak (`W/`), and
digests are removed from the trailers. Responses to HEAD, and 304, get the same fields as the response to GET.

Streaming responses, such as `text/event-stream`, are flushed whenever the endpoint pauses. The filter uses the `accept-encoding` that
earlier filters have left in the request: one that removes it turns compression off.

Higher levels cost more time, and with brotli much more memory. While a response is in progress, its encoder holds up to 0.4 MiB (gzip),
2 MiB (zstd to level 4: 3.3, to level 19: 4) or 1.1 MiB (brotli to level 3; level 4: 1.8, 6: 4, 9: 35, 11: 14). Each worker keeps up to four
gzip and four zstd encoders for reuse. A body of up to 128 KiB whose length is known is collected and compressed at its end, which takes less
time. Until then it holds no more memory than its length.

If a page contains a secret and repeats part of the request, the secret can be guessed from the compressed length (BREACH). Exclude such
pages with `when`, or mask the secret in the application.

```yaml
filters:
  - compress: {}
  - compress: { algorithms: [gzip], levels: { gzip: 6 }, types: ["text/*", application/json], size_min: 4KiB }
    when: { path: { prefix: /reports } }
```
"#;

/// Text in its many forms, and fonts and programs without a compression of their own.
const TYPES: [&str; 18] = [
    "text/html",
    "text/css",
    "text/plain",
    "text/xml",
    "text/javascript",
    "text/markdown",
    "text/csv",
    "application/javascript",
    "application/json",
    "application/xml",
    "application/*+json",
    "application/*+xml",
    "application/wasm",
    "application/manifest+json",
    "application/vnd.ms-fontobject",
    "image/svg+xml",
    "font/ttf",
    "font/otf",
];
const SIZE_MIN: u64 = 1_024;

/// What is compressed, and how.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Compress {
    /// Allowed algorithms, in order of preference for clients that prefer none. `[zstd, br, gzip]` by default.
    #[schemars(length(min = 1, max = 3))]
    algorithms: Option<Vec<Algorithm>>,
    /// Compression level of each algorithm.
    #[serde(default)]
    levels: Levels,
    /// Media types whose bodies are compressed; by default text, scripts, JSON, XML, SVG, WebAssembly and uncompressed fonts.
    #[schemars(length(min = 1, max = 256))]
    types: Option<Vec<String>>,
    /// Bodies below this size are not compressed; 1KiB by default. A body of unknown length is compressed.
    size_min: Option<SizeText>,
}

/// Levels: the higher, the smaller and the slower.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Levels {
    /// 1 to 19; 3 by default.
    #[schemars(range(min = 1, max = 19))]
    zstd: Option<u8>,
    /// 0 to 11; 3 by default.
    #[schemars(range(min = 0, max = 11))]
    br: Option<u8>,
    /// 1 to 9; 5 by default, beyond which bodies hardly become smaller.
    #[schemars(range(min = 1, max = 9))]
    gzip: Option<u8>,
}

impl Settings for Compress {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let algorithms = self.algorithms.unwrap_or_else(|| Algorithm::ALL.into());
        if algorithms.is_empty() {
            let issue = Issue::at("algorithms", "the list is empty");
            return Err(issue.suggest("name an algorithm, or leave the filter out"));
        }
        for (place, algorithm) in algorithms.iter().enumerate() {
            if algorithms[..place].contains(algorithm) {
                let path = format!("algorithms/{place}");
                return Err(Issue::at(path, format!("`{}` is listed twice", algorithm.token())));
            }
        }
        let levels = self.levels.compile(&algorithms).map_err(|issue| issue.below("levels"))?;
        let types = match &self.types {
            Some(list) => Types::compile(list.iter().map(String::as_str)),
            None => Types::compile(TYPES.into_iter()),
        };
        let types = types.map_err(|issue| issue.below("types"))?;
        let size_min = self.size_min.map_or(SIZE_MIN, |size| size.0);
        let algorithms = algorithms.into();
        Ok(Steps::of_response_body(CompressStep { algorithms, levels, types, size_min, names: Names::new()? }))
    }
}

impl Levels {
    /// By the number of the algorithm.
    fn compile(&self, algorithms: &[Algorithm]) -> Result<[u8; 3], Issue> {
        let mut levels = [0; 3];
        for (algorithm, given, usual, range) in [
            (Algorithm::Zstd, self.zstd, 3, 1..=19),
            (Algorithm::Br, self.br, 3, 0..=11),
            (Algorithm::Gzip, self.gzip, 5, 1..=9),
        ] {
            let token = algorithm.token();
            if given.is_some() && !algorithms.contains(&algorithm) {
                let issue =
                    Issue::at(token, format!("a level of `{token}` has no effect: `algorithms` does not name it"));
                return Err(issue.suggest("leave it out, or add it to `algorithms`"));
            }
            let level = given.unwrap_or(usual);
            if !range.contains(&level) {
                let (least, most) = (range.start(), range.end());
                let issue = Issue::at(token, format!("{level} is not a level of `{token}`"));
                return Err(issue.suggest(format!("use {least} to {most}")));
            }
            levels[algorithm as usize] = level;
        }
        Ok(levels)
    }
}

struct CompressStep {
    algorithms: Box<[Algorithm]>,
    levels: [u8; 3],
    types: Types,
    size_min: u64,
    names: Names,
}

impl CompressStep {
    /// Whether some clients get the body coded.
    fn qualifies(&self, head: &ResponseHead, request: &RequestHead, extent: Extent) -> bool {
        let is_short = coding::length(&head.fields, extent).is_some_and(|length| length < self.size_min.max(1));
        !is_short && self.names.may_code(head, request) && self.names.is_of(|is| self.types.hold(is), head, request)
    }
}

impl ResponseBodyStep for CompressStep {
    fn rank(&self) -> Rank {
        Rank::Encode
    }

    fn begin(
        &self,
        head: &mut ResponseHead,
        view: &ResponseView<'_>,
        extent: Extent,
        turn: &mut Turn<'_>,
    ) -> Option<(Stage, Extent)> {
        let (request, names) = (view.request, &self.names);
        if !self.qualifies(head, request, extent) {
            return None;
        }
        names.vary(&mut head.fields, turn.scratch);
        if !names.allows(request) {
            return None;
        }
        let algorithm = accept::choose(&request.fields, &names.accept_encoding, &self.algorithms)?;
        let length = match extent {
            Extent::Absent => {
                names.coded(head, algorithm.token(), turn.scratch);
                return None;
            }
            Extent::Known(length) => Some(length),
            Extent::Unknown => None,
        };
        let kind = Kind { algorithm, level: self.levels[algorithm as usize] };
        // Without memory for a coder the body passes as it is.
        let coder = BodyCoder::new(kind, length, &names.digests)?;
        names.coded(head, algorithm.token(), turn.scratch);
        Some((Stage::Coder(Box::new(coder)), Extent::Unknown))
    }
}
