//! Estimates of the work of operators.

use kiln_ir::infer::{Fact, InferCx};
use kiln_ir::problem::Rng;
use kiln_ir::stop;
use kiln_ir::work::Work;
use kiln_ir::{Attrs, Op, TensorType};

fn work(name: &str, attrs: Attrs, shapes: &[&[i64]]) -> Work {
    let op = Op::new(name, attrs).unwrap();
    let types: Vec<_> =
        shapes.iter().map(|s| TensorType::new(kiln_ir::DType::F32, s.iter().copied())).collect();
    let facts: Vec<_> = types.iter().map(|t| Some(Fact::of(t.clone()))).collect();
    let outs = op.infer(&facts, "l").unwrap();
    op.work(&types.iter().map(Some).collect::<Vec<_>>(), &outs.iter().map(|f| &f.ty).collect::<Vec<_>>())
}

#[test]
fn products_count_their_depth() {
    let n = 1 << 14;
    assert_eq!(work("matmul", Attrs::new(), &[&[n, n], &[n, n]]).beyond, 1 << 42);
    let trans = Attrs::new().with("trans_a", true);
    assert_eq!(work("matmul", trans, &[&[5, 2], &[5, 3]]).beyond, 5 * 2 * 3);
    let e = Attrs::new().with("equation", "ij,jk->ik");
    assert_eq!(work("einsum", e, &[&[n, n], &[n, n]]).beyond, 1 << 42);
    let e = Attrs::new().with("equation", "a,b->");
    assert_eq!(work("einsum", e, &[&[n], &[n]]).beyond, 1 << 28);
    let e = Attrs::new().with("equation", "...i,...i->...");
    assert_eq!(work("einsum", e, &[&[2, 3, 5], &[3, 5]]).beyond, 2 * 3 * 5);
    assert_eq!(work("add", Attrs::new(), &[&[n, n], &[n, n]]), Work { elements: 3 << 28, beyond: 0 });
    // y [1, 4, 6, 6] of x [1, 2, 8, 8]: 2 × 3 × 3 products each.
    assert_eq!(work("conv", Attrs::new(), &[&[1, 2, 8, 8], &[4, 2, 3, 3]]).beyond, 4 * 36 * 18);
    let all = Attrs::new().with("kernel", vec![8i64, 8]);
    assert_eq!(work("pool", all, &[&[1, 2, 8, 8]]).beyond, 2 * 64);
}

/// The oracle passes at least one checkpoint for each element of most loops: no operator may pass many more than its
/// record admits to. The sizes of the problems are small, so that what grows faster than them counts only where
/// problems are large enough: the bound leaves a factor for passes that an operator makes more often.
#[test]
fn no_operator_does_much_more_than_it_says() {
    let (mut rng, mut wrong) = (Rng::new(11), Vec::new());
    for def in kiln_ops::all() {
        for p in (def.problems)(&mut rng) {
            let facts: Vec<_> = p.inputs.iter().map(|t| t.clone().map(Fact::constant)).collect();
            let Ok(outs) = (def.infer)(&mut InferCx::new(&p.op, &facts, "")) else { continue };
            let types: Vec<_> = p.inputs.iter().map(|t| t.as_ref().map(|t| t.ty())).collect();
            let said = p.op.work(
                &types.iter().map(Option::as_ref).collect::<Vec<_>>(),
                &outs.iter().map(|f| &f.ty).collect::<Vec<_>>(),
            );
            let before = stop::passed();
            let _ = p.op.eval(&p.inputs);
            let done = stop::passed() - before;
            if done > said.total().saturating_mul(8).saturating_add(64) {
                wrong.push(format!("{} ({}): {done} checkpoints, {said:?}", def.name, p.label));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
