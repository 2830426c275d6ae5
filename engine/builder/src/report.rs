//! Reports of the steps of a build.

use kiln_ir::{DType, Dim, Graph, TensorType, ValueId};

/// A tensor that a layer reads or writes: dense, the last dimension fastest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorLayout {
    /// Element type.
    pub dtype: DType,
    /// Dimensions at the usual shapes; -1 where a run determines them.
    pub dims: Vec<i64>,
    /// Distance in elements between neighbours along each dimension; -1 where it depends on a run.
    pub strides: Vec<i64>,
}

impl TensorLayout {
    fn of(ty: &TensorType) -> TensorLayout {
        let dims: Vec<i64> = ty.dims.iter().map(|d| Dim::as_const(d).unwrap_or(-1)).collect();
        let mut strides = vec![1; dims.len()];
        for i in (1..dims.len()).rev() {
            let known = dims[i] >= 0 && strides[i] >= 0;
            strides[i - 1] = if known { strides[i] * dims[i] } else { -1 };
        }
        TensorLayout { dtype: ty.dtype, dims, strides }
    }

    pub(crate) fn all(g: &Graph, values: &[ValueId]) -> Vec<TensorLayout> {
        values.iter().map(|&v| TensorLayout::of(g.ty(v))).collect()
    }
}

/// One step of a program, for reports.
#[derive(Clone, Debug)]
pub struct StepReport {
    /// Names of its layers.
    pub name: String,
    /// Operators of the region.
    pub ops: String,
    /// The chosen tactic with parameters.
    pub tactic: String,
    /// Median time when it was tuned, in nanoseconds.
    pub ns: Option<f64>,
    /// Number of candidates.
    pub candidates: usize,
    /// Key of the choice in the timing cache.
    pub key: Option<String>,
    /// Tensors that it reads, at the usual shapes.
    pub inputs: Vec<TensorLayout>,
    /// Tensors that it writes.
    pub outputs: Vec<TensorLayout>,
    /// Scratch memory in bytes.
    pub workspace: u64,
    /// Whether it yields the same bits every time.
    pub deterministic: bool,
    /// Whether it only renames memory and launches nothing.
    pub view: bool,
    /// The backend's note on the tactic; may be empty.
    pub note: String,
    /// Kernels for other shapes than the usual ones of the first profile.
    pub alternatives: Vec<AlternativeReport>,
}

/// The kernel of a step for some shapes.
#[derive(Clone, Debug, PartialEq)]
pub struct AlternativeReport {
    /// Profiles and sizes of inputs at which it runs, in words.
    pub shapes: Vec<String>,
    /// The tactic with parameters.
    pub tactic: String,
    /// Median time at the first of these shapes, in nanoseconds, if it was timed.
    pub ns: Option<f64>,
    /// Median time of the step's own tactic there.
    pub own_ns: Option<f64>,
    /// Keys of the choices in the timing cache.
    pub keys: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_have_dense_strides() {
        let f = TensorLayout::of(&TensorType::new(DType::F32, [2, 3, 4]));
        assert_eq!((f.dims, f.strides), (vec![2, 3, 4], vec![12, 4, 1]));
        let f = TensorLayout::of(&TensorType { dtype: DType::F16, dims: vec![Dim::new(2), Dim::host("n")] });
        assert_eq!((f.dims, f.strides), (vec![2, -1], vec![-1, 1]));
    }
}
