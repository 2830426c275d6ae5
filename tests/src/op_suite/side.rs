//! Side results: regions of random shapes whose rows are reduced to a second output.
//!
//! Products of small integers are exact, and so is an epilogue of one multiplication or addition: the first output must be the
//! oracle's. The second one must be what the oracle reduces the first one to.

use super::run::Subject;
use kiln_backend::compare::Expectation;
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Dim, Elems, Fact, Graph, IrError, Op, Tensor, TensorType, ValueId};
use std::collections::BTreeMap;

/// Result of [`Subject::side_results`].
#[derive(Debug, Default)]
pub struct Sides {
    /// Runs that agree with the oracle, by tactic.
    pub passed: BTreeMap<String, usize>,
    /// Regions that are refused, by reason.
    pub refused: BTreeMap<String, usize>,
    /// Failures.
    pub failed: Vec<String>,
}

/// A region with a side result.
struct Case {
    graph: Graph,
    inputs: Vec<Tensor>,
    /// The reduction, and its axes.
    reduce: Op,
    axes: Option<Tensor>,
    /// Whether the reduction has no error.
    exact: bool,
}

impl Subject {
    /// Runs so many random regions by every tactic, and those whose result is rounded before it is reduced.
    pub fn side_results(&self, seed: u64, count: usize) -> Sides {
        let mut found = Sides::default();
        let rounded = [DType::F16, DType::BF16].map(|t| ("rounded".to_owned(), rounded(t)));
        let random =
            (0..count as u64).map(|i| (format!("case {i} of seed {seed}"), Draw::new(seed ^ i << 20).case()));
        for (name, case) in rounded.into_iter().chain(random) {
            let outcome = case.map_err(|e| e.to_string()).and_then(|c| {
                self.side_result(&c, &mut found).map_err(|e| format!("{e}\n{}", c.graph.to_text()))
            });
            found.failed.extend(outcome.err().map(|e| format!("{name}: {e}")));
        }
        found
    }

    fn side_result(&self, case: &Case, found: &mut Sides) -> Result<(), String> {
        let wanted = case.graph.eval(&case.inputs).map_err(|e| e.to_string())?;
        let refused = self.by_every_tactic(case.graph.clone(), &case.inputs, &mut found.passed, |runs| {
            (0..2).try_for_each(|_| self.check_sides(case, &wanted, runs.run()?))
        })?;
        if let Some(why) = refused {
            *found.refused.entry(why).or_default() += 1;
        }
        Ok(())
    }

    fn check_sides(&self, case: &Case, wanted: &[Tensor], outputs: Vec<Tensor>) -> Result<(), String> {
        let Ok([result, reduced]) = <[Tensor; 2]>::try_from(outputs) else {
            return Err("wants two outputs".into());
        };
        if !same(&result, &wanted[0]) {
            return Err(format!("the result is {result:?}, wants {:?}", wanted[0]));
        }
        if case.exact && !same(&reduced, &wanted[1]) {
            return Err(format!("the reduced rows are {reduced:?}, wants {:?}", wanted[1]));
        }
        let inputs: Vec<Option<Tensor>> =
            [Some(result)].into_iter().chain(case.axes.clone().map(Some)).collect();
        let expected = Expectation::new(&case.reduce, &inputs, self.latitude)?;
        expected.check(&[reduced]).map_err(|e| format!("the reduced rows: {e}"))
    }
}

/// Whether the types and all numbers are equal.
fn same(a: &Tensor, b: &Tensor) -> bool {
    a.ty() == b.ty()
        && match (a.elems(), b.elems()) {
            (Elems::F(a), Elems::F(b)) => a.iter().zip(&b).all(|(a, b)| a == b),
            (a, b) => a == b,
        }
}

