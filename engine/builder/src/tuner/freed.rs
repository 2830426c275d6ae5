//! Memory of one candidate's timing, which is free before the next one is timed.

use kiln_ir::Tensor;

/// Bytes of a layer's inputs from which on its timing leaves much memory.
const LARGE: usize = 1 << 20;

/// Returns freed memory to the system where a layer with these inputs wants much. The C library keeps it, and puts buffers of other sizes
/// beside it: without this, the peak of a build of ResNet-50 is above the memory in use by up to half of its weights.
pub(super) fn return_freed(inputs: &[Tensor]) {
    if inputs.iter().map(|t| t.bytes().len()).sum::<usize>() < LARGE {
        return;
    }
    // Other allocators return large blocks themselves.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the function takes no pointer, and locks what it reads.
    unsafe {
        libc::malloc_trim(0);
    }
}
