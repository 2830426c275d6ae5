/* A layer y = 2 x whose kernels write a second time at PLACE, an expression over the element i and the
 * number of elements params.n, and leave out the elements in front of FROM. */
#include "kiln_plugin.h"

#ifndef PLACE
#define PLACE "i"
#endif
#ifndef FROM
#define FROM "0"
#endif

static int32_t run(kiln_layer_instance *instance, const kiln_layer_call *call, kiln_error *err) {
    const kiln_host_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    (void)instance, (void)err;
    if (x->ndim != 1) return KILN_INVALID_ARGUMENT;
    for (int64_t n = 0; n < x->dims[0]; n++)
        ((float *)y->data)[n * y->strides[0]] = 2.0f * ((const float *)x->data)[n * x->strides[0]];
    return KILN_OK;
}

static const kiln_layer_kernel wgsl = {
    .struct_size = sizeof(kiln_layer_kernel),
    .language = KILN_LANGUAGE_WGSL,
    .tactic = KILN_STR("twice"),
    .source = KILN_STR("@compute @workgroup_size(64) fn twice(@builtin(global_invocation_id) at: vec3<u32>) {\n"
                       "    let i = at.x;\n"
                       "    if i >= params.n || i < " FROM " { return; }\n"
                       "    let v = 2.0 * i0[i];\n"
                       "    o0[i] = v;\n"
                       "    o0[" PLACE "] = v;\n"
                       "}\n"),
    .entry = KILN_STR("twice"),
    .grid = KILN_STR("ceildiv(i0.d0, 64)"),
    .params = KILN_STR("u32 n = i0.d0"),
};
static const kiln_layer_kernel cuda = {
    .struct_size = sizeof(kiln_layer_kernel),
    .language = KILN_LANGUAGE_CUDA,
    .tactic = KILN_STR("twice"),
    .source = KILN_STR("extern \"C\" __global__ void twice(const float *x, float *y, Params params) {\n"
                       "    const int i = (int)(blockIdx.x * 64u + threadIdx.x);\n"
                       "    if (i >= params.n || i < " FROM ") return;\n"
                       "    const float v = 2.0f * x[i];\n"
                       "    y[i] = v;\n"
                       "    y[" PLACE "] = v;\n"
                       "}\n"),
    .entry = KILN_STR("twice"),
    .grid = KILN_STR("ceildiv(i0.d0, 64)"),
    .block = KILN_STR("64"),
    .params = KILN_STR("i32 n = i0.d0"),
};
static const kiln_layer_kernel *const kernels[] = {&wgsl, &cuda};

static const kiln_layer layer = {
    .struct_size = sizeof(kiln_layer),
    .name = KILN_STR("Outside"),
    .space = KILN_STR("outside"),
    .version = KILN_STR("1"),
    .types = KILN_STR("f32:f32"),
    .outputs = KILN_STR("[i0.d*]"),
    .tolerance = KILN_STR("exact"),
    .kernels = kernels,
    .kernel_count = 2,
    .run = run,
};
static const kiln_layer *const layers[] = {&layer};
static const kiln_layers_v1 table = {.struct_size = sizeof(kiln_layers_v1), .layers = layers, .layer_count = 1};

static int32_t init(const kiln_host *host, kiln_error *err) {
    (void)host, (void)err;
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
    .min_host_minor = 8,
    .kinds = KILN_KIND_LAYERS,
    .name = KILN_STR("outside"),
    .version = KILN_STR("1.0.0"),
    .target = KILN_STR(KILN_TARGET),
    .init = init,
    .get_interface = get_interface,
};
