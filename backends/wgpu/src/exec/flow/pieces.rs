//! The kernel that cuts tensors along an axis, and stacks what trips gave.

use super::super::memory::{Growing, Memory, Range, write};
use super::super::plan::fold;
use super::super::record::bind_group;
use super::recorder::Recorder;
use crate::adapter::ALIGNMENT;
use crate::gpu::Module;
use crate::wgsl::{MAP_THREADS, headings};
use kiln_backend::BackendError;
use kiln_codegen::template::section;
use std::sync::Arc;

const TEXT: &str = include_str!("../../../../../shaders/flow.wgsl");

/// Jobs whose arguments can be there at a time.
const ROOM: u64 = 256;

/// Moves between [rows, length, inner] and slots, one for each place along the axis.
pub struct Job {
    /// From slots into the tensor, or the other way round.
    pub stack: bool,
    pub rows: u64,
    pub length: u64,
    /// Bits behind the axis.
    pub inner: u64,
    /// Bits from slot to slot.
    pub slot: u64,
    /// Slots that are filled; what the others would give is 0.
    pub trips: u64,
    /// Is the last slot the first along the axis?
    pub reverse: bool,
}

/// The kernel, and the arguments of what was recorded.
#[derive(Default)]
pub struct Pieces {
    module: Option<Arc<Module>>,
    args: Option<Growing>,
    used: u64,
    pub allocations: u64,
}

impl Pieces {
    /// Records a job that writes so many bytes.
    pub fn run(
        &mut self,
        recorder: &mut Recorder,
        job: &Job,
        from: &Range,
        to: &Range,
        bytes: u64,
    ) -> Result<(), BackendError> {
        let gpu = recorder.gpu.clone();
        let limit = gpu.target.memory.max_binding;
        if from.size.max(to.size) > limit {
            return Err(BackendError::Unsupported(format!(
                "a loop cuts or stacks a tensor of {} bytes, one binding spans {limit} at most; put the axis first, \
                 elements in whole words of 4 bytes",
                from.size.max(to.size)
            )));
        }
        let words = bytes.div_ceil(4);
        if words == 0 {
            return Ok(());
        }
        // Elements move in units that divide what lies behind the axis; a unit lies in one word.
        let unit = [32, 16, 8, 4].into_iter().find(|u| job.inner.is_multiple_of(*u)).unwrap_or(4);
        let numbers = [
            words,
            unit,
            u64::from(job.stack),
            job.rows,
            job.length,
            job.inner / unit,
            job.slot / unit,
            job.trips,
            u64::from(job.reverse),
        ];
        let words: Option<Vec<u32>> = numbers.iter().map(|&n| u32::try_from(n).ok()).collect();
        let words = words
            .ok_or_else(|| BackendError::Unsupported(format!("a loop over a tensor of {bytes} bytes")))?;
        if self.used >= ROOM {
            recorder.flush()?;
            self.used = 0;
        }
        let module = match &self.module {
            Some(m) => m.clone(),
            None => self.module.insert(gpu.module(&text())?).clone(),
        };
        let whole = Memory::tensor(&gpu, &mut self.args, &mut self.allocations, ROOM * ALIGNMENT)?;
        let args = Range { offset: self.used * ALIGNMENT, size: ALIGNMENT, ..whole };
        self.used += 1;
        // Nothing that was submitted or recorded since reads these words.
        write(&gpu, &args.buffer, args.offset, bytemuck::cast_slice(&words))?;
        let group = bind_group(&gpu, &module.layout, [&args, from, to].into_iter())?;
        let groups = fold(numbers[0].div_ceil(MAP_THREADS))?;
        let mut pass = recorder.encoder().begin_compute_pass(&wgpu::ComputePassDescriptor::default());
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

fn text() -> String {
    format!("// kiln 3 pieces\n{}", headings(section(TEXT, "pieces")))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_is_valid() {
        let module = naga::front::wgsl::parse_str(&super::text()).expect("it parses");
        naga::valid::Validator::new(naga::valid::ValidationFlags::all(), naga::valid::Capabilities::empty())
            .validate(&module)
            .expect("it is valid");
    }
}
