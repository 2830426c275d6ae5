//! The stream that native forms of plug-ins put work into: a table of functions around the encoder of a queue.

use super::commands::bind_group;
use super::memory::{Buffer, Range};
use super::queue::WgpuQueue;
use super::write::write;
use crate::adapter::ALIGNMENT;
use crate::gpu::Module;
use kiln_abi::{KILN_INVALID_ARGUMENT, KILN_OK, kiln_wgpu_dispatch, kiln_wgpu_stream};
use kiln_backend::launch::NativeKernel;
use kiln_backend::{BackendError, view};
use kiln_gpu::{Buffer as _, Queue as _};
use kiln_ir::OpError;
use kiln_ops::plugin::native::NativeStream;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Bits of an address that count bytes.
const BYTES: u32 = 44;
/// Longer texts, more words and more bindings are refused.
const MOST_TEXT: u64 = 4 << 20;
const MOST_WORDS: u64 = 16 << 10;
const MOST_BINDINGS: u64 = 1000;
/// Workgroups of one dimension that every device has.
const MOST_GROUPS: u32 = 65_535;
/// More dispatches of one call are refused.
const MOST_DISPATCHES: usize = 4096;

/// The address of range `number`, counted from 1.
pub fn address(number: usize) -> u64 {
    (number as u64) << BYTES
}

/// A dispatch of an earlier run.
pub struct Kept {
    head: (blake3::Hash, Vec<u32>, Vec<u64>),
    module: Arc<Module>,
    group: wgpu::BindGroup,
    _words: Buffer,
}

/// State behind the functions of a stream.
struct Recorder<'a> {
    queue: &'a mut WgpuQueue,
    ranges: &'a [Range],
    kept: &'a mut Vec<Kept>,
    /// Dispatches of this run.
    count: usize,
    /// The first refusal.
    error: Option<BackendError>,
}

/// Runs `f` with a stream around a queue; memory is named by addresses of these ranges.
pub fn with(
    queue: &mut WgpuQueue,
    ranges: &[Range],
    kept: &mut Vec<Kept>,
    f: impl FnOnce(NativeStream) -> Result<(), OpError>,
) -> Result<(), BackendError> {
    let mut recorder = Recorder { queue, ranges, kept, count: 0, error: None };
    let mut stream = kiln_wgpu_stream {
        struct_size: size_of::<kiln_wgpu_stream>() as u32,
        reserved: 0,
        ctx: (&raw mut recorder).cast(),
        dispatch: Some(dispatch),
        copy: Some(copy),
        clear: Some(clear),
    };
    let ran = f(NativeStream { handle: (&raw mut stream).cast(), recording: false });
    // Its own refusal says more than what the library makes of it.
    match recorder.error.take() {
        Some(e) => Err(e),
        None => ran.map_err(NativeKernel::error),
    }
}

fn invalid(why: String) -> BackendError {
    BackendError::InvalidArgument(format!("a native form of the plug-in: {why}"))
}

