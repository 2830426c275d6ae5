//! Tensors of a file of safetensors.

use kiln_ir::{Bytes, DType, Tensor};
use safetensors::{Dtype, SafeTensors};

/// Alignment of elements that are used where they are in the file; others are copied.
const ALIGNMENT: usize = 8;

/// All tensors by name, which share the file's memory where they are aligned.
pub(super) fn read(file: Bytes) -> Result<Vec<(String, Tensor)>, String> {
    let all = SafeTensors::deserialize(file.as_slice()).map_err(|e| format!("damaged safetensors: {e}"))?;
    let mut tensors = Vec::new();
    for (name, view) in all.iter() {
        let dtype = dtype(view.dtype()).ok_or_else(|| {
            format!("tensor \"{name}\" has elements of {:?}, which Kiln does not have", view.dtype())
        })?;
        let data = view.data();
        let start = data.as_ptr() as usize - file.as_slice().as_ptr() as usize;
        let shared = file.slice(start, data.len()).filter(|_| start.is_multiple_of(ALIGNMENT));
        let bytes = shared.unwrap_or_else(|| Bytes::from(data.to_vec()));
        let made = Tensor::from_bytes(dtype, view.shape(), bytes);
        let tensor =
            made.ok_or_else(|| format!("tensor \"{name}\" has not as many bytes as its shape takes"))?;
        tensors.push((name.to_owned(), tensor));
    }
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(tensors)
}

fn dtype(found: Dtype) -> Option<DType> {
    Some(match found {
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F8_E4M3 => DType::F8E4M3,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        Dtype::I8 => DType::I8,
        Dtype::U8 => DType::U8,
        Dtype::BOOL => DType::Bool,
        _ => return None,
    })
}
