// A thread for each row. Kiln declares the structure Params in front of this text.
extern "C" __global__ void row_norm(const float* x, const float* scale, float* y, Params p) {
    const unsigned int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= p.rows) return;
    const float* from = x + (unsigned long long)row * p.columns;
    float* to = y + (unsigned long long)row * p.columns;
    float sum = 0.0f;
    for (unsigned int c = 0; c < p.columns; c++) sum += from[c] * from[c];
    const float factor = 1.0f / sqrtf(sum / (float)p.columns + p.eps);
    for (unsigned int c = 0; c < p.columns; c++) to[c] = from[c] * factor * scale[c];
}