/// A row that sums up to 0 as it is stored, and to 1 before it is rounded.
fn rounded(dtype: DType) -> Result<Case, IrError> {
    let large = if dtype == DType::F16 { 2048.0 } else { 256.0 };
    let a = tensor(dtype, &[1, 2], vec![1.0, 1.0])?;
    let b = tensor(dtype, &[2, 2], vec![large, -large, 1.0, 0.0])?;
    let mut g = Graph::new("rounded");
    let x = [("a", &a), ("b", &b)].map(|(name, t)| g.add_input(name, Fact::of(t.ty())));
    let y = g.add("y", Op::new("matmul", Attrs::new())?, &x)?;
    let sum = Attrs::new().with("op", "sum");
    Ok(Case { exact: true, ..reduced(g, vec![a, b], y, sum, Some(-1))? })
}

/// The region of a graph, with the reduction of `y` behind it.
fn reduced(
    mut g: Graph,
    inputs: Vec<Tensor>,
    y: ValueId,
    attrs: Attrs,
    axis: Option<i64>,
) -> Result<Case, IrError> {
    let reduce = Op::new("reduce", attrs)?;
    let axes = axis.map(|axis| tensor_of_ints(&[1], vec![axis])).transpose()?;
    let listed = axes.clone().map(|t| g.add_constant("axes", t));
    let s = g.add_node("s", reduce.clone(), &[Some(y), listed])?[0];
    g.outputs = vec![y, s];
    Ok(Case { graph: g, inputs, reduce, axes, exact: false })
}

fn tensor(dtype: DType, shape: &[usize], elems: Vec<f64>) -> Result<Tensor, IrError> {
    let elems =
        if dtype.is_float() { Elems::F(elems) } else { Elems::I(elems.iter().map(|&x| x as i64).collect()) };
    Tensor::from_elems(dtype, shape, &elems).ok_or_else(|| IrError::Structure("a tensor of a test".into()))
}

fn tensor_of_ints(shape: &[usize], elems: Vec<i64>) -> Result<Tensor, IrError> {
    Tensor::i64(shape, &elems).ok_or_else(|| IrError::Structure("a tensor of a test".into()))
}

/// Random choices for a case.
struct Draw {
    rng: Rng,
    graph: Graph,
    inputs: Vec<Tensor>,
    /// Whether shapes are known only when the region runs.
    open: bool,
}

