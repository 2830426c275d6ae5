/* Parts of the toy backend: payloads (payload.c), kernels (kernels.c), slots (backend.c). */
#ifndef TOY_H
#define TOY_H

#include <cbor.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kiln_plugin.h"

/** The most dimensions of a tensor that the kernels take. */
#define TOY_MAX_RANK 8

/** Code of the element type f32. */
#define TOY_F32 1

/** The host that initialized this library. */
extern const kiln_host *toy_host;

/** Records why a call fails, and returns the status. */
int32_t toy_fail(kiln_error *err, int32_t code, const char *format, ...);

/** A shape. */
typedef struct toy_shape {
    uint32_t rank;
    uint64_t dims[TOY_MAX_RANK];
} toy_shape;

/** Number of elements. */
uint64_t toy_volume(const toy_shape *s);

typedef enum toy_op { TOY_ADD, TOY_MATMUL } toy_op;

/** A node of a graph: two inputs, one output. */
typedef struct toy_node {
    toy_op op;
    bool trans_a, trans_b;
    uint32_t inputs[2];
    uint32_t output;
} toy_node;

/** A constant. */
typedef struct toy_weight {
    toy_shape shape;
    float *data;
} toy_weight;

/** A graph that this backend can run. Values are numbered as in the payload: inputs, weights, outputs of nodes. */
typedef struct toy_graph {
    uint32_t input_count, weight_count, node_count, output_count;
    toy_weight *weights;
    toy_node *nodes;
    uint32_t *outputs;
} toy_graph;

/** Number of values. */
uint32_t toy_values(const toy_graph *g);

/** What a Region, a Program or a Graph is wrapped in. */
typedef enum toy_wrapping { TOY_BARE, TOY_IN_FIELD_0 } toy_wrapping;

/** Reads the graph of a payload; refuses what this backend can't run. */
int32_t toy_graph_read(const kiln_payload *payload, toy_wrapping wrapping, toy_graph *out, kiln_error *err);
void toy_graph_free(toy_graph *g);

/** The shape of a view of an f32 tensor; refused if it is of another type, of too high rank, or not known. */
int32_t toy_shape_of(const kiln_tensor *t, uint32_t index, toy_shape *out, kiln_error *err);

/** Values of a run: elements by number, allocated for those of nodes, borrowed else. */
typedef struct toy_values_t {
    uint32_t count, first_owned;
    toy_shape *shapes;
    float **data;
} toy_values_t;

/** Room for the values of a graph, its weights in place. */
int32_t toy_values_make(const toy_graph *g, toy_values_t *out, kiln_error *err);
void toy_values_free(toy_values_t *v);

/** Runs all nodes. The inputs' shapes and elements are set. */
int32_t toy_run(const toy_graph *g, toy_values_t *v, kiln_error *err);

#endif
