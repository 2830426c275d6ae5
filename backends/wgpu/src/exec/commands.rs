//! Grids and bind groups of dispatches.

use super::memory::Range;
use crate::gpu::Gpu;
use crate::wgsl::{HEAD_BYTES, MAP_THREADS};
use kiln_backend::BackendError;

/// Most workgroups in one dimension of a dispatch.
const FOLD: u64 = 65_535;

/// Splits a number of workgroups into two dimensions.
pub fn fold(groups: u64) -> Result<(u32, u32), BackendError> {
    let x = groups.min(FOLD);
    let y = groups.div_ceil(x.max(1));
    if y > FOLD {
        return Err(BackendError::Unsupported(format!("a dispatch of {groups} workgroups")));
    }
    // Threads are counted in 32 bits, those of the last row beyond the grid too.
    if x * y * MAP_THREADS > 1 << 32 {
        return Err(BackendError::Unsupported(format!("a dispatch of {groups} workgroups of {MAP_THREADS}")));
    }
    Ok((x as u32, y as u32))
}

/// A bind group of argument words and tensors in order, and behind them of the first words as a uniform buffer. The buffer of the words
/// holds [`HEAD_BYTES`] more than they take.
pub fn bind_group(
    gpu: &Gpu,
    layout: &wgpu::BindGroupLayout,
    args: &Range,
    tensors: &[Range],
) -> Result<wgpu::BindGroup, BackendError> {
    let ranges = std::iter::once(args).chain(tensors).map(|r| (r, r.size)).chain([(args, HEAD_BYTES)]);
    let entries: Vec<_> = ranges
        .enumerate()
        .map(|(i, (r, size))| wgpu::BindGroupEntry {
            binding: i as u32,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: &r.buffer,
                offset: r.offset,
                size: std::num::NonZeroU64::new(size),
            }),
        })
        .collect();
    let group =
        gpu.device.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout, entries: &entries });
    gpu.check()?;
    Ok(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_groups_fold_into_two_dimensions() {
        assert_eq!(fold(65_536), Ok((65_535, 2)));
        assert!(fold(u64::from(u32::MAX) * 4).is_err());
    }
}
