//! Support of element types by operator: what a backend offers for each, found by asking it.

use crate::assisted::ORACLE;
use crate::{Backend, Region, Target};
use kiln_ir::op::{Movement, OpDef, Tolerance};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::{DType, Fact, Graph};
use std::collections::BTreeSet;
use std::fmt;

/// The way in which a device runs an operator on elements of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// Not at all: builds refuse such layers.
    None,
    /// In wider arithmetic, or by the reference implementation: right, and not faster than in f32.
    Emulated,
    /// By kernels for the type.
    Fast,
}

impl Capability {
    /// The name for text and programs: "none", "emulated" or "fast".
    pub fn name(self) -> &'static str {
        match self {
            Capability::None => "none",
            Capability::Emulated => "emulated",
            Capability::Fast => "fast",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The operators that take data of any type, in the order of their families, each with its types. Types that the operator itself
/// refuses are left out.
pub fn capabilities(backend: &dyn Backend, target: &Target) -> Vec<(&'static str, Vec<(DType, Capability)>)> {
    let each = kiln_ir::op::all().map(|def| (def.name.as_str(), of_operator(backend, target, def)));
    each.filter(|(_, types)| !types.is_empty()).collect()
}

/// The support of one operator on one type of its first input; `None` also where there is no such operator, or where it refuses the
/// type itself.
pub fn capability(backend: &dyn Backend, target: &Target, operator: &str, dtype: DType) -> Capability {
    let types = kiln_ir::op::find(operator).map(|def| of_operator(backend, target, def)).unwrap_or_default();
    types.into_iter().find(|(t, _)| *t == dtype).map_or(Capability::None, |(_, c)| c)
}

/// Answers of the backend for the small problems that each operator comes with.
fn of_operator(backend: &dyn Backend, target: &Target, def: &OpDef) -> Vec<(DType, Capability)> {
    let problems = (def.problems)(&mut Rng::new(1));
    let asked = |dtype: DType| {
        let own = problems.iter().filter(|p| data(p) == Some(dtype));
        let mut own = own.filter(|p| p.inputs.iter().flatten().all(|t| !t.is_empty())).take(ASKED).peekable();
        own.peek()?;
        Some(own.filter_map(|p| tactics(backend, target, p)).flatten().collect::<BTreeSet<String>>())
    };
    let wide = asked(DType::F32).unwrap_or_default();
    let moves = def.roles.movement != Movement::None
        || matches!(def.tolerance, Tolerance::Exact) && def.expr.is_none();
    let level = |dtype: DType, names: &BTreeSet<String>| {
        let narrow = dtype.is_float() && dtype.bits() < 32;
        let feature = if dtype == DType::F8E4M3 { "f8" } else { dtype.name() };
        match names.iter().all(|n| n == ORACLE) {
            true if names.is_empty() => Capability::None,
            true => Capability::Emulated,
            false if !narrow || moves || target.has(feature) || !names.is_subset(&wide) => Capability::Fast,
            false => Capability::Emulated,
        }
    };
    DType::ALL.into_iter().filter_map(|t| Some((t, level(t, &asked(t)?)))).collect()
}

/// Problems of a type that a backend is asked about.
const ASKED: usize = 2;

/// The type of a problem's first input on the device.
fn data(p: &Problem) -> Option<DType> {
    let device = |i: &usize| !p.op.port(*i).is_some_and(|port| port.host);
    (0..p.inputs.len()).filter(device).find_map(|i| p.inputs[i].as_ref()).map(kiln_ir::Tensor::dtype)
}

/// Names of the ways in which a backend runs a problem; none if it refuses.
fn tactics(backend: &dyn Backend, target: &Target, p: &Problem) -> Option<Vec<String>> {
    let mut g = Graph::new("");
    let inputs = p.inputs.iter().enumerate().map(|(i, t)| {
        let (t, name) = (t.as_ref()?, format!("x{i}"));
        let host = p.op.port(i).is_some_and(|port| port.host);
        Some(if host { g.add_constant(&name, t.clone()) } else { g.add_input(&name, Fact::of(t.ty())) })
    });
    let inputs: Vec<_> = inputs.collect();
    g.outputs = g.add_node("y", p.op.clone(), &inputs).ok()?;
    let nodes = g.order().to_vec();
    let region = Region::extract(&g, &nodes).ok()?;
    backend.supports(&region, target).ok()?;
    Some(backend.tactics(&region, target).ok()?.into_iter().map(|t| t.name).collect())
}
