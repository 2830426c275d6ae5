// A thread for each row. Kiln declares params, i0, i1 and o0 in front of this text.
@compute @workgroup_size(256)
fn row_norm(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = id.x;
    if (row >= params.rows) {
        return;
    }
    let first = row * params.columns;
    var sum = 0.0;
    for (var c = 0u; c < params.columns; c++) {
        sum += i0[first + c] * i0[first + c];
    }
    let factor = 1.0 / sqrt(sum / f32(params.columns) + params.eps);
    for (var c = 0u; c < params.columns; c++) {
        o0[first + c] = i0[first + c] * factor * i1[c];
    }
}
