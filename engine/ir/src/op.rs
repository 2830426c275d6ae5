//! Operators: their schemas, and operators with attributes set.

use crate::attr::{Attr, Attrs};
use crate::dtype::DType;
use crate::error::{IrError, OpError};
use crate::eval::EvalCx;
use crate::expr::Expr;
use crate::infer::{Fact, InferCx};
pub use crate::op_name::{IF, LOOP, OpName};
use crate::problem::{Problem, Rng};
use crate::range::Ranges;
pub use crate::roles::{AxesPlace, AxesRule, LayoutRule, Movement, NamedAxes, Roles};
use crate::tensor::Tensor;
use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;

/// The schema of an operator, with its type and shape rule and its reference implementation.
///
/// One static record per operator, in the file of its family; the crate `kiln-ops` lists the families.
pub struct OpDef {
    /// Stable name, snake case.
    pub name: OpName,
    /// Definition for the documentation: formula, shapes, dtypes.
    pub doc: &'static str,
    /// Inputs in order. Only the last may be variadic.
    pub inputs: &'static [Port],
    /// Names of the outputs. An operator always has all of them.
    pub outputs: &'static [&'static str],
    /// Attributes in any order.
    pub attrs: &'static [AttrDef],
    /// Output facts from input facts.
    pub infer: fn(&mut InferCx<'_>) -> Result<Vec<Fact>, OpError>,
    /// The oracle: outputs from inputs, obviously right, on a scalar fixed-order path.
    pub eval: fn(&EvalCx<'_>) -> Result<Vec<Tensor>, OpError>,
    /// The ranges that the contents of its index inputs must lie in.
    pub ranges: Option<Ranges>,
    /// Scalar expression of a pointwise operator, from inputs (of these dtypes) to the output.
    pub expr: Option<fn(&Attrs, &[DType]) -> Result<Expr, OpError>>,
    /// Assumptions that passes and backends may make.
    pub traits: Traits,
    /// Roles in passes, region forming and code generation.
    pub roles: Roles,
    /// Allowed difference of a backend from the oracle.
    pub tolerance: Tolerance,
    /// Test problems: shapes, dtypes and edge cases worth checking on every backend.
    pub problems: fn(&mut Rng) -> Vec<Problem>,
}

/// One input of a schema.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// The name in documentation and messages.
    pub name: &'static str,
    /// Whether it may be absent or repeated.
    pub arity: Arity,
    /// Whether its content is needed on the host before the operator can be launched (a shape, an axis, a size).
    pub host: bool,
}

/// Number of tensors that an input may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// Exactly once.
    One,
    /// At most once.
    Optional,
    /// Any number of times, at least once; last input only.
    Variadic,
}

/// A required input.
pub const fn input(name: &'static str) -> Port {
    Port { name, arity: Arity::One, host: false }
}
/// An input that may be absent.
pub const fn optional(name: &'static str) -> Port {
    Port { name, arity: Arity::Optional, host: false }
}
/// A last input that may be repeated.
pub const fn variadic(name: &'static str) -> Port {
    Port { name, arity: Arity::Variadic, host: false }
}

impl Port {
    /// Marks the port: its content is needed on the host.
    pub const fn on_host(self) -> Port {
        Port { host: true, ..self }
    }
}

/// One attribute of a schema.
#[derive(Clone, Copy)]
pub struct AttrDef {
    /// Name of the attribute.
    pub name: &'static str,
    /// Default value, which also sets the kind.
    pub default: fn() -> Attr,
    /// Whether it must be given.
    pub required: bool,
    /// The values that it may have, if it is a string out of a closed list.
    pub choices: &'static [&'static str],
}

