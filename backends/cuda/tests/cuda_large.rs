//! A tensor of more than 2^31 elements is filled, reduced, multiplied and gathered from; rows are gathered from one of more
//! than 2^32. Take 10 GB of device memory each; skipped without a device, unless `KILN_REQUIRE_CUDA=1`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

#[path = "common/device.rs"]
mod device;

use device::device;
use kiln_backend::{Bound, Program, Tactic};
use kiln_backend_cuda::Cuda;
use kiln_backend_cuda::driver::{Buffer, Stream, devices};
use kiln_ir::{Attrs, DType, Fact, Graph, Op, Tensor, TensorType, ValueId};
use std::sync::Arc;

/// 2^31 and some more elements.
const ROWS: usize = 32_769;
const COLS: usize = 65_537;
/// Rows that are looked at.
const PICKED: [i64; 4] = [0, 16_384, 32_767, 32_768];

fn column(c: usize) -> f64 {
    (c % 61) as f64
}

fn row(r: usize) -> f64 {
    (r % 7) as f64
}

fn node(g: &mut Graph, name: &str, op: &str, attrs: Attrs, inputs: &[ValueId]) -> ValueId {
    let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
    g.add_node(name, Op::new(op, attrs).unwrap(), &inputs).unwrap()[0]
}

fn halves(shape: &[usize], value: impl Fn(usize) -> f64) -> Tensor {
    let n = shape.iter().product::<usize>();
    Tensor::from_elems(DType::F16, shape, &kiln_ir::Elems::F((0..n).map(value).collect())).unwrap()
}

/// The sum of a column and a row vector, and what is made of it.
fn program() -> Program {
    let mut g = Graph::new("large");
    let input = |g: &mut Graph, name: &str, shape: [i64; 2]| {
        g.add_input(name, Fact::of(TensorType::new(DType::F16, shape)))
    };
    let cols = input(&mut g, "cols", [1, COLS as i64]);
    let rows = input(&mut g, "rows", [ROWS as i64, 1]);
    let picks = input(&mut g, "picks", [COLS as i64, 8]);
    let wide = node(&mut g, "wide", "add", Attrs::new(), &[rows, cols]);
    let at = g.add_constant("at", Tensor::i64(&[PICKED.len()], &PICKED).unwrap());
    let some = node(&mut g, "some", "gather", Attrs::new().with("axis", 0i64), &[wide, at]);
    let axes = g.add_constant("axes", Tensor::i64(&[1], &[1]).unwrap());
    let most = node(&mut g, "most", "reduce", Attrs::new().with("op", "max"), &[wide, axes]);
    let ends = node(&mut g, "ends", "matmul", Attrs::new(), &[wide, picks]);
    g.outputs = vec![some, most, ends];
    Program::step_per_node(g, &Tactic::plain(""))
}

#[test]
fn a_tensor_of_more_than_two_to_the_31_elements() {
    let Some((device, target)) = device() else { return };
    let mut program = program();
    program.choose(&Cuda, &target).unwrap();
    for s in &program.steps {
        println!("{}: {}", s.name, s.tactic.id());
    }
    let program = Arc::new(program);
    let mut context = device.load(program.clone()).unwrap().context().unwrap();
    // Only the first and the last element of a row count.
    let ends = halves(&[COLS, 8], |i| if i / 8 == 0 || i / 8 == COLS - 1 { (i % 8) as f64 } else { 0.0 });
    let inputs = [halves(&[1, COLS], column), halves(&[ROWS, 1], row), ends];
    let shapes = Arc::new(program.shapes(&inputs).unwrap());
    context.enqueue(&inputs, &shapes).unwrap();
    let found = context.outputs().unwrap();
    let (some, most, ends) = (found[0].to_f64(), found[1].to_f64(), found[2].to_f64());
    for (i, &r) in PICKED.iter().enumerate() {
        let wrong = (0..COLS).find(|&c| some[i * COLS + c] != row(r as usize) + column(c));
        assert_eq!(wrong, None, "row {r}");
    }
    for r in 0..ROWS {
        assert_eq!(most[r], row(r) + 60.0, "row {r}");
        let sum = column(0) + column(COLS - 1) + 2.0 * row(r);
        for j in 0..8 {
            assert_eq!(ends[r * 8 + j], sum * j as f64, "row {r}, {j}");
        }
    }
}

/// A table of 9.2 GB: 4.6e9 elements, so that positions of its last rows need more than 32 bits.
const TABLE: [usize; 2] = [140_000, 32_768];
/// Rows that are written by one run.
const PART: usize = 10_000;

/// Element of row `r` and column `c` of the table: whole numbers below 2^11, which f16 has. 2^32 elements
/// further down it is another number.
fn cell(r: usize, c: usize) -> f64 {
    (r % 1009 + c % 1013) as f64
}

fn pointer(address: u64) -> *mut std::ffi::c_void {
    address as usize as *mut std::ffi::c_void
}

