//! The native form of plug-in layers: functions of the library that put work into a stream of a device.

use super::formula::Formula;
use super::kernel::Site;
use super::packings::Packings;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use minicbor::{Decode, Encode};
use std::ffi::c_void;
use std::ops::Not;

/// More native forms are refused.
const MOST: usize = 64;

/// Device of a native form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum NativeDevice {
    /// A GPU by the CUDA driver.
    #[n(1)]
    Cuda,
    /// A device of wgpu.
    #[n(2)]
    Wgpu,
}

/// A native form, as the operator holds it.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct NativeForm {
    /// Device.
    #[n(0)]
    pub device: NativeDevice,
    /// Name of the tactic.
    #[n(1)]
    pub tactic: String,
    /// Formula that is not 0 where it can run; empty: always.
    #[n(2)]
    pub condition: String,
    /// Whether a graph may record its work.
    #[cbor(n(3), skip_if = "Not::not")]
    pub capturable: bool,
    /// Whether one state serves all shapes and addresses of a context.
    #[cbor(n(4), skip_if = "Not::not")]
    pub movable: bool,
    /// Whether it finds sizes.
    #[cbor(n(5), skip_if = "Not::not")]
    pub counts: bool,
}

/// A tensor in the memory of a device, without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeTensor {
    /// Element type.
    pub dtype: DType,
    /// Dimensions, of the linear format.
    pub dims: Vec<i64>,
    /// Address of the first element; 0 of a tensor without elements.
    pub address: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// A call of a native form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeCall {
    /// Inputs.
    pub inputs: Vec<NativeTensor>,
    /// Outputs.
    pub outputs: Vec<NativeTensor>,
    /// Address of the workspace.
    pub workspace: u64,
    /// Bytes of the workspace.
    pub workspace_bytes: u64,
    /// The device, by the number of its driver.
    pub device: i32,
    /// Address of the words for sizes that the layer finds; 0 where it finds none.
    pub sizes: u64,
    /// Whether only these are wanted.
    pub counting: bool,
    /// Formats.
    pub packings: Packings,
}

/// Stream of a call.
#[derive(Clone, Copy, Debug)]
pub struct NativeStream {
    /// Handle of the device's driver; null while a state is made.
    pub handle: *mut c_void,
    /// Whether it records a graph.
    pub recording: bool,
}

/// A native form that runs in a context. Used by one call at a time.
pub trait NativeRun: Send {
    /// Puts the layer's work into the stream.
    fn enqueue(&mut self, call: &NativeCall, stream: NativeStream) -> Result<(), OpError>;
}

impl NativeForm {
    /// Checks everything that does not depend on inputs.
    pub fn check(&self) -> Result<(), OpError> {
        if self.tactic.is_empty() || self.tactic.len() > 64 {
            return Err(OpError::Value(format!("tactic \"{}\", wants a name of 1 to 64 bytes", self.tactic)));
        }
        if self.condition.is_empty() { Ok(()) } else { Formula::parse(&self.condition).map(drop) }
    }

    /// Whether the form takes inputs of these sizes; false where that depends on sizes that only a run knows.
    pub fn applies(&self, site: &Site<'_>) -> Result<bool, OpError> {
        match site.number(&self.condition) {
            _ if self.condition.is_empty() => Ok(true),
            Ok(n) => Ok(n.holds()),
            Err(OpError::Unsupported(_)) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// Native forms as an attribute holds them.
pub fn encode(forms: &[NativeForm]) -> Vec<u8> {
    match forms {
        [] => Vec::new(),
        forms => minicbor::to_vec(forms).unwrap_or_default(),
    }
}

/// Native forms of an attribute.
pub fn decode(bytes: &[u8]) -> Result<Vec<NativeForm>, OpError> {
    let wrong = |found: String| OpError::Attr {
        name: "natives".into(),
        found,
        wanted: format!("a CBOR array of at most {MOST} native forms"),
    };
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let all: Vec<NativeForm> = minicbor::decode(bytes).map_err(|e| wrong(e.to_string()))?;
    if all.len() > MOST { Err(wrong(format!("{} forms", all.len()))) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::attr::Attrs;
    use kiln_ir::infer::Fact;
    use kiln_ir::ty::TensorType;

    fn form() -> NativeForm {
        NativeForm {
            device: NativeDevice::Cuda,
            tactic: "copy".into(),
            condition: "i0.d0 > 2".into(),
            capturable: true,
            movable: false,
            counts: false,
        }
    }

    #[test]
    fn forms_are_read_back_and_conditions_decide() {
        let all = [
            form(),
            NativeForm {
                device: NativeDevice::Wgpu,
                capturable: false,
                movable: true,
                counts: true,
                ..form()
            },
        ];
        assert_eq!(decode(&encode(&all)), Ok(all.to_vec()));
        assert_eq!((encode(&[]), decode(&[])), (Vec::new(), Ok(Vec::new())));
        let many = vec![form(); MOST + 1];
        assert!(decode(&encode(&many)).unwrap_err().to_string().contains("at most 64"));
        let fields = Attrs::new();
        for (n, takes) in [(3, true), (2, false)] {
            let x = Fact::of(TensorType::new(DType::F32, [n]));
            assert_eq!(form().applies(&Site::new(vec![&x], &fields)), Ok(takes));
        }
    }

    #[test]
    fn wrong_forms_are_refused() {
        form().check().unwrap();
        let nameless = NativeForm { tactic: String::new(), ..form() };
        assert!(nameless.check().unwrap_err().to_string().contains("1 to 64 bytes"));
        let wild = NativeForm { condition: "1 +".into(), ..form() };
        assert!(wild.check().is_err());
    }
}
