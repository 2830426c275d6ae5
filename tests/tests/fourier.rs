//! Fast Fourier transforms of all backends at lengths that the op suite has no room for, beside transforms in f64.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln_backend::{Backend, Program, Tactic};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, Bytes, DType, Fact, Graph, Op, Tensor};
use kiln_tests::backends::{cuda, wgpu};
use rustfft::FftPlanner;
use rustfft::num_complex::Complex;
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

    /// An input that is a number.
    fn number(&self, input: usize) -> Option<usize> {
        self.others.iter().find(|(i, _)| *i == input).map(|(_, t)| t.scalar_i64().unwrap() as usize)
    }

    /// The result in f64.
    fn exact(&self) -> Vec<f64> {
        let flag = |name: &str| self.attrs.bool(name).unwrap_or(false);
        let (inverse, onesided) = (flag("inverse"), flag("onesided"));
        let (shape, x) = (self.x.shape(), self.x.to_f64());
        let parts = shape[shape.len() - 1];
        let at = |k: usize| Complex::new(x[k * parts], if parts == 2 { x[k * parts + 1] } else { 0.0 });
        if self.op == "stft" {
            let (step, n) = (self.number(1).unwrap(), self.number(3).unwrap());
            let window = self.others.iter().find(|(i, _)| *i == 2).map(|(_, t)| t.to_f64());
            let weight = |k: usize| window.as_ref().map_or(1.0, |w| w[k]);
            let frames = (shape[1] - n) / step + 1;
            return (0..shape[0] * frames)
                .flat_map(|f| {
                    let first = f / frames * shape[1] + f % frames * step;
                    let line = (0..n).map(|k| at(first + k) * weight(k)).collect();
                    transformed(line, false, if onesided { n / 2 + 1 } else { n })
                })
                .flat_map(|v| [v.re, v.im])
                .collect();
        }
        let axis = self.number(2).unwrap();
        let (given, inner) = (shape[axis], shape[axis + 1..shape.len() - 1].iter().product::<usize>());
        let n = self.number(1).unwrap_or(given);
        let (real, made) = (inverse && onesided, if onesided && !inverse { n / 2 + 1 } else { n });
        let outer: usize = shape[..axis].iter().product();
        let width = if real { 1 } else { 2 };
        let mut y = vec![0.0; outer * made * inner * width];
        for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
            let counted = if real { n / 2 + 1 } else { n }.min(given);
            let mut line = vec![Complex::new(0.0, 0.0); n];
            line.iter_mut().take(counted).enumerate().for_each(|(k, v)| *v = at((o * given + k) * inner + i));
            if real {
                // The spectrum of a real signal: what has no partner is real, the others have their conjugates.
                line[0].im = 0.0;
                (1..n.div_ceil(2)).for_each(|k| line[n - k] = line[k].conj());
                if n.is_multiple_of(2) {
                    line[n / 2].im = 0.0;
                }
            }
            for (k, v) in transformed(line, inverse, made).into_iter().enumerate() {
                let to = ((o * made + k) * inner + i) * width;
                y[to..to + width].copy_from_slice(&[v.re, v.im][..width]);
            }
        }
        y
    }

    /// Compares a result: differences by the greatest magnitude, in units of the last place of f32.
    fn error(&self, found: &Tensor, wanted: &[f64]) -> f64 {
        let (a, b) = (found.to_f64(), wanted);
        assert_eq!(a.len(), b.len(), "{}", self.describe());
        let most = b.iter().fold(f64::MIN_POSITIVE, |m, x| m.max(x.abs()));
        let unit = if found.dtype() == DType::F16 { 2f64.powi(-11) } else { 2f64.powi(-24) };
        let error = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / most / unit;
        assert!(error.is_finite(), "{}", self.describe());
        error
    }
}

/// The first numbers of a line's transform.
fn transformed(mut line: Vec<Complex<f64>>, inverse: bool, count: usize) -> Vec<Complex<f64>> {
    let n = line.len();
    let mut planner = FftPlanner::new();
    let fft = if inverse { planner.plan_fft_inverse(n) } else { planner.plan_fft_forward(n) };
    fft.process(&mut line);
    line.truncate(count);
    let scale = if inverse { 1.0 / n as f64 } else { 1.0 };
    line.iter().map(|v| v * scale).collect()
}

/// Units of the last place, of the greatest result, that a transform may be off: as many as the tolerance table has for what is rounded
/// on the way.
const MOST: f64 = 8.0;

/// Compares the CPU backend's result and those of the GPU backends that are there, which have it by this tactic.
fn compare(case: &Case, tactic: &str) {
    let wanted = case.exact();
    let cpu: Arc<dyn Backend> = Arc::new(kiln_backend_cpu::Cpu::new());
    let gpus = [wgpu().unwrap(), cuda().unwrap()].into_iter().flatten().map(|b| (b, tactic));
    for (backend, tactic) in [(cpu, "fast")].into_iter().chain(gpus) {
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
