//! Layers, as their authors write them.

use crate::call::Call;
use crate::error::Error;
use crate::field::Fields;
use crate::native::NativeCall;

/// A custom layer: a structure of its fields with what it does. Formulas are described at `kiln_layer` of the C header.
pub trait Layer: Fields + Send + 'static {
    /// Name: "Swish".
    const NAME: &'static str;
    /// Namespace; the domain of ONNX nodes.
    const SPACE: &'static str;
    /// Version: a plan runs with the version that it was built with.
    const VERSION: &'static str = "1";
    /// Description for users.
    const DOC: &'static str = "";
    /// Combinations of element types: "f32,i64:f32; f16,i64:f16".
    const TYPES: &'static str;
    /// Shapes of outputs: "[i0.d*]; [n <= i0.d0, 4]". Empty: [`Layer::describe`] writes them.
    const OUTPUTS: &'static str = "";
    /// Pairs of an input and the output that is the same memory: "0:0".
    const ALIASES: &'static str = "";
    /// Formula of the bytes of workspace.
    const WORKSPACE: &'static str = "";
    /// Formula over elements, of a pointwise layer.
    const EXPRESSION: &'static str = "";
    /// Difference allowed between forms: "exact", "sum" or "conditioned".
    const TOLERANCE: &'static str = "";
    /// Kernels in source form.
    const KERNELS: &'static [Kernel] = &[];

    /// Operators that the layer may replace: "a = mul(i0, $beta); b = sigmoid(a); mul(i0, b)".
    const PATTERNS: &'static str = "";
    /// Native forms, at most [`MOST_NATIVES`].
    const NATIVES: &'static [Native] = &[];

    /// Refuses values of fields.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// The shapes of the outputs, where [`Layer::OUTPUTS`] does not give them.
    fn describe(&self, _call: &Call<'_>) -> Result<String, Error> {
        Err(Error::Unsupported(format!("{} has no shapes", Self::NAME)))
    }

    /// The reference form: computes the outputs. What other forms are compared with.
    fn run(&mut self, call: &mut Call<'_>) -> Result<(), Error>;

    /// The state of a native form in a context, before it works.
    fn attach(&mut self, form: &Native, _call: &NativeCall<'_>) -> Result<Box<dyn NativeState>, Error> {
        Err(Error::Unsupported(format!("{} has no native form \"{}\"", Self::NAME, form.tactic)))
    }
}

/// The most native forms of a layer.
pub const MOST_NATIVES: usize = 8;

/// A native form; members are those of `kiln_layer_native` of the C header.
#[derive(Clone, Copy, Debug)]
pub struct Native {
    /// Name of the tactic.
    pub tactic: &'static str,
    /// Combinations of element types; empty: all of the layer's.
    pub types: &'static str,
    /// Formula that is not 0 where the form can run; empty: always.
    pub condition: &'static str,
    /// Whether CUDA graphs may record its work (`KILN_NATIVE_CAPTURABLE`).
    pub capturable: bool,
    /// Whether one state serves all shapes and addresses of a context (`KILN_NATIVE_MOVABLE`).
    pub movable: bool,
    /// Whether it finds sizes (`KILN_NATIVE_COUNTS`).
    pub counts: bool,
    /// The device that it works on.
    pub device: Device,
}

impl Native {
    /// A form for this device with no flags, for `..Native::new(Device::Wgpu)`.
    pub const fn new(device: Device) -> Native {
        Native {
            tactic: "",
            types: "",
            condition: "",
            capturable: false,
            movable: false,
            counts: false,
            device,
        }
    }
}

/// Device of a native form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// A GPU by the CUDA driver.
    Cuda,
    /// A device of wgpu: [`NativeCall::wgpu`] is its stream.
    Wgpu,
}

/// The state of a native form in a context. Dropped when the context ends.
pub trait NativeState: Send {
    /// Puts the layer's work into the stream of the call. Neither waits for the device nor uses other streams.
    fn enqueue(&mut self, call: &NativeCall<'_>) -> Result<(), Error>;
}

/// A kernel in source form; members are those of `kiln_layer_kernel` of the C header.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Language of the text.
    pub language: Language,
    /// Name of the tactic.
    pub tactic: &'static str,
    /// Combinations of element types; empty: all of the layer's.
    pub types: &'static str,
    /// Formula that is not 0 where the kernel can run; empty: always.
    pub condition: &'static str,
    /// The text.
    pub source: &'static str,
    /// Name of the entry point.
    pub entry: &'static str,
    /// Formula of the number of blocks.
    pub grid: &'static str,
    /// Formula of the threads of a block, of CUDA only.
    pub block: &'static str,
    /// Formula of the bytes of dynamic shared memory, of CUDA only.
    pub shared: &'static str,
    /// Parameters: "u32 rows = i0.d0; f32 eps = eps".
    pub params: &'static str,
    /// The launch in front that finds sizes, of a layer whose sizes a run finds.
    pub count: Option<Count>,
}

impl Kernel {
    /// A kernel of this language without a text: what most kernels leave empty, for `..Kernel::new(Language::Wgsl)`.
    pub const fn new(language: Language) -> Kernel {
        Kernel {
            language,
            tactic: "",
            types: "",
            condition: "",
            source: "",
            entry: "",
            grid: "",
            block: "",
            shared: "",
            params: "",
            count: None,
        }
    }
}

/// The launch that finds sizes.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// Name of its entry point.
    pub entry: &'static str,
    /// Formula of the number of its blocks.
    pub grid: &'static str,
    /// Formula of the threads of a block, of CUDA only.
    pub block: &'static str,
}

/// Language of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// CUDA C++.
    Cuda,
    /// WGSL.
    Wgsl,
}
