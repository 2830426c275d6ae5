//! The interface "kiln.layer/1": custom layers.

use crate::{
    kiln_bytes, kiln_error, kiln_host_ctx, kiln_layer_native, kiln_native_call, kiln_sink, kiln_str,
    kiln_tensor,
};
use core::ffi::c_void;

/// Kind of a field: one `int64_t`.
pub const KILN_FIELD_INT: u32 = 1;
/// Kind of a field: one `double`.
pub const KILN_FIELD_FLOAT: u32 = 2;
/// Kind of a field: one `kiln_str`.
pub const KILN_FIELD_STRING: u32 = 3;
/// Kind of a field: any number of `int64_t`.
pub const KILN_FIELD_INTS: u32 = 4;
/// Kind of a field: any number of `double`.
pub const KILN_FIELD_FLOATS: u32 = 5;
/// Kind of a field: any number of `kiln_str`.
pub const KILN_FIELD_STRINGS: u32 = 6;

/// Language of a kernel: CUDA C++.
pub const KILN_LANGUAGE_CUDA: u32 = 1;
/// Language of a kernel: WGSL.
pub const KILN_LANGUAGE_WGSL: u32 = 2;

/// State of a layer that its `create` made of fields. Never used by two calls at once: the host makes as many as it has
/// runs in flight.
pub struct kiln_layer_instance {
    _opaque: [u8; 0],
}

/// Value of a field. This structure never changes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_field {
    /// One of `KILN_FIELD_*`.
    pub kind: u32,
    /// Zero.
    pub reserved: u32,
    /// The values; may be null where `count` is 0.
    pub data: *const c_void,
    /// Number of values: 1 unless the kind is a list.
    pub count: u64,
}

/// Definition of a field. This structure never changes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_field_def {
    /// Name: letters, digits and `_`, the first not a digit.
    pub name: kiln_str,
    /// Meaning, range and unit, for users.
    pub doc: kiln_str,
    /// 1: the user must give it, and `value` only sets its kind; 0: `value` is the default.
    pub required: u32,
    /// Zero.
    pub reserved: u32,
    /// Default.
    pub value: kiln_field,
}

/// A tensor in host memory, by strides. Elements have one, two, four or eight bytes. This structure never changes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_host_tensor {
    /// Code of the element type, as in `kiln_tensor`.
    pub dtype: u32,
    /// Number of dimensions.
    pub ndim: u32,
    /// The dimensions, outermost first. Of an output whose sizes the layer finds: the greatest sizes, to be replaced by those
    /// found. Others must stay.
    pub dims: *mut i64,
    /// Distances between neighbours along each dimension, in elements.
    pub strides: *const i64,
    /// The first element. Inputs are read-only.
    pub data: *mut c_void,
    /// Bytes from the first element to the end of the last.
    pub bytes: u64,
}

/// One run of the reference form.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_layer_call {
    /// Size of this structure as the host knows it, in bytes.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Fields in the order of their definitions, defaults filled in.
    pub fields: *const kiln_field,
    /// Number of fields.
    pub field_count: u64,
    /// Inputs.
    pub inputs: *const kiln_host_tensor,
    /// Number of inputs.
    pub input_count: u64,
    /// Outputs: memory to write. An output that is an alias has the memory and the contents of its input.
    pub outputs: *const kiln_host_tensor,
    /// Number of outputs.
    pub output_count: u64,
    /// Memory of the size that the layer's `workspace` says, at a multiple of 16; its contents are undefined.
    pub workspace: *mut c_void,
    /// Bytes of the workspace.
    pub workspace_bytes: u64,
}

