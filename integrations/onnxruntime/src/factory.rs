//! The exported functions, and the factory of providers.

use crate::abi::{ApiBase, Ep, Factory, VERSION};
use crate::compatibility;
use crate::compiled::{check_exists, load_layers};
use crate::device::{self, Device};
use crate::ep::{self, Provider};
use crate::error::{Fail, quietly};
use crate::options::{NAME, Options, PREFIX};
use crate::ort::{Ort, guard, text};
use ort_sys::{
    OrtAllocator, OrtEpDevice, OrtHardwareDevice, OrtHardwareDeviceType, OrtKeyValuePairs, OrtLogger,
    OrtLoggingLevel, OrtMemoryInfo, OrtSessionOptions, OrtStatusPtr,
};
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

/// A factory. ONNX Runtime sees its first field.
#[repr(C)]
struct Maker {
    factory: Factory,
    ort: Ort,
    /// Whether its providers keep values in the memory of devices of CUDA.
    on_device: bool,
    /// Descriptions of that memory. ONNX Runtime keeps their addresses.
    memory: Mutex<Vec<*mut OrtMemoryInfo>>,
}

impl Drop for Maker {
    fn drop(&mut self) {
        for info in self.memory.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // SAFETY: a description that was made for this factory, whose devices are gone.
            unsafe { (self.ort.api.ReleaseMemoryInfo)(info) };
        }
    }
}

/// Makes the factories of providers: of the one for host memory, and of the one for device memory.
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
        let table = || Factory {
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
        for (i, on_device) in [false, true].into_iter().enumerate().take(room) {
            let made =
                Box::into_raw(Box::new(Maker { factory: table(), ort, on_device, memory: Mutex::default() }));
            // SAFETY: an array with room for so many, and a place for a number.
            unsafe {
                factories.add(i).write(made.cast());
                count.write(i + 1);
            }
        }
        Ok(())
    })
}

/// Frees a factory.
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

