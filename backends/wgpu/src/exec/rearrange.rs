//! The kernel that cuts tensors along an axis, and stacks what the iterations of a loop add.

use super::commands::{bind_group, fold};
use super::memory::{Buffer, Range};
use super::write::write;
use crate::adapter::ALIGNMENT;
use crate::gpu::{Gpu, Module};
use crate::wgsl::{HEADER_WORDS, MAP_THREADS, declared_head, link};
use kiln_backend::BackendError;
use kiln_gpu::{Buffer as _, Rearrange};
use std::sync::Arc;

kiln_codegen::params! {
    /// A tensor that is cut into slots, or stacked from them. Its elements move in units that are parts of one word.
    struct RearrangeParams {
        /// Bits of a unit.
        bits: u32,
        /// 1 where slots are stacked.
        stacks: u32,
        /// Rows in front of the axis.
        rows: u32,
        /// Places along the axis.
        length: u32,
        /// Units behind the axis.
        inner: u32,
        /// Units from slot to slot.
        slot: u32,
        /// Slots that are filled; further places of the tensor become 0.
        filled: u32,
        /// 1 where the last slot is the first along the axis.
        reverse: u32,
    }
}

/// Jobs whose arguments can be there at a time.
const ROOM: u64 = 256;

/// Bytes of the arguments of all jobs.
pub const ARGUMENT_BYTES: u64 = ROOM * ALIGNMENT;

/// The kernel, and the arguments of what was recorded.
#[derive(Default)]
pub struct Rearranger {
    module: Option<Arc<Module>>,
    /// Memory of [`ARGUMENT_BYTES`] bytes.
    pub args: Option<Buffer>,
    used: u64,
}

impl Rearranger {
    /// Whether what was recorded has to be submitted before another job.
    pub fn is_full(&self) -> bool {
        self.used >= ROOM
    }

    /// Records a job.
    pub fn run(
        &mut self,
        gpu: &Gpu,
        encoder: &mut wgpu::CommandEncoder,
        job: &Rearrange,
        from: &Range,
        to: &Range,
    ) -> Result<(), BackendError> {
        let limit = gpu.target.memory.max_binding;
        if from.size.max(to.size) > limit {
            return Err(BackendError::Unsupported(format!(
                "a loop cuts or stacks a tensor of {} bytes, one binding spans {limit} at most; put the axis first, \
                 elements in whole words of 4 bytes",
                from.size.max(to.size)
            )));
        }
        let Some(numbers) = words(job)? else { return Ok(()) };
        let module = match &self.module {
            Some(m) => m.clone(),
            None => self.module.insert(gpu.module(&text()?)?).clone(),
        };
        let args =
            self.args.as_ref().ok_or_else(|| BackendError::Internal("no memory for arguments".into()))?;
        // Nothing that was submitted or recorded since reads these words.
        let at = args.range(self.used * ALIGNMENT, ALIGNMENT);
        self.used += 1;
        write(gpu, &at.buffer, at.offset, bytemuck::cast_slice(&numbers))?;
        let group = bind_group(gpu, &module.layout, &at, &[from.clone(), to.clone()])?;
        let groups = fold(u64::from(numbers[0]).div_ceil(MAP_THREADS))?;
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        if let Some(p) = module.pipelines.first() {
            pass.set_pipeline(p);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(groups.0, groups.1, 1);
        }
        Ok(())
    }

    /// All that was recorded has been submitted: the room for arguments is free again.
    pub fn submitted(&mut self) {
        self.used = 0;
    }
}

/// The arguments of a job: the header of a launch, then its parameters; none where it writes nothing.
fn words(job: &Rearrange) -> Result<Option<Vec<u32>>, BackendError> {
    let Some(threads) = Some(job.bytes.div_ceil(4)).filter(|n| *n > 0) else { return Ok(None) };
    let large = || BackendError::Unsupported(format!("a loop over a tensor of {} bytes", job.bytes));
    let number = |n: u64| u32::try_from(n).map(|n| n as usize).map_err(|_| large());
    // A unit divides what is behind the axis.
    let unit = [32, 16, 8, 4].into_iter().find(|u| job.inner.is_multiple_of(*u)).unwrap_or(4);
    let params = RearrangeParams {
        bits: number(unit)?,
        stacks: usize::from(job.stacks),
        rows: number(job.rows)?,
        length: number(job.length)?,
        inner: number(job.inner / unit)?,
        slot: number(job.slot / unit)?,
        filled: number(job.filled)?,
        reverse: usize::from(job.reverse),
    };
    let mut words = vec![u32::try_from(threads).map_err(|_| large())?];
    words.resize(HEADER_WORDS, 0);
    words.extend(params.words()?);
    Ok(Some(words))
}

fn text() -> Result<String, BackendError> {
    let entry = "rearrange";
    let head = declared_head(3);
    let code = link::needed_by(&head, &["control/rearrange"], &[entry.to_owned()], None)?;
    Ok(format!("// kiln 3 {entry}\n{code}{head}"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_is_valid() {
        let module = naga::front::wgsl::parse_str(&super::text().expect("a text")).expect("it parses");
        naga::valid::Validator::new(naga::valid::ValidationFlags::all(), naga::valid::Capabilities::empty())
            .validate(&module)
            .expect("it is valid");
    }
}
