//! Fast Fourier transforms of GPU backends at lengths that the op suite has no room for. The CPU backend, which computes them in f64,
//! has the wanted results.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln_backend::{Backend, Program, Tactic};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, Bytes, DType, Fact, Graph, Op, Tensor};
use kiln_tests::backends::{cuda, wgpu};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One transform.
struct Case {
    op: &'static str,
    attrs: Attrs,
    x: Tensor,
    /// Other inputs, by position.
    others: Vec<(usize, Tensor)>,
}

impl Case {
    fn dft(
        rng: &mut Rng,
        t: DType,
        shape: &[usize],
        axis: i64,
        length: Option<i64>,
        flags: [bool; 2],
    ) -> Case {
        let attrs = Attrs::new().with("inverse", flags[0]).with("onesided", flags[1]);
        let mut others = vec![(2, rng.i64s(&[], &[axis]))];
        others.extend(length.map(|n| (1, rng.i64s(&[], &[n]))));
        Case { op: "dft", attrs, x: rng.tensor(t, shape), others }
    }

    fn graph(&self) -> Graph {
        let mut g = Graph::new("transform");
        let mut inputs = vec![None; 1 + self.others.iter().map(|(i, _)| *i).max().unwrap_or(0)];
        inputs[0] = Some(g.add_input("x", Fact::of(self.x.ty())));
        for (i, t) in &self.others {
            inputs[*i] = Some(g.add_constant(&format!("c{i}"), t.clone()));
        }
        let op = Op::new(self.op, self.attrs.clone()).unwrap();
        g.outputs = g.add_node("transform", op, &inputs).unwrap();
        g
    }

    /// The result by the tactic of this name, and the least time of so many more runs.
    fn run(&self, backend: &dyn Backend, tactic: &str, times: usize) -> (Tensor, Duration) {
        let target = backend.targets().unwrap().remove(0);
        let mut program = Program::step_per_node(self.graph(), &Tactic::plain(""));
        program.choose(backend, &target).unwrap();
        let region = program.region(&program.steps[0]).unwrap();
        let all = backend.tactics(&region, &target).unwrap();
        let names: Vec<String> = all.iter().map(|t| t.name.clone()).collect();
        let chosen = all.into_iter().find(|t| t.name == tactic);
        let chosen = chosen.unwrap_or_else(|| panic!("{}: {names:?} lack {tactic}", self.describe()));
        program.steps[0].blob = Bytes::from(backend.compile(&region, &chosen, &target).unwrap());
        program.steps[0].tactic = chosen;
        let program = Arc::new(program);
        let mut cx = backend.open(&target).unwrap().load(program.clone()).unwrap().context().unwrap();
        let inputs = [self.x.clone()];
        let shapes = Arc::new(program.shapes(&inputs).unwrap());
        let mut once = || {
            let start = Instant::now();
            cx.enqueue(&inputs, &shapes).unwrap();
            (cx.outputs().unwrap().remove(0), start.elapsed())
        };
        let (y, mut least) = once();
        for _ in 0..times {
            let (again, time) = once();
            assert_eq!(again.bytes(), y.bytes(), "{}: another run, other bits", self.describe());
            least = least.min(time);
        }
        (y, least)
    }

    fn describe(&self) -> String {
        format!("{} {:?} of {} with {:?}", self.op, self.attrs, self.x.ty(), self.others)
    }

    /// Compares both results: differences by the greatest magnitude, in units of the last place of f32.
    fn error(&self, found: &Tensor, wanted: &Tensor) -> f64 {
        assert_eq!((found.dtype(), found.shape()), (wanted.dtype(), wanted.shape()), "{}", self.describe());
        let (a, b) = (found.to_f64(), wanted.to_f64());
        let most = b.iter().fold(f64::MIN_POSITIVE, |m, x| m.max(x.abs()));
        let unit = if found.dtype() == DType::F16 { 2f64.powi(-11) } else { 2f64.powi(-24) };
        let error = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / most / unit;
        assert!(error.is_finite(), "{}", self.describe());
        error
    }
}

/// Units of the last place, of the greatest result, that a transform may be off: as many as the tolerance table has for what is rounded
/// on the way.
const MOST: f64 = 8.0;

/// The GPU backends that are there.
fn backends() -> impl Iterator<Item = Arc<dyn Backend>> {
    [wgpu().unwrap(), cuda().unwrap()].into_iter().flatten()
}

