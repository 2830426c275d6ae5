//! Native forms: calls with addresses of a device.

use crate::error::Error;
use crate::export::{guard, layer};
use crate::field::slice;
use crate::layer::{Device, Layer, NativeState};
use crate::wgpu::Wgpu;
use kiln_abi::*;
use std::ffi::c_void;

/// A call: tensors and a stream of a device.
pub struct NativeCall<'a>(&'a kiln_native_call);

/// A tensor in the memory of a device: row-major, without gaps.
#[derive(Clone, Copy, Debug)]
pub struct NativeTensor<'a> {
    /// Code of the element type.
    pub dtype: u32,
    /// Dimensions, outermost first.
    pub dims: &'a [i64],
    /// Address of the first element; 0 of a tensor without elements.
    pub address: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl<'a> NativeCall<'a> {
    fn tensor(all: &'a [kiln_native_tensor], index: usize, what: &str) -> Result<NativeTensor<'a>, Error> {
        let none = || Error::Invalid(format!("{what} {index} of {}", all.len()));
        let t = all.get(index).ok_or_else(none)?;
        // SAFETY: the host keeps dimensions valid for the call.
        let dims = unsafe { slice(t.dims, t.ndim.into()) };
        Ok(NativeTensor { dtype: t.dtype, dims, address: t.address, bytes: t.bytes })
    }

    /// An input, which is read-only.
    pub fn input(&self, index: usize) -> Result<NativeTensor<'a>, Error> {
        // SAFETY: the host keeps the list valid for the call.
        NativeCall::tensor(unsafe { slice(self.0.inputs, self.0.input_count) }, index, "input")
    }

    /// An output.
    pub fn output(&self, index: usize) -> Result<NativeTensor<'a>, Error> {
        // SAFETY: as above.
        NativeCall::tensor(unsafe { slice(self.0.outputs, self.0.output_count) }, index, "output")
    }

    /// Address and bytes of the workspace.
    pub fn workspace(&self) -> (u64, u64) {
        (self.0.workspace, self.0.workspace_bytes)
    }

    /// The stream, a `CUstream` of forms for CUDA; null while a state is made.
    pub fn stream(&self) -> *mut c_void {
        self.0.stream
    }

    /// The device, a `CUdevice`.
    pub fn device(&self) -> i32 {
        self.0.device
    }

    /// The stream of a form for wgpu; none in `attach`.
    pub fn wgpu(&self) -> Result<Wgpu<'a>, Error> {
        // SAFETY: the host passes such a stream to forms for wgpu, and it is valid for the call.
        unsafe { Wgpu::new(self.0.stream) }
    }

    /// Whether only sizes are wanted: outputs have no addresses.
    pub fn is_counting(&self) -> bool {
        self.0.flags & KILN_NATIVE_COUNTING != 0
    }

    /// Address of the words for sizes; 0 of calls that find none.
    pub fn sizes(&self) -> u64 {
        self.0.sizes
    }

    fn format(at: *const u32, count: u64, index: usize) -> u32 {
        // SAFETY: the host passes null, or one code for each tensor.
        let all: &[u32] = if at.is_null() { &[] } else { unsafe { slice(at, count) } };
        all.get(index).copied().unwrap_or(0)
    }

    /// Code of the format of an input; 0 is the linear one.
    pub fn input_format(&self, index: usize) -> u32 {
        NativeCall::format(self.0.input_formats, self.0.input_count, index)
    }

    /// Code of the format of an output.
    pub fn output_format(&self, index: usize) -> u32 {
        NativeCall::format(self.0.output_formats, self.0.output_count, index)
    }

    /// Whether the stream records a graph.
    pub fn is_recording(&self) -> bool {
        self.0.flags & KILN_NATIVE_RECORDING != 0
    }
}

/// A state behind the host's pointer.
type State = Box<dyn NativeState>;

/// The tables of a layer's native forms. Each has functions of its own, as the host does not say which form it calls.
pub(crate) fn tables<L: Layer>() -> impl Iterator<Item = kiln_layer_native> {
    let attaches = [
        attach::<L, 0>,
        attach::<L, 1>,
        attach::<L, 2>,
        attach::<L, 3>,
        attach::<L, 4>,
        attach::<L, 5>,
        attach::<L, 6>,
        attach::<L, 7>,
    ];
    L::NATIVES.iter().zip(attaches).map(|(n, attach)| kiln_layer_native {
        struct_size: size_of::<kiln_layer_native>() as u32,
        device: match n.device {
            Device::Cuda => KILN_DEVICE_CUDA,
            Device::Wgpu => KILN_DEVICE_WGPU,
        },
        flags: if n.capturable { KILN_NATIVE_CAPTURABLE } else { 0 }
            | if n.movable { KILN_NATIVE_MOVABLE } else { 0 }
            | if n.counts { KILN_NATIVE_COUNTS } else { 0 },
        reserved: 0,
        tactic: kiln_str::new(n.tactic),
        types: kiln_str::new(n.types),
        condition: kiln_str::new(n.condition),
        attach: Some(attach),
        detach: Some(detach),
        enqueue: Some(enqueue),
    })
}

unsafe extern "C" fn attach<L: Layer, const N: usize>(
    instance: *mut kiln_layer_instance,
    call: *const kiln_native_call,
    out: *mut *mut kiln_native_state,
    err: *mut kiln_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the host passes an instance of `create` that nobody else uses, and a call that is valid meanwhile.
        let (layer, call) = unsafe { (layer::<L>(instance)?, call.as_ref()) };
        let form = L::NATIVES.get(N).zip(call);
        let (form, call) = form.ok_or_else(|| Error::Invalid("there is no such form, or no call".into()))?;
        let state: State = layer.attach(form, &NativeCall(call))?;
        // SAFETY: the host passes a place for the state.
        unsafe { out.write(Box::into_raw(Box::new(state)).cast()) };
        Ok(KILN_OK)
    })
}

