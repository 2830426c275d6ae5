//! `sparse_pack`: 2:4 sparse weights as half of their elements, and the places of these.
//!
//! Places are in the order in which tensor cores take them. 16 rows and 128 bytes of the depth make 32 words for elements of 2
//! bytes, 64 for those of 1 byte: one or two for each lane of a warp, lane `4·(row % 8) + column` of four columns. Each word has
//! the places of eight groups, 4 bits a group: the place of the first element, then that of the second, which is greater.
//!
//! * Elements of 2 bytes: column c has groups 4·c to 4·c + 3 of the sixteen; the lower half of the word is of row r < 8, the
//!   upper half of row r + 8.
//! * Elements of 1 byte: word s of a lane is of half s of the 32 groups. Column c has groups 8·(c / 2) to 8·(c / 2) + 7 of it,
//!   of row r + 8·(c % 2).

use crate::util::{PLAIN, strides};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx};
use kiln_ir::op::{OpDef, Roles, input};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    SPARSE_PACK = "sparse_pack",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: SPARSE_PACK,
    doc: "Packs weights w [N, K] of which two of four neighbours along K at most are not 0: `values` [N, K/2], and `places` of \
          i32 in the order in which tensor cores read them. K is filled up with zeros to 128 bytes. Other weights are an error.",
    inputs: &[input("w")],
    outputs: &["values", "places"],
    infer,
    eval,
    roles: Roles { keeps_f32: true, ..Roles::NONE },
    ..PLAIN
}];

/// Neighbours of which two at most are not 0.
pub const GROUP: usize = 4;
/// Bytes of the depth whose places lie together.
const CHUNK_BYTES: i64 = 128;
/// Rows whose places lie together.
const ROWS: i64 = 16;
/// Places of the first two elements: those of a group of zeros.
const FIRST_TWO: u32 = 0b0100;

/// Whether weights of this type can be packed.
pub fn packable(t: DType) -> bool {
    matches!(t, DType::F16 | DType::BF16 | DType::F8E4M3 | DType::I8 | DType::U8)
}

/// The order of places for elements of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Bytes of an element: 1 or 2.
    size: i64,
}

impl Places {
    /// The order for a type of 8 or 16 bits.
    pub fn of(t: DType) -> Places {
        Places { size: if t.bits() > 8 { 2 } else { 1 } }
    }

    /// The order of places that have so many words for 16 rows of a chunk.
    pub fn of_words(words: i64) -> Option<Places> {
        [1, 2].map(|size| Places { size }).into_iter().find(|p| p.words() == words)
    }

    /// A depth filled up to whole chunks.
    pub fn whole(self, depth: i64) -> i64 {
        (depth / self.chunk() + i64::from(depth % self.chunk() != 0)) * self.chunk()
    }

    /// Elements of the depth whose places lie together.
    pub fn chunk(self) -> i64 {
        CHUNK_BYTES / self.size
    }

    /// Words for 16 rows of a chunk.
    pub fn words(self) -> i64 {
        64 / self.size
    }

    /// Dimensions of the places of `rows` by a depth of whole chunks.
    pub fn shape(self, rows: i64, depth: i64) -> [i64; 3] {
        let tiles = rows / ROWS + i64::from(rows % ROWS != 0);
        [tiles, depth / self.chunk(), self.words()]
    }

    /// Word and bit of the places of a group, among `chunks` chunks of a row.
    pub fn at(self, row: usize, group: usize, chunks: usize) -> (usize, u32) {
        let (chunk, words) = (self.chunk() as usize, self.words() as usize);
        let each = chunk / GROUP;
        let tile = (row / 16 * chunks + group / each) * words;
        let (row, group) = (row % 16, group % each);
        match self.size {
            2 => (tile + row % 8 * 4 + group / 4, (group % 4 * 4 + row / 8 * 16) as u32),
            _ => {
                let column = group % 16 / 8 * 2 + row / 8;
                (tile + group / 16 * 32 + row % 8 * 4 + column, (group % 8 * 4) as u32)
            }
        }
    }
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let dtype = cx.check_dtype(0, packable, "f16, bf16, f8e4m3, i8 or u8")?;
    cx.check_rank(0, 2)?;
    let dims = cx.dims(0)?;
    let places = Places::of(dtype);
    let (Some(n), Some(k)) = (dims[0].as_const(), dims[1].as_const()) else {
        return Err(cx.bad_shape(0, "dimensions that are known at build time"));
    };
    let depth = places.whole(k);
    let shape = |s: &[i64]| s.iter().map(|&n| Dim::new(n)).collect::<Vec<Dim>>();
    Ok(vec![
        Fact::of(TensorType { dtype, dims: shape(&[n, depth / 2]) }),
        Fact::of(TensorType { dtype: DType::I32, dims: shape(&places.shape(n, depth)) }),
    ])
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let (values, places) = packed(cx.input(0)?)?;
    Ok(vec![values, places])
}

