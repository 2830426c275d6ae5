/* Captures, graphs and their conditional nodes. */
#include "fake.h"
#include <stdlib.h>
#include <string.h>

enum { THREAD_LOCAL = 1, RELAXED = 2, CONDITIONAL = 13 };

/* Values of conditional nodes by their handles, and what they are at the start of a graph. */
static const uint64_t FIRST_HANDLE = 7;
static int values[1 << 16], firsts[1 << 16];
static char assigned[1 << 16];
static size_t conditions;

int *condition_value(uint64_t handle) {
    uint64_t k = handle - FIRST_HANDLE;
    return handle >= FIRST_HANDLE && k < sizeof values / sizeof *values ? &values[k] : NULL;
}

void assign_conditions(const op *list) {
    for (; list; list = list->next) {
        if (list->work == CONDITION && condition_value(list->to) && assigned[list->to - FIRST_HANDLE])
            values[list->to - FIRST_HANDLE] = firsts[list->to - FIRST_HANDLE];
        assign_conditions(list->inside);
        assign_conditions(list->otherwise);
    }
}

static int begin(object *stream, object *graph, int mode) {
    if (stream->graph) {
        complain("a stream is to record two graphs; ");
        return INVALID_VALUE;
    }
    if (mode <= THREAD_LOCAL) recording++;
    stream->graph = graph;
    stream->invalid = graph->invalid = 0;
    stream->joined = 0, stream->frontiers = 0;
    stream->mode = mode;
    return OK;
}

int cuStreamBeginCapture_v2(void *handle, int mode) {
    STREAM_CALL(handle)
    return leave(begin(stream, add(GRAPH), mode));
}

int cuStreamBeginCaptureToGraph(void *handle, void *into, const void *nodes, const void *edges, size_t count, int mode) {
    STREAM_CALL(handle)
    (void)nodes, (void)edges, (void)count;
    object *graph = find(GRAPH, into, __func__);
    return leave(graph ? begin(stream, graph, mode) : INVALID_HANDLE);
}

static void take_out_graph(object *graph) {
    for (object *node = graph->inner; node;) {
        object *next = node->next_inner;
        take_out_graph(node);
        node = next;
    }
    for (int k = 0; k < 2; k++)
        if (graph->bodies[k]) take_out_graph(graph->bodies[k]);
    take_out(graph);
}

/* Marks the nodes that come before these. `nodes` are those of a graph, in the order of their numbers. */
static void mark_before(op *const *nodes, char *before, void *const *from, size_t count) {
    for (size_t k = 0; k < count; k++) {
        size_t number = (uintptr_t)from[k];
        if (before[number]) continue;
        before[number] = 1;
        mark_before(nodes, before, nodes[number]->after, nodes[number]->afters);
    }
}

/* The nodes of a list by their numbers from 1 on. */
static op **numbered(op *list, size_t *count) {
    size_t n = 0;
    for (op *o = list; o; o = o->next) n++;
    op **nodes = calloc(n + 1, sizeof *nodes);
    *count = n;
    n = 0;
    for (op *o = list; o; o = o->next) nodes[++n] = o;
    return nodes;
}

/* Whether all that other streams recorded comes before what the stream would record next. They leave the recording. */
static int all_joined(object *stream) {
    size_t count;
    op **nodes = numbered(stream->graph->first, &count);
    char *before = calloc(count + 1, 1);
    mark_before(nodes, before, stream->frontier, stream->frontiers);
    int joined = 1;
    for (object *o = all; o; o = o->next) {
        if (o->kind != STREAM || o == stream || o->graph != stream->graph || !o->joined) continue;
        for (size_t k = 0; k < o->frontiers; k++) joined &= before[(uintptr_t)o->frontier[k]];
        o->graph = NULL, o->joined = 0;
    }
    free(nodes), free(before);
    return joined;
}

