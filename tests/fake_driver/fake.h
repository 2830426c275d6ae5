/* A CUDA driver without a device, for tests. It hands out handles and addresses of its own, checks what comes back, and
 * fails the call that it is told to fail. Kernels compute nothing unless there is an emulator; kernels, copies and fills are
 * executed when the host waits for their stream, so that results that nobody has waited for are wrong. `tests/tests/driver_faults` builds and controls it.
 *
 * objects.c   what is handed out, and the controls
 * device.c    devices, the primary context, modules
 * stream.c    streams, events, the queue of a stream
 * graph.c     captures, graphs, conditional nodes
 * memory.c    memory of the device and page-locked memory of the host, copies
 * launch.c    launches: the addresses in the parameter must be those of live memory
 * kernels.c   runs kernels by the library that KILN_EMULATOR names, where it names one */
#ifndef FAKE_H
#define FAKE_H
#include <stddef.h>
#include <stdint.h>

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    NO_BINARY = 209,
    INVALID_HANDLE = 400,
    NOT_READY = 600,
    LAUNCH_TIMEOUT = 702,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_UNJOINED = 904,
    UPDATE_FAILURE = 910
};

/* Kinds of conditional nodes. */
enum { IF, WHILE };

/* The most nodes that the next one of a stream depends on. */
enum { FRONTIER = 64 };

enum kind { PRIMARY, STREAM, EVENT, MODULE, FUNCTION, GRAPH, EXEC, POOL, DEVICE_MEMORY, HOST_MEMORY, KINDS };

typedef struct op op;

/* What was handed out. Its address is its handle and is never used again. */
typedef struct object {
    enum kind kind;
    struct object *next;
    /* Memory: its first byte, its length, and the pool that it came from. */
    uint64_t address;
    size_t size;
    struct object *pool;
    /* Streams: the graph that is recorded, whether a call in it failed, and how often a question is answered with "not ready".
     * Graphs and executable graphs: their work, in order. */
    struct object *graph;
    int invalid, mode, polls;
    op *first, *last;
    /* Graphs: number of their nodes. Streams and events of a recording: the nodes that come before what follows, by number from 1 on,
     * and whether a stream joined another one's recording. */
    size_t nodes;
    void *frontier[FRONTIER];
    size_t frontiers;
    int joined;
    /* Graphs: whether a conditional node owns it; the graphs of its own nodes. */
    int owned;
    struct object *inner, *next_inner, *bodies[2];
    /* Events: whether they measure time, whether the mark is reached, and the stream that it was set in. */
    int timed, reached;
    struct object *stream;
    /* Functions: their module, name, bytes of the parameter and the most dynamic shared memory. */
    struct object *module;
    char name[64];
    size_t parameter;
    unsigned shared;
    const void *image;
    /* Modules: what the emulator made of the image. Graphs: the kind of a conditional node, 0 if, 1 while. */
    void *emulated;
    int condition;
} object;

/* Work of a stream or graph. */
enum work { COPY, FILL, KERNEL, MARK, FREE, RUN, CONDITION };
struct op {
    enum work work;
    op *next;
    uint64_t to, from;
    size_t width, height, to_pitch, from_pitch;
    int byte;
    object *object; /* the function, event or memory */
    /* Kernels: addresses of memory in the parameter, and what an emulator needs. Runs of graphs: the graph's work. Conditions: the
     * work of both bodies. */
    uint64_t *addresses;
    size_t count;
    op *inside, *otherwise;
    unsigned grid, block, shared;
    int together;
    void *parameter;
    /* Nodes of graphs: the nodes that they depend on, by number from 1 on. */
    void **after;
    size_t afters;
};

/* objects.c */
extern object *all;
extern object *primary;
extern int retained, sticky, hang, paused;
extern long delay, driver_version, memory_limit, shuffle, side_by_side;
extern int has_pools, device_count, last_retained;
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
int enter(const char *call, int needs_context);
int leave(int code);
object *add(enum kind kind);
object *find(enum kind kind, const void *handle, const char *call);
void take_out(object *gone);

/* Counts the call, and returns where it is the one to fail, or where a failure before it made the context unusable. */
#define CALL                                      \
    int code = enter(__func__, 1);                \
    if (code != OK) return leave(code);
/* The same for calls that need no context. */
#define QUERY                                     \
    int code = enter(__func__, 0);                \
    if (code != OK) return leave(code);
/* Calls that give back do their work even where they fail: the errors of such calls are those of earlier work. */
#define GIVE_BACK int code = enter(__func__, 1);
#define LEAVE_WITH(found) return leave(code != OK ? code : (found) ? OK : INVALID_HANDLE)
/* A call in a stream; a failure while it records ends the recording. */
#define STREAM_CALL(handle)                                           \
    int code = enter(__func__, 1);                                    \
    object *stream = find(STREAM, handle, __func__);                  \
    if (code == OK && !stream) code = INVALID_HANDLE;                 \
    if (code != OK) return leave(in_stream(stream, code));

/* stream.c */
extern __thread int recording;
int in_stream(object *stream, int code);
op *op_new(enum work work);
void op_free(op *list);
op *op_clone(const op *list);
void append(object *holder, op *work);
void push(object *stream, op *work);
void execute(op *list);
/* Executes the nodes of a graph: in their order, or in another one that their dependencies permit. */
void execute_nodes(op *list);
/* Adds a node behind others to a graph. Returns its number. */
void *add_node(object *graph, op *work, void *const *after, size_t count);
void finish(object *stream, object *until);
/* Complains where a call is made that a stream that this thread records does not allow. */
void outside_of_recording(const char *call);

/* launch.c */
/* Gives a launch its parameter, in the place of another one, and checks the addresses in it. */
void give_parameter(op *kernel, const object *function, const void *parameter, const char *call);

/* memory.c */
object *memory_at(uint64_t at, size_t n);
int is_address(uint64_t at);
void copy_now(const op *work);
void reset_memory(void);

/* launch.c */
size_t parameter_size(const void *image, const char *name);
/* The PTX of a module; none of machine code. The compiler of tests puts the mark of machine code in front of PTX. */
const char *text_of(const void *image);

/* graph.c: the values of conditional nodes */
int *condition_value(uint64_t handle);
/* What they are at the start of a graph. */
void assign_conditions(const op *list);

/* kernels.c */
int emulates(void);
void *emulator_module(const void *image);
void emulator_forget(void *module);
int run_kernel(const op *kernel);
#endif
