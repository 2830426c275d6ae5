//! Nodes that hold a plan: what a session writes that is told to store compiled models, and what another one reads.

use crate::error::Fail;
use crate::options::Options;
use crate::ort::Ort;
use kiln_onnx::proto::NodeProto;
use ort_sys::{OrtNode, OrtOpAttr, OrtOpAttrType};
use std::ffi::{CString, c_int, c_void};
use std::path::{Path, PathBuf};

/// Operator and domain of such nodes.
pub const OPERATOR: &str = "EPContext";
const DOMAIN: &str = "com.microsoft";

/// Name of this provider in such nodes.
const SOURCE: &str = "KilnExecutionProvider";

fn text<'a>(node: &'a NodeProto, name: &str) -> Option<&'a [u8]> {
    node.attribute.iter().find(|a| a.name == name).map(|a| &a.s[..])
}

/// Whether a node holds a plan of Kiln's.
pub fn is_ours(node: &NodeProto) -> bool {
    node.op_type == OPERATOR && text(node, "source") == Some(SOURCE.as_bytes())
}

/// The plan of a node: in it, or in a file beside the model, in whose folder it must be.
pub fn plan(node: &NodeProto, folder: &Path) -> Result<Vec<u8>, Fail> {
    let content = text(node, "ep_cache_context").unwrap_or_default();
    let embedded = node.attribute.iter().find(|a| a.name == "embed_mode").is_none_or(|a| a.i != 0);
    if embedded {
        return unhex(content)
            .ok_or_else(|| Fail::new("the plan in the model is damaged: compile the model again"));
    }
    let name = String::from_utf8_lossy(content);
    let plain = Path::new(&*name).components().all(|c| matches!(c, std::path::Component::Normal(_)));
    if !plain || name.is_empty() {
        return Err(Fail::new(format!("the model names the plan \"{name}\", wanted a file in its folder")));
    }
    let path = folder.join(&*name);
    std::fs::read(&path).map_err(|e| Fail::new(format!("cannot read the plan {}: {e}", path.display())))
}

/// Bytes as text: attributes that are texts end at a NUL.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
    let pair = |c: &[u8]| Some(digit(*c.first()?)? << 4 | digit(*c.get(1)?)?);
    text.chunks(2).map(pair).collect()
}

/// Makes a node that holds a plan.
pub fn make(
    ort: &Ort,
    options: &Options,
    name: &str,
    ports: (&[String], &[String]),
    plan: &[u8],
) -> Result<*mut OrtNode, Fail> {
    let content = if options.context_embed {
        hex(plan)
    } else {
        let file = format!("{}.kiln", blake3::hash(plan).to_hex());
        let beside =
            options.context_path.as_deref().and_then(Path::parent).map_or_else(PathBuf::new, Path::to_owned);
        let path = beside.join(&file);
        std::fs::write(&path, plan)
            .map_err(|e| Fail::new(format!("cannot write {}: {e}", path.display())))?;
        file
    };
    let embed = i64::from(options.context_embed);
    let mut attributes = Attributes { ort, all: Vec::new() };
    attributes.text(c"source", SOURCE)?;
    attributes.text(c"ep_sdk_version", env!("CARGO_PKG_VERSION"))?;
    attributes.text(c"ep_cache_context", &content)?;
    attributes.integer(c"embed_mode", embed)?;
    attributes.integer(c"main_context", 1)?;
    let owned = |all: &[String]| -> Vec<CString> {
        all.iter().map(|n| CString::new(n.as_str()).unwrap_or_default()).collect()
    };
    let (ins, outs, name) = (owned(ports.0), owned(ports.1), CString::new(name).unwrap_or_default());
    let (operator, domain) =
        (CString::new(OPERATOR).unwrap_or_default(), CString::new(DOMAIN).unwrap_or_default());
    let pointers = |all: &[CString]| all.iter().map(|n| n.as_ptr()).collect::<Vec<_>>();
    let (in_pointers, out_pointers) = (pointers(&ins), pointers(&outs));
    let mut node = std::ptr::null_mut();
    // SAFETY: the table's function; texts and attributes live during the call, and ONNX Runtime takes the attributes.
    unsafe {
        let editor = (ort.api.GetModelEditorApi)()
            .as_ref()
            .ok_or_else(|| Fail::new("ONNX Runtime has no model editor"))?;
        ort.check((editor.CreateNode)(
            operator.as_ptr(),
            domain.as_ptr(),
            name.as_ptr(),
            in_pointers.as_ptr(),
            in_pointers.len(),
            out_pointers.as_ptr(),
            out_pointers.len(),
            attributes.all.as_mut_ptr(),
            attributes.all.len(),
            &raw mut node,
        ))?;
    }
    attributes.all.clear();
    Ok(node)
}

/// Attributes that were made, freed unless a node takes them.
struct Attributes<'a> {
    ort: &'a Ort,
    all: Vec<*mut OrtOpAttr>,
}

impl Attributes<'_> {
    fn add(
        &mut self,
        name: &std::ffi::CStr,
        data: *const c_void,
        len: usize,
        kind: OrtOpAttrType,
    ) -> Result<(), Fail> {
        let mut made = std::ptr::null_mut();
        let len = c_int::try_from(len)
            .map_err(|_| Fail::new("the plan is too large for a model: do not embed it"))?;
        // SAFETY: the table's function, with data that it copies.
        unsafe {
            self.ort.check((self.ort.api.CreateOpAttr)(name.as_ptr(), data, len, kind, &raw mut made))
        }?;
        self.all.push(made);
        Ok(())
    }

    fn text(&mut self, name: &std::ffi::CStr, text: &str) -> Result<(), Fail> {
        let owned = CString::new(text).unwrap_or_default();
        self.add(name, owned.as_ptr().cast(), text.len(), OrtOpAttrType::ORT_OP_ATTR_STRING)
    }

    fn integer(&mut self, name: &std::ffi::CStr, value: i64) -> Result<(), Fail> {
        self.add(name, (&raw const value).cast(), 1, OrtOpAttrType::ORT_OP_ATTR_INT)
    }
}

impl Drop for Attributes<'_> {
    fn drop(&mut self) {
        for a in self.all.drain(..) {
            // SAFETY: an attribute that was made here and that no node took.
            unsafe { (self.ort.api.ReleaseOpAttr)(a) };
        }
    }
}
