//! The shared functions in `shaders/`: what a text calls, and what that calls in turn.

use std::collections::BTreeMap;
use std::sync::OnceLock;

const STORAGE: &str = include_str!("../../../../shaders/storage.wgsl");
const MATH: &str = include_str!("../../../../shaders/math.wgsl");
const INTEGER: &str = include_str!("../../../../shaders/integer.wgsl");

/// Every function or struct by name.
fn items() -> &'static BTreeMap<String, String> {
    static ITEMS: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    ITEMS.get_or_init(|| {
        let i32s = INTEGER.replace("TAG", "i").replace("INT", "i32");
        let i64s = INTEGER.replace("TAG", "l").replace("INT", "i64");
        let mut out = BTreeMap::new();
        for text in [STORAGE, MATH, &i32s, &i64s] {
            split(text, &mut out);
        }
        out
    })
}

/// Items start at the margin with `fn` or `struct` and end with `}` at the margin.
fn split(text: &str, out: &mut BTreeMap<String, String>) {
    let mut item = String::new();
    for line in text.lines() {
        if line.starts_with("fn ") || line.starts_with("struct ") {
            item.clear();
        }
        item.push_str(line);
        item.push('\n');
        if line == "}" {
            let name = item.split([' ', '(', '{']).nth(1).unwrap_or_default();
            out.insert(name.to_owned(), std::mem::take(&mut item));
        }
    }
}

/// Words of a text that look like names.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|w| !w.is_empty())
}

/// The items that `text` needs, sorted by name.
pub fn needed_by(text: &str) -> String {
    let mut wanted: BTreeMap<&str, &str> = BTreeMap::new();
    let mut open: Vec<&str> = vec![text];
    while let Some(t) = open.pop() {
        for n in names(t) {
            if let Some((k, v)) = items().get_key_value(n)
                && wanted.insert(k, v).is_none()
            {
                open.push(v);
            }
        }
    }
    wanted.into_values().collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_called_comes_along() {
        let text = super::needed_by("let y = ktanh(x);");
        assert!(text.contains("fn kexpm1(") && text.contains("fn is_nan("));
        assert!(!text.contains("fn kerf("));
    }
}
