/* Memory of the device and page-locked memory of the host, in one range of addresses, none of which is used twice. */
#include "fake.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const uint64_t BASE = 0x5a5a00000000;
static const size_t RANGE = (size_t)64 << 30, GRAIN = 256;
static int mapped;
static size_t used, in_use, made;

int is_address(uint64_t at) { return at >= BASE && at - BASE < RANGE; }

/* What is alive is gone already. */
void reset_memory(void) { used = in_use = made = 0; }

object *memory_at(uint64_t at, size_t n) {
    for (object *o = all; o; o = o->next)
        if (o->address && at >= o->address && at - o->address <= o->size && n <= o->size - (at - o->address)) return o;
    return NULL;
}

static object *range(enum kind kind, uint64_t at, size_t n, const char *call) {
    object *o = memory_at(at, n);
    if (o && o->kind == kind) return o;
    complain("%s: %zu bytes at %#llx are no live memory of the %s; ", call, n, (unsigned long long)at,
             kind == DEVICE_MEMORY ? "device" : "host");
    return NULL;
}

/* Fresh memory holds the number 1 again and again: sizes and conditions that kernels would write. Where kernels run it holds no
 * numbers. */
static object *allocate(enum kind kind, size_t n) {
    size_t whole = (n + GRAIN - 1) / GRAIN * GRAIN;
    size_t wanted = kind == DEVICE_MEMORY ? in_use + whole : whole;
    if (!paused && (n > (size_t)memory_limit || wanted > (size_t)memory_limit)) return NULL;
    if (!mapped) {
        void *at = mmap((void *)(uintptr_t)BASE, RANGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (at == MAP_FAILED) complain("no range of addresses; ");
        mapped = at != MAP_FAILED;
    }
    if (!mapped || used + whole + GRAIN > RANGE) return NULL;
    object *o = add(kind);
    o->address = BASE + used;
    o->size = n;
    /* A gap behind every other range, so that the first byte behind it is in no other one. Those between have a neighbour without a gap,
     * as drivers place them: no call may reach across both. */
    used += whole + (made++ % 2 ? GRAIN : 0);
    if (kind == DEVICE_MEMORY) in_use += whole;
    uint64_t *words = (uint64_t *)(uintptr_t)o->address;
    for (size_t k = 0; k < whole / sizeof *words; k++) words[k] = emulates() ? ~(uint64_t)0 : 1;
    return o;
}

/* A pool may go before frees that are still queued. */
static void freed(object *o) {
    if (o->kind == DEVICE_MEMORY) in_use -= (o->size + GRAIN - 1) / GRAIN * GRAIN;
    o->pool = NULL;
}

static object *starting_at(enum kind kind, uint64_t at, const char *call) {
    object *o = range(kind, at, 0, call);
    if (o && o->address != at) {
        complain("%s: %#llx is inside of an allocation; ", call, (unsigned long long)at);
        o = NULL;
    }
    return o;
}

int cuMemAlloc_v2(uint64_t *out, size_t n) {
    CALL
    outside_of_recording(__func__);
    object *o = allocate(DEVICE_MEMORY, n);
    if (o) *out = o->address;
    return leave(o ? OK : OUT_OF_MEMORY);
}

int cuMemFree_v2(uint64_t at) {
    GIVE_BACK
    outside_of_recording(__func__);
    object *o = starting_at(DEVICE_MEMORY, at, __func__);
    if (o && o->pool) complain("%s: memory of a pool; ", __func__);
    if (o) freed(o), take_out(o);
    LEAVE_WITH(o);
}

int cuMemPoolCreate(void **out, const void *props) {
    CALL
    const int *p = props;
    if (p[0] != 1 || p[1] != 0 || p[2] != 1 || p[3] != last_retained) complain("%s: other properties; ", __func__);
    *out = add(POOL);
    return leave(OK);
}

int cuMemPoolDestroy(void *handle) {
    GIVE_BACK
    object *pool = find(POOL, handle, __func__);
    for (object *o = all; pool && o; o = o->next)
        if (o->pool == pool) complain("%s: %zu bytes of it are in use; ", __func__, o->size);
    if (pool) take_out(pool);
    LEAVE_WITH(pool);
}

int cuMemPoolTrimTo(void *pool, size_t n) {
    CALL
    (void)n;
    return leave(find(POOL, pool, __func__) ? OK : INVALID_HANDLE);
}

int cuMemPoolSetAttribute(void *pool, int attribute, void *value) {
    CALL
    (void)attribute, (void)value;
    return leave(find(POOL, pool, __func__) ? OK : INVALID_HANDLE);
}

enum { RESERVED_NOW = 5, USED_NOW = 7 };

/* The pool of tests keeps nothing that is freed. */
int cuMemPoolGetAttribute(void *pool, int attribute, uint64_t *value) {
    CALL
    if (attribute != RESERVED_NOW && attribute != USED_NOW) return leave(INVALID_VALUE);
    *value = 0;
    return leave(find(POOL, pool, __func__) ? OK : INVALID_HANDLE);
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *bytes) {
    CALL
    size_t used = 0;
    for (object *o = all; o; o = o->next) used += o->kind == DEVICE_MEMORY ? o->size : 0;
    *bytes = (size_t)8 << 30;
    *free_bytes = used < (size_t)memory_limit ? (size_t)memory_limit - used : 0;
    return leave(OK);
}

int cuMemAllocFromPoolAsync(uint64_t *out, size_t n, void *handle, void *in) {
    STREAM_CALL(in)
    if (stream->graph) complain("%s: the stream records a graph; ", __func__);
    object *pool = find(POOL, handle, __func__);
    if (!pool) return leave(INVALID_HANDLE);
    object *o = allocate(DEVICE_MEMORY, n);
    if (!o) return leave(OUT_OF_MEMORY);
    o->pool = pool;
    *out = o->address;
    return leave(OK);
}

/* Freed in the order of the stream. */
int cuMemFreeAsync(uint64_t at, void *in) {
    GIVE_BACK
    object *o = starting_at(DEVICE_MEMORY, at, __func__), *stream = find(STREAM, in, __func__);
    if (stream && stream->graph) complain("%s: the stream records a graph; ", __func__);
    if (o && stream) {
        op *free = op_new(FREE);
        free->object = o;
        freed(o);
        push(stream, free);
        if (sticky) finish(stream, NULL);
    }
    LEAVE_WITH(o && stream);
}

int cuMemHostAlloc(void **out, size_t n, unsigned flags) {
    CALL
    (void)flags;
    outside_of_recording(__func__);
    object *o = allocate(HOST_MEMORY, n);
    if (o) *out = (void *)(uintptr_t)o->address;
    return leave(o ? OK : OUT_OF_MEMORY);
}

int cuMemHostGetDevicePointer_v2(uint64_t *out, void *p, unsigned flags) {
    CALL
    (void)flags;
    *out = (uint64_t)(uintptr_t)p;
    return leave(range(HOST_MEMORY, *out, 1, __func__) ? OK : INVALID_VALUE);
}

int cuMemFreeHost(void *p) {
    GIVE_BACK
    outside_of_recording(__func__);
    object *o = starting_at(HOST_MEMORY, (uint64_t)(uintptr_t)p, __func__);
    if (o) take_out(o);
    LEAVE_WITH(o);
}

/* Copies and fills, when they are executed: the memory must be there still. */
void copy_now(const op *work) {
    size_t n = work->height ? (work->height - 1) * work->to_pitch + work->width : 0;
    size_t m = work->height ? (work->height - 1) * work->from_pitch + work->width : 0;
    if (!memory_at(work->to, n) || (work->work == COPY && !memory_at(work->from, m))) {
        complain("a copy of %zu bytes from %#llx to %#llx is done when the memory is gone; ", n, (unsigned long long)work->from,
                 (unsigned long long)work->to);
        return;
    }
    for (size_t row = 0; row < work->height; row++) {
        void *to = (void *)(uintptr_t)(work->to + row * work->to_pitch);
        if (work->work == FILL) memset(to, work->byte, work->width);
        else memmove(to, (const void *)(uintptr_t)(work->from + row * work->from_pitch), work->width);
    }
}

static int copy(object *stream, op like, enum kind to, enum kind from, const char *call) {
    size_t n = like.height ? (like.height - 1) * like.to_pitch + like.width : 0;
    size_t m = like.height ? (like.height - 1) * like.from_pitch + like.width : 0;
    if (!range(to, like.to, n, call)) return INVALID_VALUE;
    if (like.work == COPY && !range(from, like.from, m, call)) return INVALID_VALUE;
    op *work = op_new(like.work);
    *work = like;
    push(stream, work);
    return OK;
}

static op line(uint64_t to, uint64_t from, size_t n) {
    return (op){.work = COPY, .to = to, .from = from, .width = n, .height = 1, .to_pitch = n, .from_pitch = n};
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *in) {
    STREAM_CALL(in)
    op one = line(to, (uint64_t)(uintptr_t)from, n);
    return leave(in_stream(stream, copy(stream, one, DEVICE_MEMORY, HOST_MEMORY, __func__)));
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *in) {
    STREAM_CALL(in)
    op one = line((uint64_t)(uintptr_t)to, from, n);
    return leave(in_stream(stream, copy(stream, one, HOST_MEMORY, DEVICE_MEMORY, __func__)));
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, void *in) {
    STREAM_CALL(in)
    return leave(in_stream(stream, copy(stream, line(to, from, n), DEVICE_MEMORY, DEVICE_MEMORY, __func__)));
}

/* `CUDA_MEMCPY2D`. */
typedef struct {
    size_t from_x, from_y;
    int from_kind;
    const void *from_host;
    uint64_t from;
    void *from_array;
    size_t from_pitch, to_x, to_y;
    int to_kind;
    void *to_host;
    uint64_t to;
    void *to_array;
    size_t to_pitch, width, height;
} plane;

int cuMemcpy2DAsync_v2(const plane *p, void *in) {
    STREAM_CALL(in)
    op rows = {.work = COPY, .to = p->to, .from = p->from, .width = p->width, .height = p->height};
    rows.to_pitch = p->to_pitch, rows.from_pitch = p->from_pitch;
    return leave(in_stream(stream, copy(stream, rows, DEVICE_MEMORY, DEVICE_MEMORY, __func__)));
}

int cuMemsetD8Async(uint64_t at, unsigned char byte, size_t n, void *in) {
    STREAM_CALL(in)
    op fill = {.work = FILL, .to = at, .width = n, .height = 1, .to_pitch = n, .byte = byte};
    return leave(in_stream(stream, copy(stream, fill, DEVICE_MEMORY, DEVICE_MEMORY, __func__)));
}
