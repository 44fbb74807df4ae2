//! The schema and the reference pages.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::FILTERS;

fn references<'a>(schema: &'a Value, all: &mut BTreeSet<&'a str>) {
    match schema {
        Value::Object(map) => {
            all.extend(map.get("$ref").and_then(Value::as_str));
            map.values().for_each(|value| references(value, all));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, all)),
        _ => {}
    }
}

#[test]
fn the_schema_holds_everything_it_refers_to() {
    let schema = config::schema(&FILTERS);
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let mut all = BTreeSet::new();
    references(&schema, &mut all);
    assert!(all.contains("#/$defs/filter_rewrite.Change"));
    for reference in all {
        assert!(schema.pointer(&reference[1..]).is_some(), "{reference}");
    }
}

/// Checks every property of our own types.
fn documented(name: &str, schema: &Value, missing: &mut Vec<String>) {
    for (key, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if !property.get("description").and_then(Value::as_str).is_some_and(|text| text.contains('.')) {
            missing.push(format!("{name}.{key}"));
        }
    }
}

#[test]
fn every_key_says_what_it_means() {
    let schema = config::schema(&[]);
    let mut missing = Vec::new();
    documented("File", &schema, &mut missing);
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        documented(name, definition, &mut missing);
    }
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn null_is_allowed_nowhere() {
    fn nulls(schema: &Value) -> usize {
        match schema {
            Value::String(text) => usize::from(text == "null"),
            Value::Null => 1,
            Value::Object(map) => map.values().map(nulls).sum(),
            Value::Array(items) => items.iter().map(nulls).sum(),
            _ => 0,
        }
    }
    assert_eq!(nulls(&config::schema(&FILTERS)), 0);
}

#[test]
fn the_pages_tell_every_key_filter_balancer_and_fault() {
    let balancers = [("round_robin", "In turn.\n\nMore."), ("random", "By chance.")];
    let pages = config::reference(&FILTERS, &balancers);
    assert_eq!(pages, config::reference(&FILTERS, &balancers), "the same every time");
    let page = |name: &str| &pages.iter().find(|(file, _)| file == name).unwrap().1;
    let schema = config::schema(&[]);
    let definitions = schema["$defs"].as_object().unwrap();
    for (name, definition) in definitions {
        for key in definition.get("properties").and_then(Value::as_object).into_iter().flat_map(|map| map.keys()) {
            let is_of_filters = ["Filter", "When", "TableTest"].contains(&name.as_str());
            let (file, told) = match is_of_filters {
                true if key == "when" => ("filters.md", "## when".to_owned()),
                true => ("filters.md", format!("| `{key}` |")),
                false => ("configuration.md", format!("| `{key}` |")),
            };
            assert!(page(file).contains(&told), "{name}.{key}");
        }
    }
    assert!(page("configuration.md").contains("| `bind` | text, or number from 0 to 65535 | needed |"));
    assert!(page("filters.md").contains("## basic_auth"));
    assert!(page("filters.md").contains("| `users` | map | needed |"));
    assert!(page("balancers.md").contains("## random\n\nBy chance."));
    for fault in model::Fault::ALL {
        assert!(page("faults.md").contains(&format!("| `{}` |", fault.consequence().label)));
    }
}