/// The number of the first element of the first group of four along an axis that has more than two elements other than 0.
pub fn too_dense(w: &Tensor, axis: usize) -> Option<usize> {
    let (size, step) = (w.shape().get(axis).copied()?, *strides(w.shape()).get(axis)?);
    let full = |other: &dyn Fn(usize) -> bool| {
        let place = |i: usize| i / step % size.max(1);
        let count =
            |first: usize| (0..GROUP.min(size - place(first))).filter(|c| other(first + c * step)).count();
        (0..w.len()).find(|&i| place(i).is_multiple_of(GROUP) && count(i) > 2)
    };
    match w.elems() {
        Elems::F(v) => full(&|i| v[i] != 0.0),
        Elems::I(v) => full(&|i| v[i] != 0),
    }
}

/// Values and places of weights [N, K].
///
/// # Errors
/// [`OpError::Value`] with the first group that has more than two elements other than 0.
pub fn packed(w: &Tensor) -> Result<(Tensor, Tensor), OpError> {
    if let (Some(at), Some(&k)) = (too_dense(w, 1), w.shape().get(1)) {
        let (row, column) = (at / k.max(1), at % k.max(1));
        return Err(OpError::Value(format!(
            "the weights are not 2:4 sparse: of elements {column} to {} of row {row} more than two are not 0; prune them, or build \
             without sparsity",
            column + GROUP - 1
        )));
    }
    let refused =
        || OpError::Shape { input: 0, found: format!("{:?}", w.shape()), wanted: "two dimensions".into() };
    let &[n, k] = w.shape() else { return Err(refused()) };
    let order = Places::of(w.dtype());
    let depth = order.whole(k as i64) as usize;
    let shape = order.shape(n as i64, depth as i64).map(|d| d as usize);
    let filling = (0..8).fold(0u32, |all, i| all | FIRST_TWO << (4 * i));
    let mut places = vec![filling; shape.iter().product()];
    let mut from: Vec<Option<usize>> = Vec::with_capacity(n * depth / 2);
    let elems = w.elems();
    let zero = |at: usize| match &elems {
        Elems::F(v) => v[at] == 0.0,
        Elems::I(v) => v[at] == 0,
    };
    for row in 0..n {
        for group in 0..depth / GROUP {
            let inside = |c: &usize| group * GROUP + c < k;
            let at = |c: usize| row * k + group * GROUP + c;
            let mut kept: Vec<usize> = (0..GROUP).filter(inside).filter(|&c| !zero(at(c))).collect();
            for c in 0..GROUP {
                if kept.len() < 2 && !kept.contains(&c) {
                    kept.push(c);
                }
            }
            kept.sort_unstable();
            let (word, bit) = order.at(row, group, shape[1]);
            let code = (kept[0] | kept[1] << 2) as u32;
            places[word] = places[word] & !(0xf << bit) | code << bit;
            from.extend(kept.into_iter().map(|c| inside(&c).then(|| at(c))));
        }
    }
    let values = match &elems {
        Elems::F(v) => Elems::F(from.iter().map(|f| f.map_or(0.0, |i| v[i])).collect()),
        Elems::I(v) => Elems::I(from.iter().map(|f| f.map_or(0, |i| v[i])).collect()),
    };
    let places = Elems::I(places.into_iter().map(|w| i64::from(w.cast_signed())).collect());
    let values = Tensor::from_elems(w.dtype(), &[n, depth / 2], &values);
    let places = Tensor::from_elems(DType::I32, &shape, &places);
    values.zip(places).ok_or_else(refused)
}

