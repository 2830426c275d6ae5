//! `einsum` of floats: operands are copied into the order of a batch of matrix products.

use super::copy::{self, Map};
use super::gemm::{Bias, Size, Strided, floats, floats_mut, gemm, scratch};
use super::reduce;
use super::{NodeCx, Types};
use crate::buffer::{Buf, Pool};
use crate::threads;
use kiln_backend::BackendError;
use kiln_ops::matmul::einsum::walk;
use kiln_ops::util::strides;
use std::sync::Arc;

/// Whether the kernel covers a node: floats.
pub fn covers(t: &Types<'_>) -> bool {
    t.all_real() && !t.node.inputs.is_empty()
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

/// Copies an operand so that the dimensions of these groups follow each other, and sums the dimensions that it alone has.
fn ordered(
    x: &[f32],
    operand: usize,
    groups: [&Group; 3],
    alone: &Group,
    pool: &Arc<Pool>,
) -> Result<Buf, BackendError> {
    const WHAT: &str = "an operand of an einsum";
    let n = volume(groups.iter().map(|g| g.volume()))?;
    let terms = alone.volume();
    let maps = |more: Option<&Group>| -> Vec<Map> {
        groups.into_iter().chain(more).flat_map(|g| g.maps(operand)).collect()
    };
    let mut y = scratch(pool, n, WHAT)?;
    let place = |to: &mut [f32], maps| {
        copy::bytes(4, bytemuck::cast_slice(x), bytemuck::cast_slice_mut(to), 0, maps, &[]);
    };
    if alone.sizes.is_empty() {
        place(floats_mut(&mut y), maps(None));
        return Ok(y);
    }
    let mut all = scratch(pool, volume([n, terms])?, WHAT)?;
    place(floats_mut(&mut all), maps(Some(alone)));
    let all = floats(&all);
    threads::chunks(floats_mut(&mut y), 1, 1 + 8192 / terms.max(1), |i, y| {
        y[0] = reduce::sum(&all[i * terms..(i + 1) * terms]) as f32;
    });
    Ok(y)
}

/// Product of sizes.
fn volume(sizes: impl IntoIterator<Item = usize>) -> Result<usize, BackendError> {
    let product = sizes.into_iter().try_fold(1usize, usize::checked_mul);
    product.ok_or_else(|| BackendError::InvalidArgument("an einsum of more elements than memory has".into()))
}

/// The dimensions of a product of operands, with the strides of each along them.
struct Spaces {
    /// Sizes of the dimensions of the result, then of those that are summed.
    sizes: Vec<usize>,
    /// Dimensions of the result.
    kept: usize,
    /// Strides of each operand.
    steps: Vec<Vec<usize>>,
}

pub fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let Ok(equation) = cx.node.op.attrs().str("equation") else { return Ok(false) };
    let operands: Option<Vec<_>> = (0..cx.args.len()).map(|i| cx.floats(i)).collect();
    let (Some(operands), Some(shape)) = (operands, cx.out_shape(0)) else { return Ok(false) };
    let shapes: Vec<&[usize]> = (0..cx.args.len()).map(|i| cx.shape(i)).collect();
    let Ok(walk) = walk(equation, &shapes) else { return Ok(false) };
    let steps = walk.outer.iter().zip(&walk.within).map(|(a, b)| [a.as_slice(), b].concat());
    let mut all =
        Spaces { sizes: [shape.as_slice(), &walk.inner].concat(), kept: shape.len(), steps: steps.collect() };
    let how = (cx.depth, &cx.pool.clone());
    // Operands are combined from the left, two at a time: what no later one has is summed at once.
    let mut first: Option<Buf> = None;
    for i in 0..operands.len().saturating_sub(2) {
        let (a, b) = (first.as_ref().map_or(&*operands[0], floats), &*operands[i + 1]);
        let (next, made) = all.first_two();
        let mut y =
            scratch(how.1, volume(next.sizes[..next.kept].iter().copied())?, "products of an einsum")?;
        product(&[a, b], &next, floats_mut(&mut y), how)?;
        first = Some(y);
        all.steps.splice(..2, [made]);
    }
    cx.write_floats(0, &shape, |y| {
        let left = first.as_ref().map_or(&*operands[0], floats);
        match operands.len() {
            1 => product(&[left], &all, y, how),
            n => product(&[left, &*operands[n - 1]], &all, y, how),
        }
    })
}

