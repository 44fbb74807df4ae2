//! Functions of expressions. The one list: the compiler checks names and the reference page is made of it.

/// A function of the language.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// How it is written, such as `text.startsWith(text)`; several ways are separated by a comma and a space.
    pub forms: &'static [&'static str],
    /// What it gives, one sentence; the reference page shows it.
    pub doc: &'static str,
}

const fn function(name: &'static str, forms: &'static [&'static str], doc: &'static str) -> Function {
    Function { name, forms, doc }
}

/// Every function there is, in the order of the reference page.
pub const FUNCTIONS: &[Function] = &[
    function("has", &["has(fact)"], "Whether a fact or an entry has a value: `has(request.headers[\"x-a\"])`."),
    function(
        "orValue",
        &["value.orValue(value)"],
        "A value, or another of the same type if there is none: `request.headers[\"x-a\"].orValue(\"\")`.",
    ),
    function("startsWith", &["string.startsWith(string)"], "Whether a string begins with another one."),
    function("endsWith", &["string.endsWith(string)"], "Whether a string ends with another one."),
    function("contains", &["string.contains(string)"], "Whether a string contains another one."),
    function(
        "matches",
        &["string.matches(\"regex\")", "matches(string, \"regex\")"],
        "Whether a regular expression matches anywhere in a string; `^` and `$` stand for its ends.",
    ),
    function("size", &["string.size()", "size(string)", "size(list)"], "Bytes of a string, or items of a list."),
    function("lowerAscii", &["string.lowerAscii()"], "The string with ASCII letters in lower case."),
    function("upperAscii", &["string.upperAscii()"], "The string with ASCII letters in upper case."),
    function("trim", &["string.trim()"], "The string without white space at its ends."),
    function(
        "substring",
        &["string.substring(int)", "string.substring(int, int)"],
        "The part from one byte, counted from 0, to the end or up to another byte.",
    ),
    function("indexOf", &["string.indexOf(string)"], "The first byte at which another string begins, or -1."),
    function(
        "replace",
        &["string.replace(string, string)"],
        "The string with all of the first replaced by the second.",
    ),
    function(
        "split",
        &["string.split(\",\")"],
        "The parts between separators: `….split(\",\")[0]` is the first, and `\"a\" in ….split(\",\")` looks for one.",
    ),
    function("urlDecode", &["string.urlDecode()"], "The string percent-decoded, with `+` as a space."),
    function("int", &["int(string)", "int(double)"], "A whole number; no value if the string is none."),
    function("double", &["double(string)", "double(int)"], "A number with a fraction."),
    function("string", &["string(value)"], "Any value as a string."),
    function("duration", &["duration(\"1m30s\")"], "A duration, with the units `h`, `m`, `s`, `ms`, `us` and `ns`."),
    function("quantity", &["quantity(\"16KiB\")"], "A size in bytes as an int, with the units of sizes elsewhere."),
    function("getHours", &["duration.getHours()"], "A duration in whole hours."),
    function("getMinutes", &["duration.getMinutes()"], "A duration in whole minutes."),
    function("getSeconds", &["duration.getSeconds()"], "A duration in whole seconds."),
    function("getMilliseconds", &["duration.getMilliseconds()"], "A duration in whole milliseconds."),
    function("ip", &["ip(string)"], "The IP address that a string is; no value if it is none."),
    function("isIP", &["isIP(string)"], "Whether a string is an IP address."),
    function(
        "containsIP",
        &["cidr(\"10.0.0.0/8\").containsIP(ip)"],
        "Whether an address is in a network; `ip in [\"10.0.0.0/8\"]` takes several.",
    ),
    function("cidr", &["cidr(\"10.0.0.0/8\")"], "A network, for `containsIP` and in lists."),
    function(
        "map",
        &["map(\"NAME\", key)", "map(\"NAME\", key, string)"],
        "The value of a key in a map: the third argument, or the map's `default`, if there is no entry. Also `maps.NAME[key]`.",
    ),
    function(
        "hash",
        &["hash(string)"],
        "A number from 0 to 2^63 - 1 that is the same for equal strings: `hash(request.id) % 100 < 5` takes 5 %.",
    ),
];