/// An attribute with a default.
pub const fn attr(name: &'static str, default: fn() -> Attr) -> AttrDef {
    AttrDef { name, default, required: false, choices: &[] }
}
/// An attribute that must be given; `like` sets its kind.
pub const fn required(name: &'static str, like: fn() -> Attr) -> AttrDef {
    AttrDef { name, default: like, required: true, choices: &[] }
}
/// A string attribute out of a closed list; the first is the default.
pub const fn choice(name: &'static str, default: fn() -> Attr, choices: &'static [&'static str]) -> AttrDef {
    AttrDef { name, default, required: false, choices }
}

/// Assumptions that passes and backends may make of an operator.
#[derive(Clone, Copy, Debug)]
pub struct Traits {
    /// The sizes of its outputs depend on the contents of its inputs, which only the device knows.
    pub data_dependent: bool,
    /// Two runs give different results (random numbers): never folded, never merged.
    pub random: bool,
    /// Whether it must stay even if nobody reads its outputs (assertions, in-place updates).
    pub side_effect: bool,
    /// Pairs (input, output) that must be the same memory.
    pub must_alias: &'static [(usize, usize)],
    /// Operations of the oracle beyond one pass over inputs and outputs; `None` if it makes a few passes only.
    pub work: Option<crate::work::Rule>,
}

impl Traits {
    /// A pure function whose output sizes follow from input sizes and host-known contents.
    pub const PURE: Traits =
        Traits { data_dependent: false, random: false, side_effect: false, must_alias: &[], work: None };
    /// Pure, with output sizes that depend on data.
    pub const DATA_DEPENDENT: Traits = Traits { data_dependent: true, ..Traits::PURE };

    /// Pure, with more work than a few passes over inputs and outputs.
    pub const fn heavy(work: crate::work::Rule) -> Traits {
        Traits { work: Some(work), ..Traits::PURE }
    }
}

/// Allowed difference of a backend's result from the oracle's. `kiln_backend::compare` computes the bounds,
/// element by element. They depend on the elements that a result is made of alone, except where a variant
/// says so.
#[derive(Clone, Copy, Debug)]
pub enum Tolerance {
    /// Bit for bit: data movement, comparisons, extrema, integers.
    Exact,
    /// Rounding errors of the scalar expression, followed through its instructions: one unit in the last place for a
    /// sum, difference or product, four for a quotient or a root.
    Elementwise,
    /// Tolerance of `Elementwise`, with 16 units in the last place for each transcendental function.
    Transcendental,
    /// Linear in each input: c·eps·Σ|aᵢbᵢ| of the terms that a result sums.
    Sum,
    /// Interpolation between neighbours: positions are rounded, so that the bound is relative to the greatest input.
    Sampled,
    /// A backward-stable algorithm: the error is what a few roundings of each input would cause.
    Conditioned,
    /// Tolerance of `Conditioned`, with constant factors that are rounded too (those of a Fourier transform).
    /// A result that should vanish may differ from zero by 8 units in the last place of the greatest result.
    Transform,
    /// Tolerance of `Conditioned`, with intermediate results that may be rounded to the narrowest float type
    /// of the inputs.
    Narrow,
    /// Made of sizes and attributes alone: 16 units in the last place, or 8 of the greatest result.
    Generated,
    /// Depends on attributes, by this rule; the rule itself must not answer with `ByAttrs`.
    ByAttrs(fn(&Attrs) -> Tolerance),
}

/// The operators of all linked crates: each file that defines operators adds a slice of them.
///
/// A crate that only looks operators up by name must still refer to the defining crate (`use kiln_ops as
/// _;`). The compiler does not link crates that nothing refers to.
#[linkme::distributed_slice]
pub static FAMILIES: [&'static [OpDef]];

/// All registered operators, sorted by the first name of their family.
pub fn all() -> impl Iterator<Item = &'static OpDef> {
    static SORTED: OnceLock<Vec<&'static OpDef>> = OnceLock::new();
    let sorted = SORTED.get_or_init(|| {
        let mut families: Vec<&'static [OpDef]> =
            FAMILIES.iter().copied().filter(|f| !f.is_empty()).collect();
        families.sort_by_key(|family| family[0].name);
        families.into_iter().flatten().collect()
    });
    sorted.iter().copied()
}

/// The registered operator of this name.
pub fn find(name: &str) -> Option<&'static OpDef> {
    static MAP: OnceLock<HashMap<&'static str, &'static OpDef>> = OnceLock::new();
    MAP.get_or_init(|| all().map(|d| (d.name.as_str(), d)).collect()).get(name).copied()
}

/// An operator with its attributes set and checked against its schema.
#[derive(Clone)]
pub struct Op {
    def: &'static OpDef,
    attrs: Attrs,
}

