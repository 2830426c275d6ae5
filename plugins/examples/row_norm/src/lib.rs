//! A custom norm: `example::RowNorm` divides each row by its root mean square, and multiplies by a scale.
//!
//! The reference form is plain Rust. The kernels are plain CUDA C++ and plain WGSL, in files of their own. For each language
//! there are two: a thread a row, and a block a row. Kiln times both when it builds a network.

use kiln_layer::{Call, Error, Kernel, Language, Layer};

kiln_layer::fields! {
    /// Fields of the layer.
    pub struct RowNorm {
        /// Added to the mean of squares, so that rows of zeros stay zeros.
        eps: f64 = 1e-5,
    }
}

/// Parameters of all kernels.
const PARAMS: &str = "u32 rows = i0.size / max(i1.d0, 1); u32 columns = i1.d0; f32 eps = eps";
/// Message of wrong shapes.
const SHAPES: &str = "wants a tensor, and a scale of one dimension: that of its rows";

const fn kernel(
    language: Language,
    tactic: &'static str,
    source: &'static str,
    grid: &'static str,
) -> Kernel {
    let block = match language {
        Language::Cuda => "256",
        Language::Wgsl => "",
    };
    Kernel {
        language,
        tactic,
        types: "f32,f32:f32",
        condition: "",
        source,
        entry: "row_norm",
        grid,
        block,
        shared: "",
        params: PARAMS,
        count: None,
    }
}

const BY_THREAD: &str = "ceildiv(i0.size / max(i1.d0, 1), 256)";
const BY_BLOCK: &str = "i0.size / max(i1.d0, 1)";

impl Layer for RowNorm {
    const NAME: &'static str = "RowNorm";
    const SPACE: &'static str = "example";
    const DOC: &'static str = "x / sqrt(mean(x²) + eps) * scale, along the last dimension";
    const TYPES: &'static str = "f32,f32:f32";
    const KERNELS: &'static [Kernel] = &[
        kernel(Language::Cuda, "block", include_str!("by_block.cu"), BY_BLOCK),
        kernel(Language::Cuda, "thread", include_str!("by_thread.cu"), BY_THREAD),
        kernel(Language::Wgsl, "block", include_str!("by_block.wgsl"), BY_BLOCK),
        kernel(Language::Wgsl, "thread", include_str!("by_thread.wgsl"), BY_THREAD),
    ];

    fn check(&self) -> Result<(), Error> {
        match self.eps > 0.0 {
            true => Ok(()),
            false => Err(Error::Invalid(format!("eps is {}, wants a number above 0", self.eps))),
        }
    }

    fn describe(&self, call: &Call<'_>) -> Result<String, Error> {
        // Sizes that are not known are negative.
        match (call.input(0)?.dims(), call.input(1)?.dims()) {
            ([.., columns], [n]) if columns == n || *columns < 0 || *n < 0 => Ok("[i0.d*]".into()),
            _ => Err(Error::Invalid(SHAPES.into())),
        }
    }

    fn run(&mut self, call: &mut Call<'_>) -> Result<(), Error> {
        let (x, scale) = (call.input(0)?.to_vec::<f32>()?, call.input(1)?.to_vec::<f32>()?);
        if call.input(0)?.dims().last().is_none_or(|&n| n as usize != scale.len()) {
            return Err(Error::Invalid(SHAPES.into()));
        }
        let mut y = Vec::with_capacity(x.len());
        for row in x.chunks(scale.len().max(1)) {
            let sum: f64 = row.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
            let factor = 1.0 / (sum / row.len() as f64 + self.eps).sqrt();
            y.extend(row.iter().zip(&scale).map(|(v, s)| (f64::from(*v) * factor * f64::from(*s)) as f32));
        }
        call.output(0)?.write(&y)
    }
}

kiln_layer::export_layers!("row_norm", [RowNorm], vendor = "Kiln");
