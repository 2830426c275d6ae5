//! Pointers of callers that may be NULL: values are written to them where there is a place, and objects are freed.
//!
//! Functions that check pointers, and return errors for those that are wrong, are in `handle`. These are for places where NULL is
//! right: a result that nobody wants, and an object that does not exist, or
//! that a function which failed has not made.

/// Writes a value where the caller wants it.
///
/// # Safety
/// The pointer is NULL, or one that may be written.
pub unsafe fn put<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() && pointer.is_aligned() {
        // SAFETY: not NULL and aligned; the caller vouches for the rest.
        unsafe { pointer.write(value) };
    }
}

/// Frees an object that a box of this library held.
///
/// # Safety
/// The pointer is NULL, or of such an object, and nobody uses it any more.
pub unsafe fn free<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: it came from a box; the caller vouches for the rest.
        drop(unsafe { Box::from_raw(pointer) });
    }
}
