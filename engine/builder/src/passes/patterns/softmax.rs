//! Softmax and its logarithm out of exponentials and sums, shifted by the greatest element.

use super::pat::{Pat, Pat::*};
use super::view::View;
use super::{Rule, Writer};
use kiln_ir::{Attrs, IrError, NodeId, OpName, ValueId};
use kiln_ops::pointwise::binary::{DIV, MUL, SUB};
use kiln_ops::pointwise::unary::{EXP, LOG, RECIP};
use kiln_ops::softmax::{LOG_SOFTMAX, SOFTMAX};

const SHIFTED: Pat = Op(SUB, &[Any("x"), Reduce("max", &Any("x"))]);
const POWER: Pat = As("e", &Op(EXP, &[As("s", &SHIFTED)]));
const FORMS: &[(OpName, Pat)] = &[
    (SOFTMAX, Op(DIV, &[POWER, Reduce("sum", &Any("e"))])),
    (SOFTMAX, Op(MUL, &[POWER, Op(RECIP, &[Reduce("sum", &Any("e"))])])),
    (LOG_SOFTMAX, Op(SUB, &[As("s", &SHIFTED), Op(LOG, &[Reduce("sum", &Op(EXP, &[Any("s")]))])])),
];

pub struct Softmax {
    op: OpName,
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
            Some(Softmax { op: *op, x: found.value("x")?, axis: *axis, inside: found.inside })
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