impl Op {
    /// Looks the operator up, fills in defaults and checks kinds; unknown attributes are refused.
    pub fn new(name: impl AsRef<str>, attrs: Attrs) -> Result<Op, IrError> {
        let name = name.as_ref();
        let def = find(name).ok_or_else(|| IrError::UnknownOp(name.to_owned()))?;
        Op::from_def(def, attrs).map_err(|e| IrError::layer("", name, e))
    }

    /// Fills in defaults and checks kinds.
    pub fn from_def(def: &'static OpDef, mut attrs: Attrs) -> Result<Op, OpError> {
        for d in def.attrs {
            let like = (d.default)();
            match attrs.get(d.name) {
                None if d.required => attrs.int(d.name).map(drop).map_err(|_| OpError::Attr {
                    name: d.name.into(),
                    found: "missing".into(),
                    wanted: like.kind().into(),
                })?,
                None => attrs.set(d.name, like),
                Some(a) => check_attr(d, &like, a)?,
            }
        }
        if let Some((name, _)) = attrs.iter().find(|(k, _)| !def.attrs.iter().any(|d| d.name == *k)) {
            return Err(OpError::Attr {
                name: name.into(),
                found: "given".into(),
                wanted: "absent: no such attribute".into(),
            });
        }
        Ok(Op { def, attrs })
    }

    /// The schema.
    pub fn def(&self) -> &'static OpDef {
        self.def
    }

    /// Allowed difference of a backend's result from the oracle's, for these attributes.
    pub fn tolerance(&self) -> Tolerance {
        match self.def.tolerance {
            Tolerance::ByAttrs(rule) => rule(&self.attrs),
            fixed => fixed,
        }
    }

    /// The operator's name as text, for messages.
    pub fn name(&self) -> &'static str {
        self.def.name.as_str()
    }

    /// The operator's name, to compare with constants.
    pub fn id(&self) -> OpName {
        self.def.name
    }

    /// The attributes, defaults included.
    pub fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    /// Whether it is this operator.
    pub fn is(&self, name: OpName) -> bool {
        self.def.name == name
    }

    /// Roles in the compiler.
    pub fn roles(&self) -> &'static Roles {
        &self.def.roles
    }

    /// Map from the result's elements to the input's, if it only moves them.
    pub fn movement(&self) -> Movement {
        self.def.roles.movement
    }

    /// Whether it is pointwise, with a scalar expression.
    pub fn is_pointwise(&self) -> bool {
        self.def.expr.is_some()
    }

    /// The port that the input at this position belongs to.
    pub fn port(&self, input: usize) -> Option<&'static Port> {
        let last = self.def.inputs.last().filter(|p| p.arity == Arity::Variadic);
        self.def.inputs.get(input).or(last)
    }

    /// Checks the number of inputs and that required ones are present.
    pub fn check_arity(&self, present: &[bool]) -> Result<(), OpError> {
        let ports = self.def.inputs;
        let variadic = ports.last().is_some_and(|p| p.arity == Arity::Variadic);
        if present.len() > ports.len() && !variadic {
            return Err(OpError::Arity { found: present.len(), wanted: format!("at most {}", ports.len()) });
        }
        for (i, p) in ports.iter().enumerate() {
            if p.arity != Arity::Optional && !present.get(i).copied().unwrap_or(false) {
                return Err(OpError::MissingInput { input: i, name: p.name.into() });
            }
        }
        if variadic && let Some(i) = present.iter().position(|p| !p).filter(|&i| i >= ports.len()) {
            return Err(OpError::MissingInput { input: i, name: ports[ports.len() - 1].name.into() });
        }
        Ok(())
    }
}

fn check_attr(d: &AttrDef, like: &Attr, a: &Attr) -> Result<(), OpError> {
    let wrong = |found: String, wanted: String| OpError::Attr { name: d.name.into(), found, wanted };
    if !a.same_kind(like) {
        return Err(wrong(a.kind().into(), like.kind().into()));
    }
    match a {
        Attr::Str(s) if !d.choices.is_empty() && !d.choices.contains(&s.as_str()) => {
            Err(wrong(format!("\"{s}\""), format!("one of {}", d.choices.join(", "))))
        }
        _ => Ok(()),
    }
}

impl PartialEq for Op {
    fn eq(&self, o: &Op) -> bool {
        self.def.name == o.def.name && self.attrs == o.attrs
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.def.name, self.attrs)
    }
}

impl fmt::Debug for OpDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpDef({})", self.name)
    }
}
