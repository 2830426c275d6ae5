/* A backend in C99: runs networks of add and matmul in f32, and refuses everything else with a reason. */
#include "toy.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tests build it as a library of an older version, whose table ends earlier. */
#ifndef TOY_ABI_MINOR
#define TOY_ABI_MINOR KILN_ABI_MINOR
#endif
#if TOY_ABI_MINOR == 0
#define TOY_TABLE_SIZE offsetof(kiln_backend_v1, context_step_times)
#else
#define TOY_TABLE_SIZE sizeof(kiln_backend_v1)
#endif

const kiln_host *toy_host;

static kiln_str str(const char *s) {
    kiln_str view = {s, strlen(s)};
    return view;
}

int32_t toy_fail(kiln_error *err, int32_t code, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    toy_host->error_set(err, code, str(text));
    return code;
}

/** Serializes an item into a sink and releases it. */
static int32_t give(cbor_item_t *item, kiln_sink *out, kiln_error *err) {
    unsigned char *bytes = NULL;
    size_t room = 0;
    size_t len = item == NULL ? 0 : cbor_serialize_alloc(item, &bytes, &room);
    if (item != NULL) cbor_decref(&item);
    if (len == 0) return toy_fail(err, KILN_OUT_OF_MEMORY, "a result");
    int32_t status = toy_host->sink_write(out, bytes, len);
    free(bytes);
    return status;
}

static bool put(cbor_item_t *map, uint8_t key, cbor_item_t *value) {
    struct cbor_pair pair = {cbor_move(cbor_build_uint8(key)), cbor_move(value)};
    return cbor_map_add(map, pair);
}

/* The object that slots get: nothing is kept in a backend or a device. */
struct kiln_backend {
    int unused;
};
struct kiln_device {
    int unused;
};
struct kiln_executable {
    toy_graph graph;
};
struct kiln_context {
    const kiln_executable *executable;
    toy_values_t values;
    bool ran;
};

static int32_t backend_create(kiln_backend **out, kiln_error *err) {
    *out = calloc(1, sizeof **out);
    return *out != NULL ? KILN_OK : toy_fail(err, KILN_OUT_OF_MEMORY, "the backend");
}

static void backend_destroy(kiln_backend *b) { free(b); }

static int32_t backend_targets(kiln_backend *b, kiln_sink *out, kiln_error *err) {
    static const char *const texts[] = {"toy", "1.0.0", "c99", "scalar"};
    (void)b;
    cbor_item_t *memory = cbor_new_definite_map(2), *target = cbor_new_definite_map(5);
    cbor_item_t *all = cbor_new_definite_array(1);
    bool good = put(memory, 0, cbor_build_uint8(64)) && put(memory, 1, cbor_build_uint64(UINT64_MAX));
    for (uint8_t i = 0; i < 4; i++) good = good && put(target, i, cbor_build_string(texts[i]));
    good = good && put(target, 7, memory) && cbor_array_push(all, cbor_move(target));
    return good ? give(all, out, err) : toy_fail(err, KILN_OUT_OF_MEMORY, "the target");
}

/** Reads a region and refuses it unless this backend runs it. */
static int32_t read_region(const kiln_payload *region, toy_graph *g, kiln_error *err) {
    int32_t status = toy_graph_read(region, TOY_IN_FIELD_0, g, err);
    if (status == KILN_OK && g->node_count != 1) {
        status = toy_fail(err, KILN_UNSUPPORTED, "%u nodes: the toy backend fuses nothing", g->node_count);
        toy_graph_free(g);
    }
    return status;
}

static int32_t backend_supports(kiln_backend *b, const kiln_payload *region, kiln_bytes target, kiln_error *err) {
    (void)b, (void)target;
    toy_graph g;
    int32_t status = read_region(region, &g, err);
    if (status == KILN_OK) toy_graph_free(&g);
    return status;
}

static int32_t backend_tactics(kiln_backend *b, const kiln_payload *region, kiln_bytes target, kiln_sink *out,
                               kiln_error *err) {
    (void)b, (void)target;
#ifdef TOY_WITHOUT_TACTICS
    return toy_fail(err, KILN_INTERNAL, "tactics were asked for");
#endif
    toy_graph g;
    int32_t status = read_region(region, &g, err);
    if (status != KILN_OK) return status;
    const char *name = g.nodes[0].op == TOY_ADD ? "add.plain" : "matmul.plain";
    toy_graph_free(&g);
    cbor_item_t *tactic = cbor_new_definite_map(1), *all = cbor_new_definite_array(1);
    bool good = put(tactic, 0, cbor_build_string(name)) && cbor_array_push(all, cbor_move(tactic));
    return good ? give(all, out, err) : toy_fail(err, KILN_OUT_OF_MEMORY, "the tactic");
}