unsafe extern "C" fn name(factory: *const Factory) -> *const c_char {
    // SAFETY: a factory of this library.
    let on_device = unsafe { (*factory.cast::<Maker>()).on_device };
    if on_device { device::NAME.as_ptr() } else { NAME.as_ptr() }
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
    let (ort, on_device) = unsafe { ((*factory.cast::<Maker>()).ort, (*factory.cast::<Maker>()).on_device) };
    if on_device {
        // SAFETY: as ONNX Runtime calls this function.
        return guard(&ort, || unsafe {
            let made = devices_of_cuda(&ort, factory, std::slice::from_raw_parts(devices, count))?;
            found_count.write(made.len().min(room));
            made.into_iter().take(room).enumerate().for_each(|(i, one)| found.add(i).write(one));
            Ok(())
        });
    }
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
                        let nvidia = (ort.api.HardwareDevice_VendorId)(device) == device::NVIDIA;
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

/// The devices of the provider for device memory. Where ONNX Runtime lists no GPU of NVIDIA's although the driver has one, as in
/// containers, the processor stands in for it: the memory is the driver's in any case.
///
/// # Safety
/// The factory of this library, and hardware that lives as long as the call.
unsafe fn devices_of_cuda(
    ort: &Ort,
    factory: *mut Factory,
    hardware: &[*const OrtHardwareDevice],
) -> Result<Vec<*mut OrtEpDevice>, Fail> {
    // SAFETY: the table's functions for hardware that lives.
    let kind = |d: *const OrtHardwareDevice| unsafe {
        ((ort.api.HardwareDevice_Type)(d), (ort.api.HardwareDevice_VendorId)(d))
    };
    let gpu = OrtHardwareDeviceType::OrtHardwareDeviceType_GPU;
    let mut gpus = hardware.iter().copied().filter(|&d| kind(d) == (gpu, device::NVIDIA));
    let cpu = OrtHardwareDeviceType::OrtHardwareDeviceType_CPU;
    let processor = hardware.iter().copied().find(|&d| kind(d).0 == cpu);
    let mut made = Vec::new();
    for number in 0..device::devices() {
        let Some(hardware) = gpus.next().or(processor) else { break };
        let text = CString::new(number.to_string()).unwrap_or_default();
        let (mut facts, mut options, mut one) =
            (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the table's functions, with texts that they copy and places for pointers.
        unsafe {
            (ort.api.CreateKeyValuePairs)(&raw mut facts);
            (ort.api.CreateKeyValuePairs)(&raw mut options);
            (ort.api.AddKeyValuePair)(facts, device::NUMBER.as_ptr(), text.as_ptr());
            (ort.api.AddKeyValuePair)(options, c"kiln_backend".as_ptr(), device::BACKEND.as_ptr());
            (ort.api.AddKeyValuePair)(options, c"device_id".as_ptr(), text.as_ptr());
            let status = (ort.ep.create_ep_device)(factory, hardware, facts, options, &raw mut one);
            (ort.api.ReleaseKeyValuePairs)(facts);
            (ort.api.ReleaseKeyValuePairs)(options);
            ort.check(status)?;
            let memory = device::describe(ort, number)?;
            let maker = &*factory.cast::<Maker>();
            maker.memory.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
            ort.check((ort.ep.add_allocator_info)(one, memory))?;
        }
        made.push(one);
    }
    Ok(made)
}

/// The device of a session of the provider for device memory, by the facts about it. Options that name another backend or device are
/// refused.
///
/// # Safety
/// The facts live as long as the call.
unsafe fn device_of(
    ort: &Ort,
    facts: &[*const OrtKeyValuePairs],
    options: &Options,
) -> Result<&'static Device, Fail> {
    let [facts] = facts else {
        return Err(Fail::argument(format!(
            "{} takes one device, was given {}",
            device::NAME.to_string_lossy(),
            facts.len()
        )));
    };
    // SAFETY: the table's function, as the caller vouches.
    let number = unsafe { text((ort.api.GetKeyValue)(*facts, device::NUMBER.as_ptr())) };
    let backend = device::BACKEND.to_string_lossy();
    if options.backend.as_deref() != Some(&*backend) || options.device.as_deref() != Some(&number) {
        return Err(Fail::argument(format!(
            "options kiln_backend and device_id are {backend} and {number} with this device; take {} for others",
            NAME.to_string_lossy()
        )));
    }
    device::device(number.parse().map_err(|_| Fail::argument(format!("device {number} is not a number")))?)
}

unsafe extern "C" fn create_ep(
    factory: *mut Factory,
    _: *const *const OrtHardwareDevice,
    facts: *const *const OrtKeyValuePairs,
    count: usize,
    session: *const OrtSessionOptions,
    logger: *const OrtLogger,
    ep: *mut *mut Ep,
) -> OrtStatusPtr {
    // SAFETY: the factory of this library.
    let (ort, on_device) = unsafe { ((*factory.cast::<Maker>()).ort, (*factory.cast::<Maker>()).on_device) };
    guard(&ort, || {
        // SAFETY: the session's options, facts about so many devices, and a place for a pointer.
        unsafe {
            let options = options(&ort, session, if on_device { device::PREFIX } else { PREFIX })?;
            let device = match on_device {
                true => Some(device_of(&ort, std::slice::from_raw_parts(facts, count), &options)?),
                false => None,
            };
            // Here, as errors of later questions are only logged.
            check_exists(&options)?;
            for note in &options.notes {
                ort.log(logger, OrtLoggingLevel::ORT_LOGGING_LEVEL_WARNING, note);
            }
            for library in &options.layers {
                load_layers(library)?;
            }
            ep.write(Provider::new(ort, logger, options, device).into_raw());
        }
        Ok(())
    })
}

/// The options of a session that are for this provider, and those on compiled models.
unsafe fn options(ort: &Ort, session: *const OrtSessionOptions, prefix: &str) -> Result<Options, Fail> {
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
    let own = all.iter().filter_map(|(k, v)| Some((k.strip_prefix(prefix)?, v.as_str())));
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
    factory: *mut Factory,
    memory: *const OrtMemoryInfo,
    _: *const OrtKeyValuePairs,
    allocator: *mut *mut OrtAllocator,
) -> OrtStatusPtr {
    // SAFETY: the factory of this library.
    let (ort, on_device) = unsafe { ((*factory.cast::<Maker>()).ort, (*factory.cast::<Maker>()).on_device) };
    guard(&ort, || {
        // SAFETY: memory that this factory described, and a place for a pointer; NULL stands for host memory.
        unsafe {
            let made = if on_device { device::make_allocator(ort, memory)? } else { std::ptr::null_mut() };
            allocator.write(made);
        }
        Ok(())
    })
}

unsafe extern "C" fn release_allocator(_: *mut Factory, allocator: *mut OrtAllocator) {
    // SAFETY: what `create_allocator` made, which nobody uses any more.
    unsafe { device::release_allocator(allocator) };
}

unsafe extern "C" fn create_data_transfer(factory: *mut Factory, transfer: *mut *mut c_void) -> OrtStatusPtr {
    // SAFETY: the factory of this library, and a place for a pointer; NULL: nothing is to be copied between devices.
    unsafe {
        let maker = &*factory.cast::<Maker>();
        transfer.write(if maker.on_device { device::make_transfer(maker.ort) } else { std::ptr::null_mut() });
    }
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