/// A kernel in source form, which the host compiles when a network is built for a device. One launch runs the layer.
///
/// A text in CUDA C++ defines `extern "C" __global__ void ENTRY(inputs…, outputs…, workspace, params)`: pointers to `const`
/// elements, pointers to elements, a `void *` if the layer has a workspace, and a structure `Params` by value if there are
/// parameters. Elements are `float`, `int`, `long long`, `signed char`, `unsigned char` (u8, bool, f8) and `unsigned short` (the bits
/// of f16 and bf16).
///
/// A text in WGSL defines the function ENTRY with `@compute`. It reads arrays `i0`, `i1`, …, writes `o0`, `o1`, … and
/// `workspace` (of `u32`), and reads parameters as `params.NAME`. Elements are `f32`, `i32` and `i64`; smaller ones are packed into
/// `u32`, the first in the lowest bits.
///
/// The host declares arrays and the structure `Params`. Tensors are dense, in the formats of `types`. An output that is an alias
/// begins with the contents of its input, since 1.11: in CUDA C++ both pointers are equal, and in WGSL the input has no array.
///
/// A layer whose sizes are found by a run has kernels of two launches, since 1.11: `count_entry` finds the sizes, then ENTRY writes
/// outputs of these sizes. The workspace keeps its contents in between. The first one writes one `unsigned int` for each size, in the
/// order of the sizes' first appearance in the shapes of the outputs: in CUDA C++ by a pointer in the place of the pointers to outputs,
/// in WGSL into the array `sizes` of `u32`. It writes no outputs. Formulas of ENTRY may name the sizes as the shapes do. A parameter
/// whose formula names them is 0 in the first launch.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_layer_kernel {
    /// Size of this structure as the library knows it, in bytes.
    pub struct_size: u32,
    /// One of `KILN_LANGUAGE_*`; others are ignored.
    pub language: u32,
    /// Name of the tactic, unique for its language and `types`.
    pub tactic: kiln_str,
    /// The combinations of element types that it takes, as in `kiln_layer`; empty: all of the layer's.
    pub types: kiln_str,
    /// Formula that is not 0 where the kernel can run; empty: always.
    pub condition: kiln_str,
    /// The text.
    pub source: kiln_str,
    /// Name of the entry point.
    pub entry: kiln_str,
    /// Formula of the number of blocks, which have one dimension: at most 65535 in WGSL.
    pub grid: kiln_str,
    /// Formula of the number of threads of a block, of CUDA only.
    pub block: kiln_str,
    /// Formula of the bytes of dynamic shared memory, of CUDA only; empty: none.
    pub shared: kiln_str,
    /// Parameters in order, separated by semicolons: "u32 rows = i0.d0; f32 eps = eps". The types are u32, i32 and f32.
    pub params: kiln_str,
    /// Name of the entry point that finds sizes, since 1.11; empty where the layer finds none.
    pub count_entry: kiln_str,
    /// Formula of the number of its blocks, since 1.11.
    pub count_grid: kiln_str,
    /// Formula of the number of threads of its blocks, of CUDA only, since 1.11.
    pub count_block: kiln_str,
}

/// A layer. All texts are constant and live as long as the library is mapped.
///
/// Formulas have numbers, parentheses, comparisons and `+ - * / %`, where `/` of integers rounds down. The functions are
/// `min(a, b)`, `max(a, b)`, `ceildiv(a, b)` and `select(c, a, b)`. These names have values:
///
/// - `i0.d1`: size of dimension 1 of input 0,
/// - `i0.rank`, `i0.size`: number of its dimensions, and of its elements,
/// - `i0.v2`: element 2 of input 0, which must be known before a run,
/// - a field that is one number.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_layer {
    /// Size of this structure as the library knows it, in bytes.
    pub struct_size: u32,
    /// Zero.
    pub flags: u32,
    /// Name: "Swish".
    pub name: kiln_str,
    /// Namespace, by which two vendors' layers of one name differ; the domain of ONNX nodes. May be empty.
    pub space: kiln_str,
    /// Version of the layer: a plan runs with the version that it was built with.
    pub version: kiln_str,
    /// Description for users.
    pub doc: kiln_str,
    /// Definitions of fields.
    pub fields: *const kiln_field_def,
    /// Number of fields.
    pub field_count: u64,
    /// Combinations of element types, the preferred one first: inputs, a colon, outputs. "f32,i64:f32; f16,i64:f16". A last
    /// input `f32*` may be repeated, `f32?` may be absent; `:f32` has no inputs.
    ///
    /// A type may name the format of the tensor in memory, since 1.11: "f16@hwc8:f16@hwc8; f16:f16". The host brings tensors into it
    /// and back. A combination does not count for tensors that cannot have its formats. These have too few dimensions, or a number of
    /// channels that only a run knows. Formulas name sizes of the linear format. Vectors are filled up with zeros, on both sides.
    /// Source and native forms work in the format; `run` has the tensors in the linear one.
    pub types: kiln_str,
    /// Shapes of the outputs: "[i0.d*]; [n <= i0.d0, 4]". `i0.d*` stands for all dimensions of an input. `n <= formula` is a
    /// size that the layer finds, with its bound. Empty where `describe` writes them.
    pub outputs: kiln_str,
    /// Pairs of an input and the output that is the same memory: "0:0". Empty: none.
    pub aliases: kiln_str,
    /// Formula of the bytes of workspace; empty: none.
    pub workspace: kiln_str,
    /// The expression form, of a pointwise layer with one output: "x0 / (1 + exp(-beta * x0))". Inputs are broadcast. Beside
    /// the operations of formulas there are the functions of scalar expressions; `/` of floats does not round. Empty: none.
    pub expression: kiln_str,
    /// Difference that other forms may have from the reference: "exact", "sum" (a function linear in each input) or
    /// "conditioned" (a few roundings of each input); empty means "conditioned".
    pub tolerance: kiln_str,
    /// Kernels in source form.
    pub kernels: *const *const kiln_layer_kernel,
    /// Number of kernels.
    pub kernel_count: u64,
    /// Optional. Makes an instance, or refuses fields with `KILN_INVALID_ARGUMENT` and the reason. `[any-thread]`
    pub create: Option<
        unsafe extern "C" fn(
            fields: *const kiln_field,
            field_count: u64,
            out: *mut *mut kiln_layer_instance,
            err: *mut kiln_error,
        ) -> i32,
    >,
    /// Required where there is `create`. `[any-thread]`
    pub destroy: Option<unsafe extern "C" fn(instance: *mut kiln_layer_instance)>,
    /// Optional. Writes the shapes of the outputs, in the form of `outputs`, for inputs of these types; a dimension that is not
    /// known is -1, and there are no elements. `instance` is null where there is no `create`. `[serial-per-object]`
    pub describe: Option<
        unsafe extern "C" fn(
            instance: *mut kiln_layer_instance,
            call: *const kiln_layer_call,
            out: *mut kiln_sink,
            err: *mut kiln_error,
        ) -> i32,
    >,
    /// Required: the reference form. Computes the outputs; what other forms are compared with. A pure function of fields and
    /// inputs. `instance` is null where there is no `create`. `[serial-per-object]`
    pub run: Option<
        unsafe extern "C" fn(
            instance: *mut kiln_layer_instance,
            call: *const kiln_layer_call,
            err: *mut kiln_error,
        ) -> i32,
    >,
    /// Native forms, since 1.9; may be null.
    pub natives: *const *const kiln_layer_native,
    /// Number of native forms, since 1.9.
    pub native_count: u64,
    /// Operators that the layer may replace, since 1.9; patterns are separated by bars: "a = mul(i0, $beta); b = sigmoid(a);
    /// mul(i0, b)". An argument is an input, a result by its name, a number, or the field that a constant of one element becomes.
    /// Attributes follow in braces, "softmax(i0){axis=$axis}"; those that are not named have their defaults. Empty: none.
    pub patterns: kiln_str,
}

