//! Declarations of DLPack 1, and its codes of element types. `capi/include/kiln_dlpack.h` has them for C.

use kiln::DType;
use std::ffi::c_void;

/// Version of a struct of DLPack.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLPackVersion {
    /// Another one has another layout.
    pub major: u32,
    /// Revision of the major version.
    pub minor: u32,
}

/// The version that the library writes.
pub const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 1 };

/// A device.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDevice {
    /// Kind of the device.
    pub device_type: i32,
    /// Number of the device.
    pub device_id: i32,
}

/// Host memory.
pub const CPU: i32 = 1;
/// Memory of an NVIDIA GPU.
pub const CUDA: i32 = 2;
/// Host memory that CUDA has pinned.
pub const CUDA_HOST: i32 = 3;
/// Memory that host and GPU share.
pub const CUDA_MANAGED: i32 = 13;

/// Element type.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDataType {
    /// Kind of number.
    pub code: u8,
    /// Bits of a lane.
    pub bits: u8,
    /// Lanes; 1 for scalars.
    pub lanes: u16,
}

/// A tensor in memory of somebody else.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLTensor {
    /// Address of the memory.
    pub data: *mut c_void,
    /// Device of the memory.
    pub device: DLDevice,
    /// Number of dimensions.
    pub ndim: i32,
    /// Element type.
    pub dtype: DLDataType,
    /// Dimensions.
    pub shape: *mut i64,
    /// Distances in elements; NULL for dense tensors.
    pub strides: *mut i64,
    /// Bytes in front of the first element.
    pub byte_offset: u64,
}

/// A tensor with its owner.
#[repr(C)]
pub struct DLManagedTensorVersioned {
    /// Version of this struct.
    pub version: DLPackVersion,
    /// The owner's pointer.
    pub manager_ctx: *mut c_void,
    /// Frees the tensor.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// Bits: 1 read-only, 2 copied, 4 narrow elements in bytes of their own.
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

/// Flag: nobody may write to the memory.
pub const READ_ONLY: u64 = 1;
/// Flag: elements of less than 8 bits have a byte each.
pub const PADDED: u64 = 4;

/// Codes of kinds and bits of each element type.
const CODES: [(DType, u8, u8); 10] = [
    (DType::F32, 2, 32),
    (DType::F16, 2, 16),
    (DType::BF16, 4, 16),
    (DType::F8E4M3, 10, 8),
    (DType::I8, 0, 8),
    (DType::U8, 1, 8),
    (DType::I32, 0, 32),
    (DType::I64, 0, 64),
    (DType::Bool, 6, 8),
    (DType::I4, 0, 4),
];

impl DLDataType {
    /// The code of an element type; kind 255 for one that DLPack lacks.
    pub fn of(dtype: DType) -> DLDataType {
        let found = CODES.iter().find(|(d, ..)| *d == dtype);
        found.map_or(DLDataType { code: 255, bits: 0, lanes: 1 }, |&(_, code, bits)| DLDataType {
            code,
            bits,
            lanes: 1,
        })
    }

    /// The element type of a code, if Kiln has it.
    pub fn dtype(self) -> Option<DType> {
        let found =
            CODES.iter().find(|&&(_, code, bits)| (code, bits, 1) == (self.code, self.bits, self.lanes));
        found.map(|&(d, ..)| d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_type_has_a_code() {
        for d in DType::ALL {
            let code = DLDataType::of(d);
            assert_eq!((code.dtype(), u32::from(code.bits)), (Some(d), d.bits()), "{d}");
        }
        assert_eq!(DLDataType { code: 2, bits: 64, lanes: 1 }.dtype(), None);
        assert_eq!(DLDataType { code: 2, bits: 32, lanes: 4 }.dtype(), None);
    }
}