impl Recorder<'_> {
    /// The memory behind an address.
    fn range(&self, at: u64, what: &str) -> Result<(&Range, u64), BackendError> {
        let number = (at >> BYTES) as usize;
        let bytes = at & ((1 << BYTES) - 1);
        let range = number.checked_sub(1).and_then(|n| self.ranges.get(n)).filter(|r| bytes <= r.size);
        let range = range.ok_or_else(|| {
            invalid(format!(
                "{what} {at:#x} is no address of the call; wants one of a tensor, the workspace or the sizes"
            ))
        })?;
        Ok((range, bytes))
    }

    /// Memory of so many bytes, in whole words.
    fn words(&self, at: u64, bytes: u64, what: &str) -> Result<Range, BackendError> {
        let (range, from) = self.range(at, what)?;
        if !from.is_multiple_of(4) || from.checked_add(bytes).is_none_or(|end| end > range.size) {
            return Err(invalid(format!(
                "{what} of {bytes} bytes from byte {from} of a tensor of {} bytes; wants multiples of 4 within it",
                range.size
            )));
        }
        Ok(Range { offset: range.offset + from, size: range.size - from, ..range.clone() })
    }

    fn dispatch(&mut self, d: &kiln_wgpu_dispatch) -> Result<(), BackendError> {
        let least = size_of::<kiln_wgpu_dispatch>();
        if (d.struct_size as usize) < least {
            return Err(invalid(format!("a dispatch of {} bytes, wants {least} or more", d.struct_size)));
        }
        // SAFETY: the library passes views that are valid for the call.
        let (source, entry, words, memory) = unsafe {
            if d.word_count > MOST_WORDS || d.memory_count > MOST_BINDINGS {
                return Err(invalid(format!(
                    "a dispatch with {} words and {} bindings, at most {MOST_WORDS} and {MOST_BINDINGS} are taken",
                    d.word_count, d.memory_count
                )));
            }
            (
                view::text(d.source, "the source of a dispatch", MOST_TEXT)?,
                view::text(d.entry, "the entry of a dispatch", 256)?,
                view::slice(d.words, d.word_count)?,
                view::slice(d.memory, d.memory_count)?,
            )
        };
        if let Some(n) = d.groups.into_iter().find(|n| *n > MOST_GROUPS) {
            return Err(invalid(format!(
                "a dispatch of {n} workgroups along one dimension, at most {MOST_GROUPS}"
            )));
        }
        if self.count >= MOST_DISPATCHES {
            return Err(invalid(format!("more than {MOST_DISPATCHES} dispatches of one call")));
        }
        if d.groups.contains(&0) {
            return Ok(());
        }
        if entry.is_empty() || entry.contains(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
            return Err(invalid(format!("the entry \"{entry}\", wants the name of a function")));
        }
        let text = format!("// kiln {} {entry}\n{source}", memory.len() + 1);
        let head = (blake3::hash(text.as_bytes()), words.to_vec(), memory.to_vec());
        if self.kept.get(self.count).is_none_or(|k| k.head != head) {
            let made = self.make(&text, head)?;
            self.kept.truncate(self.count);
            self.kept.push(made);
        }
        let Some(k) = self.kept.get(self.count) else { return Ok(()) };
        let pipeline = k.module.pipelines.first().cloned();
        let group = k.group.clone();
        self.count += 1;
        self.queue.dispatches += 1;
        let mut pass = self.queue.encoder().begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        if let Some(p) = &pipeline {
            pass.set_pipeline(p);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(d.groups[0], d.groups[1], d.groups[2]);
        }
        Ok(())
    }

    /// Pipeline, arguments and bind group of a dispatch.
    fn make(&mut self, text: &str, head: (blake3::Hash, Vec<u32>, Vec<u64>)) -> Result<Kept, BackendError> {
        let mut ranges = Vec::with_capacity(head.2.len());
        for &at in &head.2 {
            let (range, from) = self.range(at, "memory")?;
            if !from.is_multiple_of(ALIGNMENT) || from >= range.size {
                return Err(invalid(format!(
                    "memory from byte {from} of a tensor of {} bytes; wants a multiple of {ALIGNMENT} within it",
                    range.size
                )));
            }
            ranges.push(Range { offset: range.offset + from, size: range.size - from, ..range.clone() });
        }
        let limit = self.queue.gpu.target.memory.max_binding;
        if let Some(r) = ranges.iter().find(|r| r.size > limit) {
            return Err(invalid(format!("a binding of {} bytes, one spans {limit} at most", r.size)));
        }
        let refused = |e: BackendError| match e {
            BackendError::Internal(why) => invalid(format!("the kernel is refused: {why}")),
            e => e,
        };
        let module = self.queue.gpu.module(text).map_err(refused)?;
        let bytes = (head.1.len().max(4) * 4) as u64;
        let words = self.queue.arguments("arguments of a native form", bytes)?;
        write(&self.queue.gpu, &words.buffer, 0, bytemuck::cast_slice(&head.1))?;
        let args = words.range(0, bytes);
        let group = bind_group(&self.queue.gpu, &module.layout, &args, &ranges).map_err(refused)?;
        Ok(Kept { head, module, group, _words: words })
    }

    fn copy(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), BackendError> {
        let bytes = bytes.next_multiple_of(4);
        let (to, from) = (
            self.words(to, bytes, "the target of a copy")?,
            self.words(from, bytes, "the source of a copy")?,
        );
        self.queue.copy(&from, &to, bytes)
    }

    fn clear(&mut self, to: u64, bytes: u64) -> Result<(), BackendError> {
        let bytes = bytes.next_multiple_of(4);
        let to = self.words(to, bytes, "a part to clear")?;
        self.queue.clear(&to, 0, bytes)
    }
}

/// Runs the body of a function of the table: no panic leaves it, and the first refusal is kept.
///
/// # Safety
/// `ctx` is that of the table, which is valid for the call.
unsafe fn slot(ctx: *mut c_void, f: impl FnOnce(&mut Recorder<'_>) -> Result<(), BackendError>) -> i32 {
    // SAFETY: as this function's contract says.
    let Some(r) = (unsafe { ctx.cast::<Recorder<'_>>().as_mut() }) else { return KILN_INVALID_ARGUMENT };
    let panicked = || Err(BackendError::Panicked("the backend, in a native form".into()));
    match catch_unwind(AssertUnwindSafe(|| f(r))).unwrap_or_else(|_| panicked()) {
        Ok(()) => KILN_OK,
        Err(e) => {
            r.error.get_or_insert(e);
            KILN_INVALID_ARGUMENT
        }
    }
}

unsafe extern "C" fn dispatch(ctx: *mut c_void, d: *const kiln_wgpu_dispatch) -> i32 {
    // SAFETY: the library passes what the table has, and a dispatch that is valid for the call.
    unsafe { slot(ctx, |r| r.dispatch(&view::sized(d, "a dispatch")?)) }
}

unsafe extern "C" fn copy(ctx: *mut c_void, to: u64, from: u64, bytes: u64) -> i32 {
    // SAFETY: the library passes what the table has.
    unsafe { slot(ctx, |r| r.copy(to, from, bytes)) }
}

unsafe extern "C" fn clear(ctx: *mut c_void, to: u64, bytes: u64) -> i32 {
    // SAFETY: as above.
    unsafe { slot(ctx, |r| r.clear(to, bytes)) }
}
