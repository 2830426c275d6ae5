//! Tensors in bindings: one each, or several where a tensor is larger than what one binding spans.

use std::fmt::Write;

/// An array of cells, bound in pieces of equal size.
pub struct Array {
    /// Name in the text.
    pub name: String,
    /// Type of a cell.
    pub cell: &'static str,
    /// Number of bindings.
    pub pieces: usize,
    /// Cells of a piece, as a power of two.
    pub shift: u32,
    /// Whether cells are written by atomics.
    pub atomic: bool,
}

/// Bytes of a piece: the greatest power of two that one binding spans.
pub fn piece_bytes(max_binding: u64) -> u64 {
    1 << max_binding.max(256).ilog2()
}

/// The cell of four neighbours of type f16.
pub const QUAD: &str = "vec4<f16>";

impl Array {
    /// The declaration of piece `p` at a binding; behind the last one the functions that choose among several.
    pub fn declare(&self, binding: usize, p: usize) -> String {
        let (name, last) = (self.piece(p), p + 1 == self.pieces);
        let cell = if self.atomic { "atomic<u32>" } else { self.cell };
        let var = format!("@group(0) @binding({binding}) var<storage, read_write> {name}: array<{cell}>;\n");
        if self.pieces > 1 && last { var + &self.choosers() } else { var }
    }

    /// The array of packed f16, in cells of four of them.
    pub fn of_quads(self) -> Array {
        Array { cell: QUAD, shift: self.shift.saturating_sub(1), ..self }
    }

    fn piece(&self, p: usize) -> String {
        if self.pieces > 1 { format!("{}_{p}", self.name) } else { self.name.clone() }
    }

    fn choosers(&self) -> String {
        let mut out = String::new();
        let mut chooser = |what: &str, value: &str, result: &str, body: &dyn Fn(&str) -> String| {
            let _ = writeln!(
                out,
                "fn {}_{what}(i: u32{value}){result} {{\n    switch (i >> {}u) {{",
                self.name, self.shift
            );
            for p in 0..self.pieces {
                let case = if p + 1 == self.pieces { "default".into() } else { format!("case {p}u") };
                let cell = format!("{}[i & {}u]", self.piece(p), (1u64 << self.shift) - 1);
                let _ = writeln!(out, "        {case}: {{ {} }}", body(&cell));
            }
            out.push_str("    }\n}\n");
        };
        let result = format!(" -> {}", self.cell);
        let value = format!(", v: {}", self.cell);
        if self.atomic {
            chooser("get", "", &result, &|c| format!("return atomicLoad(&{c});"));
            chooser("set", &value, "", &|c| format!("atomicStore(&{c}, v);"));
            chooser("and", &value, "", &|c| format!("atomicAnd(&{c}, v);"));
            chooser("or", &value, "", &|c| format!("atomicOr(&{c}, v);"));
        } else {
            chooser("get", "", &result, &|c| format!("return {c};"));
            chooser("set", &value, "", &|c| format!("{c} = v;"));
        }
        out
    }

    /// The cell at `i`.
    pub fn get(&self, i: &str) -> String {
        match (self.pieces > 1, self.atomic) {
            (true, _) => format!("{}_get({i})", self.name),
            (false, true) => format!("atomicLoad(&{}[{i}])", self.name),
            (false, false) => format!("{}[{i}]", self.name),
        }
    }

    /// A statement that stores `v` at `i`.
    pub fn set(&self, i: &str, v: &str) -> String {
        match (self.pieces > 1, self.atomic) {
            (true, _) => format!("{}_set({i}, {v});", self.name),
            (false, true) => format!("atomicStore(&{}[{i}], {v});", self.name),
            (false, false) => format!("{}[{i}] = {v};", self.name),
        }
    }

    /// A statement that combines the bits of `v` with those at `i` by "and" or "or".
    pub fn combine(&self, how: &str, i: &str, v: &str) -> String {
        let atomic = if how == "and" { "atomicAnd" } else { "atomicOr" };
        if self.pieces > 1 {
            format!("{}_{how}({i}, {v});", self.name)
        } else {
            format!("{atomic}(&{}[{i}], {v});", self.name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_powers_of_two() {
        assert_eq!(piece_bytes(128 << 20), 128 << 20);
        assert_eq!(piece_bytes((128 << 20) - 4), 64 << 20);
        assert_eq!(piece_bytes(0), 256);
    }

    #[test]
    fn several_pieces_are_chosen_by_the_upper_bits() {
        let a = Array { name: "b".into(), cell: "f32", pieces: 2, shift: 4, atomic: false };
        let text = a.declare(3, 0) + &a.declare(4, 1);
        assert!(text.contains("case 0u: { return b_0[i & 15u]; }"), "{text}");
        assert!(text.contains("default: { b_1[i & 15u] = v; }"), "{text}");
        assert_eq!((a.get("k"), a.set("k", "x")), ("b_get(k)".into(), "b_set(k, x);".into()));
    }
}
