/* A layer whose output is the memory of an input: in_place::Overwrite replaces the first elements of a table.
 *
 * Native forms on CUDA: "recorded", which graphs hold, and "called", which each run calls; on wgpu: "copied". */
#include "kiln_plugin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static const kiln_host *host;

static int32_t refuse(kiln_error *err, const char *why) {
    kiln_str text = {why, strlen(why)};
    host->error_set(err, KILN_INVALID_ARGUMENT, text);
    return KILN_INVALID_ARGUMENT;
}

static int32_t run(kiln_layer_instance *instance, const kiln_layer_call *call, kiln_error *err) {
    const kiln_host_tensor *head = &call->inputs[1], *y = &call->outputs[0];
    (void)instance;
    if (head->ndim != 1 || y->ndim != 1 || head->dims[0] > y->dims[0]) return refuse(err, "wants a head within the table");
    for (int64_t i = 0; i < head->dims[0]; i++)
        ((float *)y->data)[i * y->strides[0]] = ((const float *)head->data)[i * head->strides[0]];
    return KILN_OK;
}

static int32_t on_cuda(kiln_layer_instance *instance, kiln_native_state *state, const kiln_native_call *call, kiln_error *err) {
    const kiln_native_tensor *table = &call->inputs[0], *head = &call->inputs[1], *y = &call->outputs[0];
    const char *named = getenv("KILN_CUDA_DRIVER");
    void *driver = dlopen(named ? named : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*copy)(uint64_t to, uint64_t from, size_t n, void *stream) = NULL;
    (void)instance, (void)state;
    if (driver) *(void **)&copy = dlsym(driver, "cuMemcpyDtoDAsync_v2");
    if (!copy) return refuse(err, "there is no CUDA driver");
    if (table->address != y->address) return refuse(err, "the output has another address than its alias");
    if (head->bytes && copy(y->address, head->address, head->bytes, call->stream)) return refuse(err, "the copy fails");
    return KILN_OK;
}

static int32_t on_wgpu(kiln_layer_instance *instance, kiln_native_state *state, const kiln_native_call *call, kiln_error *err) {
    const kiln_native_tensor *table = &call->inputs[0], *head = &call->inputs[1], *y = &call->outputs[0];
    const kiln_wgpu_stream *stream = call->stream;
    (void)instance, (void)state;
    if (table->address != y->address) return refuse(err, "the output has another address than its alias");
    if (head->bytes && stream->copy(stream->ctx, y->address, head->address, head->bytes)) return refuse(err, "the copy is refused");
    return KILN_OK;
}

static const kiln_layer_native forms[] = {
    {
        .struct_size = sizeof(kiln_layer_native),
        .device = KILN_DEVICE_CUDA,
        .flags = KILN_NATIVE_CAPTURABLE | KILN_NATIVE_MOVABLE,
        .tactic = KILN_STR("recorded"),
        .enqueue = on_cuda,
    },
    {
        .struct_size = sizeof(kiln_layer_native),
        .device = KILN_DEVICE_CUDA,
        .tactic = KILN_STR("called"),
        .enqueue = on_cuda,
    },
    {
        .struct_size = sizeof(kiln_layer_native),
        .device = KILN_DEVICE_WGPU,
        .flags = KILN_NATIVE_MOVABLE,
        .tactic = KILN_STR("copied"),
        .enqueue = on_wgpu,
    },
};
static const kiln_layer_native *const natives[] = {&forms[0], &forms[1], &forms[2]};

static const kiln_layer layer = {
    .struct_size = sizeof(kiln_layer),
    .name = KILN_STR("Overwrite"),
    .space = KILN_STR("in_place"),
    .version = KILN_STR("1"),
    .types = KILN_STR("f32,f32:f32"),
    .outputs = KILN_STR("[i0.d*]"),
    .aliases = KILN_STR("0:0"),
    .tolerance = KILN_STR("exact"),
    .run = run,
    .natives = natives,
    .native_count = 3,
};
static const kiln_layer *const layers[] = {&layer};
static const kiln_layers_v1 table_of_layers = {.struct_size = sizeof(kiln_layers_v1), .layers = layers, .layer_count = 1};

static int32_t init(const kiln_host *h, kiln_error *err) {
    (void)err;
    host = h;
    return KILN_OK;
}

static const void *get_interface(kiln_str id) {
    (void)id;
    return &table_of_layers;
}

const kiln_descriptor kiln_plugin_descriptor = {
    .magic = KILN_MAGIC,
    .struct_size = sizeof(kiln_descriptor),
    .abi_major = KILN_ABI_MAJOR,
    .abi_minor = KILN_ABI_MINOR,
    .min_host_minor = 9,
    .kinds = KILN_KIND_LAYERS,
    .name = KILN_STR("in_place"),
    .version = KILN_STR("1.0.0"),
    .target = KILN_STR(KILN_TARGET),
    .init = init,
    .get_interface = get_interface,
};
