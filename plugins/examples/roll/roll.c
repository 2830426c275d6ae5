/* A layer with native forms: example::Roll shifts a tensor along its first axis, by copies within the GPU.
 *
 * Input: f32 or f16 [n, ...]. Output: the same shape, y[i] = x[(i + by) mod n]. The native form puts two copies into the stream
 * of the run. Graphs may record them, and one state serves all shapes of a context. The form for wgpu copies by the functions of the
 * stream, in whole words. */
#include "kiln_plugin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static const kiln_host *host;

static int32_t refuse(kiln_error *err, int32_t code, const char *why) {
    kiln_str text = {why, strlen(why)};
    host->error_set(err, code, text);
    return code;
}

/* The first row of the output as a row of the input, of n rows. */
static int64_t first_row(const kiln_field *by, int64_t n) {
    if (n == 0) return 0;
    const int64_t rest = *(const int64_t *)by->data % n;
    return rest < 0 ? rest + n : rest;
}

/* Copies elements of `size` bytes of one row, along all axes behind the first. */
static void copy_row(const kiln_host_tensor *x, const kiln_host_tensor *y, const char *from, char *to, uint32_t axis,
                     size_t size) {
    if (axis == x->ndim) {
        memcpy(to, from, size);
        return;
    }
    for (int64_t i = 0; i < x->dims[axis]; i++)
        copy_row(x, y, from + i * x->strides[axis] * (int64_t)size, to + i * y->strides[axis] * (int64_t)size, axis + 1, size);
}

static int32_t run(kiln_layer_instance *instance, const kiln_layer_call *call, kiln_error *err) {
    const kiln_host_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    const size_t size = x->dtype == 1 ? 4 : 2;
    (void)instance;
    if (x->ndim == 0) return refuse(err, KILN_INVALID_ARGUMENT, "wants a tensor with at least one axis");
    const int64_t n = x->dims[0], first = first_row(call->fields, n);
    for (int64_t i = 0; i < n; i++)
        copy_row(x, y, (const char *)x->data + (i + first) % n * x->strides[0] * (int64_t)size,
                 (char *)y->data + i * y->strides[0] * (int64_t)size, 1, size);
    return KILN_OK;
}

/* State of a context: the function of the driver that copies. */
struct state {
    int (*copy)(uint64_t to, uint64_t from, size_t n, void *stream);
};

