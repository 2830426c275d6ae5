//! Finding adapters, and describing them as targets.

use crate::halves;
use kiln_backend::{BackendError, MemoryRules, Target};
use pollster::block_on;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Features that kernels know, with their names in targets.
const FEATURES: [(wgpu::Features, &str); 5] = [
    (wgpu::Features::SHADER_F16, "f16"),
    (wgpu::Features::SHADER_INT64, "i64"),
    (wgpu::Features::SUBGROUP, "subgroup"),
    (wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX, "cooperative_matrix"),
    (wgpu::Features::TIMESTAMP_QUERY, "timestamps"),
];

/// Name in targets of the size of cooperative matrices.
pub const PART_SIZE: &str = "cooperative_part";

/// Name in targets of the number of threads of a subgroup, where all subgroups have as many.
pub const SUBGROUP_SIZE: &str = "subgroup_size";

/// Alignment of bindings: the greatest that WebGPU lets a device want.
pub const ALIGNMENT: u64 = 256;

/// The instance of the process. It is made once and stays: drivers crash where threads make and destroy instances at a time.
fn instance() -> &'static wgpu::Instance {
    static INSTANCE: OnceLock<wgpu::Instance> = OnceLock::new();
    INSTANCE.get_or_init(new_instance)
}

/// Vulkan, Metal and DX12, whichever the system has; without a window system where that can be left out.
fn new_instance() -> wgpu::Instance {
    #[cfg(target_os = "linux")]
    if let Some(i) = headless() {
        return i;
    }
    let mut desc = wgpu::InstanceDescriptor::new_without_display_handle();
    desc.backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
    wgpu::Instance::new(desc)
}

/// A Vulkan instance that has not asked for Wayland: if one has, Mesa's layer that orders devices looks for a compositor,
/// and complains on stderr where there is none.
#[cfg(target_os = "linux")]
fn headless() -> Option<wgpu::Instance> {
    use wgpu::hal::{InstanceDescriptor, vulkan};
    let desc = InstanceDescriptor {
        name: "kiln",
        flags: wgpu::InstanceFlags::default(),
        memory_budget_thresholds: wgpu::MemoryBudgetThresholds::default(),
        backend_options: wgpu::BackendOptions::default(),
        telemetry: None,
        display: None,
    };
    let without_wayland: Box<vulkan::CreateInstanceCallback<'_>> =
        Box::new(|a| a.extensions.retain(|e| *e != c"VK_KHR_wayland_surface"));
    // SAFETY: the one extension taken away serves surfaces of Wayland only. No surface is made of this instance, and wgpu
    // looks for the extension before it makes one.
    let raw = unsafe { vulkan::Instance::init_with_callback(&desc, Some(without_wayland)) }.ok()?;
    // SAFETY: the instance was made by wgpu, and nothing else holds it.
    Some(unsafe { wgpu::Instance::from_hal::<vulkan::Api>(raw) })
}

/// All adapters that can run compute shaders, real devices before software, with their targets.
pub fn probe() -> Result<Vec<(wgpu::Adapter, Target)>, BackendError> {
    let adapters = block_on(instance().enumerate_adapters(wgpu::Backends::all()));
    let mut refused = Vec::new();
    let mut found = Vec::new();
    for a in adapters {
        match refusal(&a) {
            Some(reason) => refused.push(format!("{}: {reason}", a.get_info().name)),
            None => {
                let t = target(&a);
                found.push((a, t));
            }
        }
    }
    found.sort_by_key(|(a, _)| rank(a.get_info().device_type));
    if found.is_empty() {
        let why =
            if refused.is_empty() { "no Vulkan, Metal or DX12 driver".into() } else { refused.join("; ") };
        return Err(BackendError::Unsupported(format!(
            "no usable graphics adapter ({why}); a software one comes with mesa-vulkan-drivers"
        )));
    }
    Ok(found)
}

fn rank(t: wgpu::DeviceType) -> u32 {
    match t {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    }
}

fn refusal(a: &wgpu::Adapter) -> Option<String> {
    let caps = a.get_downlevel_capabilities();
    if !caps.flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS) {
        return Some("no compute shaders".into());
    }
    let l = a.limits();
    if l.max_storage_buffers_per_shader_stage < 8 {
        return Some(format!("{} storage buffers a shader, wants 8", l.max_storage_buffers_per_shader_stage));
    }
    None
}

/// Features to ask a device for.
pub fn features(a: &wgpu::Adapter) -> wgpu::Features {
    let known = FEATURES.iter().fold(wgpu::Features::empty(), |acc, (f, _)| acc | *f);
    a.features() & known
}

/// Rows and columns of the greatest square cooperative matrices of f16 that are summed in f32.
fn part_size(a: &wgpu::Adapter) -> Option<u64> {
    use wgpu::CooperativeScalarType::{F16, F32};
    let square = |p: &wgpu::CooperativeMatrixProperties| p.m_size == p.n_size && p.n_size == p.k_size;
    let all = a.cooperative_matrix_properties().into_iter();
    let fits = all.filter(|p| square(p) && (p.ab_type, p.cr_type) == (F16, F32));
    fits.map(|p| u64::from(p.m_size)).max()
}

fn target(a: &wgpu::Adapter) -> Target {
    let (info, limits, has) = (a.get_info(), a.limits(), a.features());
    let mut features: Vec<String> =
        FEATURES.iter().filter(|(f, _)| has.contains(*f)).map(|(_, n)| (*n).to_owned()).collect();
    if info.device_type == wgpu::DeviceType::Cpu {
        features.push("software".into());
    }
    if halves::exact(a) {
        features.push(halves::EXACT_HALVES.into());
    }
    // Its kernels of attention store all scores.
    features.push("scores_in_memory".into());
    features.sort();
    let mut numbers = BTreeMap::from([
        ("shared_memory".to_owned(), u64::from(limits.max_compute_workgroup_storage_size)),
        ("workgroup_threads".to_owned(), u64::from(limits.max_compute_invocations_per_workgroup)),
        ("storage_buffers".to_owned(), u64::from(limits.max_storage_buffers_per_shader_stage)),
        ("max_buffer".to_owned(), limits.max_buffer_size),
    ]);
    numbers.extend(part_size(a).map(|n| (PART_SIZE.to_owned(), n)));
    if info.subgroup_min_size == info.subgroup_max_size {
        numbers.insert(SUBGROUP_SIZE.to_owned(), u64::from(info.subgroup_min_size));
    }
    Target {
        backend: "wgpu".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        arch: info.backend.to_str().into(),
        device: info.name,
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
        features,
        numbers,
        memory: MemoryRules {
            alignment: ALIGNMENT,
            max_binding: limits.max_storage_buffer_binding_size,
            in_place: true,
            total: 0,
        },
        uuid: info.device_pci_bus_id,
        traits: match info.device_type {
            wgpu::DeviceType::DiscreteGpu => BTreeMap::from([("integrated".to_owned(), 0)]),
            wgpu::DeviceType::IntegratedGpu => BTreeMap::from([("integrated".to_owned(), 1)]),
            _ => BTreeMap::new(),
        },
    }
}
