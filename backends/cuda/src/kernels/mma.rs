//! Products of tiles by `mma.sync`, for every element type that it takes: matrix products and convolutions.

pub mod table;
mod tile;

pub use self::tile::{Kind, Row, Tile};
use kiln_codegen::template::{fill, section};

const TEXT: &str = include_str!("../../../../kernels/mma/core.cuh");

impl Tile {
    /// Sections of `text` behind the shared part, filled in.
    pub fn source(&self, kind: Kind, across: (bool, bool), text: &str, pairs: &[(&str, &str)]) -> String {
        let numbers = [
            ("BM", self.m),
            ("BN", self.n),
            ("KB", self.bytes),
            ("WARPS_M", self.warps.0),
            ("WARPS_N", self.warps.1),
            ("STAGES", self.stages),
            ("SIZE", kind.size),
        ];
        let mut code = String::new();
        for (name, n) in numbers {
            code += &format!("static constexpr u32 {name} = {n}u;\n");
        }
        for (name, yes) in [("ACROSS_A", across.0), ("ACROSS_B", across.1)] {
            code += &format!("static constexpr bool {name} = {yes};\n");
        }
        let rounds = if kind.types.0 == "tf32" { "rounded_operand" } else { "plain_operand" };
        code += section(TEXT, rounds);
        code += section(TEXT, "core");
        code += text;
        let threads = self.threads().to_string();
        let mut all = vec![
            ("ACC", kind.sums.0),
            ("MMA_SHAPE", kind.shape),
            ("MMA_A", kind.types.0),
            ("MMA_B", kind.types.1),
            ("MMA_ACC", kind.sums.1),
            ("+MMA_REG", if kind.sums.2 == "f" { "+f" } else { "+r" }),
            ("THREADS_OF_BLOCK", &*threads),
        ];
        all.extend(pairs);
        fill(&code, &all)
    }
}