static int32_t attach(kiln_layer_instance *instance, const kiln_native_call *call, kiln_native_state **out,
                      kiln_error *err) {
    /* Tests put another library in the place of the driver. */
    const char *named = getenv("KILN_CUDA_DRIVER");
    void *driver = dlopen(named ? named : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    (void)instance, (void)call;
    if (!driver) return refuse(err, KILN_UNSUPPORTED, "there is no CUDA driver");
    struct state *state = malloc(sizeof *state);
    if (!state) return refuse(err, KILN_OUT_OF_MEMORY, "no memory for a state");
    *(void **)&state->copy = dlsym(driver, "cuMemcpyDtoDAsync_v2");
    if (!state->copy) {
        free(state);
        return refuse(err, KILN_UNSUPPORTED, "the CUDA driver has no cuMemcpyDtoDAsync_v2");
    }
    *out = (kiln_native_state *)state;
    return KILN_OK;
}

static void detach(kiln_native_state *state) { free(state); }

static int32_t enqueue(kiln_layer_instance *instance, kiln_native_state *state, const kiln_native_call *call,
                       kiln_error *err) {
    const kiln_native_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    const struct state *s = (const struct state *)state;
    (void)instance;
    const uint64_t row = x->dims[0] ? x->bytes / (uint64_t)x->dims[0] : 0;
    const uint64_t head = (uint64_t)first_row(call->fields, x->dims[0]) * row;
    if (x->bytes > head && s->copy(y->address, x->address + head, x->bytes - head, call->stream))
        return refuse(err, KILN_INTERNAL, "cuMemcpyDtoDAsync fails");
    if (head && s->copy(y->address + x->bytes - head, x->address, head, call->stream))
        return refuse(err, KILN_INTERNAL, "cuMemcpyDtoDAsync fails");
    return KILN_OK;
}

static int32_t enqueue_wgpu(kiln_layer_instance *instance, kiln_native_state *state, const kiln_native_call *call,
                            kiln_error *err) {
    const kiln_native_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    const kiln_wgpu_stream *stream = call->stream;
    (void)instance, (void)state;
    const uint64_t row = x->dims[0] ? x->bytes / (uint64_t)x->dims[0] : 0;
    const uint64_t head = (uint64_t)first_row(call->fields, x->dims[0]) * row;
    if (x->bytes > head && stream->copy(stream->ctx, y->address, x->address + head, x->bytes - head))
        return refuse(err, KILN_INTERNAL, "a copy is refused");
    if (head && stream->copy(stream->ctx, y->address + x->bytes - head, x->address, head))
        return refuse(err, KILN_INTERNAL, "a copy is refused");
    return KILN_OK;
}

static const int64_t one = 1;
static const kiln_field_def fields[] = {
    {
        .name = KILN_STR("by"),
        .doc = KILN_STR("Number of rows; may be negative."),
        .value = {.kind = KILN_FIELD_INT, .data = &one, .count = 1},
    },
};

static const kiln_layer_native copies = {
    .struct_size = sizeof(kiln_layer_native),
    .device = KILN_DEVICE_CUDA,
    .flags = KILN_NATIVE_CAPTURABLE | KILN_NATIVE_MOVABLE,
    .tactic = KILN_STR("copies"),
    .condition = KILN_STR("i0.rank >= 1"),
    .attach = attach,
    .detach = detach,
    .enqueue = enqueue,
};
static const kiln_layer_native copies_wgpu = {
    .struct_size = sizeof(kiln_layer_native),
    .device = KILN_DEVICE_WGPU,
    .flags = KILN_NATIVE_MOVABLE,
    .tactic = KILN_STR("copies"),
    .types = KILN_STR("f32:f32"),
    .condition = KILN_STR("i0.rank >= 1"),
    .enqueue = enqueue_wgpu,
};
static const kiln_layer_native *const natives[] = {&copies, &copies_wgpu};

static const kiln_layer roll = {
    .struct_size = sizeof(kiln_layer),
    .name = KILN_STR("Roll"),
    .space = KILN_STR("example"),
    .version = KILN_STR("1"),
    .doc = KILN_STR("Shifts a tensor along its first axis."),
    .fields = fields,
    .field_count = 1,
    .types = KILN_STR("f32:f32; f16:f16"),
    .outputs = KILN_STR("[i0.d*]"),
    .tolerance = KILN_STR("exact"),
    .run = run,
    .natives = natives,
    .native_count = 2,
};

static const kiln_layer *const layers[] = {&roll};
static const kiln_layers_v1 layer_table = {.struct_size = sizeof(kiln_layers_v1), .layers = layers, .layer_count = 1};

static int32_t init(const kiln_host *h, kiln_error *err) {
    (void)err;
    host = h;
    return KILN_OK;
}

static const void *get_interface(kiln_str id) {
    (void)id;
    return &layer_table;
}

const kiln_descriptor kiln_plugin_descriptor = {
    .magic = KILN_MAGIC,
    .struct_size = sizeof(kiln_descriptor),
    .abi_major = KILN_ABI_MAJOR,
    .abi_minor = KILN_ABI_MINOR,
    .min_host_minor = 8,
    .kinds = KILN_KIND_LAYERS,
    .name = KILN_STR("roll"),
    .vendor = KILN_STR("Kiln"),
    .version = KILN_STR("1.0.0"),
    .target = KILN_STR(KILN_TARGET),
    .init = init,
    .get_interface = get_interface,
};
