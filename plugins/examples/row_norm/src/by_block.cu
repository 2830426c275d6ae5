// A block of 256 threads for each row. Kiln declares the structure Params in front of this text.
extern "C" __global__ void __launch_bounds__(256) row_norm(const float* x, const float* scale, float* y, Params p) {
    __shared__ float sums[256];
    const float* from = x + (unsigned long long)blockIdx.x * p.columns;
    float* to = y + (unsigned long long)blockIdx.x * p.columns;
    float sum = 0.0f;
    for (unsigned int c = threadIdx.x; c < p.columns; c += 256) sum += from[c] * from[c];
    sums[threadIdx.x] = sum;
    for (unsigned int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
    const float factor = 1.0f / sqrtf(sums[0] / (float)p.columns + p.eps);
    for (unsigned int c = threadIdx.x; c < p.columns; c += 256) to[c] = from[c] * factor * scale[c];
}
