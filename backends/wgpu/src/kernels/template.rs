//! Filling in the templates of `shaders/`.

use crate::wgsl::ENTRY_ARGS;

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

/// Replaces words, and the headings of entry points: `THREADS name {` gives `t`, the number of the thread, and ends
/// those beyond the grid; `GROUPS name threads {` gives `group` and `l`, the thread in its group.
pub fn fill(text: &str, pairs: &[(&str, &str)]) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["THREADS", name, "{"] => out.push_str(&format!(
                "@compute @workgroup_size(64)\nfn {name}({ENTRY_ARGS}) {{\n    let t = (w.y * g.x + w.x) * 64u + l;\n    \
                 if (t >= args[0]) {{ return; }}\n"
            )),
            ["GROUPS", name, threads, "{"] => out.push_str(&format!(
                "@compute @workgroup_size({threads})\nfn {name}({ENTRY_ARGS}) {{\n    let group = w.y * g.x + w.x;\n    \
                 if (group >= args[0]) {{ return; }}\n"
            )),
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    for (from, to) in pairs {
        out = replace_word(&out, from, to);
    }
    out
}

/// Replaces a word where it stands by itself.
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
        assert_eq!(replace_word("IN + INT(IN)", "IN", "x"), "x + INT(x)");
    }

    #[test]
    fn sections_end_at_the_next_heading() {
        assert_eq!(section("a\n// ---- b\nc\n// ---- d\ne\n", "b"), "c\n");
    }
}