/// Runs one graph with each input bound to memory of the device (address, bytes) or copied; its outputs are on the host, or
/// the first one in memory of the device.
fn run(g: Graph, inputs: &[Tensor], table: (usize, u64, u64), to_table: bool) -> Vec<Vec<f64>> {
    let (device, target) = device().unwrap();
    let mut program = Program::step_per_node(g, &Tactic::plain(""));
    program.choose(&Cuda, &target).unwrap();
    for s in &program.steps {
        println!("{}: {}", s.name, s.tactic.id());
    }
    let program = Arc::new(program);
    let mut context = device.load(program.clone()).unwrap().context().unwrap();
    let shapes = Arc::new(program.shapes(inputs).unwrap());
    let (port, address, bytes) = table;
    let port = if to_table { Bound::Output(port) } else { Bound::Input(port) };
    // SAFETY: the buffer outlives the run, which is waited for.
    unsafe { context.require_native().unwrap().bind(port, pointer(address), bytes) }.unwrap();
    context.enqueue(inputs, &shapes).unwrap();
    match to_table {
        true => {
            context.wait().unwrap();
            Vec::new()
        }
        false => context.outputs().unwrap().iter().map(Tensor::to_f64).collect(),
    }
}

/// Rows of an embedding table beyond 2^32 elements, by every operator that may read them. The table is written on the device.
/// Takes 9.2 GB of device memory.
#[test]
fn gathers_from_a_table_of_more_than_two_to_the_32_elements() {
    if device().is_none() {
        return;
    }
    let gpu = devices().unwrap().remove(0).open().unwrap();
    gpu.bind().unwrap();
    let stream = Stream::new(&gpu).unwrap();
    let bytes = (TABLE[0] * TABLE[1] * 2) as u64;
    let buffer = Buffer::new(&stream, bytes).unwrap();
    stream.synchronize().unwrap();
    let cols = halves(&[1, TABLE[1]], |c| (c % 1013) as f64);
    for first in (0..TABLE[0]).step_by(PART) {
        let mut g = Graph::new("fill");
        let shapes = [[PART as i64, 1], [1, TABLE[1] as i64]];
        let [rows, all] = shapes.map(|s| {
            g.add_input(if s[0] == 1 { "cols" } else { "rows" }, Fact::of(TensorType::new(DType::F16, s)))
        });
        let part = node(&mut g, "part", "add", Attrs::new(), &[rows, all]);
        g.outputs = vec![part];
        let rows = halves(&[PART, 1], |r| ((first + r) % 1009) as f64);
        let (at, len) = ((first * TABLE[1] * 2) as u64, (PART * TABLE[1] * 2) as u64);
        run(g, &[rows, cols.clone()], (0, buffer.address() + at, len), true);
    }
    let picked: [i64; 9] = [0, 1, 65_535, 65_536, 131_071, 131_072, 139_999, -1, -8_928];
    let row = |r: i64| if r < 0 { (TABLE[0] as i64 + r) as usize } else { r as usize };
    let mut g = Graph::new("gathers");
    let table = g.add_input("table", Fact::of(TensorType::new(DType::F16, TABLE.map(|n| n as i64))));
    let of = |shape: &[usize]| Tensor::i64(shape, &picked).unwrap();
    let (flat, column) = (g.add_constant("flat", of(&[9])), g.add_constant("column", of(&[9, 1])));
    let rows = Attrs::new().with("axis", 0i64);
    let gathered = node(&mut g, "gathered", "gather", rows.clone(), &[table, flat]);
    let by_tuple = node(&mut g, "by tuple", "gather_nd", Attrs::new(), &[table, column]);
    let each = node(&mut g, "each", "gather_elements", rows, &[table, column]);
    let ints = |g: &mut Graph, name: &str, v: &[i64]| g.add_constant(name, Tensor::i64(&[2], v).unwrap());
    let from = ints(&mut g, "from", &[131_070, 32_766]);
    let to = ints(&mut g, "to", &[140_000, 32_768]);
    let cut = node(&mut g, "cut", "slice", Attrs::new(), &[table, from, to]);
    let last = g.add_constant("last", Tensor::i64(&[2], &[32_767, 5]).unwrap());
    let columns = node(&mut g, "columns", "gather", Attrs::new().with("axis", 1i64), &[table, last]);
    g.outputs = vec![gathered, by_tuple, each, cut, columns];
    // Pages of zeros that nobody touches: the elements are those of the device.
    let shape = Tensor::from_bytes(DType::F16, &TABLE, vec![0u8; bytes as usize]).unwrap();
    let found = run(g, &[shape], (0, buffer.address(), bytes), false);
    let check = |what: &str, found: &[f64], count: usize, wanted: &dyn Fn(usize) -> f64| {
        assert_eq!(found.len(), count, "{what}");
        let wrong = (0..count).find(|&i| found[i] != wanted(i));
        assert_eq!(wrong.map(|i| (i, found[i], wanted(i))), None, "{what}");
    };
    let whole = |i: usize| cell(row(picked[i / TABLE[1]]), i % TABLE[1]);
    check("gather", &found[0], 9 * TABLE[1], &whole);
    check("gather_nd", &found[1], 9 * TABLE[1], &whole);
    check("gather_elements", &found[2], 9, &|i| cell(row(picked[i]), 0));
    check("slice", &found[3], (140_000 - 131_070) * 2, &|i| cell(131_070 + i / 2, 32_766 + i % 2));
    check("columns", &found[4], 2 * TABLE[0], &|i| cell(i / 2, if i % 2 == 0 { 32_767 } else { 5 }));
}
