//! Networks, and the numbers of what is in them.

use kiln::Network;
use kiln_c_core::error::{Fail, guard, kiln_error_t, quietly};
use kiln_c_core::handle::{self, Exclusive, Out};
use kiln_c_core::text;
use kiln_kinds::kiln_network::{IfId, LayerId, LoopId, TensorId};
use std::ffi::c_char;

/// A network that is written layer by layer. Tensors, layers, loops and conditionals of it have numbers.
pub struct kiln_network_t {
    pub(crate) cell: Exclusive<Numbered>,
}

/// Stands for an input of a layer that is absent.
pub const KILN_NO_TENSOR: i32 = -1;

/// A network with the numbers that its parts have.
pub struct Numbered {
    pub(crate) net: Network,
    tensors: Vec<TensorId>,
    layers: Vec<LayerId>,
    loops: Vec<LoopId>,
    conditionals: Vec<IfId>,
}

fn number<T: PartialEq>(all: &mut Vec<T>, id: T) -> i32 {
    let at = all.iter().rposition(|i| *i == id).unwrap_or_else(|| {
        all.push(id);
        all.len() - 1
    });
    i32::try_from(at).unwrap_or(i32::MAX)
}

fn find<T: Copy>(all: &[T], number: i32, what: &str) -> Result<T, Fail> {
    let found = usize::try_from(number).ok().and_then(|n| all.get(n).copied());
    found.ok_or_else(|| {
        Fail::argument(format!("the network has no {what} {number}; it has handed out {} of them", all.len()))
    })
}

impl Numbered {
    /// The number of a tensor.
    pub(crate) fn tensor_number(&mut self, id: TensorId) -> i32 {
        number(&mut self.tensors, id)
    }

    /// The number of a layer.
    pub(crate) fn layer_number(&mut self, id: LayerId) -> i32 {
        number(&mut self.layers, id)
    }

    /// The number of a new loop.
    pub(crate) fn loop_number(&mut self, id: LoopId) -> i32 {
        number(&mut self.loops, id)
    }

    /// The number of a new conditional.
    pub(crate) fn conditional_number(&mut self, id: IfId) -> i32 {
        number(&mut self.conditionals, id)
    }

    /// The tensor of a number.
    pub(crate) fn tensor(&self, number: i32) -> Result<TensorId, Fail> {
        find(&self.tensors, number, "tensor")
    }

    /// The layer of a number.
    pub(crate) fn layer(&self, number: i32) -> Result<LayerId, Fail> {
        find(&self.layers, number, "layer")
    }

    /// The loop of a number.
    pub(crate) fn loop_of(&self, number: i32) -> Result<LoopId, Fail> {
        find(&self.loops, number, "loop")
    }

    /// The conditional of a number.
    pub(crate) fn conditional(&self, number: i32) -> Result<IfId, Fail> {
        find(&self.conditionals, number, "conditional")
    }
}

/// Calls `f` with a network, for this call alone.
///
/// # Safety
/// The pointer is NULL, or of a network that lives as long as the call.
pub(crate) unsafe fn with<T>(
    network: *const kiln_network_t,
    f: impl FnOnce(&mut Numbered) -> Result<T, Fail>,
) -> Result<T, Fail> {
    // SAFETY: as the caller vouches.
    let n = unsafe { handle::shared(network, "network") }?;
    f(&mut *n.cell.enter()?)
}

/// Makes an empty network. With `strongly_typed` only casts, quantization and fills choose types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_create(
    name: *const c_char,
    name_length: usize,
    strongly_typed: bool,
    network: *mut *mut kiln_network_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (out, name) =
            unsafe { (Out::new(network, "network")?, text::string(name, name_length, "name")?) };
        let make = if strongly_typed { Network::strongly_typed } else { Network::new };
        let (tensors, layers, loops, conditionals) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let numbered = Numbered { net: make(name), tensors, layers, loops, conditionals };
        out.put(kiln_network_t { cell: Exclusive::new("network", numbered) });
        Ok(())
    })
}

/// Frees a network. Models of it live on. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_destroy(network: *mut kiln_network_t) {
    // SAFETY: a network of this library that nobody else uses, or NULL.
    quietly(|| unsafe { handle::free(network) });
}
