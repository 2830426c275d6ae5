/* Streams and events. Work is queued, and executed when the host waits for it. */
#include "fake.h"
#include <stdlib.h>
#include <string.h>

__thread int recording;

void outside_of_recording(const char *call) {
    if (recording) complain("%s: while this thread records a graph; ", call);
}

int in_stream(object *stream, int code) {
    if (code != OK && stream && stream->graph) stream->invalid = stream->graph->invalid = 1;
    return code;
}

op *op_new(enum work work) {
    op *o = calloc(1, sizeof *o);
    o->work = work;
    return o;
}

void op_free(op *list) {
    while (list) {
        op *next = list->next;
        op_free(list->inside);
        op_free(list->otherwise);
        free(list->addresses);
        free(list->parameter);
        free(list->after);
        free(list);
        list = next;
    }
}

op *op_clone(const op *list) {
    op *first = NULL, **end = &first;
    for (; list; list = list->next) {
        op *o = op_new(list->work);
        *o = *list;
        o->next = NULL;
        o->inside = op_clone(list->inside);
        o->otherwise = op_clone(list->otherwise);
        if (o->parameter) {
            o->parameter = malloc(list->object->parameter + 1);
            memcpy(o->parameter, list->parameter, list->object->parameter);
        }
        if (o->addresses) {
            o->addresses = malloc(o->count * sizeof *o->addresses + 1);
            memcpy(o->addresses, list->addresses, o->count * sizeof *o->addresses);
        }
        if (o->after) {
            o->after = malloc(o->afters * sizeof *o->after + 1);
            memcpy(o->after, list->after, o->afters * sizeof *o->after);
        }
        *end = o;
        end = &o->next;
    }
    return first;
}

void append(object *holder, op *work) {
    if (holder->last) holder->last->next = work;
    else holder->first = work;
    while (work->next) work = work->next;
    holder->last = work;
}

void *add_node(object *graph, op *work, void *const *after, size_t count) {
    work->after = malloc(count * sizeof *after + 1);
    memcpy(work->after, after, count * sizeof *after);
    work->afters = count;
    append(graph, work);
    return (void *)(uintptr_t)++graph->nodes;
}

static void marked(object *stream, const op *list) {
    for (; list; list = list->next) {
        marked(stream, list->inside);
        marked(stream, list->otherwise);
        if (list->work == MARK) list->object->reached = 0, list->object->stream = stream;
    }
}

void push(object *stream, op *work) {
    if (stream->graph) {
        stream->frontier[0] = add_node(stream->graph, work, stream->frontier, stream->frontiers);
        stream->frontiers = 1;
        return;
    }
    marked(stream, work);
    append(stream, work);
    stream->polls = (int)delay;
}

static int is_live(const object *it) {
    for (object *o = all; o; o = o->next)
        if (o == it) return 1;
    return 0;
}

/* A number of a fixed sequence that `shuffle` starts. */
static size_t drawn(size_t below) {
    shuffle = (shuffle * 1103515245 + 12345) & 0x7fffffff;
    return below ? (size_t)(shuffle >> 8) % below : 0;
}

void execute_nodes(op *list) {
    static int seeded;
    const char *seed = getenv("KILN_EMULATOR_SEED");
    if (!seeded && emulates() && seed) shuffle = atol(seed);
    seeded = 1;
    size_t n = 0;
    for (op *o = list; o; o = o->next) n++;
    if (!shuffle || n < 2) {
        execute(list);
        return;
    }
    op **nodes = calloc(n, sizeof *nodes), **end = nodes;
    char *done = calloc(n + 1, 1);
    size_t *ready = calloc(n, sizeof *ready);
    for (op *o = list; o; o = o->next) *end++ = o;
    for (size_t left = n; left > 0; left--) {
        size_t count = 0;
        for (size_t k = 0; k < n; k++) {
            int waits = done[k + 1];
            for (size_t a = 0; a < nodes[k]->afters; a++) waits |= !done[(uintptr_t)nodes[k]->after[a]];
            if (!waits) ready[count++] = k;
        }
        if (!count) {
            complain("a graph has nodes that wait for each other; ");
            break;
        }
        size_t k = ready[drawn(count)];
        op *one = nodes[k], *next = one->next;
        done[k + 1] = 1;
        one->next = NULL;
        execute(one);
        one->next = next;
    }
    free(nodes), free(done), free(ready);
}