/* Pairs of nodes of which none comes before the other. */
static long unordered(op *list) {
    size_t count;
    long pairs = 0;
    op **nodes = numbered(list, &count);
    char *before = calloc(count + 1, 1);
    for (size_t k = 1; k <= count; k++) {
        memset(before, 0, count + 1);
        mark_before(nodes, before, nodes[k]->after, nodes[k]->afters);
        for (size_t other = 1; other < k; other++) pairs += !before[other];
    }
    free(nodes), free(before);
    return pairs;
}

/* Ends the recording even where it fails. */
int cuStreamEndCapture(void *handle, void **out) {
    int code = enter(__func__, 1);
    object *stream = find(STREAM, handle, __func__);
    *out = NULL;
    if (!stream || !stream->graph) {
        complain("%s: nothing is recorded; ", __func__);
        return leave(INVALID_VALUE);
    }
    object *graph = stream->graph;
    if (stream->mode <= THREAD_LOCAL) recording--;
    if (code == OK && (stream->invalid || graph->invalid)) code = CAPTURE_INVALIDATED;
    if (!all_joined(stream) && code == OK) code = CAPTURE_UNJOINED;
    stream->graph = NULL;
    if (code == OK) *out = graph;
    else if (!graph->owned) take_out_graph(graph);
    return leave(code);
}

int cuStreamIsCapturing(void *handle, int *status) {
    STREAM_CALL(handle)
    *status = stream->graph != NULL;
    return leave(OK);
}

int cuStreamGetCaptureInfo_v3(void *handle, int *status, uint64_t *id, void **graph, void *const **nodes, const uint64_t **edges,
                              size_t *count) {
    STREAM_CALL(handle)
    *status = stream->graph != NULL;
    *id = 1;
    *graph = stream->graph;
    *nodes = stream->frontier, *edges = NULL, *count = stream->graph ? stream->frontiers : 0;
    return leave(OK);
}

int cuStreamUpdateCaptureDependencies_v2(void *handle, void **nodes, const void *edges, size_t count, unsigned flags) {
    STREAM_CALL(handle)
    (void)edges, (void)flags;
    if (!stream->graph || count > FRONTIER) return leave(in_stream(stream, INVALID_VALUE));
    memcpy(stream->frontier, nodes, count * sizeof *nodes);
    stream->frontiers = count;
    return leave(OK);
}

int cuGraphConditionalHandleCreate(uint64_t *out, void *graph, void *context, unsigned first, unsigned flags) {
    CALL
    if (!find(GRAPH, graph, __func__) || !find(PRIMARY, context, __func__)) return leave(INVALID_HANDLE);
    if (conditions == sizeof values / sizeof *values) conditions = 0;
    assigned[conditions] = flags & 1;
    firsts[conditions] = (int)first;
    values[conditions] = (int)first;
    *out = FIRST_HANDLE + conditions++;
    return leave(OK);
}

/* The head of `CUgraphNodeParams`, for a conditional node. */
typedef struct {
    int node, reserved[3];
    uint64_t handle;
    int kind;
    unsigned size;
    object **bodies;
} node_params;

/* A node is a graph that owns its bodies. */
int cuGraphAddNode_v2(void **out, void *into, void *const *nodes, const void *edges, size_t count, node_params *p) {
    CALL
    (void)edges;
    object *graph = find(GRAPH, into, __func__);
    if (!graph || p->node != CONDITIONAL || !condition_value(p->handle) || p->size < 1 || p->size > 2) {
        complain("%s: a node that is no conditional one; ", __func__);
        return leave(INVALID_VALUE);
    }
    object *node = add(GRAPH);
    node->owned = 1;
    node->next_inner = graph->inner;
    graph->inner = node;
    for (unsigned k = 0; k < p->size; k++) {
        node->bodies[k] = add(GRAPH);
        node->bodies[k]->owned = 1;
    }
    p->bodies = node->bodies;
    op *work = op_new(CONDITION);
    work->object = node;
    work->to = p->handle;
    work->byte = p->kind;
    *out = add_node(graph, work, nodes, count);
    return leave(OK);
}

