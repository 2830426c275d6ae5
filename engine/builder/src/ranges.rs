//! Shapes at which the kernel of a region runs, for builds that store all of its launches.

use crate::points::{Points, Span};
use kiln_backend::{Region, ShapeRange};
use kiln_ir::infer::MAX_CONTENT;
use kiln_ir::{Dim, Fact, Graph, Value, ValueId};
use std::collections::BTreeSet;

/// The shapes of a region of `g`, profile by profile.
pub fn of(g: &Graph, region: &Region, points: &Points) -> Vec<ShapeRange> {
    points.spans.iter().map(|span| range(g, region, span)).collect()
}

fn range(g: &Graph, region: &Region, span: &Span) -> ShapeRange {
    let mut inputs = Graph::new("");
    let mut symbols = BTreeSet::new();
    for (i, &v) in region.inputs.iter().enumerate() {
        let fact = fact(g, v, span);
        let elements = fact.value.as_ref().and_then(|v| if let Value::Dims(d) = v { Some(d) } else { None });
        for d in fact.ty.dims.iter().chain(elements.into_iter().flatten()) {
            d.visit(&mut |s| _ = symbols.insert(s.clone()));
        }
        inputs.add_input(&format!("v{i}"), fact);
    }
    let bounded = |s: kiln_ir::dim::Symbol| {
        let name = s.name.to_string();
        let interval = Dim::from(s).interval(&|s| span.ranges.get(&s.name).map(|r| (r[0], r[2])));
        Some((name, interval.lo()?, interval.hi()?))
    };
    ShapeRange { inputs, symbols: symbols.into_iter().filter_map(bounded).collect() }
}

/// The fact of a value over the shapes of a span. A refit may change the contents of weights.
fn fact(g: &Graph, v: ValueId, span: &Span) -> Fact {
    let mut fact = span.facts[v.0 as usize].clone();
    let small = |value: &Value| !matches!(value, Value::Const(t) if t.len() > MAX_CONTENT);
    fact.value = fact.value.filter(|value| g.weight(v).is_none() && small(value));
    fact
}
