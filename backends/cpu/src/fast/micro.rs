//! The innermost loop of matrix products: tiles of rows by panels of columns, for the widest vectors of the level.

/// Rows of a tile of any kernel at most.
pub const MAX_ROWS: usize = 16;
/// Room for a tile of any kernel.
pub const TILE: usize = MAX_ROWS * 32;

/// The beginning of the sums of a tile.
#[derive(Clone, Copy)]
pub enum Start<'a, O> {
    /// Nothing.
    Zero,
    /// One number a row of the tile.
    Rows(&'a [O]),
    /// One number a column of the tile.
    Columns(&'a [O]),
    /// The elements of the tile.
    There,
}

/// A tile that is written: rows begin `stride` elements apart.
#[derive(Clone, Copy)]
pub struct Place<O> {
    pub first: *mut O,
    pub stride: usize,
}

/// Neighbouring columns of a right matrix: packed ones, or those of a matrix where it is stored.
#[derive(Clone, Copy)]
pub struct Panel<'a, L> {
    pub data: &'a [L],
    /// Elements from row to row, and rows.
    pub pitch: usize,
    pub depth: usize,
}

/// Multiplies rows, as many as the kernel is for, with a panel: `to[i][j] = start + Σₖ rows[i][k] · b[k·pitch + j]`, k in order.
///
/// The panel has the kernel's columns in all of its rows. The place has so many rows and the kernel's columns, which nobody else has now.
/// The processor has the kernel's instructions.
pub type Run<L, O> = unsafe fn(&[&[L]; MAX_ROWS], Panel<'_, L>, Start<'_, O>, Place<O>);

/// Kernels that multiply rows of the left matrix, which lie as they are, with packed panels of `nr` columns.
#[derive(Clone, Copy)]
pub struct Micro<L: 'static, O: 'static> {
    /// Rows of a tile at most.
    pub mr: usize,
    /// Columns of a tile.
    pub nr: usize,
    /// Kernels by number of rows, from one on.
    pub run: &'static [Run<L, O>],
    /// Kernels of the first half of a panel's columns.
    pub half: &'static [Run<L, O>],
}

impl<L, O: Copy + Default> Micro<L, O> {
    /// Rows of the strips that `m` rows are divided into: all strips have about the same.
    pub fn strip(&self, m: usize) -> usize {
        m.div_ceil(m.div_ceil(self.mr).max(1)).max(1)
    }

    /// The products of the first `count` rows with the first `width` columns of a panel; `count` is at least 1 and at most `mr`. The
    /// numbers of [`Start::Columns`] are as many as the columns, those of [`Start::Rows`] as the rows. The panel has all columns of a tile.
    ///
    /// # Safety
    /// The place has `count` rows of `width` elements, which nobody else has now.
    pub unsafe fn tile(
        &self,
        (count, width): (usize, usize),
        rows: &[&[L]; MAX_ROWS],
        b: Panel<'_, L>,
        start: Start<'_, O>,
        to: Place<O>,
    ) {
        let (run, wide) = match width <= self.nr / 2 {
            true => (self.half, self.nr / 2),
            false => (self.run, self.nr),
        };
        let all = b.depth.saturating_sub(1).saturating_mul(b.pitch).saturating_add(wide);
        let b = Panel { data: &b.data[..if b.depth == 0 { 0 } else { all }], ..b };
        if wide == width {
            // SAFETY: as the contract says; kernels are those of the level.
            return unsafe { run[count - 1](rows, b, start, to) };
        }
        // Kernels write all of it, and read it only where it is there.
        let mut room = std::mem::MaybeUninit::<[O; TILE]>::uninit();
        if matches!(start, Start::There) {
            room.write([O::default(); TILE]);
        }
        let own = Place { first: room.as_mut_ptr().cast(), stride: wide };
        // SAFETY: rows of the place and of the room have at least `width` elements.
        let copy = |from: Place<O>, to: Place<O>| unsafe {
            for i in 0..count {
                copy_few(from.first.add(i * from.stride), to.first.add(i * to.stride), width);
            }
        };
        let mut columns = [O::default(); TILE / MAX_ROWS];
        let start = match start {
            Start::There => {
                copy(to, own);
                Start::There
            }
            Start::Columns(given) => {
                columns.iter_mut().zip(given).for_each(|(c, &x)| *c = x);
                Start::Columns(&columns[..wide])
            }
            Start::Zero => Start::Zero,
            Start::Rows(given) => Start::Rows(given),
        };
        // SAFETY: the room has as many elements as any tile.
        unsafe { run[count - 1](rows, b, start, own) };
        copy(own, to);
    }
}

