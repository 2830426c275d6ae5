//! Dimensions of callers, in and out.

use crate::error::Fail;
use crate::handle;

/// The most dimensions that are read.
const MOST_DIMS: usize = 64;

/// Numbers of the caller.
///
/// # Safety
/// The pointer is NULL, or of so many numbers.
pub unsafe fn numbers<'a>(values: *const i64, count: usize, what: &str) -> Result<&'a [i64], Fail> {
    if count > MOST_DIMS {
        return Err(Fail::argument(format!("{what} has {count} numbers, wanted at most {MOST_DIMS}")));
    }
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: as the caller vouches.
    unsafe { handle::shared(values, what) }?;
    // SAFETY: not NULL and aligned; the caller vouches for the count.
    Ok(unsafe { std::slice::from_raw_parts(values, count) })
}

/// Dimensions that are not negative.
///
/// # Safety
/// As [`numbers`].
pub unsafe fn sizes(values: *const i64, count: usize, what: &str) -> Result<Vec<usize>, Fail> {
    // SAFETY: as the caller vouches.
    let dims = unsafe { numbers(values, count, what) }?;
    let sizes: Result<Vec<usize>, _> = dims.iter().map(|&d| usize::try_from(d)).collect();
    sizes.map_err(|_| Fail::argument(format!("{what} is {dims:?}, wanted no negative number")))
}

/// Writes numbers to the caller's array as far as it has room, and their count to `count`, which holds the room before.
///
/// # Safety
/// `count` may be read and written; the array has room for as many numbers.
pub unsafe fn write(values: &[i64], array: *mut i64, count: *mut usize, what: &str) -> Result<(), Fail> {
    // SAFETY: as the caller vouches.
    let count = unsafe { handle::place(count, "the number of dimensions") }?;
    let room = std::mem::replace(count, values.len());
    if room < values.len() {
        return Err(Fail::argument(format!(
            "{what} has {} numbers, the array has room for {room}",
            values.len()
        )));
    }
    if !values.is_empty() {
        // SAFETY: as the caller vouches.
        unsafe { handle::place(array, "the array of dimensions") }?;
        // SAFETY: the array has room for them.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), array, values.len()) };
    }
    Ok(())
}
