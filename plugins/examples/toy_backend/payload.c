/* Graphs out of CBOR, by libcbor. Field numbers are those of PAYLOADS.md. */
#include "toy.h"

#include <stdlib.h>
#include <string.h>

/** The field of a map, or NULL. */
static cbor_item_t *field(const cbor_item_t *map, uint64_t key) {
    if (map == NULL || !cbor_isa_map(map)) return NULL;
    struct cbor_pair *pairs = cbor_map_handle(map);
    for (size_t i = 0; i < cbor_map_size(map); i++) {
        if (cbor_isa_uint(pairs[i].key) && cbor_get_int(pairs[i].key) == key) return pairs[i].value;
    }
    return NULL;
}

static bool array(const cbor_item_t *item) { return item != NULL && cbor_isa_array(item); }

static cbor_item_t *element(const cbor_item_t *list, size_t i) { return cbor_array_handle(list)[i]; }

static bool text_is(const cbor_item_t *item, const char *text) {
    return item != NULL && cbor_isa_string(item) && cbor_string_is_definite(item) &&
           cbor_string_length(item) == strlen(text) &&
           memcmp(cbor_string_handle(item), text, strlen(text)) == 0;
}

/** The truth value of the attribute of this name; false if it has none. */
static bool flag(const cbor_item_t *op, const char *name) {
    cbor_item_t *attributes = field(op, 1);
    if (attributes == NULL || !cbor_isa_map(attributes)) return false;
    struct cbor_pair *pairs = cbor_map_handle(attributes);
    for (size_t i = 0; i < cbor_map_size(attributes); i++) {
        if (!text_is(pairs[i].key, name)) continue;
        cbor_item_t *value = field(pairs[i].value, 2);
        return value != NULL && cbor_is_bool(value) && cbor_get_bool(value);
    }
    return false;
}

static int32_t broken(kiln_error *err, const char *what) {
    return toy_fail(err, KILN_INCOMPATIBLE, "the payload's %s is missing or of the wrong kind", what);
}

/** The element type and rank that a Value's fact records must suit the kernels. */
static int32_t check_value(const cbor_item_t *value, kiln_error *err) {
    cbor_item_t *type = field(field(value, 1), 0);
    cbor_item_t *dtype = field(type, 0), *dims = field(type, 1);
    if (dtype == NULL || !cbor_isa_uint(dtype) || !array(dims)) return broken(err, "type of a value");
    if (cbor_get_int(dtype) != TOY_F32) {
        return toy_fail(err, KILN_UNSUPPORTED, "element type %u: the toy backend computes in f32 (1) only",
                        (unsigned)cbor_get_int(dtype));
    }
    if (cbor_array_size(dims) > TOY_MAX_RANK) {
        return toy_fail(err, KILN_UNSUPPORTED, "%u dimensions: the toy backend takes at most %u",
                        (unsigned)cbor_array_size(dims), TOY_MAX_RANK);
    }
    return KILN_OK;
}

/** Copies a weight: its bytes lie in the payload or among the tensors beside it. */
static int32_t read_weight(const cbor_item_t *item, const kiln_payload *p, toy_weight *out, kiln_error *err) {
    cbor_item_t *tensor = field(item, 1);
    cbor_item_t *dtype = field(tensor, 0), *dims = field(tensor, 1);
    cbor_item_t *bytes = field(tensor, 2), *index = field(tensor, 3);
    if (dtype == NULL || !cbor_isa_uint(dtype) || !array(dims)) return broken(err, "weight");
    if (cbor_get_int(dtype) != TOY_F32 || cbor_array_size(dims) > TOY_MAX_RANK) {
        return toy_fail(err, KILN_UNSUPPORTED, "a weight of element type %u and %u dimensions: f32 (1), at most %u",
                        (unsigned)cbor_get_int(dtype), (unsigned)cbor_array_size(dims), TOY_MAX_RANK);
    }
    out->shape.rank = (uint32_t)cbor_array_size(dims);
    for (uint32_t i = 0; i < out->shape.rank; i++) {
        if (!cbor_isa_uint(element(dims, i))) return broken(err, "dimension of a weight");
        out->shape.dims[i] = cbor_get_int(element(dims, i));
    }
    const void *data = NULL;
    uint64_t len = 0;
    if (bytes != NULL && cbor_isa_bytestring(bytes) && cbor_bytestring_is_definite(bytes)) {
        data = cbor_bytestring_handle(bytes);
        len = cbor_bytestring_length(bytes);
    } else if (index != NULL && cbor_isa_uint(index) && cbor_get_int(index) < p->tensor_count) {
        data = p->tensors[cbor_get_int(index)].data;
        len = p->tensors[cbor_get_int(index)].len;
    }
    if (len != toy_volume(&out->shape) * sizeof(float)) return broken(err, "elements of a weight");
    out->data = malloc(len > 0 ? len : 1);
    if (out->data == NULL) return toy_fail(err, KILN_OUT_OF_MEMORY, "a weight");
    if (len > 0) memcpy(out->data, data, len);
    return KILN_OK;
}