unsafe extern "C" fn detach(state: *mut kiln_native_state) {
    if !state.is_null() {
        // SAFETY: `attach` made it, and the host gives it back once.
        guard(std::ptr::null_mut(), || unsafe {
            drop(Box::from_raw(state.cast::<State>()));
            Ok(KILN_OK)
        });
    }
}

unsafe extern "C" fn enqueue(
    _: *mut kiln_layer_instance,
    state: *mut kiln_native_state,
    call: *const kiln_native_call,
    err: *mut kiln_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the host passes a state of `attach` that nobody else uses, and a call that is valid meanwhile.
        let found = unsafe { state.cast::<State>().as_mut().zip(call.as_ref()) };
        let (state, call) = found.ok_or_else(|| Error::Invalid("there is no state, or no call".into()))?;
        state.enqueue(&NativeCall(call))?;
        Ok(KILN_OK)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Call, Native};
    use std::sync::atomic::{AtomicU64, Ordering};

    static SEEN: AtomicU64 = AtomicU64::new(0);

    crate::fields! {
        /// Notes what it is given.
        pub struct Noting {
            /// A number.
            by: i64 = 3,
        }
    }

    struct Seen(i64);

    impl NativeState for Seen {
        fn enqueue(&mut self, call: &NativeCall<'_>) -> Result<(), Error> {
            let (x, y) = (call.input(0)?, call.output(0)?);
            if call.is_recording() {
                panic!("no graph");
            }
            assert_eq!((call.input_format(0), call.output_format(0), call.output_format(1)), (0, 2, 0));
            assert_eq!((call.is_counting(), call.sizes()), (false, 512));
            let all = [x.address, y.address, call.workspace().1, call.stream() as u64, call.device() as u64];
            SEEN.store(all.iter().sum::<u64>() + self.0 as u64 + x.dims.len() as u64, Ordering::Relaxed);
            call.output(1).map(drop)
        }
    }

    impl Layer for Noting {
        const NAME: &'static str = "Noting";
        const SPACE: &'static str = "test";
        const TYPES: &'static str = "f32:f32";
        const NATIVES: &'static [Native] = &[
            Native { tactic: "a", capturable: true, ..Native::new(Device::Cuda) },
            Native { tactic: "b", condition: "1", movable: true, counts: true, ..Native::new(Device::Wgpu) },
        ];

        fn run(&mut self, _: &mut Call<'_>) -> Result<(), Error> {
            Ok(())
        }

        fn attach(&mut self, form: &Native, _: &NativeCall<'_>) -> Result<Box<dyn NativeState>, Error> {
            match form.tactic {
                "b" => Ok(Box::new(Seen(self.by))),
                other => Err(Error::Unsupported(other.into())),
            }
        }
    }

    #[test]
    fn calls_reach_the_form_that_they_are_for() {
        let all: Vec<_> = tables::<Noting>().collect();
        let flags: Vec<u32> = all.iter().map(|n| n.flags).collect();
        assert_eq!(flags, [KILN_NATIVE_CAPTURABLE, KILN_NATIVE_MOVABLE | KILN_NATIVE_COUNTS]);
        assert_eq!([all[0].device, all[1].device], [KILN_DEVICE_CUDA, KILN_DEVICE_WGPU]);
        let mut layer = Noting { by: 3 };
        let instance = (&raw mut layer).cast::<kiln_layer_instance>();
        let dims = [4i64, 5];
        let tensor =
            |address| kiln_native_tensor { dtype: 1, ndim: 2, dims: dims.as_ptr(), address, bytes: 80 };
        let (input, output) = ([tensor(1000)], [tensor(2000)]);
        let mut call = kiln_native_call {
            struct_size: size_of::<kiln_native_call>() as u32,
            flags: 0,
            fields: std::ptr::null(),
            field_count: 0,
            inputs: input.as_ptr(),
            input_count: 1,
            outputs: output.as_ptr(),
            output_count: 1,
            workspace: 0,
            workspace_bytes: 64,
            stream: 16 as *mut c_void,
            device: 1,
            reserved: 0,
            sizes: 512,
            input_formats: std::ptr::null(),
            output_formats: [2].as_ptr(),
        };
        let (mut state, err) = (std::ptr::null_mut(), std::ptr::null_mut());
        let slots = |i: usize| (all[i].attach.unwrap(), all[i].enqueue.unwrap(), all[i].detach.unwrap());
        // SAFETY: instance, call and places live.
        unsafe {
            assert_eq!(slots(0).0(instance, &call, &mut state, err), KILN_UNSUPPORTED);
            let (attach, enqueue, detach) = slots(1);
            assert_eq!(attach(instance, &call, &mut state, err), KILN_OK);
            // There is no second output.
            assert_eq!(enqueue(instance, state, &call, err), KILN_INVALID_ARGUMENT);
            assert_eq!(SEEN.load(Ordering::Relaxed), 1000 + 2000 + 64 + 16 + 1 + 3 + 2);
            call.flags = KILN_NATIVE_RECORDING;
            assert_eq!(enqueue(instance, state, &call, err), KILN_PANICKED);
            detach(state);
            assert_eq!(enqueue(instance, std::ptr::null_mut(), &call, err), KILN_INVALID_ARGUMENT);
        }
    }
}
