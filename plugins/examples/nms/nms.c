/* A layer that finds how large its results are: example::BestBoxes, non-maximum suppression.
 *
 * Inputs: boxes f32[n, 4] as x1, y1, x2, y2, and scores f32[n]. Outputs: the kept boxes, best first, and their numbers. Kernels have
 * two launches: the first one finds how many boxes are kept, and which, and the second one copies them. */
#include "kiln_plugin.h"

#include <string.h>

/* Tests build it without kernels, in another namespace. */
#ifndef SPACE
#define SPACE "example"
#endif

static const kiln_host *host;
static const double half = 0.5;
static const int64_t hundred = 100;

static const kiln_field_def fields[] = {
    {
        .name = KILN_STR("overlap"),
        .doc = KILN_STR("Boxes that overlap a better one by more than this are left out: intersection over union, 0 to 1."),
        .value = {.kind = KILN_FIELD_FLOAT, .data = &half, .count = 1},
    },
    {
        .name = KILN_STR("most"),
        .doc = KILN_STR("Greatest number of boxes that are kept."),
        .value = {.kind = KILN_FIELD_INT, .data = &hundred, .count = 1},
    },
};

static int32_t refuse(kiln_error *err, const char *why) {
    kiln_str text = {why, strlen(why)};
    host->error_set(err, KILN_INVALID_ARGUMENT, text);
    return KILN_INVALID_ARGUMENT;
}

/* An instance has no state here; `create` only refuses fields. */
static int instance;

static int32_t create(const kiln_field *f, uint64_t count, kiln_layer_instance **out, kiln_error *err) {
    const double overlap = *(const double *)f[0].data;
    (void)count;
    if (!(overlap >= 0.0 && overlap <= 1.0)) return refuse(err, "field \"overlap\" wants a number from 0 to 1");
    if (*(const int64_t *)f[1].data < 0) return refuse(err, "field \"most\" wants 0 or more");
    *out = (kiln_layer_instance *)&instance;
    return KILN_OK;
}

static void destroy(kiln_layer_instance *i) { (void)i; }

/* The shapes of the outputs; sizes that are not known are -1. */
static int32_t describe(kiln_layer_instance *i, const kiln_layer_call *call, kiln_sink *out, kiln_error *err) {
    const kiln_host_tensor *boxes = &call->inputs[0], *scores = &call->inputs[1];
    static const char shapes[] = "[found <= min(i0.d0, most), 4]; [found <= min(i0.d0, most)]";
    (void)i;
    if (boxes->ndim != 2 || (boxes->dims[1] >= 0 && boxes->dims[1] != 4)) return refuse(err, "boxes want the shape [n, 4]");
    if (scores->ndim != 1 || (scores->dims[0] >= 0 && boxes->dims[0] >= 0 && scores->dims[0] != boxes->dims[0]))
        return refuse(err, "scores want the shape [n], one for each box");
    return host->sink_write(out, (const uint8_t *)shapes, sizeof shapes - 1);
}

static float at(const kiln_host_tensor *t, int64_t row, int64_t column) {
    return ((const float *)t->data)[row * t->strides[0] + (t->ndim > 1 ? column * t->strides[1] : 0)];
}

static float area(const kiln_host_tensor *b, int64_t n) {
    return (at(b, n, 2) - at(b, n, 0)) * (at(b, n, 3) - at(b, n, 1));
}

static float lesser(float a, float b) { return a < b ? a : b; }
static float greater(float a, float b) { return a > b ? a : b; }

static float overlap_of(const kiln_host_tensor *b, int64_t m, int64_t n) {
    const float width = lesser(at(b, m, 2), at(b, n, 2)) - greater(at(b, m, 0), at(b, n, 0));
    const float height = lesser(at(b, m, 3), at(b, n, 3)) - greater(at(b, m, 1), at(b, n, 1));
    const float both = width > 0 && height > 0 ? width * height : 0;
    const float either = area(b, m) + area(b, n) - both;
    return either > 0 ? both / either : 0;
}

static int32_t run(kiln_layer_instance *i, const kiln_layer_call *call, kiln_error *err) {
    const kiln_host_tensor *boxes = &call->inputs[0], *scores = &call->inputs[1];
    const kiln_host_tensor *kept = &call->outputs[0], *numbers = &call->outputs[1];
    const float overlap = (float)*(const double *)call->fields[0].data;
    const int64_t n = boxes->ndim > 0 ? boxes->dims[0] : 0, most = kept->dims[0];
    uint8_t *gone = call->workspace; /* One byte a box; kernels have two words. */
    int64_t found = 0;
    (void)i;
    if (boxes->ndim != 2 || boxes->dims[1] != 4) return refuse(err, "boxes want the shape [n, 4]");
    if (scores->ndim != 1 || scores->dims[0] != n) return refuse(err, "scores want the shape [n], one for each box");
    for (int64_t b = 0; b < n; b++) gone[b] = 0;
    while (found < most) {
        int64_t best = -1;
        for (int64_t b = 0; b < n; b++)
            if (!gone[b] && (best < 0 || at(scores, b, 0) > at(scores, best, 0))) best = b;
        if (best < 0) break;
        for (int64_t c = 0; c < 4; c++)
            ((float *)kept->data)[found * kept->strides[0] + c * kept->strides[1]] = at(boxes, best, c);
        ((int64_t *)numbers->data)[found * numbers->strides[0]] = best;
        found++;
        gone[best] = 1;
        for (int64_t b = 0; b < n; b++)
            if (!gone[b] && overlap_of(boxes, best, b) > overlap) gone[b] = 1;
    }
    kept->dims[0] = found;
    numbers->dims[0] = found;
    return KILN_OK;
}

