//! Copies of few neighbours, which take less time than a call, and elements replaced without masks.

/// Vectors that are copied in a row at most; more are worth a call.
const MANY: usize = 16;

/// Copies elements, as many as both have, by vectors of `N`: the last one overlaps with that before it.
#[inline(always)]
pub fn copy<T: Copy, const N: usize>(from: &[T], to: &mut [T]) {
    let n = from.len().min(to.len());
    if n < N {
        to.iter_mut().zip(from).for_each(|(to, x)| *to = *x);
        return;
    }
    if n > MANY * N {
        return to[..n].copy_from_slice(&from[..n]);
    }
    let mut next = 0;
    while next < n {
        let at = next.min(n - N);
        next = at + N;
        if let (Some(from), Some(to)) = (from[at..].first_chunk::<N>(), to[at..].first_chunk_mut::<N>()) {
            *to = *from;
        }
    }
}

/// The first bytes of several.
pub fn array<const M: usize>(x: &[u8]) -> [u8; M] {
    let mut to = [0; M];
    to.iter_mut().zip(x).for_each(|(to, x)| *to = *x);
    to
}

/// Elements of a vector that few are padded to.
pub const FEW: usize = 16;

/// Fewer than [`FEW`] elements, and others behind them.
#[inline(always)]
pub fn padded<T: Copy>(few: &[T], others: T) -> [T; FEW] {
    let mut all = [others; FEW];
    pieces(few, &mut all, few.len());
    all
}

/// The last elements of a slice that whole vectors in front of them leave over, and their places in the vector: the slice's own last
/// vector where it is long enough, as memory that was just written in parts is slow to read as one.
#[inline(always)]
pub fn last<T: Copy>(x: &[T], others: T) -> ([T; FEW], std::ops::Range<usize>) {
    let rest = x.len() % FEW;
    match x.last_chunk::<FEW>() {
        Some(own) => (*own, FEW - rest..FEW),
        None => (padded(x, others), 0..rest),
    }
}

/// Writes the first elements, fewer than [`FEW`].
#[inline(always)]
pub fn put<T: Copy>(all: &[T; FEW], few: &mut [T]) {
    let n = few.len();
    pieces(all, few, n);
}

/// Copies fewer than [`FEW`] elements by the powers of two that their number is the sum of.
#[inline(always)]
fn pieces<T: Copy>(from: &[T], to: &mut [T], n: usize) {
    let mut at = 0;
    if n & 8 != 0 {
        piece::<T, 8>(from, to, at);
        at += 8;
    }
    if n & 4 != 0 {
        piece::<T, 4>(from, to, at);
        at += 4;
    }
    if n & 2 != 0 {
        piece::<T, 2>(from, to, at);
        at += 2;
    }
    if n & 1 != 0 {
        piece::<T, 1>(from, to, at);
    }
}

#[inline(always)]
fn piece<T: Copy, const N: usize>(from: &[T], to: &mut [T], at: usize) {
    if let (Some(from), Some(to)) = (from[at..].first_chunk::<N>(), to[at..].first_chunk_mut::<N>()) {
        *to = *from;
    }
}

/// Elements that are replaced at once.
pub const BLOCK: usize = 32;

/// A block of elements that is about to be replaced. The compiler does not see that new elements go to the place of these. It would
/// store them lane by lane, by a mask, where some are the old ones, which is slow on some processors.
#[inline(always)]
pub fn old<T: Copy>(y: &mut [T; BLOCK]) -> [T; BLOCK] {
    let from: *mut [T; BLOCK] = y;
    // SAFETY: the address is that of the block, which is borrowed.
    unsafe { std::hint::black_box(from).read() }
}

/// Replaces elements by a function of each and another.
#[inline(always)]
pub fn replace<T: Copy>(y: &mut [T], x: &[T], f: impl Fn(T, T) -> T) {
    let n = y.len().min(x.len());
    let (blocks, rest) = y[..n].as_chunks_mut::<BLOCK>();
    let (others, last) = x[..n].as_chunks::<BLOCK>();
    for (y, x) in blocks.iter_mut().zip(others) {
        let old = old(y);
        for l in 0..BLOCK {
            y[l] = f(old[l], x[l]);
        }
    }
    rest.iter_mut().zip(last).for_each(|(y, &x)| *y = f(*y, x));
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_element_is_replaced() {
        for n in [0usize, 1, 31, 32, 33, 100] {
            let (mut y, x): (Vec<usize>, Vec<usize>) = (0..n).map(|i| (i, 50)).unzip();
            super::replace(&mut y, &x, usize::max);
            assert!(y.iter().enumerate().all(|(i, &y)| y == i.max(50)), "{y:?}");
        }
    }

    #[test]
    fn few_elements_are_padded_and_put_back() {
        for n in 0..super::FEW {
            let few: Vec<u8> = (1..=n as u8).collect();
            let all = super::padded(&few, 99);
            assert!(all[..n] == few && all[n..].iter().all(|&x| x == 99), "{all:?}");
            let (end, at) = super::last(&few, 99);
            assert_eq!(end[at], few);
            let long: Vec<u8> = (0..32 + n as u8).collect();
            let (end, at) = super::last(&long, 99);
            assert_eq!(end[at], long[32..]);
            let mut back = vec![0; n];
            super::put(&all, &mut back);
            assert_eq!(back, few);
        }
    }

    #[test]
    fn all_elements_are_copied_whatever_their_number() {
        let from: Vec<u16> = (1..200).collect();
        for n in 0..from.len() {
            let mut to = vec![0; n];
            super::copy::<u16, 8>(&from, &mut to);
            assert_eq!(to, from[..n]);
            super::copy::<u16, 8>(&from[100..], &mut to);
            assert_eq!(to[..n.min(99)], from[100..][..n.min(99)]);
        }
    }
}
