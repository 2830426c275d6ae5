//! Softmax of rows along the last axes, whole rows in registers.

use super::norm::{launch, row_body, tactics};
use kiln_codegen::softmax::log;
use kiln_codegen::{Kernel, Views};
use kiln_ops::softmax::LOG_SOFTMAX;

pub const KERNELS: &[Kernel] =
    &[kernel("softmax.rows", &["softmax"]), kernel("log_softmax.rows", &["log_softmax"])];

const fn kernel(name: &'static str, ops: &'static [&'static str]) -> Kernel {
    Kernel {
        name,
        ops,
        epilogue: true,
        views: Views::Whole,
        tactics,
        source: |site, _| {
            let of = site.op()?.is(LOG_SOFTMAX);
            Ok(row_body(site, "softmax/rows", "softmax_rows")?.with(log(site, of)))
        },
        launch,
    }
}
