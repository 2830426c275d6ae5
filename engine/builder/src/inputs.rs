//! Random inputs to time kernels with.

use crate::BuildError;
use kiln_ir::tensor::volume;
use kiln_ir::{DType, Elems, Fact, Graph, IrError, Node, Tensor, ValueId, problem::Rng};

/// Elements that are drawn; a larger tensor repeats them. Not a power of two, so that the rows of a matrix differ, and even, so that halves of bytes fit.
const DRAWN: usize = (1 << 18) + 8 * 3;

/// A tensor of random elements: floats away from zero, integers that are small enough to be indices. `None` where the
/// memory for it is not to be had.
pub fn random(rng: &mut Rng, dtype: DType, shape: &[usize]) -> Option<Tensor> {
    let count = volume(shape)?;
    if count <= DRAWN {
        return draw(rng, dtype, shape);
    }
    let block = draw(rng, dtype, &[DRAWN])?;
    let len = usize::try_from(dtype.bytes_for(count as u64)?).ok()?;
    let _held = kiln_ir::budget::reserve(len as u64).ok()?;
    let mut bytes: Vec<u8> = Vec::new();
    bytes.try_reserve_exact(len).ok()?;
    while bytes.len() < len {
        let part = block.bytes().get(..len - bytes.len()).unwrap_or(block.bytes());
        bytes.extend_from_slice(part);
    }
    Tensor::from_bytes(dtype, shape, bytes)
}

fn draw(rng: &mut Rng, dtype: DType, shape: &[usize]) -> Option<Tensor> {
    match dtype {
        DType::I32 | DType::I64 => {
            let elems = (0..volume(shape)?).map(|_| rng.int(0, 1)).collect();
            Tensor::from_elems(dtype, shape, &Elems::I(elems))
        }
        _ => Some(rng.tensor(dtype, shape)),
    }
}

/// The tensor; one that layers of the graph read as indices becomes others, drawn from all of their range. Indices that lie close
/// together would make gathers of what the cache holds, and scatters whose sums all meet at a few places.
pub fn in_range(g: &Graph, v: ValueId, t: Tensor) -> Option<Tensor> {
    let mut bounds: Option<(i64, i64)> = None;
    for (_, n) in g.nodes().filter(|(_, n)| n.inputs.contains(&Some(v))) {
        let facts: Vec<Option<&Fact>> = n.inputs.iter().map(|v| v.map(|v| &g.value(v).fact)).collect();
        let ranges = n.op.ranges_of_facts(&facts).unwrap_or_default();
        for r in ranges.iter().filter(|r| n.inputs.get(r.input) == Some(&Some(v))) {
            for &(least, greatest) in &r.bounds {
                let (a, b) = bounds.unwrap_or((i64::MIN, i64::MAX));
                bounds = Some((a.max(least), b.min(greatest)));
            }
        }
    }
    match bounds.filter(|(least, greatest)| least <= greatest) {
        Some((least, greatest)) => {
            let given = t.to_i64();
            // Other elements give other indices.
            let mut rng = Rng::new(given.iter().take(64).fold(1, |seed, &i| seed << 1 ^ i as u64));
            let least = least.max(0).min(greatest);
            let any = |&i: &i64| match greatest {
                i64::MAX => i.max(least),
                _ => rng.int(least, greatest),
            };
            let v = given.iter().map(any).collect();
            Tensor::from_elems(t.dtype(), t.shape(), &Elems::I(v))
        }
        None => Some(t),
    }
}

/// Whether random inputs of this network can be timed. Every dimension of every input has a bound, and the
/// bounds fit together. The contents are known from which host ports read shapes, axes and sizes: random ones
/// contradict the shapes.
pub(crate) fn can_be_timed(g: &Graph) -> bool {
    let unknown = |n: &Node| {
        let host = n.inputs.iter().enumerate().filter(|(i, _)| n.op.port(*i).is_some_and(|p| p.host));
        host.filter_map(|(_, v)| *v).any(|v| g.value(v).fact.as_const().is_none())
    };
    if g.nodes().any(|(_, n)| unknown(n)) {
        return false;
    }
    let bound = |d: &kiln_ir::Dim| d.upper_bound().filter(|b| b.as_const().is_some());
    let inputs = g.inputs.iter().map(|&v| {
        let mut fact = g.value(v).fact.clone();
        fact.ty.dims = fact.ty.dims.iter().map(bound).collect::<Option<_>>()?;
        Some(fact)
    });
    inputs.collect::<Option<Vec<Fact>>>().is_some_and(|facts| g.infer_from(&facts).is_ok())
}

/// Random inputs.
pub(crate) fn random_inputs(g: &Graph) -> Result<Vec<Tensor>, BuildError> {
    let mut rng = Rng::new(1);
    let mut out = Vec::new();
    for &v in &g.inputs {
        let def = g.value(v);
        if let Some(t) = def.fact.as_const() {
            out.push(t.clone());
            continue;
        }
        let dims: Option<Vec<usize>> =
            def.fact.ty.dims.iter().map(|d| usize::try_from(d.upper_bound()?.as_const()?).ok()).collect();
        let Some(shape) = dims else {
            return Err(BuildError::Graph(IrError::Structure(format!(
                "the shape {} of \"{}\" is not known for timing",
                def.fact.ty, def.name
            ))));
        };
        let drawn = random(&mut rng, def.fact.ty.dtype, &shape);
        let t = drawn.and_then(|t| in_range(g, v, t)).ok_or_else(|| {
            BuildError::Graph(IrError::Structure(format!(
                "there is no memory to time \"{}\" ({}) with",
                def.name, def.fact.ty
            )))
        })?;
        out.push(t);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_tensors_repeat_what_was_drawn() {
        for dtype in [DType::F32, DType::I4, DType::I64, DType::F16] {
            let t = random(&mut Rng::new(1), dtype, &[3, DRAWN]).unwrap();
            let values = t.to_f64();
            let (first, rest) = values.split_at(DRAWN);
            assert_eq!(first, &rest[..DRAWN], "{dtype}");
            assert!(first.iter().any(|&x| x != first[0]), "{dtype}");
        }
        assert!(random(&mut Rng::new(1), DType::F32, &[usize::MAX / 16, 2]).is_none());
    }

    #[test]
    fn indices_are_drawn_from_all_of_their_range() {
        let text = "graph \"rows\" { input %x: f32[1000,4] input %i: i64[64] %y = gather(%x, %i) {axis=0} output %y }";
        let g = Graph::from_text(text).unwrap();
        let indices = random_inputs(&g).unwrap()[1].to_i64();
        let found: std::collections::BTreeSet<i64> = indices.into_iter().collect();
        assert!(found.iter().all(|i| (0..1000).contains(i)), "{found:?}");
        assert!(found.len() > 50 && found.last().is_some_and(|&i| i > 800), "{found:?}");
    }
}
