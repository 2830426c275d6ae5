//! The stream of native forms on wgpu.

use crate::error::Error;
use kiln_abi::*;
use std::ffi::c_void;
use std::marker::PhantomData;

/// A stream of a device of wgpu, valid for a call.
#[derive(Clone, Copy)]
pub struct Wgpu<'a> {
    table: kiln_wgpu_stream,
    of: PhantomData<&'a ()>,
}

/// A dispatch of a kernel in WGSL. The module has arguments at binding 0, as `var<storage, read>`, and memory at bindings 1, 2, …,
/// as `var<storage, read_write>`.
#[derive(Clone, Copy, Debug)]
pub struct Dispatch<'a> {
    /// The whole text of the module.
    pub source: &'a str,
    /// Name of the entry point.
    pub entry: &'a str,
    /// Number of workgroups along each dimension.
    pub groups: [u32; 3],
    /// Words of the arguments.
    pub words: &'a [u32],
    /// Addresses of memory to bind, each at a multiple of 256 bytes from the beginning of its tensor.
    pub memory: &'a [u64],
}

fn told(status: i32, what: &str) -> Result<(), Error> {
    match status {
        KILN_OK => Ok(()),
        n => Err(Error::Invalid(format!("the host refuses a {what} (status {n})"))),
    }
}

fn missing(what: &str) -> Error {
    Error::Unsupported(format!("the host has no {what} of native forms; upgrade Kiln"))
}

impl Wgpu<'_> {
    /// # Safety
    /// `stream` is null or a stream that is valid for the call.
    pub(crate) unsafe fn new(stream: *mut c_void) -> Result<Self, Error> {
        // SAFETY: as this function's contract says.
        let table = unsafe { stream.cast::<kiln_wgpu_stream>().as_ref() };
        let table = *table.ok_or_else(|| Error::Invalid("there is no stream".into()))?;
        match table.struct_size as usize >= size_of::<kiln_wgpu_stream>() {
            true => Ok(Wgpu { table, of: PhantomData }),
            false => Err(missing("stream")),
        }
    }

    /// Puts a dispatch behind the work that is there.
    pub fn dispatch(&self, d: &Dispatch<'_>) -> Result<(), Error> {
        let dispatch = kiln_wgpu_dispatch {
            struct_size: size_of::<kiln_wgpu_dispatch>() as u32,
            groups: d.groups,
            source: kiln_str { ptr: d.source.as_ptr().cast(), len: d.source.len() as u64 },
            entry: kiln_str { ptr: d.entry.as_ptr().cast(), len: d.entry.len() as u64 },
            words: d.words.as_ptr(),
            word_count: d.words.len() as u64,
            memory: d.memory.as_ptr(),
            memory_count: d.memory.len() as u64,
        };
        let f = self.table.dispatch.ok_or_else(|| missing("dispatch"))?;
        // SAFETY: the views live for the call; the stream is the host's.
        told(unsafe { f(self.table.ctx, &dispatch) }, "dispatch")
    }

    /// Puts a copy of bytes behind it; places and number are multiples of 4.
    pub fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), Error> {
        let f = self.table.copy.ok_or_else(|| missing("copy"))?;
        // SAFETY: the stream is the host's.
        told(unsafe { f(self.table.ctx, to, from, bytes) }, "copy")
    }

    /// Puts zeros behind it; place and number are multiples of 4.
    pub fn clear(&self, to: u64, bytes: u64) -> Result<(), Error> {
        let f = self.table.clear.ok_or_else(|| missing("clear"))?;
        // SAFETY: the stream is the host's.
        told(unsafe { f(self.table.ctx, to, bytes) }, "clear")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls, by numbers.
    type Seen = Vec<u64>;

    unsafe extern "C" fn dispatch(ctx: *mut c_void, d: *const kiln_wgpu_dispatch) -> i32 {
        // SAFETY: the test passes its own list, and the table a dispatch that lives.
        let (seen, d) = unsafe { (&mut *ctx.cast::<Seen>(), &*d) };
        // SAFETY: the lists live for the call.
        let (words, memory) = unsafe {
            (crate::field::slice(d.words, d.word_count), crate::field::slice(d.memory, d.memory_count))
        };
        seen.extend([d.source.len, d.entry.len, d.groups.iter().sum::<u32>().into()]);
        seen.extend(words.iter().map(|w| u64::from(*w)).chain(memory.iter().copied()));
        KILN_OK
    }

    unsafe extern "C" fn copy(ctx: *mut c_void, to: u64, from: u64, bytes: u64) -> i32 {
        // SAFETY: the test passes its own list.
        unsafe { (*ctx.cast::<Seen>()).extend([to, from, bytes]) }
        KILN_OK
    }

    unsafe extern "C" fn clear(_: *mut c_void, _: u64, _: u64) -> i32 {
        KILN_INVALID_ARGUMENT
    }

    #[test]
    fn functions_of_the_stream_get_what_they_are_given() {
        let mut seen = Seen::new();
        let mut table = kiln_wgpu_stream {
            struct_size: size_of::<kiln_wgpu_stream>() as u32,
            reserved: 0,
            ctx: (&raw mut seen).cast(),
            dispatch: Some(dispatch),
            copy: Some(copy),
            clear: Some(clear),
        };
        // SAFETY: the table lives.
        let stream = unsafe { Wgpu::new((&raw mut table).cast()) }.ok().unwrap();
        let d = Dispatch { source: "text", entry: "go", groups: [1, 2, 3], words: &[9], memory: &[100, 200] };
        assert!(stream.dispatch(&d).is_ok() && stream.copy(1, 2, 3).is_ok());
        assert!(stream.clear(1, 2).is_err());
        assert_eq!(seen, [4, 2, 6, 9, 100, 200, 1, 2, 3]);
        table.struct_size = 8;
        // SAFETY: as above, and null is refused.
        unsafe {
            assert!(Wgpu::new((&raw mut table).cast()).is_err());
            assert!(Wgpu::new(std::ptr::null_mut()).is_err());
        }
    }
}
