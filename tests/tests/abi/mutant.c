/* A plug-in that is wrong in the one way that a macro asks for. Its code aborts where it must not be called. */
#include "kiln_plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef MAGIC
#define MAGIC KILN_MAGIC
#endif
#ifndef SIZE
#define SIZE sizeof(kiln_descriptor)
#endif
#ifndef MAJOR
#define MAJOR KILN_ABI_MAJOR
#endif
#ifndef MINOR
#define MINOR KILN_ABI_MINOR
#endif
#ifndef MIN_HOST
#define MIN_HOST 0
#endif
#ifndef KINDS
#define KINDS KILN_KIND_BACKEND
#endif
#ifndef FLAGS
#define FLAGS 0
#endif
#ifndef NAME
#define NAME KILN_STR("mutant")
#endif
#ifndef VENDOR
#define VENDOR {NULL, 0}
#endif
#ifndef TARGET
#define TARGET KILN_STR(KILN_TARGET)
#endif
#ifndef TABLE_SIZE
#define TABLE_SIZE sizeof(kiln_backend_v1)
#endif
#ifndef INIT
#define INIT init
#endif
#ifndef GET
#define GET get_interface
#endif
#ifndef CREATE
#define CREATE create
#endif
#ifndef OUTPUTS
#define OUTPUTS outputs
#endif

static const kiln_host *host;
static int object;
static int inits;

int32_t init(const kiln_host *h, kiln_error *err);
int32_t init_fails(const kiln_host *h, kiln_error *err);
int32_t create_nothing(kiln_backend **out, kiln_error *err);
const void *no_table(kiln_str id);

static kiln_str str(const char *s) {
    kiln_str view = {s, strlen(s)};
    return view;
}

int32_t init(const kiln_host *h, kiln_error *err) {
    (void)err;
#ifdef NO_CODE
    abort();
#endif
    host = h;
    return KILN_OK;
}

int32_t init_fails(const kiln_host *h, kiln_error *err) {
    h->error_set(err, KILN_IO, str(++inits == 1 ? "no such device" : "asked again"));
    return KILN_IO;
}

static void deinit(void) {
#ifdef DEINIT
    FILE *file = fopen(getenv("KILN_TEST_DEINIT"), "a");
    if (file != NULL && fputs(DEINIT, file) >= 0) fclose(file);
#endif
}

static int32_t create(kiln_backend **out, kiln_error *err) {
    (void)err;
    *out = (kiln_backend *)&object;
    return KILN_OK;
}

int32_t create_nothing(kiln_backend **out, kiln_error *err) {
    (void)out, (void)err;
    return KILN_OK;
}

static void backend_destroy(kiln_backend *b) { (void)b; }
static void device_destroy(kiln_device *d) { (void)d; }
static void executable_destroy(kiln_executable *e) { (void)e; }
static void context_destroy(kiln_context *c) { (void)c; }

/* What the backend writes as targets: CBOR that a macro gives, or nothing. */
static int32_t targets(kiln_backend *b, kiln_sink *out, kiln_error *err) {
    (void)b, (void)out, (void)err;
#ifdef STATUS
    host->error_set(err, STATUS, str("\xff\xfe is no UTF-8"));
    host->error_detail(err, str("bytes"), str("12"));
    return STATUS;
#elif defined(SILENT)
    return SILENT;
#elif defined(TARGETS)
    static const uint8_t cbor[] = TARGETS;
    return host->sink_write(out, cbor, sizeof cbor);
#else
    return host->sink_write(NULL, NULL, 0) == KILN_INVALID_ARGUMENT &&
                   host->sink_write(out, NULL, 8) == KILN_INVALID_ARGUMENT &&
                   host->sink_write(out, (const uint8_t *)"\x80", UINT64_MAX) != KILN_OK
               ? host->sink_write(out, (const uint8_t *)"\x80", 1)
               : KILN_INTERNAL;
#endif
}

static int32_t tactics(kiln_backend *b, const kiln_payload *r, kiln_bytes t, kiln_sink *o, kiln_error *e) {
    (void)b, (void)r, (void)t, (void)o, (void)e;
    return KILN_UNSUPPORTED;
}

