//! Text of the members of `K` that kernel files ask for.

use std::fmt::Write;

/// A structure of constants with further members.
pub fn structure(name: &str, numbers: &[(&str, usize)], flags: &[(&str, bool)], more: &str) -> String {
    format!("struct {name} {{\n{}{more}}};\n", constants(numbers, flags))
}

/// Constants.
pub fn constants(numbers: &[(&str, usize)], flags: &[(&str, bool)]) -> String {
    let mut text = String::new();
    for (name, n) in numbers {
        let _ = writeln!(text, "    static constexpr u32 {name} = {n}u;");
    }
    for (name, yes) in flags {
        let _ = writeln!(text, "    static constexpr bool {name} = {yes};");
    }
    text
}

/// Another name for a type.
pub fn alias(name: &str, of: &str) -> String {
    format!("    typedef {of} {name};\n")
}
