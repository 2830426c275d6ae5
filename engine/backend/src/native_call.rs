//! Calls of native forms of layers as the C ABI has them, for both sides of the border.

use kiln_abi::*;
use kiln_ir::Packing;
use kiln_ops::plugin::native::{NativeCall, NativeStream, NativeTensor};

/// Views of tensors, which live as long as the tensors.
fn views(tensors: &[NativeTensor]) -> Vec<kiln_native_tensor> {
    let view = |t: &NativeTensor| kiln_native_tensor {
        dtype: t.dtype.code().into(),
        ndim: t.dims.len() as u32,
        dims: t.dims.as_ptr(),
        address: t.address,
        bytes: t.bytes,
    };
    tensors.iter().map(view).collect()
}

/// Runs `f` with the C form of a call. `fields` are a list and its length.
pub fn with_native_call<T>(
    fields: (*const kiln_field, u64),
    call: &NativeCall,
    stream: NativeStream,
    f: impl FnOnce(&kiln_native_call) -> T,
) -> T {
    let (inputs, outputs) = (views(&call.inputs), views(&call.outputs));
    let codes = |n: usize, of: &dyn Fn(usize) -> Packing| -> Vec<u32> {
        let codes: Vec<u32> = (0..n).map(|i| of(i).format.code().into()).collect();
        if codes.iter().all(|c| *c == 0) { Vec::new() } else { codes }
    };
    let input_formats = codes(inputs.len(), &|i| call.packings.input(i));
    let output_formats = codes(outputs.len(), &|j| call.packings.output(j));
    let list = |codes: &[u32]| if codes.is_empty() { std::ptr::null() } else { codes.as_ptr() };
    f(&kiln_native_call {
        struct_size: size_of::<kiln_native_call>() as u32,
        flags: if stream.recording { KILN_NATIVE_RECORDING } else { 0 }
            | if call.counting { KILN_NATIVE_COUNTING } else { 0 },
        fields: fields.0,
        field_count: fields.1,
        inputs: inputs.as_ptr(),
        input_count: inputs.len() as u64,
        outputs: outputs.as_ptr(),
        output_count: outputs.len() as u64,
        workspace: call.workspace,
        workspace_bytes: call.workspace_bytes,
        stream: stream.handle,
        device: call.device,
        reserved: 0,
        sizes: call.sizes,
        input_formats: list(&input_formats),
        output_formats: list(&output_formats),
    })
}