#ifndef HOST_ONLY
/* One block: in turn it finds the best box that is left, keeps it, and strikes out what overlaps it. Products are rounded before they are
 * added, as in the reference form. */
static const kiln_layer_kernel cuda = {
    .struct_size = sizeof(kiln_layer_kernel),
    .language = KILN_LANGUAGE_CUDA,
    .tactic = KILN_STR("rounds"),
    .source = KILN_STR(
        "__device__ float area(const float *b) { return __fmul_rn(b[2] - b[0], b[3] - b[1]); }\n"
        "__device__ float overlap(const float *a, const float *b) {\n"
        "    const float width = fminf(a[2], b[2]) - fmaxf(a[0], b[0]), height = fminf(a[3], b[3]) - fmaxf(a[1], b[1]);\n"
        "    const float both = width > 0.0f && height > 0.0f ? __fmul_rn(width, height) : 0.0f;\n"
        "    const float either = __fadd_rn(__fadd_rn(area(a), area(b)), -both);\n"
        "    return either > 0.0f ? __fdiv_rn(both, either) : 0.0f;\n"
        "}\n"
        "extern \"C\" __global__ void __launch_bounds__(256) find(const float *boxes, const float *scores, unsigned int *sizes,\n"
        "                                                         void *workspace, Params p) {\n"
        "    __shared__ unsigned int places[256];\n"
        "    unsigned int *gone = (unsigned int *)workspace, *kept = gone + p.n;\n"
        "    const unsigned int t = threadIdx.x;\n"
        "    unsigned int found = 0;\n"
        "    for (unsigned int i = t; i < p.n; i += 256) gone[i] = 0;\n"
        "    while (found < p.most) {\n"
        "        unsigned int best = p.n;\n"
        "        for (unsigned int i = t; i < p.n; i += 256)\n"
        "            if (!gone[i] && (best == p.n || scores[i] > scores[best])) best = i;\n"
        "        places[t] = best;\n"
        "        __syncthreads();\n"
        "        best = p.n;\n"
        "        for (unsigned int k = 0; k < 256; k++) {\n"
        "            const unsigned int i = places[k];\n"
        "            if (i < p.n && (best == p.n || scores[i] > scores[best] || (scores[i] == scores[best] && i < best))) best = i;\n"
        "        }\n"
        "        if (best == p.n) break;\n"
        "        __syncthreads();\n"
        "        if (t == 0) kept[found] = best;\n"
        "        for (unsigned int i = t; i < p.n; i += 256)\n"
        "            if (i == best || overlap(boxes + 4ull * best, boxes + 4ull * i) > p.overlap) gone[i] = 1;\n"
        "        found++;\n"
        "    }\n"
        "    if (t == 0) sizes[0] = found;\n"
        "}\n"
        "extern \"C\" __global__ void __launch_bounds__(256) fill(const float *boxes, const float *, float *best, long long *numbers,\n"
        "                                                         void *workspace, Params p) {\n"
        "    const unsigned int i = blockIdx.x * 256 + threadIdx.x;\n"
        "    if (i >= p.found) return;\n"
        "    const unsigned int from = ((const unsigned int *)workspace)[p.n + i];\n"
        "    for (int c = 0; c < 4; c++) best[4ull * i + c] = boxes[4ull * from + c];\n"
        "    numbers[i] = from;\n"
        "}\n"),
    .entry = KILN_STR("fill"),
    .grid = KILN_STR("ceildiv(found, 256)"),
    .block = KILN_STR("256"),
    .params = KILN_STR("u32 n = i0.d0; u32 most = min(most, i0.d0); f32 overlap = overlap; u32 found = found"),
    .count_entry = KILN_STR("find"),
    .count_grid = KILN_STR("1"),
    .count_block = KILN_STR("256"),
};
static const kiln_layer_kernel wgsl = {
    .struct_size = sizeof(kiln_layer_kernel),
    .language = KILN_LANGUAGE_WGSL,
    .tactic = KILN_STR("rounds"),
    .source = KILN_STR(
        "var<workgroup> places: array<u32, 256>;\n"
        "fn area(b: u32) -> f32 { return (i0[b + 2u] - i0[b]) * (i0[b + 3u] - i0[b + 1u]); }\n"
        "fn overlap(a: u32, b: u32) -> f32 {\n"
        "    let width = min(i0[a + 2u], i0[b + 2u]) - max(i0[a], i0[b]);\n"
        "    let height = min(i0[a + 3u], i0[b + 3u]) - max(i0[a + 1u], i0[b + 1u]);\n"
        "    let both = select(0.0, width * height, width > 0.0 && height > 0.0);\n"
        "    let either = area(a) + area(b) - both;\n"
        "    if either > 0.0 { return both / either; }\n"
        "    return 0.0;\n"
        "}\n"
        "@compute @workgroup_size(256) fn find(@builtin(local_invocation_index) t: u32) {\n"
        "    var found = 0u;\n"
        "    for (var i = t; i < params.n; i += 256u) { workspace[i] = 0u; }\n"
        "    while found < params.most {\n"
        "        var best = params.n;\n"
        "        for (var i = t; i < params.n; i += 256u) {\n"
        "            if workspace[i] == 0u {\n"
        "                if best == params.n { best = i; } else if i1[i] > i1[best] { best = i; }\n"
        "            }\n"
        "        }\n"
        "        places[t] = best;\n"
        "        workgroupBarrier();\n"
        "        if t == 0u {\n"
        "            best = params.n;\n"
        "            for (var k = 0u; k < 256u; k++) {\n"
        "                let i = places[k];\n"
        "                if i < params.n {\n"
        "                    if best == params.n { best = i; }\n"
        "                    else if i1[i] > i1[best] || (i1[i] == i1[best] && i < best) { best = i; }\n"
        "                }\n"
        "            }\n"
        "            places[0] = best;\n"
        "        }\n"
        "        best = workgroupUniformLoad(&places[0]);\n"
        "        if best == params.n { break; }\n"
        "        if t == 0u { workspace[params.n + found] = best; }\n"
        "        for (var i = t; i < params.n; i += 256u) {\n"
        "            if i == best || overlap(4u * best, 4u * i) > params.overlap { workspace[i] = 1u; }\n"
        "        }\n"
        "        found++;\n"
        "    }\n"
        "    if t == 0u { sizes[0] = found; }\n"
        "}\n"
        "@compute @workgroup_size(256) fn fill(@builtin(global_invocation_id) at: vec3<u32>) {\n"
        "    let i = at.x;\n"
        "    if i >= params.found { return; }\n"
        "    let box = workspace[params.n + i];\n"
        "    for (var c = 0u; c < 4u; c++) { o0[4u * i + c] = i0[4u * box + c]; }\n"
        "    o1[i] = i64(box);\n"
        "}\n"),
    .entry = KILN_STR("fill"),
    .grid = KILN_STR("ceildiv(found, 256)"),
    .params = KILN_STR("u32 n = i0.d0; u32 most = min(most, i0.d0); f32 overlap = overlap; u32 found = found"),
    .count_entry = KILN_STR("find"),
    .count_grid = KILN_STR("1"),
};
static const kiln_layer_kernel *const kernels[] = {&cuda, &wgsl};
#endif

