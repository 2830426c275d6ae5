//! Host memory bound to inputs and outputs, and output allocators, on backends without device memory.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::{DType, ErrorCode, Graph, Tensor};
use kiln_runtime::{Engine, ExecutionContext, OutputAllocator, Profile, RuntimeError};
use kiln_tests::backends::{cpu, reference, wgpu};
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

/// Sums of rows, which inputs decide, and indices of elements that are not zero, which the run decides.
const GRAPH: &str = "graph \"g\" { input %x: f32[n,3] weight %a: i64[1] = [1] \
     %y = reduce(%x, %a) {keep_dims=false} %i = nonzero(%x) output %y output %i }";

fn backends() -> Vec<Arc<dyn Backend>> {
    [Some(cpu()), Some(reference()), wgpu().unwrap()].into_iter().flatten().collect()
}

fn context(backend: &Arc<dyn Backend>) -> ExecutionContext {
    let mut profile = Profile::new();
    profile.set_shape("x", &[1, 3], &[2, 3], &[4, 3]).unwrap();
    let target = backend.targets().unwrap().remove(0);
    let mut b = Builder::new(backend.clone(), target);
    b.config = BuildConfig { profiles: vec![profile.clone()], estimates: true, ..BuildConfig::default() };
    let built = b.build_graph(Graph::from_text(GRAPH).unwrap(), &mut |_, _, _| true).unwrap();
    Engine::from_program(built.program, vec![profile], backend.clone()).unwrap().create_context().unwrap()
}