impl Spaces {
    /// The product of the first two operands alone, and the strides of its result along all dimensions.
    fn first_two(&self) -> (Spaces, Vec<usize>) {
        let has = |i: usize, d: usize| self.steps[i][d] != 0;
        let later = |d: usize| d < self.kept || (2..self.steps.len()).any(|i| has(i, d));
        let own = |d: &usize| has(0, *d) || has(1, *d);
        let (kept, summed): (Vec<usize>, Vec<usize>) =
            (0..self.sizes.len()).filter(own).partition(|&d| later(d));
        let order: Vec<usize> = kept.iter().chain(&summed).copied().collect();
        let pick = |v: &[usize]| order.iter().map(|&d| v[d]).collect::<Vec<_>>();
        let next = Spaces {
            sizes: pick(&self.sizes),
            kept: kept.len(),
            steps: self.steps[..2].iter().map(|s| pick(s)).collect(),
        };
        let mut made = vec![0; self.sizes.len()];
        for (s, d) in strides(&next.sizes[..next.kept]).into_iter().zip(&kept) {
            made[*d] = s;
        }
        (next, made)
    }
}

/// Makes the product of one or two operands.
fn product(
    operands: &[&[f32]],
    spaces: &Spaces,
    y: &mut [f32],
    (depth, pool): (usize, &Arc<Pool>),
) -> Result<(), BackendError> {
    let step = |i: usize, d: usize| spaces.steps.get(i).map_or(0, |s| s[d]);
    let [mut batch, mut rows, mut columns, mut sums, mut first, mut second] =
        [(); 6].map(|()| Group::default());
    for (d, &n) in spaces.sizes.iter().enumerate() {
        let steps = [step(0, d), step(1, d)];
        match steps {
            [_, 0] if d < spaces.kept && steps[0] > 0 => rows.push(n, steps, d),
            [0, b] if d < spaces.kept && b > 0 => columns.push(n, steps, d),
            _ if d < spaces.kept => batch.push(n, steps, d),
            // It was summed in an earlier product.
            [0, 0] => {}
            // Dimensions of one operand alone are summed in it, before the product.
            _ if operands.len() == 1 => first.push(n, steps, d),
            [a, 0] if a > 0 => first.push(n, steps, d),
            [0, b] if b > 0 => second.push(n, steps, d),
            _ => sums.push(n, steps, d),
        }
    }
    let s = Size { m: rows.volume(), n: columns.volume(), k: sums.volume() };
    let mut c = scratch(pool, y.len(), "products of an einsum")?;
    let c_all = floats_mut(&mut c);
    match operands {
        [x] => {
            let x = ordered(x, 0, [&batch, &rows, &sums], &first, pool)?;
            c_all.copy_from_slice(floats(&x));
        }
        [a, b] => {
            let a = ordered(a, 0, [&batch, &rows, &sums], &first, pool)?;
            let b = ordered(b, 1, [&batch, &sums, &columns], &second, pool)?;
            let (a, b) = (floats(&a), floats(&b));
            for (i, c) in c_all.chunks_exact_mut((s.m * s.n).max(1)).enumerate() {
                let left = Strided { data: &a[i * s.m * s.k..], row: s.k, col: 1 };
                let right = Strided { data: &b[i * s.k * s.n..], row: s.n, col: 1 };
                gemm(s, &left, &right, Bias::None, c, (depth, pool))?;
            }
        }
        _ => {}
    }
    // The product's dimensions are in the order of the groups; each dimension of the result is one of them.
    let groups = [&batch, &rows, &columns];
    let sizes: Vec<usize> = groups.iter().flat_map(|g| g.sizes.iter().copied()).collect();
    let places: Vec<usize> = groups.iter().flat_map(|g| g.places.iter().copied()).collect();
    let own = strides(&sizes);
    let mut maps = vec![Map::all(1, 0); spaces.kept];
    places.iter().zip(sizes.iter().zip(&own)).for_each(|(&p, (&n, &s))| maps[p] = Map::all(n, s));
    copy::bytes(4, bytemuck::cast_slice(floats(&c)), bytemuck::cast_slice_mut(y), 0, maps, &[]);
    Ok(())
}
