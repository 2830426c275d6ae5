//! Mixtures of experts, and attention over packed sequences.

use crate::tests::{f32s, input, ints, refused, run};
use crate::*;
use kiln_ir::{DType, Tensor};

/// x·sigmoid(αx)
fn silu(x: f64, alpha: f64) -> f64 {
    x / (1.0 + (-alpha * x).exp())
}

fn close(found: &Tensor, wanted: &[f64]) {
    let found = found.to_f64();
    assert_eq!(found.len(), wanted.len());
    let far = |(a, b): (&f64, &f64)| (a - b).abs() > 1e-5 * b.abs().max(1.0);
    assert!(!found.iter().zip(wanted).any(far), "{found:?}, wants {wanted:?}");
}

/// Weights of 3 experts for tokens of 2 numbers, with 1 inner number; expert 2 has infinite ones.
fn weights(net: &mut Network) -> [TensorId; 3] {
    let inf = f64::INFINITY;
    let gate = f32s(&[3, 2, 1], &[1.0, 0.0, 0.0, 1.0, inf, inf]);
    let up = f32s(&[3, 2, 1], &[1.0, 1.0, 2.0, 0.0, 1.0, 1.0]);
    let down = f32s(&[3, 1, 2], &[1.0, 10.0, 1.0, -1.0, 1.0, 1.0]);
    [gate, up, down].map(|w| net.add_weights(None, w).unwrap())
}

#[test]
fn tokens_take_the_experts_that_are_selected_for_them() {
    let mut net = Network::new("moe");
    let x = input(&mut net, "x", DType::F32, &[1, 2, 2]);
    let ids = input(&mut net, "ids", DType::I32, &[1, 2, 2]);
    let scores = input(&mut net, "scores", DType::F32, &[1, 2, 2]);
    let w = weights(&mut net);
    let plain = net.add_moe(x, ids, scores, w).unwrap().output(0).unwrap();
    let moe = net.add_moe(x, ids, scores, w).unwrap().set_swiglu_params(1.5, 2.0, 0.5).unwrap();
    let changed = moe.output(0).unwrap();
    net.mark_output(plain, "plain").unwrap();
    net.mark_output(changed, "changed").unwrap();
    // Token [1, 2] takes experts 0 and 1; token [3, -4] expert 0, and one that does not exist.
    let given = [
        f32s(&[1, 2, 2], &[1.0, 2.0, 3.0, -4.0]),
        ints(DType::I32, &[1, 2, 2], &[0, 1, 7, 0]),
        f32s(&[1, 2, 2], &[0.25, 0.75, 0.5, 2.0]),
    ];
    let out = run(&net, &given);
    let wanted = |f: &dyn Fn(f64, f64) -> f64| {
        let (a, b, c) = (f(1.0, 3.0), f(2.0, 2.0), f(3.0, -1.0));
        [0.25 * a + 0.75 * b, 2.5 * a - 0.75 * b, 2.0 * c, 20.0 * c]
    };
    close(&out[0], &wanted(&|g, u| silu(g, 1.0) * u));
    close(&out[1], &wanted(&|g, u| silu(g.min(1.5), 2.0) * (u.clamp(-1.5, 1.5) + 0.5)));
}

#[test]
fn experts_have_biases_of_fitting_shapes() {
    let mut net = Network::new("moe");
    let x = input(&mut net, "x", DType::F32, &[1, 2]);
    let ids = input(&mut net, "ids", DType::I64, &[1, 1]);
    let scores = input(&mut net, "scores", DType::F32, &[1, 1]);
    let w = weights(&mut net);
    let gate = net.add_weights(None, f32s(&[3, 1], &[1.0, 0.0, 0.0])).unwrap();
    let up = net.add_weights(None, f32s(&[3, 1], &[-1.0, 0.0, 0.0])).unwrap();
    let down = net.add_weights(None, f32s(&[3, 2], &[5.0, 7.0, 0.0, 0.0, 0.0, 0.0])).unwrap();
    let moe = net.add_moe(x, ids, scores, w).unwrap().set_gated_biases([gate, up, down]).unwrap();
    let y = moe.output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    let given = [f32s(&[1, 2], &[1.0, 2.0]), ints(DType::I64, &[1, 1], &[0]), f32s(&[1, 1], &[1.0])];
    let a = silu(2.0, 1.0) * 2.0;
    close(&run(&net, &given)[0], &[a + 5.0, 10.0 * a + 7.0]);
    refused(net.add_moe(x, ids, scores, w).unwrap().set_gated_biases([gate, up, gate]), "[3, 2]");
    refused(net.add_moe(x, scores, scores, w), "i32 or i64");
    refused(net.add_moe(x, ids, x, w), "one score for each selected expert");
    refused(net.add_moe(x, ids, scores, [w[0], w[2], w[1]]), "[3, 2, 1]");
    refused(net.add_moe(x, ids, scores, w).unwrap().set_swiglu_limit(0.0), "above 0");
}