static int32_t compile(kiln_backend *b, const kiln_payload *r, kiln_bytes a, kiln_bytes t, kiln_sink *o,
                       kiln_error *e) {
    (void)b, (void)r, (void)a, (void)t, (void)o, (void)e;
    return KILN_UNSUPPORTED;
}

static int32_t open_device(kiln_backend *b, kiln_bytes t, kiln_device **out, kiln_error *e) {
    (void)b, (void)t, (void)e;
    *out = (kiln_device *)&object;
    return KILN_OK;
}

/* One sample: NaN. */
static int32_t time_region(kiln_device *d, const kiln_time_request *r, kiln_sink *o, kiln_error *e) {
    static const uint8_t nan[] = {0x81, 0xfb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0};
    (void)d, (void)r, (void)e;
    return host->sink_write(o, nan, sizeof nan);
}

static int32_t load(kiln_device *d, const kiln_payload *p, kiln_executable **out, kiln_error *e) {
    (void)d, (void)p, (void)e;
    *out = (kiln_executable *)&object;
    return KILN_OK;
}

static int32_t context(kiln_executable *x, kiln_context **out, kiln_error *e) {
    (void)x, (void)e;
    *out = (kiln_context *)&object;
    return KILN_OK;
}

static int32_t enqueue(kiln_context *c, const kiln_run *r, kiln_error *e) {
    (void)c, (void)r, (void)e;
    return KILN_OK;
}

#ifndef DTYPE
#define DTYPE 1
#endif
#ifndef NDIM
#define NDIM 1
#endif
#ifndef DIM
#define DIM 2
#endif
#ifndef LEN
#define LEN 8
#endif
#ifndef TIMES
#define TIMES 1
#endif

/* A tensor that macros may make impossible, so often; the status is that of the host. */
static int32_t outputs(kiln_context *c, kiln_tensor_sink *o, kiln_error *e) {
    static const float data[2] = {1, 2};
    static const int64_t dims[1] = {DIM};
    int32_t status = KILN_OK;
    (void)c, (void)e;
    for (int i = 0; i < TIMES && status == KILN_OK; i++) {
        kiln_tensor t = {DTYPE, NDIM, dims, data, LEN, NULL};
        status = host->tensor_write(o, &t);
    }
    return status;
}

static const kiln_backend_v1 table = {
    .struct_size = TABLE_SIZE,
    .backend_create = CREATE,
    .backend_destroy = backend_destroy,
    .backend_targets = targets,
    .backend_tactics = tactics,
    .backend_compile = compile,
    .backend_open = open_device,
    .device_destroy = device_destroy,
    .device_time = time_region,
    .device_load = load,
    .executable_destroy = executable_destroy,
    .executable_context = context,
    .context_destroy = context_destroy,
    .context_enqueue = enqueue,
    .context_outputs = OUTPUTS,
};

static const void *get_interface(kiln_str id) {
    (void)id, (void)outputs, (void)create;
    return &table;
}

const void *no_table(kiln_str id) {
    (void)id, (void)get_interface;
    return NULL;
}

/* Twice the size of a descriptor, so that a larger one may be claimed. */
typedef struct larger {
    kiln_descriptor d;
    uint64_t more[8];
} larger;

#define kiln_plugin_descriptor kiln_plugin_descriptor_larger
extern KILN_EXPORT const larger kiln_plugin_descriptor_larger __asm__("kiln_plugin_descriptor");
const larger kiln_plugin_descriptor = {
    .d =
        {
            .magic = MAGIC,
            .struct_size = SIZE,
            .abi_major = MAJOR,
            .abi_minor = MINOR,
            .min_host_minor = MIN_HOST,
            .kinds = KINDS,
            .flags = FLAGS,
            .name = NAME,
            .vendor = VENDOR,
            .version = KILN_STR("1.0.0"),
            .target = TARGET,
            .init = INIT,
            .deinit = deinit,
            .get_interface = GET,
        },
};
