//! The exported functions, and the factory of providers.

use crate::abi::{ApiBase, Ep, Factory, VERSION};
use crate::compatibility;
use crate::compiled::{check_exists, load_layers};
use crate::ep::{self, Provider};
use crate::error::{Fail, quietly};
use crate::options::{NAME, Options, PREFIX};
use crate::ort::{Ort, guard, text};
use ort_sys::{
    OrtAllocator, OrtEpDevice, OrtHardwareDevice, OrtHardwareDeviceType, OrtKeyValuePairs, OrtLogger,
    OrtLoggingLevel, OrtMemoryInfo, OrtSessionOptions, OrtStatusPtr,
};
use std::ffi::{c_char, c_int, c_void};

/// Vendor of NVIDIA's devices.
const NVIDIA: u32 = 0x10DE;

/// A factory. ONNX Runtime sees its first field.
#[repr(C)]
struct Maker {
    factory: Factory,
    ort: Ort,
}

/// Makes the factory of providers.
///
/// # Safety
/// ONNX Runtime calls it, with what its interface says.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "ONNX Runtime looks for this name")]
pub unsafe extern "C" fn CreateEpFactories(
    _: *const c_char,
    base: *const ApiBase,
    _: *const OrtLogger,
    factories: *mut *mut Factory,
    room: usize,
    count: *mut usize,
) -> OrtStatusPtr {
    // SAFETY: what ONNX Runtime handed over.
    let Some(ort) = (unsafe { Ort::new(base) }) else {
        // SAFETY: version 1 of the table, which every ONNX Runtime has, begins with this function.
        return unsafe {
            let api = &*((*base).GetApi)(1);
            let why = c"Kiln wants ONNX Runtime 1.23 or newer";
            (api.CreateStatus)(ort_sys::OrtErrorCode::ORT_NOT_IMPLEMENTED, why.as_ptr())
        };
    };
    guard(&ort, || {
        if room == 0 {
            return Err(Fail::argument("there is no room for a factory"));
        }
        let factory = Factory {
            version: VERSION,
            name,
            vendor,
            supported_devices,
            create_ep,
            release_ep,
            vendor_id,
            library_version,
            validate,
            create_allocator,
            release_allocator,
            create_data_transfer,
            is_stream_aware,
            create_stream,
        };
        let made = Box::into_raw(Box::new(Maker { factory, ort }));
        // SAFETY: an array with room for one, and a place for a number.
        unsafe {
            factories.write(made.cast());
            count.write(1);
        }
        Ok(())
    })
}

/// Frees the factory.
///
/// # Safety
/// ONNX Runtime calls it once, with what [`CreateEpFactories`] made.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "ONNX Runtime looks for this name")]
pub unsafe extern "C" fn ReleaseEpFactory(factory: *mut Factory) -> OrtStatusPtr {
    if !factory.is_null() {
        // SAFETY: as the caller vouches.
        quietly(|| drop(unsafe { Box::from_raw(factory.cast::<Maker>()) }));
    }
    OrtStatusPtr::default()
}

unsafe extern "C" fn name(_: *const Factory) -> *const c_char {
    NAME.as_ptr()
}

unsafe extern "C" fn vendor(_: *const Factory) -> *const c_char {
    c"Kiln".as_ptr()
}

unsafe extern "C" fn vendor_id(_: *const Factory) -> u32 {
    0
}

unsafe extern "C" fn library_version(_: *const Factory) -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

unsafe extern "C" fn supported_devices(
    factory: *mut Factory,
    devices: *const *const OrtHardwareDevice,
    count: usize,
    found: *mut *mut OrtEpDevice,
    room: usize,
    found_count: *mut usize,
) -> OrtStatusPtr {
    // SAFETY: the factory of this library.
    let ort = unsafe { (*factory.cast::<Maker>()).ort };
    guard(&ort, || {
        let mut made = 0;
        for i in 0..count {
            // SAFETY: an array of so many devices, and the table's functions.
            unsafe {
                let device = *devices.add(i);
                let kind = (ort.api.HardwareDevice_Type)(device);
                let backend = match kind {
                    OrtHardwareDeviceType::OrtHardwareDeviceType_CPU => None,
                    OrtHardwareDeviceType::OrtHardwareDeviceType_GPU => {
                        let nvidia = (ort.api.HardwareDevice_VendorId)(device) == NVIDIA;
                        Some(if nvidia { c"cuda" } else { c"wgpu" })
                    }
                    OrtHardwareDeviceType::OrtHardwareDeviceType_NPU => continue,
                };
                if made >= room {
                    break;
                }
                let mut options: *mut OrtKeyValuePairs = std::ptr::null_mut();
                (ort.api.CreateKeyValuePairs)(&raw mut options);
                // The user's options go before the device's suggestions.
                let backend = backend.unwrap_or(c"cpu");
                (ort.api.AddKeyValuePair)(options, c"kiln_backend".as_ptr(), backend.as_ptr());
                let mut one = std::ptr::null_mut();
                let status =
                    (ort.ep.create_ep_device)(factory, device, std::ptr::null(), options, &raw mut one);
                (ort.api.ReleaseKeyValuePairs)(options);
                ort.check(status)?;
                found.add(made).write(one);
            }
            made += 1;
        }
        // SAFETY: a place for a number.
        unsafe { found_count.write(made) };
        Ok(())
    })
}

