// A layer y = x over the plain header, of which the function WHERE throws WHAT: nothing catches it in the library.
#include "kiln_plugin.h"

#include <cstring>
#include <stdexcept>
#include <utility>

#ifndef WHAT
#define WHAT std::runtime_error("not today")
#endif

namespace {

enum Place { NOWHERE, INIT, INTERFACE, CREATE, DESTROY, DESCRIBE, RUN, ATTACH, ENQUEUE, DETACH, DEINIT };

// The destructor of what is on the way of an exception runs.
struct Kept {
    bool *gone;
    ~Kept() { *gone = true; }
};
bool cleaned = false;

void at(Place place) {
    Kept kept{&cleaned};
    if (place == WHERE) throw WHAT;
}

const kiln_host *host = nullptr;
int state = 0;

int32_t create(const kiln_field *, uint64_t, kiln_layer_instance **out, kiln_error *) {
    at(CREATE);
    *out = reinterpret_cast<kiln_layer_instance *>(&state);
    return KILN_OK;
}
void destroy(kiln_layer_instance *) { at(DESTROY); }
int32_t describe(kiln_layer_instance *, const kiln_layer_call *, kiln_sink *out, kiln_error *) {
    at(DESCRIBE);
    return host->sink_write(out, reinterpret_cast<const uint8_t *>("[i0.d*]"), 7);
}
int32_t run(kiln_layer_instance *, const kiln_layer_call *call, kiln_error *) {
    at(RUN);
    std::memcpy(call->outputs[0].data, call->inputs[0].data, call->inputs[0].bytes);
    return KILN_OK;
}
int32_t attach(kiln_layer_instance *, const kiln_native_call *, kiln_native_state **out, kiln_error *) {
    at(ATTACH);
    *out = reinterpret_cast<kiln_native_state *>(&state);
    return KILN_OK;
}
int32_t enqueue(kiln_layer_instance *, kiln_native_state *, const kiln_native_call *call, kiln_error *) {
    at(ENQUEUE);
    const kiln_wgpu_stream &stream = *static_cast<const kiln_wgpu_stream *>(call->stream);
    return stream.copy(stream.ctx, call->outputs[0].address, call->inputs[0].address, call->inputs[0].bytes);
}
void detach(kiln_native_state *) { at(DETACH); }

kiln_layer_native native_table() {
    kiln_layer_native n{};
    n.struct_size = sizeof n;
    n.device = KILN_DEVICE_WGPU;
    n.tactic = KILN_STR("stream");
    n.attach = attach;
    n.enqueue = enqueue;
    n.detach = detach;
    return n;
}
const kiln_layer_native native = native_table();
const kiln_layer_native *const natives[] = {&native};

kiln_layer layer_table() {
    kiln_layer l{};
    l.struct_size = sizeof l;
    l.name = KILN_STR(LAYER);
    l.space = KILN_STR("thrower");
    l.version = KILN_STR("1");
    l.types = KILN_STR("f32:f32");
    l.create = create;
    l.destroy = destroy;
    l.describe = describe;
    l.run = run;
    l.natives = natives;
    l.native_count = 1;
    return l;
}
const kiln_layer layer = layer_table();
const kiln_layer *const layers[] = {&layer};
const kiln_layers_v1 table = {sizeof(kiln_layers_v1), 0, layers, 1};

int32_t init(const kiln_host *h, kiln_error *) {
    at(INIT);
    host = h;
    return KILN_OK;
}
void deinit() { at(DEINIT); }
const void *get_interface(kiln_str) {
    at(INTERFACE);
    return &table;
}

} // namespace

extern "C" const kiln_descriptor kiln_plugin_descriptor = {
    KILN_MAGIC,          sizeof(kiln_descriptor), KILN_ABI_MAJOR, KILN_ABI_MINOR, 8,
    KILN_KIND_LAYERS,    0,                       KILN_STR("thrower"), {nullptr, 0}, KILN_STR("1.0.0"),
    {nullptr, 0},        KILN_STR(KILN_TARGET),   init,           deinit,         get_interface,
};
