//! Softmax and its logarithm out of exponentials and sums, shifted by the greatest element.

use super::pat::{Pat, Pat::*};
use super::view::View;
use super::{Rule, Writer};
use kiln_ir::{Attrs, IrError, NodeId, ValueId};

const SHIFTED: Pat = Op("sub", &[Any("x"), Reduce("max", &Any("x"))]);
const POWER: Pat = As("e", &Op("exp", &[As("s", &SHIFTED)]));
const FORMS: &[(&str, Pat)] = &[
    ("softmax", Op("div", &[POWER, Reduce("sum", &Any("e"))])),
    ("softmax", Op("mul", &[POWER, Op("recip", &[Reduce("sum", &Any("e"))])])),
    ("log_softmax", Op("sub", &[As("s", &SHIFTED), Op("log", &[Reduce("sum", &Op("exp", &[Any("s")]))])])),
];

pub struct Softmax {
    op: &'static str,
    x: ValueId,
    axis: usize,
    inside: Vec<NodeId>,
}

impl Rule for Softmax {
    const NAME: &'static str = "softmax";

    fn find(view: &View<'_>, root: NodeId) -> Option<Softmax> {
        FORMS.iter().find_map(|(op, pat)| {
            let found = pat.at_node(view, root)?;
            let [axis] = found.axes.as_deref()? else { return None };
            Some(Softmax { op, x: found.value("x")?, axis: *axis, inside: found.inside })
        })
    }

    fn inside(&self) -> &[NodeId] {
        &self.inside
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let y = w.op(self.op, Attrs::new().with("axis", self.axis as i64), &[self.x])?;
        Ok(w.replace(root, y))
    }
}
