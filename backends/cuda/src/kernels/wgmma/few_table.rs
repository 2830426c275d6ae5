//! The table of tiles by `wgmma` for few rows.

use super::few::Tile;
use crate::kernels::conv::few as conv;
use crate::kernels::matmul::{few as matmul, gated::few as gated_matmul, normed::few as norm_matmul};
use kiln_codegen::Kernel;

#[rustfmt::skip]
tile_kernels! { Tile, "wgmma_few_":
    "8x1" [matmul conv norm_matmul gated_matmul] Tile { rows: 8, split: 1 };
    "8x4" [matmul conv norm_matmul gated_matmul] Tile { rows: 8, split: 4 };
    "16x1" [matmul conv norm_matmul gated_matmul] Tile { rows: 16, split: 1 };
    "16x4" [matmul conv norm_matmul gated_matmul] Tile { rows: 16, split: 4 };
    "32x1" [matmul conv norm_matmul gated_matmul] Tile { rows: 32, split: 1 };
    "32x2" [matmul conv norm_matmul gated_matmul] Tile { rows: 32, split: 2 };
    "32x4" [matmul conv norm_matmul gated_matmul] Tile { rows: 32, split: 4 };
    "56x1" [matmul conv norm_matmul gated_matmul] Tile { rows: 56, split: 1 };
    "64x1" [matmul conv norm_matmul gated_matmul] Tile { rows: 64, split: 1 };
    "64x2" [matmul conv norm_matmul gated_matmul] Tile { rows: 64, split: 2 };
    "64x4" [matmul conv norm_matmul gated_matmul] Tile { rows: 64, split: 4 };
    "64x8" [matmul conv norm_matmul gated_matmul] Tile { rows: 64, split: 8 };
    "104x1" [matmul conv norm_matmul gated_matmul] Tile { rows: 104, split: 1 };
    "104x2" [matmul conv norm_matmul gated_matmul] Tile { rows: 104, split: 2 };
    "104x4" [matmul conv norm_matmul gated_matmul] Tile { rows: 104, split: 4 };
    "128x1" [matmul conv norm_matmul gated_matmul] Tile { rows: 128, split: 1 };
    "128x4" [matmul conv norm_matmul gated_matmul] Tile { rows: 128, split: 4 };
    "208x1" [matmul conv norm_matmul] Tile { rows: 208, split: 1 };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::wgmma::few::{Cut, SHARED};

    #[test]
    fn depths_are_cut_into_what_fits() {
        let tile =
            |rows: usize, split: usize| ROWS.iter().map(|r| r.1).find(|t| (t.rows, t.split) == (rows, split));
        let cut = |rows, split, parts| tile(rows, split).and_then(|t| t.cut(parts, SHARED));
        assert_eq!(cut(32, 1, 12), Some(Cut { steps: 3, chunk: 4, stages: 3 }));
        assert_eq!(cut(32, 1, 1), Some(Cut { steps: 1, chunk: 1, stages: 1 }));
        assert_eq!(cut(8, 4, 48), Some(Cut { steps: 3, chunk: 4, stages: 3 }));
        assert!(cut(104, 4, 48).is_some_and(|c| c.steps * c.chunk == 12 && c.stages < c.steps));
        assert_eq!(cut(64, 4, 6), None);
        assert_eq!(cut(64, 1, 1000), None);
        assert!(cut(104, 1, 72).is_some_and(|c| c.steps * c.chunk == 72 && c.stages >= 3));
        for (_, t) in ROWS {
            for parts in 0..200 {
                let Some(c) = t.cut(parts, SHARED) else { continue };
                assert_eq!(c.steps * c.chunk * t.split, parts);
                assert!(t.shared(c) <= SHARED && c.stages >= 1 && c.stages <= c.steps, "{t:?} {c:?}");
            }
        }
    }
}