/* After a failure that lasts nothing is computed any more. */
void execute(op *list) {
    for (; list; list = list->next) {
        if (sticky && list->work != FREE) continue;
        switch (list->work) {
            case COPY:
            case FILL: copy_now(list); break;
            case MARK:
                if (is_live(list->object)) list->object->reached = 1;
                else complain("an event is to be marked that was destroyed; ");
                break;
            case FREE: take_out(list->object); break;
            case RUN:
                assign_conditions(list->inside);
                execute_nodes(list->inside);
                break;
            case CONDITION: {
                const int *value = condition_value(list->to);
                /* Without an emulator nobody decides: both bodies are executed, once. */
                if (!emulates()) {
                    execute_nodes(list->inside);
                    execute_nodes(list->otherwise);
                } else if (list->byte == WHILE) {
                    while (value && *value && !sticky) execute_nodes(list->inside);
                } else {
                    execute_nodes(value && *value ? list->inside : list->otherwise);
                }
                break;
            }
            case KERNEL:
                if (!is_live(list->object)) complain("kernel %s runs after its module was unloaded; ", list->object->name);
                for (size_t k = 0; k < list->count; k++)
                    if (!memory_at(list->addresses[k], 1))
                        complain("kernel %s runs with %#llx, which is no live memory; ", list->object->name,
                                 (unsigned long long)list->addresses[k]);
                if (emulates() && is_live(list->object) && run_kernel(list) != OK) sticky = 700;
        }
    }
}

/* Executes what is queued, up to the mark of an event where one is given. */
void finish(object *stream, object *until) {
    while (stream->first && !(until && until->reached)) {
        op *one = stream->first;
        stream->first = one->next;
        if (!stream->first) stream->last = NULL;
        one->next = NULL;
        execute(one);
        op_free(one);
    }
}

int cuStreamCreate(void **out, unsigned flags) {
    CALL
    if (flags > 1) return leave(INVALID_VALUE);
    *out = add(STREAM);
    return leave(OK);
}

/* Work that is queued is still done. */
int cuStreamDestroy_v2(void *handle) {
    GIVE_BACK
    object *stream = find(STREAM, handle, __func__);
    if (stream && stream->graph) complain("%s: it records a graph; ", __func__);
    if (stream) {
        finish(stream, NULL);
        take_out(stream);
    }
    LEAVE_WITH(stream);
}

static int blocked(object *stream, const char *call) {
    if (stream->graph) {
        complain("%s: the stream records a graph; ", call);
        return CAPTURE_UNSUPPORTED;
    }
    return OK;
}

/* A call that waits or asks. The work of the stream is done even where it fails, unless that is the answer to a question: the
 * error is that of earlier work. */
#define WAITING_CALL(handle, answer)                                                          \
    int code = enter(__func__, 1);                                                            \
    object *stream = find(STREAM, handle, __func__);                                          \
    if (code != OK && code != answer && stream && !stream->graph && !hang) finish(stream, NULL); \
    if (code != OK || !stream) return leave(code != OK ? in_stream(stream, code) : INVALID_HANDLE);

int cuStreamSynchronize(void *handle) {
    WAITING_CALL(handle, OK)
    outside_of_recording(__func__);
    if ((code = blocked(stream, __func__)) != OK) return leave(in_stream(stream, code));
    if (hang && stream->first) {
        complain("%s: blocks for ever; ", __func__);
        return leave(LAUNCH_TIMEOUT);
    }
    finish(stream, NULL);
    return leave(OK);
}

int cuStreamQuery(void *handle) {
    WAITING_CALL(handle, NOT_READY)
    if ((code = blocked(stream, __func__)) != OK) return leave(in_stream(stream, code));
    if (stream->first && (hang || stream->polls-- > 0)) return leave(NOT_READY);
    finish(stream, NULL);
    return leave(OK);
}

