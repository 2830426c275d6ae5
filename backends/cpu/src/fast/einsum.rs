//! `einsum` of floats: operands are copied into the order of a batch of matrix products.

use super::copy::{self, Map};
use super::gemm::{Bias, Size, Strided, floats, floats_mut, gemm, scratch};
use super::reduce;
use super::{NodeCx, Types};
use crate::threads;
use kiln_backend::BackendError;
use kiln_ops::matmul::einsum::walk;
use kiln_ops::util::strides;

/// Whether the kernel covers a node: one or two operands of floats.
pub fn covers(t: &Types<'_>) -> bool {
    t.all_real() && t.node.inputs.len() <= 2
}

/// Dimensions that play one part in the product.
#[derive(Default)]
struct Group {
    sizes: Vec<usize>,
    /// Strides of both operands.
    steps: [Vec<usize>; 2],
    /// Dimensions of the result.
    places: Vec<usize>,
}

impl Group {
    fn push(&mut self, size: usize, steps: [usize; 2], place: usize) {
        self.sizes.push(size);
        (0..2).for_each(|i| self.steps[i].push(steps[i]));
        self.places.push(place);
    }

    fn volume(&self) -> usize {
        self.sizes.iter().product()
    }

    fn maps(&self, operand: usize) -> impl Iterator<Item = Map> + '_ {
        self.sizes.iter().zip(&self.steps[operand]).map(|(&n, &s)| Map::all(n, s))
    }
}

/// Copies an operand so that the dimensions of these groups follow each other.
fn ordered(x: &[f32], operand: usize, groups: [&Group; 3]) -> Vec<f32> {
    let n = groups.iter().map(|g| g.volume()).product();
    let mut y = vec![0f32; n];
    let maps = groups.iter().flat_map(|g| g.maps(operand)).collect();
    copy::bytes(4, bytemuck::cast_slice(x), bytemuck::cast_slice_mut(&mut y), 0, maps, &[]);
    y
}

pub fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let Ok(equation) = cx.node.op.attrs().str("equation") else { return Ok(false) };
    let operands: Option<Vec<_>> = (0..cx.args.len()).map(|i| cx.floats(i)).collect();
    let (Some(operands), Some(shape)) = (operands, cx.out_shape(0)) else { return Ok(false) };
    let shapes: Vec<&[usize]> = (0..cx.args.len()).map(|i| cx.shape(i)).collect();
    let Ok(walk) = walk(equation, &shapes) else { return Ok(false) };
    let step = |steps: &[Vec<usize>], i: usize, d: usize| steps.get(i).map_or(0, |s| s[d]);
    let [mut batch, mut rows, mut columns, mut sums] = [(); 4].map(|()| Group::default());
    for (d, &n) in shape.iter().enumerate() {
        let steps = [step(&walk.outer, 0, d), step(&walk.outer, 1, d)];
        match steps {
            [0, 0] => batch.push(n, steps, d),
            [_, 0] => rows.push(n, steps, d),
            [0, _] => columns.push(n, steps, d),
            _ => batch.push(n, steps, d),
        }
    }
    for (d, &n) in walk.inner.iter().enumerate() {
        sums.push(n, [step(&walk.within, 0, d), step(&walk.within, 1, d)], d);
    }
    let (pool, depth) = (cx.pool.clone(), cx.depth);
    let s = Size { m: rows.volume(), n: columns.volume(), k: sums.volume() };
    cx.write_floats(0, &shape, |y| {
        let mut c = scratch(&pool, y.len(), "products of an einsum")?;
        let c_all = floats_mut(&mut c);
        match &operands[..] {
            [x] => {
                let x = ordered(x, 0, [&batch, &rows, &sums]);
                threads::chunks(c_all, 1, 1 + 8192 / s.k.max(1), |i, c| {
                    c[0] = reduce::sum(&x[i * s.k..(i + 1) * s.k]) as f32;
                });
            }
            [a, b] => {
                let a = ordered(a, 0, [&batch, &rows, &sums]);
                let b = ordered(b, 1, [&batch, &sums, &columns]);
                for (i, c) in c_all.chunks_exact_mut((s.m * s.n).max(1)).enumerate() {
                    let left = Strided { data: &a[i * s.m * s.k..], row: s.k, col: 1 };
                    let right = Strided { data: &b[i * s.k * s.n..], row: s.n, col: 1 };
                    gemm(s, &left, &right, Bias::None, c, (depth, &pool))?;
                }
            }
            _ => {}
        }
        // The product's dimensions are in the order of the groups; each dimension of the result is one of them.
        let groups = [&batch, &rows, &columns];
        let sizes: Vec<usize> = groups.iter().flat_map(|g| g.sizes.iter().copied()).collect();
        let places: Vec<usize> = groups.iter().flat_map(|g| g.places.iter().copied()).collect();
        let own = strides(&sizes);
        let mut maps = vec![Map::all(1, 0); shape.len()];
        places.iter().zip(sizes.iter().zip(&own)).for_each(|(&p, (&n, &s))| maps[p] = Map::all(n, s));
        copy::bytes(4, bytemuck::cast_slice(floats(&c)), bytemuck::cast_slice_mut(y), 0, maps, &[]);
        Ok(())
    })
}
