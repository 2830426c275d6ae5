//! Filling in templates.

/// The part of a file under the heading `// ---- name`.
pub fn section<'a>(text: &'a str, name: &str) -> &'a str {
    let heading = format!("// ---- {name}\n");
    let rest = text.split_once(heading.as_str()).map_or("", |p| p.1);
    rest.split_once("// ---- ").map_or(rest, |p| p.0)
}

/// Several sections in a row.
pub fn sections(text: &str, names: &[&str]) -> String {
    names.iter().map(|n| section(text, n)).collect()
}

/// Replaces words where they stand by themselves, one pair after the other.
pub fn fill(text: &str, pairs: &[(&str, &str)]) -> String {
    pairs.iter().fold(text.to_owned(), |t, (from, to)| replace_word(&t, from, to))
}

fn replace_word(text: &str, from: &str, to: &str) -> String {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(from) {
        let (before, tail) = rest.split_at(at);
        let after = &tail[from.len()..];
        out.push_str(before);
        let free = !out.ends_with(part) && !after.starts_with(part);
        out.push_str(if free { to } else { from });
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_words_are_replaced() {
        assert_eq!(fill("IN + INT(IN)", &[("IN", "x")]), "x + INT(x)");
    }

    #[test]
    fn sections_end_at_the_next_heading() {
        assert_eq!(section("a\n// ---- b\nc\n// ---- d\ne\n", "b"), "c\n");
        assert_eq!(section("a\n", "b"), "");
    }
}
