// The first elements of each sequence of a batch in reverse order.

struct ReverseSequenceParams {
    batch_stride: u32,
    batches: u32,
    time_stride: u32,
    times: u32,
}

fn reverse_sequence_params() -> ReverseSequenceParams {
    return ReverseSequenceParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
    );
}

fn reverse_sequence(at: u32) -> Value {
    let p = reverse_sequence_params();
    let b = at / p.batch_stride % p.batches;
    let t = at / p.time_stride % p.times;
    let len = u32(clamp(near1(b), 0, i32(p.times)));
    if (t < len) {
        return x0(at - t * p.time_stride + (len - 1u - t) * p.time_stride);
    }
    return x0(at);
}

// Stand-ins for what a generated module defines.

alias Value = f32;

fn x0(at: u32) -> Value {
    return 0.0;
}

fn near1(at: u32) -> i32 {
    return 0;
}

fn word(k: u32) -> u32 {
    return k;
}
