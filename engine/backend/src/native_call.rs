//! Calls of native forms of layers as the C ABI has them, for both sides of the border.

use kiln_abi::*;
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
    f(&kiln_native_call {
        struct_size: size_of::<kiln_native_call>() as u32,
        flags: if stream.recording { KILN_NATIVE_RECORDING } else { 0 },
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
    })
}
