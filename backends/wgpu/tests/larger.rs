//! Operators on more elements than the op suite has, beside the oracle: runs of sorts, chunks of recurrent states,
//! updates that meet at few places.
#![allow(
    clippy::print_stdout,
    clippy::panic,
    reason = "a test that is skipped says so, one that fails says of what"
)]

mod beside_oracle;

use beside_oracle::{agree, f};
use kiln_ir::{Attrs, DType, Tensor};

fn i64s(shape: &[usize], of: impl Fn(usize) -> i64) -> Option<Tensor> {
    let v: Vec<i64> = (0..shape.iter().product()).map(of).collect();
    Tensor::i64(shape, &v)
}

/// First elements of lines of so many different numbers.
fn topk(shape: &[usize], axis: i64, k: i64, different: usize) {
    for largest in [true, false] {
        let attrs = Attrs::new().with("axis", axis).with("largest", largest);
        let n: usize = shape.iter().product();
        let v: Vec<f32> = (0..n).map(|i| ((i * 7919) % different) as f32 - 500.0).collect();
        agree("topk", attrs, &vec![Tensor::f32(shape, &v), i64s(&[1], |_| k)], "topk");
    }
}

#[test]
fn first_elements_of_lines() {
    topk(&[3, 65], 1, 65, 1013);
    topk(&[2, 300, 2], 1, 17, 1013);
    topk(&[2, 2048], 1, 2048, 1013);
    topk(&[2, 2049], 1, 50, 1013);
    topk(&[1, 9001], 1, 1000, 1013);
    topk(&[2, 5000], 1, 3000, 1013);
    topk(&[2, 20_000], 1, 256, 19_997);
    topk(&[1, 9000], 1, 300, 8999);
    // Positions decide alone.
    topk(&[1, 9000], 1, 40, 1);
    topk(&[2, 5000], 1, 40, 3);
}

/// Runs plain networks alone, as their results do not cancel out; all kinds share the sums.
#[test]
fn recurrences_of_several_chunks() {
    let (steps, batch, inputs) = (3, 11, 19);
    for hidden in [516, 530] {
        let given = vec![
            f(DType::F16, 1, &[steps, batch, inputs]),
            f(DType::F16, 2, &[2, hidden, inputs]),
            f(DType::F16, 3, &[2, hidden, hidden]),
            f(DType::F16, 4, &[2, 2 * hidden]),
            None,
            None,
        ];
        agree("rnn", Attrs::new().with("direction", "bidirectional"), &given, "recurrent.steps");
    }
}

#[test]
fn updates_that_meet() {
    for t in [DType::F32, DType::F16] {
        for reduction in ["none", "add", "max", "min"] {
            let attrs = Attrs::new().with("axis", 0i64).with("reduction", reduction);
            let indices = i64s(&[4000, 3], |i| (i * 31 % 7) as i64 - 3);
            let given = vec![f(t, 1, &[5, 3]), indices, f(t, 2, &[4000, 3])];
            agree("scatter_elements", attrs, &given, "scatter_elements.places");
            let attrs = Attrs::new().with("reduction", reduction);
            let indices = i64s(&[4000, 1], |i| (i * 31 % 5) as i64);
            let given = vec![f(t, 1, &[5, 3]), indices, f(t, 2, &[4000, 3])];
            agree("scatter_nd", attrs, &given, "scatter_nd.places");
        }
    }
}