/// Copies few elements without a call.
///
/// # Safety
/// Both have so many elements.
#[inline(always)]
unsafe fn copy_few<O: Copy>(from: *const O, to: *mut O, width: usize) {
    let mut at = 0;
    // SAFETY: as the contract says.
    unsafe {
        while at + 4 <= width {
            to.add(at).cast::<[O; 4]>().write_unaligned(from.add(at).cast::<[O; 4]>().read_unaligned());
            at += 4;
        }
        while at < width {
            to.add(at).write(from.add(at).read());
            at += 1;
        }
    }
}

/// The kernels of one function for each number of rows: `kernels!(f, 8; 1 2 3)` are f::<1, 8>, f::<2, 8> and f::<3, 8>.
macro_rules! kernels {
    ($f:ident, $width:literal; $($rows:literal)*) => {
        &[$($f::<$rows, $width>),*]
    };
}
pub(super) use kernels;

/// The sums that a tile of a kernel begins with.
///
/// # Safety
/// As of [`Run`].
#[inline(always)]
pub unsafe fn begin<O: Copy, const MR: usize, const W: usize>(
    zero: O,
    start: Start<'_, O>,
    to: Place<O>,
) -> [[O; W]; MR] {
    match start {
        Start::Zero => [[zero; W]; MR],
        Start::Columns(given) => [*given.first_chunk().unwrap_or(&[zero; W]); MR],
        Start::Rows(given) => given.first_chunk::<MR>().unwrap_or(&[zero; MR]).map(|x| [x; W]),
        Start::There => std::array::from_fn(|i| {
            // SAFETY: the place has so many rows and columns.
            unsafe { to.first.add(i * to.stride).cast::<[O; W]>().read() }
        }),
    }
}

/// Writes the sums of a tile.
///
/// # Safety
/// As of [`Run`].
#[inline(always)]
pub unsafe fn end<O: Copy, const MR: usize, const W: usize>(sums: &[[O; W]; MR], to: Place<O>) {
    for (i, sums) in sums.iter().enumerate() {
        // SAFETY: the place has so many rows and columns.
        unsafe { to.first.add(i * to.stride).cast::<[O; W]>().write(*sums) };
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Tiles of any size and start, compared with sums one by one.
    pub fn check<L: Copy, O: Copy + Default + PartialEq + std::fmt::Debug>(
        micro: &Micro<L, O>,
        (left, right, start): (impl Fn(usize) -> L, impl Fn(usize) -> L, impl Fn(usize) -> O),
        add: impl Fn(O, L, L) -> O,
    ) {
        [13, 37].into_iter().for_each(|k| check_depth(micro, k, (&left, &right, &start), &add));
    }

    fn check_depth<L: Copy, O: Copy + Default + PartialEq + std::fmt::Debug>(
        micro: &Micro<L, O>,
        k: usize,
        (left, right, start): (&dyn Fn(usize) -> L, &dyn Fn(usize) -> L, &dyn Fn(usize) -> O),
        add: &dyn Fn(O, L, L) -> O,
    ) {
        let a: Vec<L> = (0..micro.mr * k).map(left).collect();
        let b: Vec<L> = (7..micro.nr * k + 7).map(right).collect();
        let given: Vec<O> = (0..micro.nr.max(micro.mr)).map(start).collect();
        let stride = micro.nr + 3;
        let before: Vec<O> = (0..micro.mr * stride).map(|i| start(i + 5)).collect();
        let sizes = (1..=micro.mr).flat_map(|count| (1..=micro.nr).map(move |width| (count, width)));
        for (size @ (count, width), kind) in sizes.flat_map(|s| (0..4).map(move |kind| (s, kind))) {
            let mut rows = [&[][..]; MAX_ROWS];
            (0..count).for_each(|i| rows[i] = &a[i * k..(i + 1) * k]);
            let from =
                [Start::Zero, Start::Columns(&given[..width]), Start::There, Start::Rows(&given[..count])]
                    [kind];
            let mut out = before.clone();
            let panel = Panel { data: &b, pitch: micro.nr, depth: k };
            // SAFETY: the vector has all rows.
            unsafe { micro.tile(size, &rows, panel, from, Place { first: out.as_mut_ptr(), stride }) };
            for (at, &x) in out.iter().enumerate() {
                let (i, j) = (at / stride, at % stride);
                let inside = i < count && j < width;
                let first = match kind {
                    _ if !inside => before[at],
                    0 => O::default(),
                    1 => given[j],
                    3 => given[i],
                    _ => before[at],
                };
                let all = if inside { k } else { 0 };
                let wanted = (0..all).fold(first, |sum, p| add(sum, a[i * k + p], b[p * micro.nr + j]));
                assert_eq!(x, wanted, "row {i} of {count}, column {j} of {width}, start {kind}");
            }
        }
    }
}
