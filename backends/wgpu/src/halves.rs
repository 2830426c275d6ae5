//! Conversions of f16 by the device's own functions, where a trial finds that they are those of `storage.wgsl`.
//!
//! WGSL leaves open how `pack2x16float` rounds, and whether subnormal numbers become zeros. The functions of `storage.wgsl` take ten
//! times as many instructions, and most kernels of f16 spend their time there.

use crate::wgsl::link;
use kiln_backend::BackendError;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Feature of targets whose own conversions are exact.
pub const EXACT_HALVES: &str = "exact_halves";

/// Counts the bit patterns of f16 about which all conversions agree: of the number itself, and of those about halfway to the next one.
const TRIAL: &str = "\
@group(0) @binding(0) var<storage, read_write> agreed: atomic<u32>;

fn alike(a: u32, b: u32, size: u32, infinity: u32) -> bool {
    return a == b || ((a & size) > infinity && (b & size) > infinity);
}

fn packs(x: f32) -> bool {
    let own = pack2x16float(vec2<f32>(x, -x));
    let wanted = f32_to_f16(x);
    return alike(own & 0xffffu, wanted, 0x7fffu, 0x7c00u) && alike(own >> 16u, wanted ^ 0x8000u, 0x7fffu, 0x7c00u);
}

@compute @workgroup_size(64)
fn trial(@builtin(global_invocation_id) id: vec3<u32>) {
    let h = id.x;
    let x = f16_to_f32(h);
    let own = unpack2x16float(h | (h << 16u));
    var same = alike(bitcast<u32>(own.x), bitcast<u32>(x), 0x7fffffffu, 0x7f800000u);
    same = same && alike(bitcast<u32>(own.y), bitcast<u32>(x), 0x7fffffffu, 0x7f800000u);
    var halfway = 65520.0;
    if ((h & 0x7fffu) < 0x7bffu) {
        halfway = 0.5 * (abs(x) + f16_to_f32((h & 0x7fffu) + 1u));
    }
    let bits = bitcast<u32>(halfway);
    same = same && packs(x) && packs(halfway);
    same = same && packs(bitcast<f32>(bits - 1u)) && packs(bitcast<f32>(bits + 1u));
    if (same) {
        atomicAdd(&agreed, 1u);
    }
}
";

/// Bit patterns of f16.
const PATTERNS: u32 = 1 << 16;

/// Whether an adapter's own conversions are exact; tried once in a process.
pub fn exact(adapter: &wgpu::Adapter) -> bool {
    static FOUND: Mutex<BTreeMap<String, bool>> = Mutex::new(BTreeMap::new());
    let key = format!("{:?}", adapter.get_info());
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&known) = found.get(&key) {
        return known;
    }
    let exact = agreed(adapter).is_ok_and(|n| n == PATTERNS);
    found.insert(key, exact);
    exact
}

/// Runs the trial.
fn agreed(adapter: &wgpu::Adapter) -> Result<u32, BackendError> {
    let failed = |e: &dyn std::fmt::Display| BackendError::DeviceLost(e.to_string());
    let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default()))
        .map_err(|e| failed(&e))?;
    device.on_uncaptured_error(std::sync::Arc::new(|_| {}));
    let text = TRIAL.to_owned() + &link::needed_by(TRIAL, &[], &["trial".to_owned()], None)?;
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(text.into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: Some("trial"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    let buffer = |usage| {
        let size = 16;
        device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
    };
    let count = buffer(wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC);
    let read = buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[wgpu::BindGroupEntry { binding: 0, resource: count.as_entire_binding() }],
    });
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(PATTERNS / 64, 1, 1);
    }
    encoder.copy_buffer_to_buffer(&count, 0, &read, 0, 16);
    queue.submit([encoder.finish()]);
    read.slice(..).map_async(wgpu::MapMode::Read, |_| {});
    device
        .poll(wgpu::PollType::Wait {
            submission_index: None,
            timeout: Some(std::time::Duration::from_secs(10)),
        })
        .map_err(|e| failed(&e))?;
    let bytes = read.slice(..).get_mapped_range();
    let bytes = bytes.map_err(|e| failed(&e))?;
    Ok(bytes.get(..4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes))
}
