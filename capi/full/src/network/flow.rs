//! Loops and conditionals of networks.

use super::kinds::fail;
use super::layers::hand;
use super::object::{Numbered, kiln_network_t, with};
use kiln_c_core::error::{Fail, guard, kiln_error_t};
use kiln_c_core::handle;
use kiln_kinds::kiln_network::{LayerId, LoopOutputKind, TripLimitKind};

/// Adds a loop. What depends on its iterators and recurrences is inside.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_add_loop(
    network: *mut kiln_network_t,
    new_loop: *mut i32,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let to = handle::place(new_loop, "new_loop")?;
            *to = with(network, |n| {
                let id = n.net.add_loop().map_err(fail)?;
                Ok(n.loop_number(id))
            })?;
        }
        Ok(())
    })
}

/// Adds a conditional. What an output needs and depends on an input of it is inside.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_add_conditional(
    network: *mut kiln_network_t,
    conditional: *mut i32,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let to = handle::place(conditional, "conditional")?;
            *to = with(network, |n| {
                let id = n.net.add_if_conditional().map_err(fail)?;
                Ok(n.conditional_number(id))
            })?;
        }
        Ok(())
    })
}

/// Adds a layer at the boundary, and hands out its numbers.
///
/// # Safety
/// Pointers as the header wants them.
unsafe fn boundary(
    network: *mut kiln_network_t,
    layer: *mut i32,
    output: *mut i32,
    add: impl FnOnce(&mut Numbered) -> Result<LayerId, Fail>,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: as the caller vouches.
        unsafe {
            with(network, |n| {
                let id = add(n)?;
                hand(n, id, layer, output)
            })
        }
    })
}

/// A loop runs as often as a scalar of integers says.
pub const KILN_TRIP_COUNT: i32 = 0;
/// A loop runs while a scalar of bool inside of it is true.
pub const KILN_TRIP_WHILE: i32 = 1;

/// Limits the iterations of a loop: KILN_TRIP_COUNT or KILN_TRIP_WHILE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_add_trip_limit(
    network: *mut kiln_network_t,
    of_loop: i32,
    tensor: i32,
    limit: i32,
) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    unsafe {
        boundary(network, std::ptr::null_mut(), std::ptr::null_mut(), |n| {
            let kind = match limit {
                KILN_TRIP_COUNT => TripLimitKind::Count,
                KILN_TRIP_WHILE => TripLimitKind::While,
                other => {
                    return Err(Fail::argument(format!(
                        "the limit is {other}, wanted KILN_TRIP_COUNT or KILN_TRIP_WHILE"
                    )));
                }
            };
            let (of, tensor) = (n.loop_of(of_loop)?, n.tensor(tensor)?);
            Ok(n.net.add_trip_limit(of, tensor, kind).map_err(fail)?.id())
        })
    }
}

/// Yields one slice of a tensor an iteration, along an axis. `output` becomes its number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_add_iterator(
    network: *mut kiln_network_t,
    of_loop: i32,
    tensor: i32,
    axis: usize,
    reverse: bool,
    output: *mut i32,
) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    unsafe {
        boundary(network, std::ptr::null_mut(), output, |n| {
            let (of, tensor) = (n.loop_of(of_loop)?, n.tensor(tensor)?);
            Ok(n.net.add_iterator(of, tensor, axis, reverse).map_err(fail)?.id())
        })
    }
}

/// Carries a value from iteration to iteration: `output` is that of this iteration. kiln_network_set_layer sets input 1 of `layer`, the
/// value of the next one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_add_recurrence(
    network: *mut kiln_network_t,
    of_loop: i32,
    initial: i32,
    layer: *mut i32,
    output: *mut i32,
) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    unsafe {
        boundary(network, layer, output, |n| {
            let (of, initial) = (n.loop_of(of_loop)?, n.tensor(initial)?);
            Ok(n.net.add_recurrence(of, initial).map_err(fail)?.id())
        })
    }
}

/// The value of the last iteration.
pub const KILN_LOOP_LAST: i32 = 0;
/// The values of all iterations, the first one first.
pub const KILN_LOOP_CONCATENATE: i32 = 1;
/// The values of all iterations, the last one first.
pub const KILN_LOOP_REVERSE: i32 = 2;

/// Adds a result of a loop: KILN_LOOP_LAST, KILN_LOOP_CONCATENATE or KILN_LOOP_REVERSE, these along an axis. Input 1 of the layer,
/// where it is set, is the length of such a result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_add_loop_output(
    network: *mut kiln_network_t,
    of_loop: i32,
    tensor: i32,
    kind: i32,
    axis: usize,
    layer: *mut i32,
    output: *mut i32,
) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    unsafe {
        boundary(network, layer, output, |n| {
            let kind = match kind {
                KILN_LOOP_LAST => LoopOutputKind::LastValue,
                KILN_LOOP_CONCATENATE => LoopOutputKind::Concatenate,
                KILN_LOOP_REVERSE => LoopOutputKind::Reverse,
                other => {
                    return Err(Fail::argument(format!(
                        "the kind is {other}, wanted KILN_LOOP_LAST, _CONCATENATE or _REVERSE"
                    )));
                }
            };
            let (of, tensor) = (n.loop_of(of_loop)?, n.tensor(tensor)?);
            Ok(n.net.add_loop_output(of, tensor, kind, axis).map_err(fail)?.id())
        })
    }
}

/// Sets the condition of a conditional, a scalar of bool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_set_condition(
    network: *mut kiln_network_t,
    conditional: i32,
    tensor: i32,
) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    unsafe {
        boundary(network, std::ptr::null_mut(), std::ptr::null_mut(), |n| {
            let (of, tensor) = (n.conditional(conditional)?, n.tensor(tensor)?);
            Ok(n.net.set_condition(of, tensor).map_err(fail)?.id())
        })
    }
}

/// Passes a tensor on to the branches of a conditional.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_add_if_input(
    network: *mut kiln_network_t,
    conditional: i32,
    tensor: i32,
    output: *mut i32,
) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    unsafe {
        boundary(network, std::ptr::null_mut(), output, |n| {
            let (of, tensor) = (n.conditional(conditional)?, n.tensor(tensor)?);
            Ok(n.net.add_if_input(of, tensor).map_err(fail)?.id())
        })
    }
}

/// Adds a result of a conditional: a tensor if the condition is true, another one otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_add_if_output(
    network: *mut kiln_network_t,
    conditional: i32,
    when_true: i32,
    when_false: i32,
    output: *mut i32,
) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    unsafe {
        boundary(network, std::ptr::null_mut(), output, |n| {
            let of = n.conditional(conditional)?;
            let (a, b) = (n.tensor(when_true)?, n.tensor(when_false)?);
            Ok(n.net.add_if_output(of, a, b).map_err(fail)?.id())
        })
    }
}