int cuEventCreate(void **out, unsigned flags) {
    CALL
    object *event = add(EVENT);
    event->timed = !(flags & 2);
    event->reached = 1;
    *out = event;
    return leave(OK);
}

int cuEventDestroy_v2(void *handle) {
    GIVE_BACK
    object *event = find(EVENT, handle, __func__);
    if (event && !event->reached && event->stream && !hang) finish(event->stream, event);
    if (event) take_out(event);
    LEAVE_WITH(event);
}

static int record(void *handle, object *stream, const char *call) {
    object *event = find(EVENT, handle, call);
    if (!event) return INVALID_HANDLE;
    event->graph = NULL;
    op *mark = op_new(MARK);
    mark->object = event;
    push(stream, mark);
    return OK;
}

/* In a recording it is no node: other streams join the recording by waiting for the event. */
int cuEventRecord(void *event, void *handle) {
    STREAM_CALL(handle)
    if (stream->graph) {
        object *mark = find(EVENT, event, __func__);
        if (!mark) return leave(in_stream(stream, INVALID_HANDLE));
        mark->graph = stream->graph;
        mark->frontiers = stream->frontiers;
        memcpy(mark->frontier, stream->frontier, sizeof mark->frontier);
        return leave(OK);
    }
    return leave(in_stream(stream, record(event, stream, __func__)));
}

int cuEventRecordWithFlags(void *event, void *handle, unsigned flags) {
    STREAM_CALL(handle)
    if (flags == 1 && !stream->graph) return leave(INVALID_VALUE);
    return leave(in_stream(stream, record(event, stream, __func__)));
}

/* Work that follows in the stream comes behind the event; a stream that waits for an event of a recording joins it. */
int cuStreamWaitEvent(void *handle, void *event, unsigned flags) {
    STREAM_CALL(handle)
    object *mark = find(EVENT, event, __func__);
    if (!mark || flags) return leave(in_stream(stream, INVALID_HANDLE));
    if (!mark->graph) {
        if (stream->graph) {
            complain("%s: a recording waits for an event outside of it; ", __func__);
            return leave(in_stream(stream, CAPTURE_UNSUPPORTED));
        }
        if (!mark->reached && mark->stream != stream) finish(mark->stream, mark);
        return leave(OK);
    }
    if (!stream->graph) {
        stream->graph = mark->graph;
        stream->joined = 1, stream->invalid = 0, stream->frontiers = 0;
    }
    if (stream->graph != mark->graph) {
        complain("%s: of another recording; ", __func__);
        return leave(in_stream(stream, CAPTURE_UNSUPPORTED));
    }
    for (size_t k = 0; k < mark->frontiers; k++) {
        size_t at = 0;
        while (at < stream->frontiers && stream->frontier[at] != mark->frontier[k]) at++;
        if (at == FRONTIER) return leave(in_stream(stream, CAPTURE_UNSUPPORTED));
        stream->frontier[at] = mark->frontier[k];
        if (at == stream->frontiers) stream->frontiers++;
    }
    return leave(OK);
}

int cuEventQuery(void *handle) {
    CALL
    object *event = find(EVENT, handle, __func__);
    if (!event) return leave(INVALID_HANDLE);
    if (event->reached) return leave(OK);
    if (hang || event->stream->polls-- > 0) return leave(NOT_READY);
    finish(event->stream, event);
    return leave(OK);
}

int cuEventSynchronize(void *handle) {
    CALL
    outside_of_recording(__func__);
    object *event = find(EVENT, handle, __func__);
    if (!event) return leave(INVALID_HANDLE);
    if (!event->reached && hang) {
        complain("%s: blocks for ever; ", __func__);
        return leave(LAUNCH_TIMEOUT);
    }
    if (!event->reached) finish(event->stream, event);
    return leave(OK);
}

int cuEventElapsedTime(float *ms, void *from, void *to) {
    CALL
    object *a = find(EVENT, from, __func__), *b = find(EVENT, to, __func__);
    if (!a || !b || !a->timed || !b->timed) return leave(INVALID_HANDLE);
    if (!a->reached || !b->reached) return leave(NOT_READY);
    *ms = 0.5f;
    return leave(OK);
}