fn little_endian(v: &[f32]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Address and bytes of a vector.
fn at<T>(v: &mut [T]) -> (*mut c_void, u64) {
    (v.as_mut_ptr().cast(), std::mem::size_of_val(v) as u64)
}

fn bind<T>(c: &mut ExecutionContext, name: &str, v: &mut [T]) {
    let (address, bytes) = at(v);
    // SAFETY: tests keep the vector while it is bound.
    unsafe { c.bind(name, address, bytes) }.unwrap();
}

fn unbind(c: &mut ExecutionContext, name: &str) {
    // SAFETY: null ends a binding.
    unsafe { c.bind(name, std::ptr::null_mut(), 0) }.unwrap();
}

#[test]
fn inputs_are_read_and_outputs_written_where_the_caller_says() {
    for backend in backends() {
        let mut c = context(&backend);
        // One byte off, as slices of other buffers are.
        let mut raw = [0u8; 1 + 6 * 4];
        raw[1..].copy_from_slice(&little_endian(&[1.0, 0.0, 2.0, 0.0, 3.0, 0.0]));
        let (mut y, mut i) = (vec![-1.0f32; 2], vec![-1i64; 12]);
        c.set_input_shape("x", &[2, 3]).unwrap();
        bind(&mut c, "x", &mut raw[1..]);
        bind(&mut c, "y", &mut y);
        bind(&mut c, "i", &mut i);
        c.enqueue().unwrap();
        c.wait().unwrap();
        assert_eq!((&y[..], &i[..6]), (&[3.0, 3.0][..], &[0, 0, 1, 0, 2, 1][..]), "{}", backend.name());
        // The outputs can still be taken, and a second run reads the memory anew.
        assert_eq!(c.outputs().unwrap().get("y").unwrap().to_f64(), [3.0, 3.0]);
        raw[1..].copy_from_slice(&little_endian(&[5.0; 6]));
        c.enqueue().unwrap();
        c.outputs().unwrap();
        assert_eq!(y, [15.0, 15.0]);
        // Without a binding the input is missing again: nothing stands for it.
        unbind(&mut c, "x");
        c.set_input_shape("x", &[2, 3]).unwrap();
        assert!(matches!(c.enqueue(), Err(RuntimeError::MissingInput { .. })));
        // Bindings of outputs hold for inputs that are set in other ways, and end with null.
        unbind(&mut c, "y");
        c.set_input("x", Tensor::f32(&[1, 3], &[1.0; 3]).unwrap()).unwrap();
        c.enqueue().unwrap();
        c.wait().unwrap();
        assert_eq!((&y[..], &i[..6]), (&[15.0, 15.0][..], &[0, 0, 0, 0, 1, 2][..]));
    }
}

#[test]
fn memory_that_is_too_small_is_refused_with_both_sizes() {
    for backend in backends() {
        let mut c = context(&backend);
        let mut x = vec![1.0f32; 5];
        c.set_input_shape("x", &[2, 3]).unwrap();
        bind(&mut c, "x", &mut x);
        let e = c.enqueue().unwrap_err();
        assert!(matches!(e, RuntimeError::Bytes { found: 20, wanted: 24, .. }), "{e}");
        unbind(&mut c, "x");
        c.set_input("x", Tensor::f32(&[2, 3], &[1.0; 6]).unwrap()).unwrap();
        // A size that inputs decide is refused before the run, one that the run decides after it.
        let mut small = vec![7.0f32; 1];
        bind(&mut c, "y", &mut small);
        let e = c.enqueue().unwrap_err();
        assert!(e.to_string().contains("8 bytes, the memory bound to it 4"), "{e}");
        unbind(&mut c, "y");
        let mut few = vec![7i64; 2];
        bind(&mut c, "i", &mut few);
        c.enqueue().unwrap();
        let e = c.wait().unwrap_err();
        assert!(e.to_string().contains("96 bytes, the memory bound to it 16"), "{e}");
        assert_eq!((&small[..], &few[..]), (&[7.0][..], &[7, 7][..]), "nothing was written");
        unbind(&mut c, "i");
        c.enqueue().unwrap();
        assert_eq!(c.outputs().unwrap().get("i").unwrap().shape(), [2, 6]);
    }
}

/// Memory of one output, and what was asked of it.
#[derive(Default)]
struct Seen {
    memory: Vec<u64>,
    asked: Vec<(u64, bool)>,
    shapes: Vec<Vec<usize>>,
    refuses: bool,
}

struct Allocator(Arc<Mutex<Seen>>);

// SAFETY: the vector holds as many bytes as asked, at an alignment of 8 or, where more is asked, null is returned.
unsafe impl OutputAllocator for Allocator {
    fn allocate(&mut self, _: &str, current: *mut c_void, bytes: u64, _: u64) -> *mut c_void {
        let mut seen = self.0.lock().unwrap();
        seen.asked.push((bytes, current.is_null()));
        if seen.refuses {
            return std::ptr::null_mut();
        }
        if (seen.memory.len() * 8) < bytes as usize {
            seen.memory = vec![0; bytes.div_ceil(8) as usize];
        }
        seen.memory.as_mut_ptr().cast()
    }

    fn shape(&mut self, _: &str, shape: &[usize]) {
        self.0.lock().unwrap().shapes.push(shape.to_vec());
    }
}

#[test]
fn allocators_supply_memory_and_learn_shapes() {
    for backend in backends() {
        let mut c = context(&backend);
        let seen = Arc::new(Mutex::new(Seen::default()));
        c.set_output_allocator("i", Some(Box::new(Allocator(seen.clone())))).unwrap();
        for (rows, values) in [(1, [0.0, 4.0, 0.0]), (3, [1.0, 1.0, 0.0])] {
            let x: Vec<f32> = values.iter().copied().cycle().take(rows * 3).collect();
            c.set_input("x", Tensor::f32(&[rows, 3], &x).unwrap()).unwrap();
            c.enqueue().unwrap();
            c.wait().unwrap();
        }
        let s = seen.lock().unwrap();
        assert_eq!(s.asked, [(16, true), (96, false)], "{}", backend.name());
        assert_eq!(s.shapes, [[2, 1], [2, 6]]);
        assert_eq!(s.memory[..12], [0, 0, 1, 1, 2, 2, 0, 1, 0, 1, 0, 1]);
        drop(s);
        // The shape of the other output is known before the run.
        let rows = Arc::new(Mutex::new(Seen::default()));
        c.set_output_allocator("y", Some(Box::new(Allocator(rows.clone())))).unwrap();
        c.enqueue().unwrap();
        assert_eq!(rows.lock().unwrap().shapes, [[3]]);
        c.outputs().unwrap();
        assert_eq!(rows.lock().unwrap().asked, [(12, true)]);
        // A refusal is an error of its own; afterwards runs are as before.
        rows.lock().unwrap().refuses = true;
        c.enqueue().unwrap();
        let e = c.outputs().unwrap_err();
        assert!(matches!(&e, RuntimeError::OutputAllocator { output, bytes: 12 } if output == "y"), "{e}");
        assert_eq!(e.code(), ErrorCode::FailedAllocation);
        c.set_output_allocator("y", None).unwrap();
        c.enqueue().unwrap();
        assert_eq!(c.outputs().unwrap().get("y").unwrap().shape(), [3]);
        assert_eq!(rows.lock().unwrap().asked.len(), 2);
        assert!(matches!(c.set_output_allocator("x", None), Err(RuntimeError::UnknownTensor { .. })));
    }
}

#[test]
fn types_of_every_width_are_copied_as_they_are() {
    for backend in backends() {
        let text = "graph \"g\" { input %x: i8[5] %y = neg(%x) output %y }";
        let target = backend.targets().unwrap().remove(0);
        let mut b = Builder::new(backend.clone(), target);
        let Ok(built) = b.build_graph(Graph::from_text(text).unwrap(), &mut |_, _, _| true) else { continue };
        let engine = Engine::from_program(built.program, vec![], backend.clone()).unwrap();
        let mut c = engine.create_context().unwrap();
        assert_eq!(engine.io_tensor("x").unwrap().dtype, DType::I8);
        let (mut x, mut y) = ([1i8, -2, 3, -4, 5], [0i8; 7]);
        bind(&mut c, "x", &mut x);
        bind(&mut c, "y", &mut y);
        c.enqueue().unwrap();
        c.wait().unwrap();
        assert_eq!(y, [-1, 2, -3, 4, -5, 0, 0], "{}: nothing beyond the output", backend.name());
    }
}