/** Nothing has to be stored. */
static int32_t backend_compile(kiln_backend *b, const kiln_payload *region, kiln_bytes tactic, kiln_bytes target,
                               kiln_sink *out, kiln_error *err) {
    (void)b, (void)tactic, (void)target, (void)out;
    toy_graph g;
    int32_t status = read_region(region, &g, err);
    if (status == KILN_OK) toy_graph_free(&g);
    return status;
}

static int32_t backend_open(kiln_backend *b, kiln_bytes target, kiln_device **out, kiln_error *err) {
    (void)b, (void)target;
    *out = calloc(1, sizeof **out);
    return *out != NULL ? KILN_OK : toy_fail(err, KILN_OUT_OF_MEMORY, "the device");
}

static void device_destroy(kiln_device *d) { free(d); }

/** Lends the inputs of a call to the values. */
static int32_t take_inputs(const toy_graph *g, toy_values_t *v, const kiln_tensor *inputs, uint64_t count,
                           kiln_error *err) {
    if (count != g->input_count) return toy_fail(err, KILN_INVALID_ARGUMENT, "the number of inputs is wrong");
    for (uint32_t i = 0; i < g->input_count; i++) {
        int32_t status = toy_shape_of(&inputs[i], i, &v->shapes[i], err);
        if (status != KILN_OK) return status;
        /* Only read: kernels write to values of nodes. */
        v->data[i] = (float *)inputs[i].data;
    }
    return KILN_OK;
}

static int32_t device_time(kiln_device *d, const kiln_time_request *r, kiln_sink *out, kiln_error *err) {
    (void)d;
    toy_graph g;
    toy_values_t v;
    int32_t status = toy_graph_read(&r->graph, TOY_BARE, &g, err);
    if (status != KILN_OK) return status;
    status = toy_values_make(&g, &v, err);
    if (status == KILN_OK) status = take_inputs(&g, &v, r->inputs, r->input_count, err);
    cbor_item_t *samples = cbor_new_definite_array(r->samples);
    for (uint32_t i = 0; i < r->samples && status == KILN_OK; i++) {
        uint64_t start = toy_host->now_ns(toy_host->ctx);
        status = toy_run(&g, &v, err);
        double ns = (double)(toy_host->now_ns(toy_host->ctx) - start);
        if (samples == NULL || !cbor_array_push(samples, cbor_move(cbor_build_float8(ns)))) {
            status = toy_fail(err, KILN_OUT_OF_MEMORY, "the samples");
        }
        if (toy_host->is_cancelled(toy_host->ctx)) status = toy_fail(err, KILN_CANCELLED, "asked to stop");
    }
    toy_values_free(&v);
    toy_graph_free(&g);
    if (status == KILN_OK) return give(samples, out, err);
    if (samples != NULL) cbor_decref(&samples);
    return status;
}

static int32_t device_load(kiln_device *d, const kiln_payload *program, kiln_executable **out, kiln_error *err) {
    (void)d;
    kiln_executable *e = calloc(1, sizeof *e);
    if (e == NULL) return toy_fail(err, KILN_OUT_OF_MEMORY, "the executable");
    int32_t status = toy_graph_read(program, TOY_IN_FIELD_0, &e->graph, err);
    if (status != KILN_OK) {
        free(e);
        return status;
    }
    *out = e;
    return KILN_OK;
}

static void executable_destroy(kiln_executable *e) {
    if (e == NULL) return;
    toy_graph_free(&e->graph);
    free(e);
}

static int32_t executable_context(kiln_executable *e, kiln_context **out, kiln_error *err) {
    kiln_context *c = calloc(1, sizeof *c);
    if (c == NULL) return toy_fail(err, KILN_OUT_OF_MEMORY, "the context");
    c->executable = e;
    int32_t status = toy_values_make(&e->graph, &c->values, err);
    if (status != KILN_OK) {
        free(c);
        return status;
    }
    *out = c;
    return KILN_OK;
}

static void context_destroy(kiln_context *c) {
    if (c == NULL) return;
    toy_values_free(&c->values);
    free(c);
}

