//! Random inputs and fields of a layer.

use kiln::plugin::{LayerRecord, Packings, layer_op_as};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::problem::Rng;
use kiln_ir::{Elems, Op, Tensor};

/// Inputs that a layer takes, with the operator for them.
pub struct Case {
    /// The operator of the reference form.
    pub op: Op,
    /// The operator of the expression form, if it has one.
    pub expression: Option<Op>,
    /// Fields, complete.
    pub fields: Attrs,
    /// Inputs, in the linear format.
    pub linear: Vec<Tensor>,
    /// Inputs of the operator, in the formats of the layer.
    pub inputs: Vec<Tensor>,
}

/// Draws one case: from shapes that are given, or from few sizes, so that dimensions that have to agree often do. The reason
/// where the layer refuses it.
pub fn draw(r: &LayerRecord, rng: &mut Rng, shapes: &[Vec<usize>], sizes: &[i64]) -> Result<Case, String> {
    let fields = fields(r, rng);
    let first = rng.int(0, r.types.len() as i64 - 1).max(0) as usize;
    let types = r.types.get(first).ok_or("a layer without types")?;
    let dtypes = types.example(if shapes.is_empty() { rng.int(1, 3) as usize } else { shapes.len() });
    let (a, b) = (rng.int(0, 9), rng.int(1, 33));
    let mut pool = vec![a, b, b, b, 1];
    pool.extend(sizes);
    let mut inputs = Vec::new();
    for (i, t) in dtypes.into_iter().enumerate() {
        let shape: Vec<usize> = match shapes.get(i) {
            Some(s) => s.clone(),
            None => (0..rng.int(0, 3)).map(|_| rng.pick(&pool).unwrap_or(1).max(0) as usize).collect(),
        };
        inputs.push(match t.is_float() {
            true => rng.tensor(t, &shape),
            // Integers are mostly indices and counts.
            false => {
                let n: usize = shape.iter().product();
                let most = if t.int_range().is_some() { b.min(3) } else { 1 };
                let v = (0..n).map(|_| rng.int(0, most)).collect();
                Tensor::from_elems(t, &shape, &Elems::I(v)).ok_or("a tensor that cannot be made")?
            }
        });
    }
    let types: Vec<_> = inputs.iter().map(Tensor::ty).collect();
    let complete = r.complete(&fields).map_err(|e| e.to_string())?;
    let made = layer_op_as(r, &fields, &types, first).map_err(|e| e.to_string())?;
    let (op, expression) = match made.is_pointwise() {
        false => (made, None),
        true => {
            // The reference form of a layer with an expression.
            let plain = r.without_expression();
            (layer_op_as(&plain, &fields, &types, first).map_err(|e| e.to_string())?, Some(made))
        }
    };
    let packings = Packings::of_attrs(op.attrs()).map_err(|e| e.to_string())?;
    let packed = packings.pack(&inputs).map_err(|e| e.to_string())?;
    Ok(Case { op, expression, fields: complete, linear: inputs, inputs: packed })
}

/// Fields: mostly defaults, the others drawn around them.
fn fields(r: &LayerRecord, rng: &mut Rng) -> Attrs {
    let mut all = Attrs::new();
    for f in &r.fields {
        if !f.required && rng.int(0, 2) > 0 {
            continue;
        }
        let value = match &f.default {
            Attr::Int(n) => Attr::Int(n.saturating_add(rng.int(-3, 3))),
            Attr::Float(x) => {
                Attr::Float(x * rng.float(0.25, 2.0) + if f.required { rng.float(0.0, 1.0) } else { 0.0 })
            }
            other => other.clone(),
        };
        all.set(&f.name, value);
    }
    all
}

/// Small integers in the shapes of a layer's outputs, which its inputs may have to have as sizes.
pub fn sizes(text: &str) -> Vec<i64> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    words.filter_map(|w| w.parse().ok()).filter(|n| (2..=16).contains(n)).collect()
}