/// Softmax attention of one head, by its formula.
fn attention(
    q: &[[f64; 2]],
    k: &[[f64; 2]],
    v: &[[f64; 2]],
    sees: impl Fn(usize, usize) -> bool,
) -> Vec<f64> {
    let row = |(i, q): (usize, &[f64; 2])| {
        let score = |(j, k): (usize, &[f64; 2])| match sees(i, j) {
            true => (q[0] * k[0] + q[1] * k[1]).exp(),
            false => 0.0,
        };
        let e: Vec<f64> = k.iter().enumerate().map(score).collect();
        let sum: f64 = e.iter().sum();
        [0, 1].map(|c| e.iter().zip(v).map(|(e, v)| e * v[c]).sum::<f64>() / sum)
    };
    q.iter().enumerate().flat_map(row).collect()
}

#[test]
fn packed_sequences_see_themselves_only() {
    // Sequences of 2 and 1 queries, with 3 and 2 keys.
    let q = [[0.1, 0.2], [0.5, -0.4], [1.0, 0.3]];
    let k = [[0.3, 0.1], [-0.2, 0.8], [0.9, 0.4], [0.6, -0.6], [0.2, 0.7]];
    let v = [[1.0, 0.0], [0.0, 1.0], [2.0, 2.0], [3.0, 5.0], [7.0, -1.0]];
    let (own_q, own_k, lengths) = ([0, 0, 1], [0, 0, 0, 1, 1], [[2, 3], [1, 2]]);
    let (place_q, place_k) = ([0usize, 1, 0], [0usize, 1, 2, 0, 1]);
    for causal in [CausalMask::None, CausalMask::UpperLeft, CausalMask::LowerRight] {
        let mut net = Network::new("packed");
        let heads = |net: &mut Network, name: &str, n: i64, h: i64| input(net, name, DType::F32, &[n, h, 2]);
        let (a, b, c) = (heads(&mut net, "q", 3, 2), heads(&mut net, "k", 5, 1), heads(&mut net, "v", 5, 1));
        let starts = |net: &mut Network, name: &str| input(net, name, DType::I32, &[3]);
        let (at_q, at_k) = (starts(&mut net, "at_q"), starts(&mut net, "at_k"));
        let y = net.add_packed_attention([a, b, c], at_q, at_k, causal).unwrap().output(0).unwrap();
        assert_eq!(net.ty(y).to_string(), "f32[3,2,2]");
        net.mark_output(y, "y").unwrap();
        let sees = |i: usize, j: usize| {
            let [of_q, of_k] = lengths[own_q[i]];
            own_q[i] == own_k[j]
                && match causal {
                    CausalMask::None => true,
                    CausalMask::UpperLeft => place_k[j] <= place_q[i],
                    CausalMask::LowerRight => place_k[j] + of_q <= place_q[i] + of_k,
                }
        };
        // The second head asks for twice the first one's.
        let twice = q.map(|[a, b]| [2.0 * a, 2.0 * b]);
        let both: Vec<f64> = q.iter().zip(&twice).flat_map(|(a, b)| [a[0], a[1], b[0], b[1]]).collect();
        let given = [
            f32s(&[3, 2, 2], &both),
            f32s(&[5, 1, 2], k.as_flattened()),
            f32s(&[5, 1, 2], v.as_flattened()),
            ints(DType::I32, &[3], &[0, 2, 3]),
            ints(DType::I32, &[3], &[0, 3, 5]),
        ];
        let (one, two) = (attention(&q, &k, &v, sees), attention(&twice, &k, &v, sees));
        let wanted: Vec<f64> =
            one.chunks(2).zip(two.chunks(2)).flat_map(|(a, b)| [a[0], a[1], b[0], b[1]]).collect();
        close(&run(&net, &given)[0], &wanted);
    }
}

#[test]
fn packed_sequences_have_fitting_starts() {
    let mut net = Network::new("packed");
    let x = input(&mut net, "x", DType::F32, &[4, 2, 2]);
    let (a, b) = (input(&mut net, "a", DType::I32, &[3]), input(&mut net, "b", DType::I64, &[4]));
    let f = input(&mut net, "f", DType::F32, &[3]);
    let none = CausalMask::None;
    refused(net.add_packed_attention([x; 3], a, b, none), "as many sequences as the queries have");
    refused(net.add_packed_attention([x; 3], f, a, none), "i32 or i64");
    refused(net.add_packed_attention([a, x, x], a, a, none), "f32, f16 or bf16");
    refused(net.add_packed_attention([x; 3], a, a, none).unwrap().set_scale(0.0), "other than 0");
}
