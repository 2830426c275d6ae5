//! Ranges of index inputs.

use kiln_ir::dtype::DType;
use kiln_ir::ty::TensorType;
use kiln_ir::{Attrs, Dim, Fact, IndexRange, Op, OpError, Tensor};
use kiln_ops::testing::ints;

#[test]
fn tuples_have_bounds_of_their_own() {
    let r = IndexRange::tuples(1, &[4, 2]);
    assert_eq!(r.first_outside(&ints(DType::I64, &[2, 2], &[3, -2, -4, 1])), None);
    assert_eq!(r.first_outside(&ints(DType::I64, &[2, 2], &[3, 1, 1, 3])), Some((3, 3)));
    assert_eq!(r.first_outside(&ints(DType::I64, &[1, 2], &[i64::MIN, 0])), Some((0, i64::MIN)));
}

/// Every operator with index inputs refuses one element just out of range, in each of its own problems.
#[test]
fn one_bad_index_is_refused_by_every_operator() {
    for def in kiln_ops::all().filter(|d| d.ranges.is_some()) {
        let mut tried = 0;
        for p in (def.problems)(&mut kiln_ir::problem::Rng::new(3)) {
            let sizes = |t: &Tensor| t.shape().iter().map(|&n| n as i64).collect();
            let dims: Vec<_> = p.inputs.iter().map(|t| t.as_ref().map(sizes)).collect();
            for r in p.op.index_ranges(&dims).unwrap() {
                let t = p.inputs[r.input].clone().unwrap();
                assert_eq!(r.first_outside(&t), None, "{} {}", def.name, p.label);
                for at in [0, t.len().saturating_sub(1)].into_iter().filter(|&at| at < t.len()) {
                    let (least, greatest) = r.bounds[at % r.bounds.len()];
                    for bad in [least - 1, greatest + 1].into_iter().filter(|b| r.except != Some(*b)) {
                        let mut v = t.to_i64();
                        v[at] = bad;
                        let mut inputs = p.inputs.clone();
                        inputs[r.input] = Some(ints(t.dtype(), t.shape(), &v));
                        let wanted = r.error(def, at as u64, bad);
                        assert_eq!(p.op.eval(&inputs), Err(wanted), "{} {}", def.name, p.label);
                        tried += 1;
                    }
                }
            }
        }
        assert!(tried > 0, "{}", def.name);
    }
}

#[test]
fn an_unknown_dimension_has_room_for_every_index() {
    let x = Fact::of(TensorType::new(DType::F32, [Dim::host("n"), 3.into()]));
    let pick = |axis: i64, i: i64| {
        let op = Op::new("gather", Attrs::new().with("axis", axis)).unwrap();
        op.infer(&[Some(x.clone()), Some(Fact::constant(ints(DType::I64, &[1], &[i])))], "g")
    };
    assert!(pick(0, 1 << 40).is_ok());
    assert!(pick(1, -3).is_ok());
    assert!(matches!(
        pick(1, 3),
        Err(OpError::Index { input: 1, at: 0, found: 3, least: -3, greatest: 2, .. })
    ));
}
