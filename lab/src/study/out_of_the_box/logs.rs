//! The access logs of the products: how each tells the time that the origin took.

/// What reads the origin's response time, in ms, out of a line of a product's log.
pub(super) fn reader(product: &str) -> fn(&str) -> Option<f64> {
    match product {
        "haproxy" | "haproxy-debian" => haproxy,
        "envoy" => envoy,
        "traefik" => |line| Some(after(line, "\"OriginDuration\":")? / 1e6),
        "caddy" => |line| after(line, "\"origin_ms\":"),
        "equipoise" | "equipoise-alb" => |line| after(line, "\"first_byte_ms\":"),
        _ => nginx,
    }
}

/// The last word: `$upstream_response_time`, in seconds.
fn nginx(line: &str) -> Option<f64> {
    Some(1000.0 * line.split_ascii_whitespace().last()?.parse::<f64>().ok()?)
}

/// The fourth of the timers `TR/Tw/Tc/Tr/Ta`, in ms.
fn haproxy(line: &str) -> Option<f64> {
    let timers = line.split_ascii_whitespace().find(|word| word.matches('/').count() == 4)?;
    timers.split('/').nth(3)?.parse().ok().filter(|time_ms| *time_ms >= 0.0)
}

/// After the request line: status, flags, bytes received and sent, duration, and the origin's time, in ms.
fn envoy(line: &str) -> Option<f64> {
    line.split('"').nth(2)?.split_ascii_whitespace().nth(5)?.parse().ok()
}

/// The number after a name, in quotes or not.
fn after(line: &str, name: &str) -> Option<f64> {
    let rest = line[line.find(name)? + name.len()..].trim_start_matches([' ', '"']);
    let end = rest.find([',', '}', '"', ' ']).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_product_tells_the_time_of_the_origin() {
        let lines = [
            (
                "nginx",
                "<134>nginx: 127.0.0.1 - - [21/Nov/2026:15:00:00 +0000] \"GET / HTTP/1.1\" 200 615 \"-\" \"hey\" 0.004 0.003",
            ),
            (
                "haproxy",
                "<134>Nov 21 15:00:00 haproxy[1]: 127.0.0.1:40 [21/Nov/2026:15:00:00.000] web site/one 0/0/1/3/4 200 853 - - ---- \
                 50/50/49/49/0 0/0 \"GET / HTTP/1.1\"",
            ),
            (
                "envoy",
                "<134>envoy: [2026-11-21T15:00:00.000Z] \"GET / HTTP/1.1\" 200 - 0 615 4 3 \"-\" \"hey\" \"id\" \"localhost\" \
                 \"127.0.0.1:18001\"",
            ),
            ("traefik", "<134>traefik: {\"Duration\":4000000,\"OriginDuration\":3000000,\"OriginStatus\":200}"),
            ("caddy", "<134>caddy: {\"duration\":0.004,\"origin_ms\":\"3\"}"),
            ("equipoise", "<134>equipoise: {\"connect_ms\":0.0,\"first_byte_ms\":3.000,\"route\":null}"),
        ];
        for (product, line) in lines {
            assert_eq!(reader(product)(line), Some(3.0), "{product}");
        }
    }

    #[test]
    fn a_request_that_reached_no_origin_tells_nothing() {
        let haproxy_line =
            "h[1]: 127.0.0.1:40 [x] web site/<NOSRV> 0/-1/-1/-1/0 503 0 - - SC-- 1/1/0/0/0 0/0 \"GET / HTTP/1.1\"";
        assert_eq!(reader("haproxy")(haproxy_line), None);
        assert_eq!(reader("nginx")("nginx: \"GET /\" 502 - 0.001 -"), None);
        assert_eq!(reader("equipoise")("{\"first_byte_ms\":null}"), None);
        assert_eq!(reader("envoy")("nothing of the kind"), None);
    }
}