static const kiln_layer best_boxes = {
    .struct_size = sizeof(kiln_layer),
    .name = KILN_STR("BestBoxes"),
    .space = KILN_STR(SPACE),
    .version = KILN_STR("1"),
    .doc = KILN_STR("Boxes that no better box overlaps, best first, and their numbers."),
    .fields = fields,
    .field_count = 2,
    .types = KILN_STR("f32,f32:f32,i64"),
    .workspace = KILN_STR("8 * i0.d0"),
    .tolerance = KILN_STR("exact"),
#ifndef HOST_ONLY
    .kernels = kernels,
    .kernel_count = 2,
#endif
    .describe = describe,
    .create = create,
    .destroy = destroy,
    .run = run,
};

static const kiln_layer *const layers[] = {&best_boxes};
static const kiln_layers_v1 table = {.struct_size = sizeof(kiln_layers_v1), .layers = layers, .layer_count = 1};

static int32_t init(const kiln_host *h, kiln_error *err) {
    (void)err;
    host = h;
    return KILN_OK;
}

static const void *get_interface(kiln_str id) {
    (void)id;
    return &table;
}

const kiln_descriptor kiln_plugin_descriptor = {
    .magic = KILN_MAGIC,
    .struct_size = sizeof(kiln_descriptor),
    .abi_major = KILN_ABI_MAJOR,
    .abi_minor = KILN_ABI_MINOR,
    .min_host_minor = 11, /* Kernels that find sizes came with this version. */
    .kinds = KILN_KIND_LAYERS,
    .name = KILN_STR("nms"),
    .vendor = KILN_STR("Kiln"),
    .version = KILN_STR("1.0.0"),
    .target = KILN_STR(KILN_TARGET),
    .init = init,
    .get_interface = get_interface,
};
