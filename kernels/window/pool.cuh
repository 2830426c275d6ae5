// Pooling of images with channels last: a thread has eight channels of a window.
// Words: height, width of x; height, width of y; kernel, strides, dilations, padding before, each down and across; and threads
// of a pixel.
THREADS pool {
    const u32 side = m(12u);
    const u32 pixel = t / side;
    const u32 c = (t - pixel * side) * 8u;
    const u32 row = pixel / m(3u);
    const i32 left = i32((pixel - row * m(3u)) * m(7u)) - mi(11u);
    const u32 image = row / m(2u);
    const i32 top = i32((row - image * m(2u)) * m(6u)) - mi(10u);
    f32 sums[8];
#pragma unroll
    for (u32 j = 0u; j < 8u; j++) {
        sums[j] = START;
    }
    u32 count = 0u;
    for (u32 ky = 0u; ky < m(4u); ky++) {
        const i32 y = top + i32(ky * m(8u));
        if (y < 0 || y >= mi(0u)) {
            continue;
        }
#pragma unroll 4
        for (u32 kx = 0u; kx < m(5u); kx++) {
            const i32 x = left + i32(kx * m(9u));
            if (x < 0 || x >= mi(1u)) {
                continue;
            }
            const auto r = Run<CELL>::of(bx0 + ((image * m(0u) + u32(y)) * m(1u) + u32(x)) * side * 8u + c, 1u);
            count++;
#pragma unroll
            for (u32 j = 0u; j < 8u; j++) {
                const f32 v = VALUE;
                const f32 acc = sums[j];
                sums[j] = STEP;
            }
        }
    }
#pragma unroll
    for (u32 j = 0u; j < 8u; j++) {
        LAST
    }
    emit0_run(pixel * side * 8u + c, sums);
}