static int32_t read_node(const cbor_item_t *item, uint32_t output, toy_node *out, kiln_error *err) {
    cbor_item_t *op = field(item, 1), *inputs = field(item, 2), *outputs = field(item, 3);
    cbor_item_t *name = field(op, 0);
    if (name == NULL || !cbor_isa_string(name) || !array(inputs) || !array(outputs)) return broken(err, "node");
    if (text_is(name, "add")) {
        out->op = TOY_ADD;
    } else if (text_is(name, "matmul")) {
        out->op = TOY_MATMUL;
    } else {
        return toy_fail(err, KILN_UNSUPPORTED, "operator \"%.*s\": the toy backend has add and matmul only",
                        (int)cbor_string_length(name), (const char *)cbor_string_handle(name));
    }
    if (cbor_array_size(inputs) != 2 || cbor_array_size(outputs) != 1) return broken(err, "number of inputs");
    for (int i = 0; i < 2; i++) {
        if (!cbor_isa_uint(element(inputs, i)) || cbor_get_int(element(inputs, i)) >= output) {
            return broken(err, "input of a node");
        }
        out->inputs[i] = (uint32_t)cbor_get_int(element(inputs, i));
    }
    out->trans_a = flag(op, "trans_a");
    out->trans_b = flag(op, "trans_b");
    out->output = output;
    return check_value(element(outputs, 0), err);
}

static void *zeroed(uint32_t count, size_t size) { return calloc(count > 0 ? count : 1, size); }

static int32_t read_graph(const cbor_item_t *graph, const kiln_payload *p, toy_graph *g, kiln_error *err) {
    cbor_item_t *inputs = field(graph, 1), *weights = field(graph, 2);
    cbor_item_t *nodes = field(graph, 3), *outputs = field(graph, 4);
    if (!array(inputs) || !array(weights) || !array(nodes) || !array(outputs)) return broken(err, "graph");
    uint32_t weight_count = (uint32_t)cbor_array_size(weights), node_count = (uint32_t)cbor_array_size(nodes);
    g->input_count = (uint32_t)cbor_array_size(inputs);
    g->weights = zeroed(weight_count, sizeof(toy_weight));
    g->nodes = zeroed(node_count, sizeof(toy_node));
    g->outputs = zeroed((uint32_t)cbor_array_size(outputs), sizeof(uint32_t));
    if (g->weights == NULL || g->nodes == NULL || g->outputs == NULL) {
        return toy_fail(err, KILN_OUT_OF_MEMORY, "a graph");
    }
    g->weight_count = weight_count;
    g->node_count = node_count;
    int32_t status = KILN_OK;
    /* Operators first: they are the reason that people want to hear. */
    for (uint32_t i = 0; i < node_count && status == KILN_OK; i++) {
        status = read_node(element(nodes, i), g->input_count + weight_count + i, &g->nodes[i], err);
    }
    for (uint32_t i = 0; i < g->input_count && status == KILN_OK; i++) {
        status = check_value(element(inputs, i), err);
    }
    for (uint32_t i = 0; i < weight_count && status == KILN_OK; i++) {
        status = read_weight(element(weights, i), p, &g->weights[i], err);
    }
    for (size_t i = 0; i < cbor_array_size(outputs) && status == KILN_OK; i++) {
        cbor_item_t *v = element(outputs, i);
        if (!cbor_isa_uint(v) || cbor_get_int(v) >= toy_values(g)) return broken(err, "output");
        g->outputs[g->output_count++] = (uint32_t)cbor_get_int(v);
    }
    return status;
}

int32_t toy_graph_read(const kiln_payload *payload, toy_wrapping wrapping, toy_graph *out, kiln_error *err) {
    struct cbor_load_result result;
    memset(out, 0, sizeof *out);
    cbor_item_t *root = cbor_load(payload->cbor.ptr, payload->cbor.len, &result);
    if (root == NULL) {
        return toy_fail(err, KILN_INCOMPATIBLE, "the payload is no CBOR, from byte %lu on",
                        (unsigned long)result.error.position);
    }
    const cbor_item_t *graph = wrapping == TOY_IN_FIELD_0 ? field(root, 0) : root;
    int32_t status = read_graph(graph, payload, out, err);
    cbor_decref(&root);
    if (status != KILN_OK) toy_graph_free(out);
    return status;
}

void toy_graph_free(toy_graph *g) {
    for (uint32_t i = 0; g->weights != NULL && i < g->weight_count; i++) free(g->weights[i].data);
    free(g->weights);
    free(g->nodes);
    free(g->outputs);
    memset(g, 0, sizeof *g);
}

uint32_t toy_values(const toy_graph *g) { return g->input_count + g->weight_count + g->node_count; }

int32_t toy_shape_of(const kiln_tensor *t, uint32_t index, toy_shape *out, kiln_error *err) {
    if (t->dtype != TOY_F32 || t->ndim > TOY_MAX_RANK) {
        return toy_fail(err, KILN_UNSUPPORTED, "value %u has element type %u and %u dimensions", index, t->dtype,
                        t->ndim);
    }
    out->rank = t->ndim;
    for (uint32_t i = 0; i < t->ndim; i++) {
        if (t->dims[i] < 0) return toy_fail(err, KILN_UNSUPPORTED, "the shape of value %u is not known", index);
        out->dims[i] = (uint64_t)t->dims[i];
    }
    return KILN_OK;
}