/// The elements of weights [N, depth] from their values and places, row by row. Places beyond the depth are left out.
pub fn dense(values: &Tensor, places: &Tensor, depth: usize) -> Elems {
    let words = places.shape().last().map_or(0, |&n| n as i64);
    let Some(order) = Places::of_words(words) else { return Elems::I(Vec::new()) };
    let (n, half) = (values.shape()[0], values.shape()[1]);
    let chunks = half * 2 / order.chunk() as usize;
    let words = places.to_i64();
    let to = |i: usize| {
        let (row, at) = (i / half, i % half);
        let (word, bit) = order.at(row, at / 2, chunks);
        let code = words.get(word).copied().unwrap_or(0) as u32 >> (bit + at as u32 % 2 * 2) & 3;
        let column = at / 2 * GROUP + code as usize;
        (column < depth).then_some(row * depth + column)
    };
    let all = (0..n * half).filter_map(|i| Some((to(i)?, i)));
    match values.elems() {
        Elems::F(v) => {
            let mut w = vec![0.0; n * depth];
            all.for_each(|(to, i)| w[to] += v[i]);
            Elems::F(w)
        }
        Elems::I(v) => {
            let mut w = vec![0; n * depth];
            all.for_each(|(to, i)| w[to] += v[i]);
            Elems::I(w)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::random_sparse;
    use super::*;
    use crate::testing::{f32s, floats, ints};
    use kiln_ir::problem::Rng;

    /// Groups whose places a lane has, as the instruction set defines `mma.sp` for 16 rows by 64 bytes of the depth. Each is a row, the
    /// first group, and the bit of that group in the lane's word.
    fn of_lane(size: usize, lane: usize) -> Vec<(usize, usize, u32)> {
        let (row, column) = (lane / 4, lane % 4);
        match size {
            // m16n8k32: lanes 0 and 1 of four have 16 elements each of two rows; selector 1 takes lanes 2 and 3.
            2 => vec![(row, column % 2 * 4, 0), (row + 8, column % 2 * 4, 16)],
            // m16n8k64: lanes of even number have row r, the others row r + 8; two lanes share the 64 elements.
            _ => vec![(row + 8 * (column % 2), column / 2 * 8, 0)],
        }
    }

    #[test]
    fn every_lane_finds_the_places_of_its_rows() {
        for size in [1i64, 2] {
            let order = Places { size };
            let chunks = 3;
            let step_groups = 16 / size as usize;
            for (tile, chunk, step, lane) in (0..2).flat_map(|t| {
                (0..chunks).flat_map(move |c| (0..2).flat_map(move |s| (0..32).map(move |l| (t, c, s, l))))
            }) {
                // For elements of 2 bytes the selector, which equals the step, picks the lanes of four that are read.
                if size == 2 && lane % 4 / 2 != step {
                    continue;
                }
                let word = (tile * chunks + chunk) * order.words() as usize
                    + if size == 2 { lane } else { step * 32 + lane };
                for (row, first, bit) in of_lane(size as usize, lane) {
                    let count = if size == 2 { 4 } else { 8 };
                    for g in 0..count {
                        let group = (chunk * 2 + step) * step_groups + first + g;
                        let found = order.at(tile * 16 + row, group, chunks);
                        assert_eq!(
                            found,
                            (word, bit + 4 * g as u32),
                            "size {size} lane {lane} group {group}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn packed_weights_are_what_they_were() {
        let mut rng = Rng::new(9);
        for t in [DType::F16, DType::BF16, DType::F8E4M3, DType::I8, DType::U8] {
            for (n, k) in [(1, 4), (16, 64), (17, 132), (40, 3), (3, 0), (0, 8), (33, 258)] {
                let w = random_sparse(&mut rng, t, n, k);
                let (values, places) = packed(&w).unwrap();
                let back = Tensor::from_elems(t, &[n, k], &dense(&values, &places, k)).unwrap();
                assert_eq!(back.elems(), w.elems(), "{t} {n} {k}");
                let growing = |word: i64| (0..8).all(|g| word >> (4 * g) & 3 < word >> (4 * g + 2) & 3);
                assert!(places.to_i64().into_iter().all(growing), "places of a group grow");
            }
        }
    }

    #[test]
    fn weights_that_are_not_sparse_are_named() {
        let w = ints(DType::I8, &[2, 8], &[1, 0, 0, 2, 0, 0, 0, 0, 0, 3, 4, 0, 1, 2, 0, 3]);
        assert_eq!(too_dense(&w, 1), Some(12));
        let e = packed(&w).unwrap_err().to_string();
        assert!(e.contains("elements 4 to 7 of row 1") && e.contains("2:4"), "{e}");
        let pruned = crate::testing::run("sparse_prune", Default::default(), &[w]);
        assert_eq!(pruned.to_i64(), [1, 0, 0, 2, 0, 0, 0, 0, 0, 3, 4, 0, 0, 2, 0, 3]);
        assert!(packed(&pruned).is_ok());
    }

    #[test]
    fn pruning_keeps_the_greatest_along_an_axis() {
        let w = f32s(&[4, 2], &[1.0, -4.0, -3.0, 2.0, 2.0, 2.0, 0.5, f64::NAN]);
        let attrs = kiln_ir::attr::Attrs::new().with("axis", 0i64);
        let y = crate::testing::run("sparse_prune", attrs, &[w]);
        assert_eq!(y.to_f64()[..7], [0.0, -4.0, -3.0, 0.0, 2.0, 0.0, 0.0]);
        assert!(y.to_f64()[7].is_nan());
        let w = floats(DType::F16, &[1, 6], &[1.0, 1.0, 1.0, 1.0, 3.0, 2.0]);
        let y = crate::testing::run("sparse_prune", Default::default(), &[w]);
        assert_eq!(y.to_f64(), [1.0, 1.0, 0.0, 0.0, 3.0, 2.0]);
    }
}
