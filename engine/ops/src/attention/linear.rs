//! `linear_attention`: attention whose keys and values are summed up in a state of fixed size.

mod eval;
mod problems;
#[cfg(test)]
mod tests;

use crate::util::{PLAIN, REAL, is_real};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::error::OpError;
use kiln_ir::infer::{Fact, InferCx, differ, unify};
use kiln_ir::op::{OpDef, Roles, Tolerance, Traits, attr, choice, input, optional, required};
use kiln_ir::ty::TensorType;
use kiln_ir::work::Shapes;

kiln_ir::op_names! {
    LINEAR_ATTENTION = "linear_attention",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: LINEAR_ATTENTION,
    doc: "For each batch entry and key head a state S [Dk, Dv] goes from step to step: first S ← exp(g)·S where `rule` is \
          gated or gated_delta, then S ← S + k ⊗ w with w = v, or w = β·(v − Sᵀk) where `rule` is delta or gated_delta; \
          y = scale·qᵀS of the new state. q [B, T, Hq·Dk], k [B, T, Hk·Dk], v [B, T, Hk·Dv]; Hq (`q_heads`) is a multiple of \
          Hk (`kv_heads`), and query head h reads the state of key head h·Hk/Hq. past_state [B, Hk, Dk, Dv] is the first S, \
          zeros if absent. decay g [B, T, Hk·Dk] or [B, T, Hk] belongs to the gated rules, beta [B, T, Hk] or [B, T, 1] \
          to the delta rules; each is required there and refused elsewhere. `scale` 0 means 1/√Dk. Outputs: y \
          [B, T, Hq·Dv] of the type of q, present_state [B, Hk, Dk, Dv] of that of past_state, or of q. States are f32 \
          between steps.",
    inputs: &[
        input("q"),
        input("k"),
        input("v"),
        optional("past_state"),
        optional("decay"),
        optional("beta"),
    ],
    outputs: &["y", "present_state"],
    attrs: &[
        required("q_heads", || Attr::Int(0)),
        required("kv_heads", || Attr::Int(0)),
        choice("rule", || "gated_delta".into(), &["gated_delta", "linear", "gated", "delta"]),
        attr("scale", || Attr::Float(0.0)),
    ],
    infer,
    eval: eval::eval,
    tolerance: Tolerance::Narrow,
    problems: problems::problems,
    traits: Traits::heavy(states),
    roles: Roles { keeps_f32: true, ..Roles::NONE },
    ..PLAIN
}];

/// Work on the states: in each step a few passes over those of all heads.
fn states(s: &Shapes<'_>) -> u64 {
    s.made(1).saturating_mul(s.from_last(0, 1)).saturating_mul(4)
}

const PAST: usize = 3;
const DECAY: usize = 4;
const BETA: usize = 5;

/// Update rule of an operator, as it works in each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whether the state decays.
    pub gated: bool,
    /// Whether only the difference to what the state holds for the key is written.
    pub delta: bool,
}

impl Rule {
    /// The rule that the attributes name.
    pub fn of(attrs: &Attrs) -> Result<Rule, OpError> {
        let name = attrs.str("rule")?;
        Ok(Rule { gated: name.starts_with("gated"), delta: name.ends_with("delta") })
    }
}

/// The numbers of query heads and key heads.
fn heads(attrs: &Attrs) -> Result<(i64, i64), OpError> {
    let (q, kv) = (attrs.int("q_heads")?, attrs.int("kv_heads")?);
    let bad = |name: &str, found: i64, wanted: String| OpError::Attr {
        name: name.into(),
        found: found.to_string(),
        wanted,
    };
    if kv < 1 {
        return Err(bad("kv_heads", kv, "1 or more".into()));
    }
    match q >= 1 && q % kv == 0 {
        true => Ok((q, kv)),
        false => Err(bad("q_heads", q, format!("a positive multiple of kv_heads ({kv})"))),
    }
}

/// The size of a head of an input [B, T, heads·size].
fn head_size(cx: &InferCx<'_>, i: usize, heads: i64) -> Result<Dim, OpError> {
    cx.check_rank(i, 3)?;
    let n = Dim::new(heads);
    let whole = &cx.dims(i)?[2];
    if differ(&whole.modulo(&n), &Dim::new(0)) {
        return Err(cx.bad_shape(i, &format!("a last dimension that is a multiple of its {heads} heads")));
    }
    Ok(whole.floor_div(&n))
}

/// Checks that an input is there exactly where the rule reads it.
fn check_present(cx: &InferCx<'_>, i: usize, name: &str, wanted: bool) -> Result<(), OpError> {
    match (cx.has(i), wanted) {
        (false, true) => Err(OpError::MissingInput { input: i, name: name.into() }),
        (true, false) => {
            let rule = cx.attrs.str("rule")?;
            Err(OpError::Unsupported(format!("{name} with the rule \"{rule}\", which does not read it")))
        }
        _ => Ok(()),
    }
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let dtype = cx.check_dtype(0, is_real, REAL)?;
    let (q_heads, kv_heads) = heads(cx.attrs)?;
    let rule = Rule::of(cx.attrs)?;
    check_present(cx, DECAY, "decay", rule.gated)?;
    check_present(cx, BETA, "beta", rule.delta)?;
    let q_size = head_size(cx, 0, q_heads)?;
    let k_size = head_size(cx, 1, kv_heads)?;
    let v_size = head_size(cx, 2, kv_heads)?;
    let size = unify(&q_size, &k_size)
        .ok_or_else(|| cx.bad_shape(1, &format!("a head size of {q_size}, that of q")))?;
    let (mut batch, mut steps) = (cx.dims(0)?[0].clone(), cx.dims(0)?[1].clone());
    for i in [1, 2, DECAY, BETA] {
        if !cx.has(i) {
            continue;
        }
        cx.same_dtype(0, i)?;
        cx.check_rank(i, 3)?;
        let d = cx.dims(i)?;
        let wanted = || cx.bad_shape(i, &format!("[{batch}, {steps}, …], as q has"));
        let joined = unify(&batch, &d[0]).zip(unify(&steps, &d[1])).ok_or_else(wanted)?;
        (batch, steps) = joined;
    }
    let last_is = |i: usize, one: &Dim, other: &Dim| {
        let fits = |d: &[Dim]| !differ(&d[2], one) || !differ(&d[2], other);
        cx.check_shape(i, fits, &format!("a last dimension of {one} or {other}"))
    };
    let n = Dim::new(kv_heads);
    if cx.has(DECAY) {
        last_is(DECAY, &n, &(n.clone() * size.clone()))?;
    }
    if cx.has(BETA) {
        last_is(BETA, &n, &1.into())?;
    }
    let mut state = vec![batch.clone(), n, size, v_size.clone()];
    let mut state_dtype = dtype;
    if cx.has(PAST) {
        state_dtype = cx.check_dtype(PAST, is_real, REAL)?;
        crate::util::check_fits(cx, PAST, &state, false)?;
        state = state.iter().zip(cx.dims(PAST)?).map(|(a, b)| unify(a, b).unwrap_or(a.clone())).collect();
    }
    let y = vec![batch, steps, Dim::new(q_heads) * v_size];
    let fact = |dtype, dims| Fact::of(TensorType { dtype, dims });
    Ok(vec![fact(dtype, y), fact(state_dtype, state)])
}
