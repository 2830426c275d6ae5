//! Indices and lengths beyond 32 bits: they mean what they say, not their low halves.
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

use kiln_backend::compare::{Latitude, check};
use kiln_backend::{Backend, Program};
use kiln_backend_wgpu::Wgpu;
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Op, Tensor};
use std::sync::Arc;

/// 1 and 2 in the low halves, and the extremes.
const WIDE: [i64; 4] = [(1 << 32) + 1, -(1 << 32) + 2, i64::MAX, i64::MIN];

fn i64s(shape: &[usize], v: &[i64]) -> Option<Tensor> {
    Tensor::i64(shape, v)
}

fn f32s(rng: &mut Rng, shape: &[usize]) -> Option<Tensor> {
    Some(rng.tensor(DType::F32, shape))
}

fn problems(rng: &mut Rng) -> Vec<(&'static str, Attrs, Vec<Option<Tensor>>)> {
    let none = Attrs::new;
    let four = || i64s(&[4], &WIDE);
    let mut out = vec![
        ("gather", none(), vec![f32s(rng, &[3, 5]), four()]),
        ("gather_elements", none().with("axis", 0i64), vec![f32s(rng, &[4]), four()]),
        ("gather_nd", none(), vec![f32s(rng, &[4, 2]), i64s(&[4, 1], &WIDE)]),
        ("one_hot", none(), vec![four(), i64s(&[], &[3]), f32s(rng, &[2])]),
        ("nll_loss", none(), vec![f32s(rng, &[4, 3]), four()]),
        ("ragged_softmax", none(), vec![f32s(rng, &[4, 3]), i64s(&[4, 1], &WIDE)]),
        (
            "max_unpool",
            none().with("kernel", vec![2i64]),
            vec![f32s(rng, &[1, 1, 4]), i64s(&[1, 1, 4], &WIDE)],
        ),
    ];
    let rois = Tensor::f32(&[4, 4], &[0.0, 0.0, 2.0, 2.0].repeat(4));
    out.push(("roi_align", none(), vec![f32s(rng, &[3, 1, 4, 4]), rois, four()]));
    let (x, w, r) = (f32s(rng, &[3, 4, 2]), f32s(rng, &[1, 5, 2]), f32s(rng, &[1, 5, 5]));
    out.push(("rnn", none(), vec![x, w, r, None, four()]));
    let table = [f32s(rng, &[4, 2]), f32s(rng, &[4, 2])];
    let [cos, sin] = table;
    out.push(("rotary_embedding", none(), vec![f32s(rng, &[1, 1, 4, 4]), cos, sin, i64s(&[1, 4], &WIDE)]));
    for mode in ["linear", "circular"] {
        let attrs = none().with("mode", mode);
        // The sum of the greatest start and a row saturates, which no remainder survives.
        let starts = i64s(&[2], &[WIDE[0], if mode == "linear" { i64::MAX } else { WIDE[1] }]);
        out.push(("kv_cache_update", attrs, vec![f32s(rng, &[2, 5, 2]), f32s(rng, &[2, 2, 2]), starts]));
    }
    out
}

#[test]
fn numbers_beyond_32_bits() {
    let target = match Wgpu.targets() {
        Ok(t) => t[0].clone(),
        Err(e) => return println!("skipped: {e}"),
    };
    if !target.has("i64") {
        return println!("skipped: {} has no 64-bit integers", target.device);
    }
    let device = Wgpu.open(&target).expect("the first target opens");
    let mut wrong = Vec::new();
    for (name, attrs, inputs) in problems(&mut Rng::new(3)) {
        let op = Op::new(name, attrs).expect("an operator");
        let (mut program, given) = Program::single(&op, &inputs).expect(name);
        program.choose(&Wgpu, &target).expect(name);
        let program = Arc::new(program);
        let shapes = Arc::new(program.shapes(&given).expect(name));
        let mut cx = device.load(program).and_then(|e| e.context()).expect(name);
        let found = cx.enqueue(&given, &shapes).and_then(|()| cx.outputs());
        // A number out of range there is out of range here, whatever its low 32 bits say.
        let outcome = match (op.eval(&inputs), found) {
            (Ok(_), Ok(found)) => {
                check(&op, &inputs, &found, Latitude { flush: true, ..Latitude::default() })
            }
            (Ok(_), Err(e)) => Err(e.to_string()),
            (Err(e), Ok(_)) => Err(format!("runs, but the oracle fails: {e}")),
            (Err(_), Err(_)) => Ok(()),
        };
        wrong.extend(outcome.err().map(|e| format!("{name}: {e}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
