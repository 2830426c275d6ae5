//! Types, formats and sparsity of builds.

use crate::wishes::{change, kiln_builder_t};
use kiln::{Constraints, DType, Formats, IoSpec, LayerTypes, Sparsity, TensorFormat};
use kiln_c_core::dlpack::DLDataType;
use kiln_c_core::error::{Fail, guard, kiln_error_t};
use kiln_c_core::{handle, text};
use std::ffi::c_char;

/// The element type of a code.
pub(crate) fn element_type(t: DLDataType) -> Result<DType, Fail> {
    let DLDataType { code, bits, lanes } = t;
    t.dtype().ok_or_else(|| {
        Fail::argument(format!("no element type of Kiln has code {code}, {bits} bits and {lanes} lanes"))
    })
}

/// Lets layers of f32 run in this type, too, where that is faster: f16, bf16, and i8 or e4m3 where ranges are known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_permit_type(
    builder: *mut kiln_builder_t,
    dtype: DLDataType,
) -> *mut kiln_error_t {
    guard(|| {
        let dtype = element_type(dtype)?;
        // SAFETY: pointers as the header wants them.
        unsafe {
            change(builder, |w| {
                let reduced = &mut w.options.config.reduced;
                if !reduced.contains(&dtype) {
                    reduced.push(dtype);
                }
                Ok(())
            })
        }
    })
}

/// Sets the range of a tensor of f32 by name: codes of 8 bits stand for values in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_range(
    builder: *mut kiln_builder_t,
    tensor: *const c_char,
    tensor_length: usize,
    least: f32,
    greatest: f32,
) -> *mut kiln_error_t {
    guard(|| {
        if !(least.is_finite() && greatest.is_finite() && least <= greatest) {
            return Err(Fail::argument(format!(
                "the range is {least} to {greatest}, wanted two finite numbers in order"
            )));
        }
        // SAFETY: pointers as the header wants them.
        unsafe {
            let name = text::string(tensor, tensor_length, "tensor")?.to_owned();
            change(builder, |w| {
                w.options.config.ranges.insert(name, [least, greatest]);
                Ok(())
            })
        }
    })
}

/// Types of layers are wishes.
pub const KILN_CONSTRAINTS_NONE: i32 = 0;
/// Types of layers are preferences: met, faster or not, where there is a kernel.
pub const KILN_CONSTRAINTS_PREFER: i32 = 1;
/// Types of layers are constraints: a type that cannot be had fails the build.
pub const KILN_CONSTRAINTS_OBEY: i32 = 2;

/// Sets how strict types of layers are: KILN_CONSTRAINTS_NONE, KILN_CONSTRAINTS_PREFER or KILN_CONSTRAINTS_OBEY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_constraints(
    builder: *mut kiln_builder_t,
    constraints: i32,
) -> *mut kiln_error_t {
    guard(|| {
        let found = match constraints {
            KILN_CONSTRAINTS_NONE => Constraints::None,
            KILN_CONSTRAINTS_PREFER => Constraints::Prefer,
            KILN_CONSTRAINTS_OBEY => Constraints::Obey,
            other => {
                return Err(Fail::argument(format!(
                    "constraints are {other}, wanted KILN_CONSTRAINTS_NONE, _PREFER or _OBEY"
                )));
            }
        };
        // SAFETY: pointers as the header wants them.
        unsafe {
            change(builder, |w| {
                w.options.config.constraints = found;
                Ok(())
            })
        }
    })
}

/// Asks for types of layers by name, or by a pattern in which `*` stands for any characters. `precision`, the type to compute in,
/// may be NULL. `outputs` are types of the outputs by position; one counts for all, and NULL leaves them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_layer_types(
    builder: *mut kiln_builder_t,
    layers: *const c_char,
    layers_length: usize,
    precision: *const DLDataType,
    outputs: *const DLDataType,
    output_count: usize,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let layers = text::string(layers, layers_length, "layers")?.to_owned();
            let precision = precision.as_ref().map(|p| element_type(*p)).transpose()?;
            let mut types = Vec::new();
            if !outputs.is_null() {
                if output_count > 64 {
                    return Err(Fail::argument(format!(
                        "there are {output_count} types of outputs, wanted at most 64"
                    )));
                }
                handle::shared(outputs, "outputs")?;
                for &t in std::slice::from_raw_parts(outputs, output_count) {
                    types.push(element_type(t)?);
                }
            }
            change(builder, |w| {
                w.options.config.layer_types.push(LayerTypes { layers, precision, outputs: types });
                Ok(())
            })
        }
    })
}

/// Sets type and formats of an input or output, as the program has it in memory. `dtype` may be NULL. `formats` is a list of names
/// with commas, such as "linear,hwc8", of which the build takes the fastest; NULL leaves them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_io(
    builder: *mut kiln_builder_t,
    name: *const c_char,
    name_length: usize,
    dtype: *const DLDataType,
    formats: *const c_char,
    formats_length: usize,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let name = text::string(name, name_length, "name")?.to_owned();
            let dtype = dtype.as_ref().map(|p| element_type(*p)).transpose()?;
            let names =
                if formats.is_null() { "" } else { text::string(formats, formats_length, "formats")? };
            let all: Result<Vec<TensorFormat>, _> =
                names.split(',').map(str::trim).filter(|n| !n.is_empty()).map(str::parse).collect();
            let all = all.map_err(kiln::Error::from)?;
            let formats = (!all.is_empty()).then(|| all.into_iter().collect::<Formats>());
            change(builder, |w| {
                w.options.config.io.insert(name, IoSpec { dtype, formats });
                Ok(())
            })
        }
    })
}

/// Weights are multiplied as they are.
pub const KILN_SPARSITY_DISABLE: i32 = 0;
/// Weights that are 2:4 sparse are packed where that is faster.
pub const KILN_SPARSITY_ENABLE: i32 = 1;
/// All weights are pruned to 2:4 sparse ones.
pub const KILN_SPARSITY_FORCE: i32 = 2;

/// Sets the use of 2:4 sparse weights: KILN_SPARSITY_DISABLE, KILN_SPARSITY_ENABLE or KILN_SPARSITY_FORCE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_sparsity(
    builder: *mut kiln_builder_t,
    sparsity: i32,
) -> *mut kiln_error_t {
    guard(|| {
        let found = match sparsity {
            KILN_SPARSITY_DISABLE => Sparsity::Disable,
            KILN_SPARSITY_ENABLE => Sparsity::Enable,
            KILN_SPARSITY_FORCE => Sparsity::Force,
            other => {
                return Err(Fail::argument(format!(
                    "sparsity is {other}, wanted KILN_SPARSITY_DISABLE, _ENABLE or _FORCE"
                )));
            }
        };
        // SAFETY: pointers as the header wants them.
        unsafe {
            change(builder, |w| {
                w.options.config.sparsity = found;
                Ok(())
            })
        }
    })
}
