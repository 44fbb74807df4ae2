//! Maps of the configuration.

use crate::support::load;

#[test]
fn the_default_of_a_map_is_kept_as_it_is_written_like_its_values() {
    let text = "version: 1\nlisteners: { web: { bind: '127.0.0.1:80', protocol: tcp, cluster: c } }\n\
                clusters: { c: { endpoints: ['127.0.0.1:9'] } }\nmaps: { m: { entries: { a: 1.10 }, default: DEFAULT } }\n";
    for written in ["1.10", "0x10", "True", "'1.10'", "text"] {
        let loaded = load(&text.replace("DEFAULT", written)).unwrap_or_else(|wrong| panic!("{wrong}"));
        let map = &loaded.snapshot.maps[0];
        assert_eq!(map.default.as_deref(), Some(written.trim_matches('\'')), "{written}");
    }
}