/// The layers of a library.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_layers_v1 {
    /// Size of this structure as the library knows it, in bytes.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// The layers.
    pub layers: *const *const kiln_layer,
    /// Number of layers.
    pub layer_count: u64,
}

/// A native form of a layer that runs in a context, with its instance and state: an object of the host.
pub struct kiln_host_native {
    _opaque: [u8; 0],
}

/// The interface "kiln.host.layers/1" of the host, since 1.8: backends run layers on the host by it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_host_layers_v1 {
    /// Size of this structure as the host knows it, in bytes.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Runs the reference form of the layer that an Op names. Calls `output` with
    /// each output in order; its dimensions and elements live for that call. Passes the reason of a failure to `error`.
    /// Returns a status. `[any-thread]`
    pub run: Option<
        unsafe extern "C" fn(
            ctx: *mut kiln_host_ctx,
            op: kiln_bytes,
            inputs: *const kiln_tensor,
            input_count: u64,
            user: *mut c_void,
            output: Option<unsafe extern "C" fn(user: *mut c_void, tensor: *const kiln_tensor)>,
            error: Option<unsafe extern "C" fn(user: *mut c_void, code: i32, message: kiln_str)>,
        ) -> i32,
    >,
    /// Makes the native form `tactic` of the layer that an Op names ready for a context, since 1.9. The host fills in the
    /// call's fields. `[any-thread]`
    pub native_attach: Option<
        unsafe extern "C" fn(
            ctx: *mut kiln_host_ctx,
            op: kiln_bytes,
            device: u32,
            tactic: kiln_str,
            call: *const kiln_native_call,
            out: *mut *mut kiln_host_native,
            user: *mut c_void,
            error: Option<unsafe extern "C" fn(user: *mut c_void, code: i32, message: kiln_str)>,
        ) -> i32,
    >,
    /// Lets it put its work into the call's stream, since 1.9. `[serial-per-object]`
    pub native_enqueue: Option<
        unsafe extern "C" fn(
            ctx: *mut kiln_host_ctx,
            native: *mut kiln_host_native,
            call: *const kiln_native_call,
            user: *mut c_void,
            error: Option<unsafe extern "C" fn(user: *mut c_void, code: i32, message: kiln_str)>,
        ) -> i32,
    >,
    /// Ends it, since 1.9. `[serial-per-object]`
    pub native_detach: Option<unsafe extern "C" fn(ctx: *mut kiln_host_ctx, native: *mut kiln_host_native)>,
}

// SAFETY: definitions are constant; their pointers lead to constants.
unsafe impl Sync for kiln_field {}
// SAFETY: as above.
unsafe impl Send for kiln_field {}
// SAFETY: as above.
unsafe impl Sync for kiln_field_def {}
// SAFETY: as above.
unsafe impl Send for kiln_field_def {}
// SAFETY: as above.
unsafe impl Sync for kiln_layer_kernel {}
// SAFETY: as above.
unsafe impl Send for kiln_layer_kernel {}
// SAFETY: as above; functions say from which threads they are called.
unsafe impl Sync for kiln_layer {}
// SAFETY: as above.
unsafe impl Send for kiln_layer {}
// SAFETY: as above.
unsafe impl Sync for kiln_layers_v1 {}
// SAFETY: as above.
unsafe impl Send for kiln_layers_v1 {}
// SAFETY: the table is constant and its functions may be called from any thread.
unsafe impl Sync for kiln_host_layers_v1 {}
// SAFETY: as above.
unsafe impl Send for kiln_host_layers_v1 {}