/** The shape that the host knows of a value must be the one that was computed. */
static int32_t check_shapes(const toy_values_t *v, const kiln_run *run, kiln_error *err) {
    if (run->value_count != v->count) return toy_fail(err, KILN_INVALID_ARGUMENT, "the number of values is wrong");
    for (uint32_t i = 0; i < v->count; i++) {
        toy_shape s;
        int32_t status = toy_shape_of(&run->values[i], i, &s, err);
        if (status != KILN_OK) return status;
        if (s.rank != v->shapes[i].rank || memcmp(s.dims, v->shapes[i].dims, s.rank * sizeof s.dims[0]) != 0) {
            return toy_fail(err, KILN_INTERNAL, "value %u has another shape than the host knows", i);
        }
    }
    return KILN_OK;
}

static int32_t context_enqueue(kiln_context *c, const kiln_run *run, kiln_error *err) {
    const toy_graph *g = &c->executable->graph;
    c->ran = false;
    int32_t status = take_inputs(g, &c->values, run->inputs, run->input_count, err);
    if (status == KILN_OK) status = toy_run(g, &c->values, err);
    if (status == KILN_OK) status = check_shapes(&c->values, run, err);
    c->ran = status == KILN_OK;
    return status;
}

static int32_t write_value(kiln_context *c, uint32_t value, kiln_tensor_sink *out) {
    const toy_shape *s = &c->values.shapes[value];
    int64_t dims[TOY_MAX_RANK];
    for (uint32_t i = 0; i < s->rank; i++) dims[i] = (int64_t)s->dims[i];
    kiln_tensor t = {TOY_F32, s->rank, dims, c->values.data[value], toy_volume(s) * sizeof(float), NULL};
    return toy_host->tensor_write(out, &t);
}

/** Inputs are borrowed for the call that passed them, so that they can't be given out later. */
static int32_t refuse_input(kiln_context *c, uint32_t value, kiln_error *err) {
    if (!c->ran) return toy_fail(err, KILN_INVALID_ARGUMENT, "there was no run");
    if (value >= c->values.count) return toy_fail(err, KILN_INVALID_ARGUMENT, "there is no value %u", value);
    if (value < c->executable->graph.input_count) {
        return toy_fail(err, KILN_UNSUPPORTED, "value %u is an input: the toy backend does not keep inputs", value);
    }
    return KILN_OK;
}

static int32_t context_outputs(kiln_context *c, kiln_tensor_sink *out, kiln_error *err) {
    const toy_graph *g = &c->executable->graph;
    int32_t status = KILN_OK;
    for (uint32_t i = 0; i < g->output_count && status == KILN_OK; i++) {
        status = refuse_input(c, g->outputs[i], err);
        if (status == KILN_OK) status = write_value(c, g->outputs[i], out);
    }
    return status;
}

static int32_t context_observe(kiln_context *c, uint32_t value, kiln_tensor_sink *out, kiln_error *err) {
    int32_t status = refuse_input(c, value, err);
    return status == KILN_OK ? write_value(c, value, out) : status;
}

static const kiln_backend_v1 table = {
    .struct_size = TOY_TABLE_SIZE,
    .backend_create = backend_create,
    .backend_destroy = backend_destroy,
    .backend_targets = backend_targets,
    .backend_tactics = backend_tactics,
    .backend_supports = backend_supports,
    .backend_compile = backend_compile,
    .backend_open = backend_open,
    .device_destroy = device_destroy,
    .device_time = device_time,
    .device_load = device_load,
    .executable_destroy = executable_destroy,
    .executable_context = executable_context,
    .context_destroy = context_destroy,
    .context_enqueue = context_enqueue,
    .context_outputs = context_outputs,
    .context_observe = context_observe,
};

static int32_t init(const kiln_host *host, kiln_error *err) {
    (void)err;
    toy_host = host;
    host->log(host->ctx, KILN_LOG_DEBUG, str("toy"), str("started"), str(__FILE__), __LINE__);
    return KILN_OK;
}

static const void *get_interface(kiln_str id) {
    const char *known = KILN_BACKEND_V1;
    return id.len == strlen(known) && memcmp(id.ptr, known, id.len) == 0 ? &table : NULL;
}

const kiln_descriptor kiln_plugin_descriptor = {
    .magic = KILN_MAGIC,
    .struct_size = sizeof(kiln_descriptor),
    .abi_major = KILN_ABI_MAJOR,
    .abi_minor = TOY_ABI_MINOR,
    .min_host_minor = 0,
    .kinds = KILN_KIND_BACKEND,
    .name = KILN_STR("toy"),
    .vendor = KILN_STR("Kiln"),
    .version = KILN_STR("1.0.0"),
    .target = KILN_STR(KILN_TARGET),
    .init = init,
    .get_interface = get_interface,
};
