//! Comparison of a run with the oracle's evaluation of the graph before any pass.

use kiln_ir::{Elems, Graph, Tensor};

/// The change of inputs by which results are found to hang on roundings.
const NUDGE: f64 = 1e-4;

/// Panics where the results of a run are not those of the graph. Results that a small change of the inputs changes much, or in
/// shape, hang on roundings and are not compared; neither are elements that are not finite by the oracle.
pub fn compare(graph: &Graph, inputs: &[Tensor], found: Result<&[Tensor], String>) {
    let nudged: Option<Vec<Tensor>> = inputs.iter().map(nudge).collect();
    let (Ok(wanted), Some(Ok(near))) = (graph.eval(inputs), nudged.map(|n| graph.eval(&n))) else {
        return shown("the oracle refuses");
    };
    let found = match found {
        Ok(found) => found,
        // The oracle needs less memory, and no time limit stops it.
        Err(e) if e.contains("memory") || e.contains("its limit") => return shown("over budget"),
        Err(e) => panic!("refused: {e}\n{}", graph.to_text()),
    };
    let mut compared = 0;
    for (i, ((found, wanted), near)) in found.iter().zip(&wanted).zip(&near).enumerate() {
        if wanted.shape() != near.shape() {
            continue;
        }
        assert_eq!(found.shape(), wanted.shape(), "shape of output {i}\n{}", graph.to_text());
        assert_eq!(found.dtype(), wanted.dtype(), "type of output {i}\n{}", graph.to_text());
        let (f, w, n) = (found.to_f64(), wanted.to_f64(), near.to_f64());
        let largest = w.iter().filter(|x| x.is_finite()).fold(0.0, |a: f64, x| a.max(x.abs()));
        for (j, ((f, w), n)) in f.iter().zip(&w).zip(&n).enumerate() {
            let slack = 10.0 * (w - n).abs() + 1e-2 * largest;
            if slack.is_finite() && largest < 1e6 && w.is_finite() && (w - n).abs() < 0.01 * largest {
                compared += 1;
                assert!(
                    (f - w).abs() <= slack,
                    "element {j} of output {i}: {f}, {w} is right\n{}",
                    graph.to_text()
                );
            }
        }
    }
    shown(&format!("{compared} elements"));
}

/// With `KILN_FUZZ_SHOW`, what became of a comparison.
fn shown(what: &str) {
    if std::env::var_os("KILN_FUZZ_SHOW").is_some() {
        eprintln!("compared: {what}");
    }
}

fn nudge(t: &Tensor) -> Option<Tensor> {
    match t.dtype().is_float() {
        true => {
            let moved = t.to_f64().into_iter().map(|x| x * (1.0 + NUDGE) + NUDGE).collect();
            Tensor::from_elems(t.dtype(), t.shape(), &Elems::F(moved))
        }
        false => Some(t.clone()),
    }
}
