//! Keys that people write into one block, and what that block has instead: names of other products, and near misses that mean something
//! else in other blocks. They go before the words that are known everywhere.

/// A block (the filter, or the map at the top whose members have names), keys that it does not have, and what to write.
type Block = (&'static str, &'static [&'static str], &'static str);

const LIFETIMES: &str = "write lifetimes by status: `ttl: { \"200\": 10m, any: 1m }`";
const ON_DISK: &str = "write `disk: { path: /var/cache/pages, max: 10GiB }`; without `disk`, a cache is in `memory`";
const TABLES: &str = "write `tables: { NAME: { key: client, rates: { requests: 10s } } }`";
const TABLE_KEY: &str = "write what entries are by: `key: client`, `key: { header: NAME }` or `key: { expression: … }`";
const COUNTED: &str = "write `counters: [requests, errors]` and `rates: { requests: 10s }`";

/// All blocks with such keys. Upper and lower case, `_` and `-` do not count.
const BLOCKS: &[Block] = &[
    (
        "cache",
        &["cache", "zone", "cache_zone", "proxy_cache", "name"],
        "write `store: NAME`, the name of one of `caches`",
    ),
    ("cache", &["valid", "proxy_cache_valid", "max_age", "expires", "lifetime"], LIFETIMES),
    (
        "cache",
        &["cache_key", "proxy_cache_key"],
        "write what the key has beside scheme, host and path: `key: { only: [id] }`",
    ),
    ("cache", &["use_stale"], "write `stale_if_error: 1h`"),
    ("caches", &["path", "directory", "folder", "max_size", "max", "size", "proxy_cache_path"], ON_DISK),
    ("", &["stick_table", "stick_tables", "sticktable"], TABLES),
    ("tables", &["type"], TABLE_KEY),
    ("tables", &["size", "max", "max_entries", "entries_max"], "write `keys_max: 100000`"),
    ("tables", &["store", "data", "gpc0", "http_req_rate"], COUNTED),
    ("tables", &["ttl", "timeout", "expires"], "write `expire: 10m`"),
    ("mirror", &["to", "target", "upstream", "backend", "url", "service"], "write `cluster: NAME`"),
    ("mirror", &["percent", "percentage", "sample", "fraction", "runtime_fraction"], "write `share: 10%`"),
    ("compress", &["min_length", "min_size", "minimum_size", "min_content_length"], "write `size_min: 1KiB`"),
    (
        "compress",
        &["mime_types", "content_type", "content_types", "gzip_types"],
        "write `types: [text/html, application/json]`",
    ),
    ("compress", &["level", "comp_level", "gzip_comp_level"], "write `levels: { gzip: 5 }`"),
    ("compress", &["algo", "algorithm", "encodings", "encoding"], "write `algorithms: [br, gzip]`"),
    ("files", &["directory", "dir", "alias", "path", "folder", "docroot", "document_root"], "write `root: /srv/www`"),
    ("files", &["try_files"], "write `fallback: /index.html`"),
    ("files", &["autoindex", "browse"], "write `list: true`"),
];

/// A block, a key of it that holds a map, and what to write where one value stands: `{}` is that value.
type Alone = (&'static str, &'static str, &'static str);

const ALONE: &[Alone] = &[
    ("cache", "ttl", "write lifetimes by status, or for any: `ttl: { any: {} }`"),
    ("cache", "override_ttl", "write lifetimes by status, or for any: `override_ttl: { any: {} }`"),
    (
        "cache",
        "key",
        "scheme, host and path are always in the key; write what is beside them: `key: { only: [id] }`, or `key: { add: [{ expression: 'request.headers[\"accept-language\"]' }] }`",
    ),
    ("caches", "disk", "write `disk: { path: {}, max: 10GiB }`"),
];

/// Longest value that is repeated in a suggestion.
const VALUE_CHARS_MAX: usize = 40;

/// Whether both are the same word, however it is spelt.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    fn bare(word: &str) -> impl Iterator<Item = char> + '_ {
        word.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).map(|c| c.to_ascii_lowercase())
    }
    bare(one).eq(bare(other))
}

/// What to write for a key that this block does not have.
pub(super) fn key(block: &str, word: &str) -> Option<&'static str> {
    let is_here = |(name, words, _): &&Block| *name == block && words.iter().any(|one| is_same(one, word));
    BLOCKS.iter().find(is_here).map(|(.., mend)| *mend)
}

/// What to write for one value where a block has a map under this key.
pub(super) fn alone(block: &str, key: &str, value: &str) -> Option<String> {
    let (.., mend) = ALONE.iter().find(|(name, of, _)| *name == block && *of == key)?;
    let value = if value.chars().count() > VALUE_CHARS_MAX || value.is_empty() { "…" } else { value };
    Some(mend.replace("{}", value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_of_a_block_stands_twice() {
        for (place, (block, words, mend)) in BLOCKS.iter().enumerate() {
            assert!(mend.contains("write `") || mend.contains(": `"), "{mend}");
            for word in *words {
                let first =
                    BLOCKS.iter().position(|(name, all, _)| name == block && all.iter().any(|one| is_same(one, word)));
                assert_eq!(first, Some(place), "{block} {word}");
            }
        }
    }

    #[test]
    fn a_value_is_repeated_only_if_it_is_short() {
        assert!(alone("cache", "ttl", "10m").unwrap().ends_with("`ttl: { any: 10m }`"));
        assert!(alone("cache", "ttl", &"9".repeat(41)).unwrap().ends_with("`ttl: { any: … }`"));
        assert_eq!((alone("cache", "store", "a"), key("files", "root")), (None, None));
    }
}
