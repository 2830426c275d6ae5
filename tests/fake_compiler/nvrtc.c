/* NVRTC for the emulator of tests: the library that KILN_EMULATED_NVRTC names compiles, to PTX where machine code is asked for. The
 * mark of machine code is put in front of that, which the driver of tests takes away again. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Added to the compiler's minor version, so that what it made is not taken for machine code. */
enum { EMULATED = 900, OPTIONS = 64 };
static const char MARK[] = "\x7f" "ELF";
static const char MACHINE[] = "--gpu-architecture=sm_";

static void *real(const char *name) {
    static void *library;
    const char *path = getenv("KILN_EMULATED_NVRTC");
    if (!library && path) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "KILN_EMULATED_NVRTC=%s has no %s\n", path ? path : "", name);
        abort();
    }
    return found;
}

#define CALL(types, ...) ((int (*) types)real(__func__))(__VA_ARGS__)

int nvrtcVersion(int *major, int *minor) {
    int code = CALL((int *, int *), major, minor);
    *minor += EMULATED;
    return code;
}

int nvrtcCreateProgram(void **out, const char *source, const char *name, int n, const char *const *headers, const char *const *names) {
    return CALL((void **, const char *, const char *, int, const char *const *, const char *const *), out, source, name, n, headers, names);
}

int nvrtcDestroyProgram(void **program) { return CALL((void **), program); }

int nvrtcCompileProgram(void *program, int n, const char *const *options) {
    char architecture[64];
    const char *all[OPTIONS];
    int count = 0;
    for (int k = 0; k < n && count < OPTIONS; k++) {
        all[count++] = options[k];
        if (strncmp(options[k], MACHINE, strlen(MACHINE))) continue;
        snprintf(architecture, sizeof architecture, "--gpu-architecture=compute_%s", options[k] + strlen(MACHINE));
        all[count - 1] = architecture;
    }
    return CALL((void *, int, const char *const *), program, count, all);
}

int nvrtcGetProgramLogSize(void *program, size_t *n) { return CALL((void *, size_t *), program, n); }
int nvrtcGetProgramLog(void *program, char *to) { return CALL((void *, char *), program, to); }
int nvrtcGetPTXSize(void *program, size_t *n) { return CALL((void *, size_t *), program, n); }
int nvrtcGetPTX(void *program, char *to) { return CALL((void *, char *), program, to); }

int nvrtcGetCUBINSize(void *program, size_t *n) {
    int code = nvrtcGetPTXSize(program, n);
    *n += strlen(MARK);
    return code;
}

int nvrtcGetCUBIN(void *program, char *to) {
    memcpy(to, MARK, strlen(MARK));
    return nvrtcGetPTX(program, to + strlen(MARK));
}

const char *nvrtcGetErrorString(int code) { return ((const char *(*)(int))real(__func__))(code); }
