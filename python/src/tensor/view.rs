//! Elements of other libraries: type, dimensions and distances, in memory that an owner keeps.

use super::aligned::Aligned;
use super::dlpack::Device;
use super::lent::{Lent, Owner};
use crate::errors::argument;
use kiln::{DType, Tensor};
use pyo3::PyResult;
use std::sync::Arc;

/// Alignment from which on memory is used where it is.
const ALIGNMENT: usize = 16;

/// A tensor in somebody's memory.
pub struct View {
    pub dtype: DType,
    pub shape: Vec<usize>,
    /// Distances in bytes between neighbours along each dimension; `None`: dense.
    pub strides: Option<Vec<isize>>,
    /// Address of the first element.
    pub address: usize,
    pub device: Device,
    pub readonly: bool,
    pub owner: Owner,
}

impl View {
    /// Bytes of the elements, dense.
    pub fn bytes(&self) -> PyResult<usize> {
        let count = self.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d as u64));
        let bytes = count.and_then(|n| self.dtype.bytes_for(n)).and_then(|n| usize::try_from(n).ok());
        bytes.ok_or_else(|| {
            argument(format!("a tensor of shape {:?} is larger than memory can be", self.shape))
        })
    }

    /// Whether elements follow each other in row-major order.
    pub fn is_dense(&self) -> bool {
        let Some(strides) = &self.strides else { return true };
        if self.shape.contains(&0) {
            return true;
        }
        let mut step = self.dtype.bits() as isize / 8;
        for (&d, &s) in self.shape.iter().zip(strides).rev() {
            if d != 1 && s != step {
                return false;
            }
            step = step.saturating_mul(d as isize);
        }
        true
    }

    /// The tensor: in place where the memory is dense and aligned, otherwise a copy.
    pub fn into_tensor(self) -> PyResult<Tensor> {
        self.check_host()?;
        let len = self.bytes()?;
        let (dtype, shape) = (self.dtype, self.shape.clone());
        let wrong = || argument(format!("{len} bytes are not a tensor of {dtype}{shape:?}"));
        if len == 0 {
            return Tensor::from_bytes(dtype, &shape, Vec::new()).ok_or_else(wrong);
        }
        if self.is_dense() && self.address.is_multiple_of(ALIGNMENT) {
            if let Owner::Kiln(t) = &self.owner {
                return Ok(t.clone());
            }
            let window = {
                // SAFETY: the owner keeps the memory, of which `bytes` counts what dense elements take.
                let lent = unsafe { Lent::new(self.address, len, self.owner) };
                kiln_ir::Bytes::window(Arc::new(lent), 0, len)
            };
            return window.and_then(|w| Tensor::from_bytes(dtype, &shape, w)).ok_or_else(wrong);
        }
        Tensor::from_bytes(dtype, &shape, self.gathered(len).into_bytes()).ok_or_else(wrong)
    }

    /// A dense copy.
    pub fn copied(&self) -> PyResult<Tensor> {
        self.check_host()?;
        let len = self.bytes()?;
        let made = Tensor::from_bytes(self.dtype, &self.shape, self.gathered(len).into_bytes());
        made.ok_or_else(|| {
            argument(format!("{len} bytes are not a tensor of {}{:?}", self.dtype, self.shape))
        })
    }

    fn check_host(&self) -> PyResult<()> {
        match self.device.is_host() {
            true => Ok(()),
            false => Err(argument(format!(
                "the tensor is on {}, wanted one in host memory: copy it there",
                self.device.name()
            ))),
        }
    }

    fn gathered(&self, len: usize) -> Aligned {
        let mut out = Aligned::zeroed(len);
        let mut at = 0;
        self.runs(|address, n| {
            // SAFETY: the owner keeps all elements; `runs` visits `len` bytes of them in all.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    address as *const u8,
                    out.as_mut_slice().as_mut_ptr().add(at),
                    n,
                );
            }
            at += n;
        });
        out
    }

    /// Writes dense elements of the same type and shape into the memory.
    pub fn fill(&self, bytes: &[u8]) -> PyResult<()> {
        self.check_host()?;
        if self.readonly {
            return Err(argument("the memory is read-only"));
        }
        let wanted = self.bytes()?;
        if bytes.len() != wanted {
            return Err(argument(format!("the memory has room for {wanted} bytes, not for {}", bytes.len())));
        }
        let mut at = 0;
        self.runs(|address, n| {
            // SAFETY: the owner lets the memory be written; `runs` visits as many bytes as there are.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().add(at), address as *mut u8, n) };
            at += n;
        });
        Ok(())
    }

    /// Visits the elements in row-major order, in pieces that are dense: address and bytes.
    fn runs(&self, mut f: impl FnMut(usize, usize)) {
        let Ok(len) = self.bytes() else { return };
        if len == 0 {
            return;
        }
        let Some(strides) = self.strides.as_ref().filter(|_| !self.is_dense()) else {
            return f(self.address, len);
        };
        let size = self.dtype.bits() as usize / 8;
        // Trailing dimensions that are dense are one piece.
        let (mut inner, mut piece) = (self.shape.len(), size);
        while inner > 0 && (self.shape[inner - 1] == 1 || strides[inner - 1] == piece as isize) {
            piece *= self.shape[inner - 1];
            inner -= 1;
        }
        let mut index = vec![0usize; inner];
        let mut address = self.address as isize;
        loop {
            f(address as usize, piece);
            let mut axis = inner;
            loop {
                if axis == 0 {
                    return;
                }
                axis -= 1;
                index[axis] += 1;
                address += strides[axis];
                if index[axis] < self.shape[axis] {
                    break;
                }
                address -= strides[axis] * self.shape[axis] as isize;
                index[axis] = 0;
            }
        }
    }
}
