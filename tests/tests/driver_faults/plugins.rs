//! Plug-in layers that are defined here: one with a kernel in CUDA C++, one that the host runs.

use kiln_ir::{Attrs, OpError, Tensor, TensorType};
use kiln_ops::plugin::kernel::{KernelForm, Language, Param};
use kiln_ops::plugin::record::{LayerFunctions, LayerName, LayerRecord, LayerRun, Library, TypedKernel};
use kiln_ops::plugin::registry::register;
use kiln_ops::plugin::shapes::Shape;
use kiln_ops::plugin::types::Combination;
use std::sync::Arc;

/// Copies its input.
struct Copy;

impl LayerFunctions for Copy {
    fn check(&self, _: &Attrs) -> Result<(), OpError> {
        Ok(())
    }
    fn describe(&self, _: &Attrs, _: &[TensorType]) -> Result<String, OpError> {
        Ok("[i0.d*]".into())
    }
    fn run(&self, run: &LayerRun<'_>) -> Result<Vec<Tensor>, OpError> {
        Ok(run.inputs.to_vec())
    }
}

const TEXT: &str = "extern \"C\" __global__ void copy(const float* x, float* y, void* room, Params p) {\n    \
                    const unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < p.n) y[i] = x[i];\n}\n";

/// Registers `faults::Host` and `faults::Kernel`.
pub fn layers() {
    let kernel = KernelForm {
        language: Language::Cuda,
        tactic: "copy".into(),
        condition: "i0.rank == 2".into(),
        source: TEXT.into(),
        entry: "copy".into(),
        grid: "ceildiv(i0.size, 128)".into(),
        block: "128".into(),
        shared: "512".into(),
        params: Param::list("u32 n = i0.size").unwrap(),
        count: None,
    };
    for (name, kernels) in
        [("Host", Vec::new()), ("Kernel", vec![TypedKernel { types: Vec::new(), form: kernel }])]
    {
        let record = LayerRecord {
            name: LayerName { space: "faults".into(), name: name.into(), version: "1".into() },
            doc: String::new(),
            fields: Vec::new(),
            types: Combination::list("f32:f32").unwrap(),
            shapes: Some(Shape::list("[i0.d*]").unwrap()),
            aliases: Vec::new(),
            workspace: "64".into(),
            expression: None,
            tolerance: "exact".into(),
            kernels,
            natives: Vec::new(),
            patterns: Vec::new(),
            library: Library::default(),
            functions: Arc::new(Copy),
        };
        record.check().unwrap();
        register(record).unwrap();
    }
}
