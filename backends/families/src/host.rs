//! Operators whose result the host knows at launch: it travels in the argument words.

use crate::scalar::register;
use crate::site::{Cx, Site, op_error, unsupported};
use crate::{Body, Entry, Kernel, Launch, plain};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::{DType, Fact, Tensor};

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel {
    name: "host",
    ops: &["shape", "size", "range", "window", "mel_weight_matrix", "random"],
    epilogue: true,
    tactics: |_| plain("host"),
    source,
    launch,
}];

/// The most bytes of a result that travel with the arguments.
const MAX_BYTES: usize = 32 << 20;

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let value = match t {
        DType::F32 => "mf(at)".to_owned(),
        DType::I32 => "mi(at)".to_owned(),
        DType::I64 => "ci64(m(at * 2u + 1u), m(at * 2u))".to_owned(),
        _ => {
            let n = 32 / t.bits();
            (site.dialect.decode)(t, &format!("m(at / {n}u)"), &format!("(at % {n}u)"))
        }
    };
    let code = site.function("compute0", &[("at", "u32")], register(t), &value);
    Ok(Body { code, entries: vec![Entry::Map(0)], inputs: Some(Vec::new()), ..Body::default() })
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let t = result(cx)?;
    if t.bytes().len() > MAX_BYTES {
        return unsupported(format!("{} made on the host: {} bytes", cx.op()?.name(), t.bytes().len()));
    }
    let words = t.bytes().chunks(4).map(|c| {
        let mut w = [0; 4];
        w[..c.len()].copy_from_slice(c);
        u32::from_le_bytes(w)
    });
    Ok(vec![Launch::map(0, words.collect())])
}

fn result(cx: &Cx<'_>) -> Result<Tensor, BackendError> {
    if let Some(t) = cx.outputs.first().and_then(|f| f.as_const()) {
        return Ok(t.clone());
    }
    let op = cx.op()?;
    // Of what `shape` and `size` read only the dimensions matter: inference tells their contents.
    let facts: Vec<Option<Fact>> = cx.inputs.iter().map(|f| f.cloned()).collect();
    if let Ok(out) = op.infer(&facts, "")
        && let Some(t) = out.first().and_then(Fact::as_const)
    {
        return Ok(t.clone());
    }
    let inputs: Vec<Option<Tensor>> =
        cx.inputs.iter().map(|f| f.and_then(|f| f.as_const()).cloned()).collect();
    let out = op.eval(&inputs).map_err(op_error)?;
    out.into_iter().next().ok_or_else(|| BackendError::Internal("no result".into()))
}
