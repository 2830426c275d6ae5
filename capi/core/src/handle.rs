//! Pointers of callers as references: NULL and misplaced ones are errors.

pub use crate::raw::{free, put};

use crate::error::Fail;
use kiln::ErrorCode;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

fn check<T>(pointer: *const T, what: &str) -> Result<(), Fail> {
    if pointer.is_null() {
        return Err(Fail::argument(format!("{what} is NULL")));
    }
    if !pointer.is_aligned() {
        return Err(Fail::argument(format!(
            "{what} is at {pointer:?}, which is not aligned to {}",
            align_of::<T>()
        )));
    }
    Ok(())
}

/// An object that others may use, too.
///
/// # Safety
/// The pointer is NULL, or of an object that lives as long as the call.
pub unsafe fn shared<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Fail> {
    check(pointer, what)?;
    // SAFETY: not NULL and aligned; the caller vouches for the rest.
    Ok(unsafe { &*pointer })
}

/// A place that the function writes a value to.
///
/// # Safety
/// The pointer is NULL, or of a valid value that nobody else uses during the call.
pub unsafe fn place<'a, T: Copy>(pointer: *mut T, what: &str) -> Result<&'a mut T, Fail> {
    check(pointer, what)?;
    // SAFETY: not NULL and aligned; the caller vouches for the rest.
    Ok(unsafe { &mut *pointer })
}

/// A place for the pointer of a new object; NULL until there is one.
pub struct Out<T>(*mut *mut T);

impl<T> Out<T> {
    /// Takes the place, and sets it to NULL.
    ///
    /// # Safety
    /// The pointer is NULL, or one that may be written until the call returns.
    pub unsafe fn new(place: *mut *mut T, what: &str) -> Result<Out<T>, Fail> {
        check(place, what)?;
        // SAFETY: not NULL and aligned; the caller vouches for the rest.
        unsafe { place.write(std::ptr::null_mut()) };
        Ok(Out(place))
    }

    /// Hands an object to the caller.
    pub fn put(self, object: T) {
        self.put_pointer(Box::into_raw(Box::new(object)));
    }

    /// Hands the pointer of an object to the caller.
    #[allow(clippy::not_unsafe_ptr_arg_deref, reason = "the pointer is stored, and not followed")]
    pub fn put_pointer(self, object: *mut T) {
        // SAFETY: as `new` checked.
        unsafe { self.0.write(object) };
    }
}

/// An object that one call at a time uses: a second one is refused and does not wait.
pub struct Exclusive<T> {
    busy: AtomicBool,
    what: &'static str,
    cell: UnsafeCell<T>,
}

// SAFETY: `enter` lets one thread at a time reach what is inside.
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    /// Wraps an object, which errors name so.
    pub fn new(what: &'static str, inner: T) -> Exclusive<T> {
        Exclusive { busy: AtomicBool::new(false), what, cell: UnsafeCell::new(inner) }
    }

    /// The object, for this call alone.
    pub fn enter(&self) -> Result<Entered<'_, T>, Fail> {
        if self.busy.swap(true, Ordering::Acquire) {
            let what = self.what;
            return Err(Fail::new(
                ErrorCode::InvalidState,
                format!(
                    "the {what} is in use by another call; give each thread a {what} of its own, or use a lock"
                ),
            ));
        }
        Ok(Entered(self))
    }
}

/// The right to use an object, which ends with it.
pub struct Entered<'a, T>(&'a Exclusive<T>);

impl<T> Deref for Entered<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: nobody else is inside.
        unsafe { &*self.0.cell.get() }
    }
}

impl<T> DerefMut for Entered<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: nobody else is inside.
        unsafe { &mut *self.0.cell.get() }
    }
}

impl<T> Drop for Entered<'_, T> {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}
