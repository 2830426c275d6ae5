/* Kernels, executed by a library that reads PTX: the variable KILN_EMULATOR names it. Without one nothing is computed. */
#include "fake.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    uint32_t blocks, threads, shared;
    int together;
    const void *parameter;
    size_t bytes;
    int (*range)(uint64_t, uint64_t *, uint64_t *);
    void (*decide)(uint64_t, uint32_t);
} order;

static void *(*load)(const char *, char *, size_t);
static void (*unload)(void *);
static int (*launch)(const void *, const char *, const order *, char *, size_t);

int emulates(void) {
    static int tried;
    const char *path = getenv("KILN_EMULATOR");
    if (!tried && path && *path) {
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library) {
            *(void **)&load = dlsym(library, "emulator_load");
            *(void **)&unload = dlsym(library, "emulator_unload");
            *(void **)&launch = dlsym(library, "emulator_launch");
        } else {
            complain("%s; ", dlerror());
        }
    }
    tried = 1;
    return load && unload && launch;
}

void *emulator_module(const void *image) {
    static char message[1024];
    if (!emulates()) return NULL;
    const char *text = text_of(image);
    if (!text) {
        fprintf(stderr, "fake driver: an emulator needs PTX, and this module is machine code\n");
        return NULL;
    }
    void *module = load(text, message, sizeof message);
    if (!module) fprintf(stderr, "fake driver: %s\n", message);
    return module;
}

void emulator_forget(void *module) {
    if (module) unload(module);
}

/* The live memory around an address. */
static int range_of(uint64_t at, uint64_t *first, uint64_t *end) {
    const object *o = memory_at(at, 1);
    if (!o) return 0;
    *first = o->address;
    *end = o->address + o->size;
    return 1;
}

static void decide(uint64_t handle, uint32_t value) {
    int *place = condition_value(handle);
    if (place) *place = (int)value;
    else complain("a kernel sets the condition %llu, which there is not; ", (unsigned long long)handle);
}

/* Fails as a device does that finds an address which is none. */
int run_kernel(const op *kernel) {
    static char message[2048];
    const object *function = kernel->object;
    if (!function->module || !function->module->emulated) return OK;
    order o = {kernel->grid, kernel->block, kernel->shared, kernel->together, kernel->parameter, function->parameter, range_of, decide};
    if (launch(function->module->emulated, function->name, &o, message, sizeof message) == 0) return OK;
    fprintf(stderr, "fake driver: %s\n", message);
    complain("%s; ", message);
    return 700;
}
