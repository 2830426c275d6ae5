// A workgroup of 256 threads for each row. Kiln declares params, i0, i1 and o0 in front of this text.
var<workgroup> sums: array<f32, 256>;

@compute @workgroup_size(256)
fn row_norm(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group.x * params.columns;
    var sum = 0.0;
    for (var c = thread; c < params.columns; c += 256u) {
        sum += i0[first + c] * i0[first + c];
    }
    sums[thread] = sum;
    for (var half = 128u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (thread < half) {
            sums[thread] += sums[thread + half];
        }
    }
    workgroupBarrier();
    let factor = 1.0 / sqrt(sums[0] / f32(params.columns) + params.eps);
    for (var c = thread; c < params.columns; c += 256u) {
        o0[first + c] = i0[first + c] * factor * i1[c];
    }
}
