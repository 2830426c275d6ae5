//! The fast paths of attention and of integer products against the oracle.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]

mod common;

use common::{assert_close, run, single};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Op, Tensor};

fn agree(op: &Op, inputs: &[Option<Tensor>], tolerance: f64) {
    let (g, given) = single(op, inputs);
    let (fast, oracle) = (run(&g, "fast", &given, false).unwrap(), run(&g, "oracle", &given, false).unwrap());
    assert_close(&format!("{op:?} of {inputs:?}"), &fast, &oracle, tolerance);
}

#[test]
fn random_attention() {
    let mut rng = Rng::new(17);
    for case in 0..150 {
        let dtype = rng.pick(&[DType::F32, DType::F32, DType::F16]).unwrap();
        let (kv_heads, group) = (rng.int(1, 3) as usize, rng.int(1, 3) as usize);
        let (heads, batch) = (kv_heads * group, rng.int(1, 3) as usize);
        let (queries, keys) = (rng.int(1, 7) as usize, rng.int(1, 40) as usize);
        let (size, v_size) = (rng.int(1, 37) as usize, rng.int(1, 9) as usize);
        let flat = case % 2 == 0;
        let mut attrs = Attrs::new()
            .with("causal", rng.int(0, 1) == 1)
            .with("softcap", rng.pick(&[0.0, 1.5]).unwrap())
            .with("scale", rng.pick(&[0.0, 0.3]).unwrap())
            .with("qk_output", rng.int(0, 3));
        let tensor = |rng: &mut Rng, heads: usize, len: usize, size: usize| match flat {
            true => rng.tensor(dtype, &[batch, len, heads * size]),
            false => rng.tensor(dtype, &[batch, heads, len, size]),
        };
        let q = tensor(&mut rng, heads, queries, size);
        let k = tensor(&mut rng, kv_heads, keys, size);
        let v = tensor(&mut rng, kv_heads, keys, v_size);
        if flat {
            attrs = attrs.with("q_heads", heads as i64).with("kv_heads", kv_heads as i64);
        }
        // At times it speaks of fewer keys than there are.
        let spoken = rng.int(1.max(keys as i64 - 1), keys as i64) as usize;
        let shapes =
            [vec![spoken], vec![queries, spoken], vec![batch, 1, queries, spoken], vec![heads, 1, spoken]];
        let shape = &shapes[rng.int(0, 3) as usize];
        let mask = match rng.int(0, 2) {
            0 => None,
            1 => Some(rng.tensor(DType::Bool, shape)),
            _ => Some(rng.tensor(dtype, shape)),
        };
        let op = Op::new("attention", attrs).unwrap();
        let tolerance = if dtype == DType::F16 { 2e-3 } else { 4e-6 };
        agree(&op, &[Some(q), Some(k), Some(v), mask], tolerance);
    }
}

#[test]
fn random_products_of_integers() {
    let mut rng = Rng::new(23);
    for _ in 0..120 {
        let (m, k, n) = (rng.int(1, 20) as usize, rng.int(0, 70) as usize, rng.int(1, 20) as usize);
        let (ta, tb) = (rng.int(0, 1) == 1, rng.int(0, 1) == 1);
        let types = [DType::I8, DType::U8];
        let (a, b) = match rng.int(0, 2) {
            0 => (DType::I32, DType::I32),
            _ => (rng.pick(&types).unwrap(), rng.pick(&types).unwrap()),
        };
        let (lead_a, lead_b) = rng.pick(&[(&[][..], &[][..]), (&[2, 1], &[3]), (&[2], &[2])]).unwrap();
        let shape = |lead: &[usize], rows, cols, t: bool| {
            [lead, &if t { [cols, rows] } else { [rows, cols] }].concat()
        };
        let (sa, sb) = (shape(lead_a, m, k, ta), shape(lead_b, k, n, tb));
        // All values of the type, so that sums need more than 16 bits, and those of 32 wrap.
        let all = |rng: &mut Rng, dtype, shape: &[usize]| {
            let count: usize = shape.iter().product();
            let bits = (0..count).map(|_| rng.bits() as i64).collect();
            Tensor::from_elems(dtype, shape, &kiln_ir::Elems::I(bits)).unwrap()
        };
        let op = Op::new("matmul", Attrs::new().with("trans_a", ta).with("trans_b", tb)).unwrap();
        let inputs = [Some(all(&mut rng, a, &sa)), Some(all(&mut rng, b, &sb))];
        agree(&op, &inputs, 0.0);
    }
}
