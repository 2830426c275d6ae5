// Determinants by elimination in scratch memory: a workgroup a matrix; a launch eliminates columns lo() .. hi(). Scratch: the
// matrices, then the determinants so far.

struct DetParams {
    rows: u32,
}

fn det_params() -> DetParams {
    return DetParams(
        word(0u),
    );
}

// Place of an element of a matrix in scratch memory.
fn cell(matrix: u32, i: u32, j: u32) -> u32 {
    let n = det_params().rows;
    return (matrix * n + i) * n + j;
}

@compute @workgroup_size(64)
fn det(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let matrix = block_of(id, blocks);
    if (matrix >= grid()) {
        return;
    }
    let n = det_params().rows;
    if (lo() == 0u) {
        for (var i = lane; i < n * n; i += 64u) {
            scratch[matrix * n * n + i] = bitcast<u32>(x0(matrix * n * n + i));
        }
    }
    storageBarrier();
    let kept_at = grid() * n * n + matrix;
    var product = 1.0;
    if (lo() > 0u) {
        product = bitcast<f32>(scratch[kept_at]);
    }
    for (var k = lo(); k < hi(); k++) {
        // All threads look for the same pivot.
        var pivot = k;
        for (var i = k + 1u; i < n; i++) {
            if (abs(bitcast<f32>(scratch[cell(matrix, i, k)])) > abs(bitcast<f32>(scratch[cell(matrix, pivot, k)]))) {
                pivot = i;
            }
        }
        storageBarrier();
        if (pivot != k) {
            for (var j = lane; j < n; j += 64u) {
                let v = scratch[cell(matrix, k, j)];
                scratch[cell(matrix, k, j)] = scratch[cell(matrix, pivot, j)];
                scratch[cell(matrix, pivot, j)] = v;
            }
            product = -product;
        }
        storageBarrier();
        let p = bitcast<f32>(scratch[cell(matrix, k, k)]);
        product = product * p;
        for (var i = k + 1u + lane; i < n && p != 0.0; i += 64u) {
            let f = bitcast<f32>(scratch[cell(matrix, i, k)]) / p;
            for (var j = k; j < n; j++) {
                let v = bitcast<f32>(scratch[cell(matrix, i, j)]) - f * bitcast<f32>(scratch[cell(matrix, k, j)]);
                scratch[cell(matrix, i, j)] = bitcast<u32>(v);
            }
        }
        storageBarrier();
    }
    if (lane == 0u && hi() < n) {
        scratch[kept_at] = bitcast<u32>(product);
    }
    if (lane == 0u && hi() >= n) {
        emit0(matrix, product);
    }
}

// Stand-ins for what a generated module defines.

fn word(k: u32) -> u32 {
    return k;
}

fn lo() -> u32 {
    return 0u;
}

fn hi() -> u32 {
    return 1u;
}

fn grid() -> u32 {
    return 1u;
}

fn block_of(id: vec3<u32>, count: vec3<u32>) -> u32 {
    return id.x;
}

@group(0) @binding(1) var<storage, read_write> scratch: array<u32>;

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn emit0(at: u32, v: f32) {
}