unsafe extern "C" fn create_ep(
    factory: *mut Factory,
    _: *const *const OrtHardwareDevice,
    _: *const *const OrtKeyValuePairs,
    _: usize,
    session: *const OrtSessionOptions,
    logger: *const OrtLogger,
    ep: *mut *mut Ep,
) -> OrtStatusPtr {
    // SAFETY: the factory of this library.
    let ort = unsafe { (*factory.cast::<Maker>()).ort };
    guard(&ort, || {
        // SAFETY: the session's options, and a place for a pointer.
        unsafe {
            let options = options(&ort, session)?;
            // Here, as errors of later questions are only logged.
            check_exists(&options)?;
            for note in &options.notes {
                ort.log(logger, OrtLoggingLevel::ORT_LOGGING_LEVEL_WARNING, note);
            }
            for library in &options.layers {
                load_layers(library)?;
            }
            ep.write(Provider::new(ort, logger, options).into_raw());
        }
        Ok(())
    })
}

/// The options of a session that are for this provider, and those on compiled models.
unsafe fn options(ort: &Ort, session: *const OrtSessionOptions) -> Result<Options, Fail> {
    let mut pairs = std::ptr::null_mut();
    let (mut keys, mut values, mut count) = (std::ptr::null(), std::ptr::null(), 0);
    // SAFETY: the table's functions; texts live until the pairs are freed, and are copied before.
    let all: Vec<(String, String)> = unsafe {
        ort.check((ort.api.GetSessionOptionsConfigEntries)(session, &raw mut pairs))?;
        (ort.api.GetKeyValuePairs)(pairs, &raw mut keys, &raw mut values, &raw mut count);
        let all = (0..count).map(|i| (text(*keys.add(i)), text(*values.add(i)))).collect();
        (ort.api.ReleaseKeyValuePairs)(pairs);
        all
    };
    let own = all.iter().filter_map(|(k, v)| Some((k.strip_prefix(PREFIX)?, v.as_str())));
    let mut options = Options::read(own)?;
    let find = |key: &str| all.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
    options.context_enable = find("ep.context_enable") == Some("1");
    options.context_embed = find("ep.context_embed_mode") == Some("1");
    options.context_path = find("ep.context_file_path").map(Into::into);
    Ok(options)
}

unsafe extern "C" fn release_ep(_: *mut Factory, ep: *mut Ep) {
    // SAFETY: a provider that `create_ep` made, which nobody uses any more.
    unsafe { ep::release(ep) };
}

unsafe extern "C" fn validate(
    factory: *mut Factory,
    _: *const *const OrtHardwareDevice,
    _: usize,
    info: *const c_char,
    answer: *mut c_int,
) -> OrtStatusPtr {
    // SAFETY: the factory of this library.
    let ort = unsafe { (*factory.cast::<Maker>()).ort };
    guard(&ort, || {
        // SAFETY: a text or NULL, and a place for a number.
        unsafe { answer.write(compatibility::judge(&text(info))) };
        Ok(())
    })
}

unsafe extern "C" fn create_allocator(
    _: *mut Factory,
    _: *const OrtMemoryInfo,
    _: *const OrtKeyValuePairs,
    allocator: *mut *mut OrtAllocator,
) -> OrtStatusPtr {
    // SAFETY: a place for a pointer; NULL stands for host memory.
    unsafe { allocator.write(std::ptr::null_mut()) };
    OrtStatusPtr::default()
}

unsafe extern "C" fn release_allocator(_: *mut Factory, _: *mut OrtAllocator) {}

unsafe extern "C" fn create_data_transfer(_: *mut Factory, transfer: *mut *mut c_void) -> OrtStatusPtr {
    // SAFETY: a place for a pointer; NULL: nothing is to be copied between devices.
    unsafe { transfer.write(std::ptr::null_mut()) };
    OrtStatusPtr::default()
}

unsafe extern "C" fn is_stream_aware(_: *const Factory) -> bool {
    false
}

unsafe extern "C" fn create_stream(
    _: *mut Factory,
    _: *const c_void,
    _: *const OrtKeyValuePairs,
    stream: *mut *mut c_void,
) -> OrtStatusPtr {
    // SAFETY: a place for a pointer.
    unsafe { stream.write(std::ptr::null_mut()) };
    OrtStatusPtr::default()
}
