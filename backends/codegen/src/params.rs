//! Printing of parameters' structures for kernels.
//!
//! [`params!`](crate::params!) declares a structure; [`cuda`] and [`wgsl`] print it. The printed text stands in the kernel's file, and a
//! test compares both.

pub use kiln_backend::launch::params::{Field, Kind, LAYOUTS, Layout, Number};

use std::fmt::Write;

/// A structure in CUDA C++.
pub fn cuda(layout: &Layout) -> String {
    let mut s = format!("struct {} {{\n", layout.name);
    let number = |n: &Number| match n {
        Number::U32 => "u32",
        Number::I32 => "i32",
        Number::F32 => "f32",
        Number::I64 => "Long",
    };
    for Field { name, kind } in layout.fields {
        let _ = match kind {
            Kind::One(n) => writeln!(s, "    {} {name};", number(n)),
            Kind::Array(n, count) => writeln!(s, "    {} {name}[{count}];", number(n)),
            Kind::List(_) => writeln!(s, "    List {name};"),
        };
    }
    s + "};\n"
}

/// A structure in WGSL, and the function that returns it.
pub fn wgsl(layout: &Layout) -> String {
    let (mut fields, mut values) = (String::new(), Vec::new());
    let mut at = 0;
    for Field { name, kind } in layout.fields {
        let one = |n: &Number, at: u32| {
            let word = format!("word({at}u)");
            match n {
                Number::U32 => ("u32", word),
                Number::I32 => ("i32", format!("bitcast<i32>({word})")),
                Number::F32 => ("f32", format!("bitcast<f32>({word})")),
                Number::I64 => ("i64", format!("ci64(word({}u), {word})", at + 1)),
            }
        };
        let (of, value) = match kind {
            Kind::One(n) => {
                let (of, value) = one(n, at);
                (of.to_owned(), value)
            }
            Kind::Array(n, count) => {
                let of = format!("array<{}, {count}>", one(n, at).0);
                let all: Vec<String> = (0..*count as u32).map(|i| one(n, at + i * n.words()).1).collect();
                let value = format!("{of}({})", all.join(", "));
                (of, value)
            }
            Kind::List(_) => ("List".to_owned(), format!("List(word({at}u), word({}u))", at + 1)),
        };
        let _ = writeln!(fields, "    {name}: {of},");
        values.push(format!("        {value},\n"));
        at += kind.words();
    }
    let name = layout.name;
    format!(
        "struct {name} {{\n{fields}}}\n\nfn {}() -> {name} {{\n    return {name}(\n{}    );\n}}\n",
        snake(name),
        values.concat()
    )
}

/// A kernel file in which every structure `…Params` has the text that is printed for it; refuses those that nobody declares.
pub fn renewed(file: &str, print: fn(&Layout) -> String) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = file;
    while let Some(at) = rest.find("struct ") {
        let (before, found) = rest.split_at(at);
        out.push_str(before);
        let name = found[7..].split_once(" {").map_or("", |p| p.0);
        rest = if name.ends_with("Params") {
            out += &print(declared(name)?);
            behind(found, name)
        } else {
            out.push_str("struct ");
            &found[7..]
        };
    }
    Ok(out + rest)
}

fn declared(name: &str) -> Result<&'static Layout, String> {
    let mut all = LAYOUTS.iter().filter(|l| l.name == name);
    match (all.next(), all.next()) {
        (Some(layout), None) => Ok(layout),
        (None, _) => Err(format!("no Rust code declares \"{name}\" by params!")),
        (Some(_), Some(_)) => Err(format!("\"{name}\" is declared twice by params!")),
    }
}

/// The rest of a file after the text of a structure and the function that returns it.
fn behind<'a>(text: &'a str, name: &str) -> &'a str {
    let after = |t: &'a str, end: &str| t.split_once(end).map_or("", |p| p.1);
    if text.split_once('}').is_some_and(|p| p.1.starts_with(';')) {
        return after(text, "};\n");
    }
    let rest = after(text, "}\n");
    match rest.trim_start().starts_with(&format!("fn {}()", snake(name))) {
        true => after(rest, "\n}\n"),
        false => rest,
    }
}

/// A name of words that begin with upper-case letters, in lower case with underscores.
fn snake(name: &str) -> String {
    let mut s = String::new();
    for (i, c) in name.chars().enumerate() {
        if c.is_ascii_uppercase() && i > 0 {
            s.push('_');
        }
        s.push(c.to_ascii_lowercase());
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::params! {
        /// Every type of field.
        struct ExampleParams {
            /// A count.
            count: u32,
            /// Its dimensions.
            dims: [u32],
            /// A limit.
            limit: f32,
            /// Large steps.
            steps: [i64],
            /// A start.
            start: i64,
            /// Two sizes.
            sizes: [u32; 2],
        }
    }

    #[test]
    fn structures_in_files_are_renewed() {
        let stale = "// A.\nstruct Own {\n};\nstruct ExampleParams {\n    u32 gone;\n};\n\nint x;\n";
        let new = renewed(stale, cuda).unwrap();
        assert!(
            new.starts_with("// A.\nstruct Own {\n};\nstruct ExampleParams {\n    u32 count;\n"),
            "{new}"
        );
        assert!(
            new.ends_with("    u32 sizes[2];\n};\n\nint x;\n") && renewed(&new, cuda).unwrap() == new,
            "{new}"
        );
        let stale = "struct ExampleParams {\n}\n\nfn example_params() -> X {\n    y\n}\n\nfn z() {\n}\n";
        let new = renewed(stale, wgsl).unwrap();
        assert!(new == wgsl(&ExampleParams::LAYOUT) + "\nfn z() {\n}\n", "{new}");
        assert!(renewed("struct NoParams {\n};\n", cuda).unwrap_err().contains("NoParams"));
    }

    #[test]
    fn both_languages_get_the_same_fields() {
        let wanted = "struct ExampleParams {\n    u32 count;\n    List dims;\n    f32 limit;\n    List steps;\n    Long start;\n    u32 sizes[2];\n};\n";
        assert_eq!(cuda(&ExampleParams::LAYOUT), wanted);
        let wgsl = wgsl(&ExampleParams::LAYOUT);
        assert!(wgsl.contains("fn example_params() -> ExampleParams {"), "{wgsl}");
        assert!(
            wgsl.contains("        List(word(1u), word(2u)),\n        bitcast<f32>(word(3u)),\n"),
            "{wgsl}"
        );
        assert!(wgsl.contains("        ci64(word(7u), word(6u)),\n"), "{wgsl}");
        assert!(wgsl.contains("        array<u32, 2>(word(8u), word(9u)),\n"), "{wgsl}");
        assert!(LAYOUTS.iter().any(|l| l.name == "ExampleParams"));
    }
}