int cuGraphAddEventRecordNode(void **out, void *into, void *const *nodes, size_t count, void *handle) {
    CALL
    object *graph = find(GRAPH, into, __func__), *event = find(EVENT, handle, __func__);
    if (!graph || !event) return leave(INVALID_HANDLE);
    op *mark = op_new(MARK);
    mark->object = event;
    *out = add_node(graph, mark, nodes, count);
    return leave(OK);
}

/* A copy of a graph's work with that of its bodies. */
static op *collected(const object *graph) {
    op *all = op_clone(graph->first);
    for (op *o = all; o; o = o->next) {
        if (o->work != CONDITION) continue;
        o->inside = o->object->bodies[0] ? collected(o->object->bodies[0]) : NULL;
        o->otherwise = o->object->bodies[1] ? collected(o->object->bodies[1]) : NULL;
    }
    return all;
}

static void collect(object *to, const object *graph) {
    op *own = collected(graph);
    if (own) append(to, own);
}

int cuGraphInstantiateWithFlags(void **out, void *handle, uint64_t flags) {
    CALL
    (void)flags;
    object *graph = find(GRAPH, handle, __func__);
    if (!graph) return leave(INVALID_HANDLE);
    object *made = add(EXEC);
    collect(made, graph);
    made->graph = graph;
    side_by_side = unordered(made->first);
    *out = made;
    return leave(OK);
}

int cuGraphDestroy(void *handle) {
    GIVE_BACK
    object *graph = find(GRAPH, handle, __func__);
    if (graph && graph->owned) complain("%s: a node owns that graph; ", __func__);
    else if (graph) take_out_graph(graph);
    LEAVE_WITH(graph);
}

int cuGraphExecDestroy(void *handle) {
    GIVE_BACK
    object *made = find(EXEC, handle, __func__);
    if (made) take_out(made);
    LEAVE_WITH(made);
}

/* Other parameters for the same kernels; other work is refused. */
int cuGraphExecUpdate_v2(void *handle, void *with, void *info) {
    CALL
    (void)info;
    object *made = find(EXEC, handle, __func__), *graph = find(GRAPH, with, __func__);
    if (!made || !graph) return leave(INVALID_HANDLE);
    const op *a = made->first, *b = graph->first;
    while (a && b && a->work == b->work && a->object == b->object) a = a->next, b = b->next;
    if (a || b || graph->inner) return leave(UPDATE_FAILURE);
    op_free(made->first);
    made->first = made->last = NULL;
    collect(made, graph);
    return leave(OK);
}

/* The head of `CUDA_KERNEL_NODE_PARAMS`. */
typedef struct {
    void *function;
    unsigned grid[3], block[3], shared;
    void **parameters;
} kernel_params;

/* Other parameters for one kernel: the node is that of the graph that the executable one was made from, which must be alive. */
int cuGraphExecKernelNodeSetParams_v2(void *handle, void *node, const kernel_params *p) {
    CALL
    object *made = find(EXEC, handle, __func__), *function = find(FUNCTION, p->function, __func__);
    if (!made || !function) return leave(INVALID_HANDLE);
    if (!made->graph || !find(GRAPH, made->graph, __func__)) {
        complain("%s: the graph of the node is gone; ", __func__);
        return leave(INVALID_VALUE);
    }
    op *kernel = made->first;
    for (size_t k = 1; kernel && k < (uintptr_t)node; k++) kernel = kernel->next;
    if (!kernel || kernel->work != KERNEL || kernel->object != function || kernel->grid != p->grid[0] || kernel->block != p->block[0]) {
        complain("%s: node %zu is no launch of %s in %u blocks; ", __func__, (size_t)(uintptr_t)node, function->name, p->grid[0]);
        return leave(INVALID_VALUE);
    }
    give_parameter(kernel, function, p->parameters[0], __func__);
    return leave(OK);
}

int cuGraphLaunch(void *handle, void *in) {
    STREAM_CALL(in)
    object *made = find(EXEC, handle, __func__);
    if (!made) return leave(INVALID_HANDLE);
    op *run = op_new(RUN);
    run->inside = op_clone(made->first);
    push(stream, run);
    return leave(OK);
}
