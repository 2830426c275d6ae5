/* The two kernels, for dense f32 tensors. */
#include "toy.h"

#include <stdlib.h>
#include <string.h>

uint64_t toy_volume(const toy_shape *s) {
    uint64_t n = 1;
    for (uint32_t i = 0; i < s->rank; i++) n *= s->dims[i];
    return n;
}

/** Distance of neighbours along dimension `i` of a result of rank `rank`; 0 where the operand is stretched. */
static uint64_t stride(const toy_shape *s, uint32_t rank, uint32_t i) {
    if (i + s->rank < rank) return 0;
    uint32_t k = i + s->rank - rank;
    if (s->dims[k] == 1) return 0;
    uint64_t n = 1;
    for (uint32_t j = k + 1; j < s->rank; j++) n *= s->dims[j];
    return n;
}

/** Where element `n` of a result of shape `y` lies in an operand that is stretched to it. */
static uint64_t stretched(const toy_shape *s, const toy_shape *y, uint64_t n) {
    uint64_t at = 0;
    for (uint32_t i = y->rank; i-- > 0;) {
        at += n % y->dims[i] * stride(s, y->rank, i);
        n /= y->dims[i];
    }
    return at;
}

/** The shape that two shapes are stretched to. */
static bool broadcast(const toy_shape *a, const toy_shape *b, toy_shape *y) {
    y->rank = a->rank > b->rank ? a->rank : b->rank;
    for (uint32_t i = 0; i < y->rank; i++) {
        uint64_t m = i + a->rank < y->rank ? 1 : a->dims[i + a->rank - y->rank];
        uint64_t n = i + b->rank < y->rank ? 1 : b->dims[i + b->rank - y->rank];
        if (m != n && m != 1 && n != 1) return false;
        y->dims[i] = m == 1 ? n : m;
    }
    return true;
}

static int32_t result(toy_values_t *v, uint32_t value, const toy_shape *shape, kiln_error *err) {
    uint64_t n = toy_volume(shape);
    float *data = n > SIZE_MAX / sizeof(float) ? NULL : malloc(n > 0 ? n * sizeof(float) : 1);
    if (data == NULL) return toy_fail(err, KILN_OUT_OF_MEMORY, "value %u", value);
    free(v->data[value]);
    v->data[value] = data;
    v->shapes[value] = *shape;
    return KILN_OK;
}

static int32_t add(const toy_node *n, toy_values_t *v, kiln_error *err) {
    const toy_shape *a = &v->shapes[n->inputs[0]], *b = &v->shapes[n->inputs[1]];
    toy_shape y;
    if (!broadcast(a, b, &y)) return toy_fail(err, KILN_INVALID_ARGUMENT, "the shapes of a sum do not fit");
    int32_t status = result(v, n->output, &y, err);
    if (status != KILN_OK) return status;
    const float *x = v->data[n->inputs[0]], *z = v->data[n->inputs[1]];
    uint64_t count = toy_volume(&y);
    for (uint64_t i = 0; i < count; i++) {
        v->data[n->output][i] = x[stretched(a, &y, i)] + z[stretched(b, &y, i)];
    }
    return KILN_OK;
}

/** The last two dimensions of an operand, swapped if it is transposed, and what is before them. */
static void split(const toy_shape *s, bool transposed, toy_shape *batch, uint64_t *rows, uint64_t *cols) {
    *batch = *s;
    batch->rank = s->rank - 2;
    *rows = s->dims[s->rank - (transposed ? 1 : 2)];
    *cols = s->dims[s->rank - (transposed ? 2 : 1)];
}

static int32_t matmul(const toy_node *n, toy_values_t *v, kiln_error *err) {
    const toy_shape *a = &v->shapes[n->inputs[0]], *b = &v->shapes[n->inputs[1]];
    toy_shape batch_a, batch_b, batch, y;
    uint64_t rows, inner, inner_b, cols;
    if (a->rank < 2 || b->rank < 2) {
        return toy_fail(err, KILN_UNSUPPORTED, "a product with a vector: the toy backend takes matrices only");
    }
    split(a, n->trans_a, &batch_a, &rows, &inner);
    split(b, n->trans_b, &batch_b, &inner_b, &cols);
    if (inner != inner_b || !broadcast(&batch_a, &batch_b, &batch)) {
        return toy_fail(err, KILN_INVALID_ARGUMENT, "the shapes of a product do not fit");
    }
    y = batch;
    y.dims[y.rank++] = rows;
    y.dims[y.rank++] = cols;
    int32_t status = result(v, n->output, &y, err);
    if (status != KILN_OK) return status;
    float *out = v->data[n->output];
    uint64_t count = toy_volume(&batch);
    for (uint64_t m = 0; m < count; m++) {
        const float *x = v->data[n->inputs[0]] + stretched(&batch_a, &batch, m) * rows * inner;
        const float *z = v->data[n->inputs[1]] + stretched(&batch_b, &batch, m) * inner * cols;
        for (uint64_t i = 0; i < rows; i++) {
            for (uint64_t j = 0; j < cols; j++) {
                double sum = 0;
                for (uint64_t k = 0; k < inner; k++) {
                    float p = n->trans_a ? x[k * rows + i] : x[i * inner + k];
                    float q = n->trans_b ? z[j * inner + k] : z[k * cols + j];
                    sum += (double)p * q;
                }
                *out++ = (float)sum;
            }
        }
    }
    return KILN_OK;
}

int32_t toy_values_make(const toy_graph *g, toy_values_t *out, kiln_error *err) {
    memset(out, 0, sizeof *out);
    uint32_t count = toy_values(g);
    out->shapes = calloc(count > 0 ? count : 1, sizeof *out->shapes);
    out->data = calloc(count > 0 ? count : 1, sizeof *out->data);
    if (out->shapes == NULL || out->data == NULL) {
        toy_values_free(out);
        return toy_fail(err, KILN_OUT_OF_MEMORY, "the values of a graph");
    }
    out->count = count;
    out->first_owned = g->input_count + g->weight_count;
    for (uint32_t i = 0; i < g->weight_count; i++) {
        out->shapes[g->input_count + i] = g->weights[i].shape;
        out->data[g->input_count + i] = g->weights[i].data;
    }
    return KILN_OK;
}

void toy_values_free(toy_values_t *v) {
    for (uint32_t i = v->first_owned; i < v->count; i++) free(v->data[i]);
    free(v->shapes);
    free(v->data);
    memset(v, 0, sizeof *v);
}

int32_t toy_run(const toy_graph *g, toy_values_t *v, kiln_error *err) {
    int32_t status = KILN_OK;
    for (uint32_t i = 0; i < g->node_count && status == KILN_OK; i++) {
        const toy_node *n = &g->nodes[i];
        status = n->op == TOY_ADD ? add(n, v, err) : matmul(n, v, err);
    }
    return status;
}