fn compare(case: &Case, tactic: &str) {
    let (wanted, _) = case.run(&kiln_backend_cpu::Cpu::new(), "fast", 0);
    for backend in backends() {
        let (found, time) = case.run(&*backend, tactic, 0);
        let error = case.error(&found, &wanted);
        println!("{}: {}: {error:.2} units, {time:?}", backend.name(), case.describe());
        assert!(error <= MOST, "{}: {}: {error}", backend.name(), case.describe());
    }
}

#[test]
fn lengths_of_every_kind() {
    let mut rng = Rng::new(31);
    let smooth =
        [16, 18, 25, 27, 60, 64, 81, 100, 125, 128, 243, 512, 625, 729, 1000, 1024, 2048, 2187, 3125];
    let long = [4096, 6561, 10_000, 15_625, 16_384, 65_536, 1 << 20];
    let others = [17, 19, 31, 77, 97, 121, 343, 509, 1021, 1025, 4099, 16_385, 32_771, 100_003];
    for n in smooth.into_iter().chain(long).chain(others) {
        let rows = (1usize << 15).checked_div(n).unwrap_or(0).clamp(1, 5);
        compare(&Case::dft(&mut rng, DType::F32, &[rows, n, 2], 1, None, [false; 2]), "dft.fft");
    }
    // A prime whose chirps have angles of more than 16 bits.
    compare(&Case::dft(&mut rng, DType::F32, &[1, 262_147, 1], 1, None, [false; 2]), "dft.fft");
}

#[test]
fn directions_axes_and_types() {
    let mut rng = Rng::new(32);
    for _ in 0..40 {
        let n = rng.int(16, 1500);
        let t = rng.pick(&[DType::F32, DType::F32, DType::F16]).unwrap();
        let axis = rng.int(0, 2);
        let (inverse, onesided) = (rng.int(0, 1) == 1, rng.int(0, 1) == 1);
        let mut shape = [rng.int(1, 4) as usize, rng.int(1, 4) as usize, rng.int(1, 4) as usize, 2];
        shape[3] = match (inverse, onesided) {
            (true, true) => 2,
            (false, true) => 1,
            _ => rng.int(1, 2) as usize,
        };
        // Cut, padded, or as long as it is.
        shape[axis as usize] = (if rng.int(0, 1) == 1 { n } else { rng.int(1, 1500) }) as usize;
        compare(&Case::dft(&mut rng, t, &shape, axis, Some(n), [inverse, onesided]), "dft.fft");
    }
}

#[test]
fn frames_of_every_length() {
    let mut rng = Rng::new(33);
    for (n, step, windowed) in
        [(16, 5, true), (128, 32, true), (400, 160, true), (509, 100, false), (2048, 512, true)]
    {
        for (parts, onesided) in [(1, true), (1, false), (2, false)] {
            let mut others = vec![(1, rng.i64s(&[], &[step])), (3, rng.i64s(&[], &[n]))];
            if windowed {
                others.push((2, rng.tensor(DType::F32, &[n as usize])));
            }
            let attrs = Attrs::new().with("onesided", onesided);
            let x = rng.tensor(DType::F32, &[2, 4000, parts]);
            compare(&Case { op: "stft", attrs, x, others }, "stft.fft");
        }
    }
}

/// Short transforms stay sums, of which there is no faster form.
#[test]
fn short_transforms_are_sums() {
    let Some(backend) = kiln_tests::backends::wgpu().unwrap() else { return };
    let case = Case::dft(&mut Rng::new(1), DType::F32, &[3, 15, 2], 1, None, [false; 2]);
    let target = backend.targets().unwrap().remove(0);
    let program = Program::step_per_node(case.graph(), &Tactic::plain(""));
    let region = program.region(&program.steps[0]).unwrap();
    let names: Vec<String> = backend.tactics(&region, &target).unwrap().into_iter().map(|t| t.name).collect();
    assert_eq!(names, ["dft"]);
}

/// Prints times of both tactics with 8 rows: `KILN_FFT_TIMES=1`. Sums of 16,384 points take minutes.
#[test]
fn times() {
    if std::env::var_os("KILN_FFT_TIMES").is_none() {
        return;
    }
    let Some(backend) = wgpu().unwrap() else { return };
    for n in [64, 256, 1024, 16_384] {
        let case = Case::dft(&mut Rng::new(1), DType::F32, &[8, n, 1], 1, None, [false; 2]);
        for tactic in ["dft.fft", "dft"].into_iter().take(if n > 1024 { 1 } else { 2 }) {
            let (_, time) = case.run(&*backend, tactic, 10);
            println!("{n} points, 8 rows, {tactic}: {time:?}");
        }
    }
}