/// A dimension with its name.
type Size = (&'static str, usize);

impl Draw {
    fn new(seed: u64) -> Draw {
        let mut rng = Rng::new(seed);
        let open = rng.int(0, 3) == 0;
        Draw { rng, graph: Graph::new("side"), inputs: Vec::new(), open }
    }

    fn chance(&mut self, of: i64) -> bool {
        self.rng.int(1, of) == 1
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.int(0, of.len() as i64 - 1) as usize]
    }

    fn size(&mut self) -> usize {
        if self.chance(20) { 0 } else { self.pick(&[1, 1, 2, 3, 5, 8, 17, 31, 64, 65, 127, 130, 200]) }
    }

    /// An input of small integers, or of fractions.
    fn input(&mut self, dtype: DType, sizes: &[Size], fractions: bool) -> Result<ValueId, IrError> {
        let shape: Vec<usize> = sizes.iter().map(|s| s.1).collect();
        let open = self.open;
        let dims = sizes
            .iter()
            .map(|&(name, n)| if open && name != "1" { Dim::host(name) } else { Dim::from(n as i64) });
        let ty = TensorType { dtype, dims: dims.collect() };
        let n: usize = shape.iter().product();
        let t = match fractions {
            true => self.rng.tensor(dtype, &shape),
            false => {
                let elems = (0..n).map(|_| self.rng.int(-1, 1) as f64).collect();
                tensor(dtype, &shape, elems)?
            }
        };
        self.inputs.push(t);
        Ok(self.graph.add_input(&format!("x{}", self.inputs.len()), Fact::of(ty)))
    }

    fn add(&mut self, op: &str, attrs: Attrs, inputs: &[ValueId]) -> Result<ValueId, IrError> {
        let name = format!("n{}", self.graph.order().len());
        self.graph.add(&name, Op::new(op, attrs)?, inputs)
    }

    fn case(mut self) -> Result<Case, IrError> {
        let dtype =
            self.pick(&[DType::F32, DType::F32, DType::F16, DType::BF16, DType::I32, DType::I64, DType::I8]);
        let (y, row) = if self.chance(6) { self.pointwise(dtype)? } else { self.product(dtype)? };
        let dtype = self.graph.ty(y).dtype;
        let (y, rank) = (self.epilogue(y, dtype, row)?, self.graph.ty(y).rank());
        let ops = ["sum", "mean", "max", "min", "l1", "l2", "sum_square", "log_sum_exp", "log_sum", "prod"];
        // Greater rows overflow.
        let of = if row.1 > 8 { &ops[..9] } else { &ops[..] };
        let attrs = Attrs::new().with("op", self.pick(of)).with("keep_dims", self.chance(2));
        let axis = match rank {
            1 if self.chance(2) => None,
            _ => Some(if self.chance(2) { -1 } else { rank as i64 - 1 }),
        };
        reduced(self.graph, self.inputs, y, attrs, axis)
    }

    /// A product of random operands, and the size of its rows.
    fn product(&mut self, dtype: DType) -> Result<(ValueId, Size), IrError> {
        let (m, n, k) = (("m", self.size()), ("n", self.size()), ("k", self.size()));
        let (left, right) = match self.rng.int(0, 7) {
            0 => (vec![k], vec![k, n]),
            1 => (vec![m, k], vec![k]),
            2 => (vec![("b", 3), m, k], vec![k]),
            3 => (vec![("b", 3), m, k], vec![("b", 3), k, n]),
            4 => (vec![("b", 2), ("1", 1), m, k], vec![("c", 3), k, n]),
            _ => (vec![m, k], vec![k, n]),
        };
        let row = if right.len() > 1 { n } else { m };
        let mut attrs = Attrs::new();
        let mut operands = Vec::new();
        for (name, mut sizes) in [("trans_a", left), ("trans_b", right)] {
            let at = sizes.len();
            let moved = match at > 1 {
                true => (self.chance(3), self.chance(4)),
                false => (false, false),
            };
            if moved.0 {
                attrs = attrs.with(name, true);
                sizes.swap(at - 1, at - 2);
            }
            if moved.1 {
                sizes.swap(at - 1, at - 2);
                let mut perm: Vec<i64> = (0..at as i64).collect();
                perm.swap(at - 1, at - 2);
                let x = self.input(dtype, &sizes, false)?;
                operands.push(self.add("transpose", Attrs::new().with("perm", perm), &[x])?);
            } else {
                operands.push(self.input(dtype, &sizes, false)?);
            }
        }
        Ok((self.add("matmul", attrs, &operands)?, row))
    }

    /// An operator of two operands without an anchor.
    fn pointwise(&mut self, dtype: DType) -> Result<(ValueId, Size), IrError> {
        let (m, n) = (("m", self.size()), ("n", self.size()));
        let a = self.input(dtype, &[("b", 3), m, n], false)?;
        let all = [("b", 3), m, n];
        let column = [("b", 3), m, ("1", 1)];
        let other = self.pick(&[&all[1..], &all[2..], &column]);
        let b = self.input(dtype, other, false)?;
        Ok((self.add("mul", Attrs::new(), &[a, b])?, n))
    }

    /// None, or one with a single rounding.
    fn epilogue(&mut self, y: ValueId, dtype: DType, row: Size) -> Result<ValueId, IrError> {
        match self.rng.int(0, 4) {
            0 => {
                let by = self.input(dtype, &[row], true)?;
                self.add("mul", Attrs::new(), &[y, by])
            }
            1 => {
                let by = self.input(dtype, &[row], false)?;
                let sum = self.add("add", Attrs::new(), &[y, by])?;
                self.add("relu", Attrs::new(), &[sum])
            }
            2 => {
                let to = self.pick(&[DType::F32, DType::F16, DType::I32]);
                self.add("cast", Attrs::new().with("to", to), &[y])
            }
            _ => Ok(y),
        }
    }
}
