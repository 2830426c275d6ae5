/* Launches. Kernels take one structure by value; its length is told by the module, and every word of it that looks like an
 * address of this driver must be one of live memory. */
#include "fake.h"
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COOPERATIVE = 2, SERIALIZATION = 6 };

/* Of a cubin: the attribute 0x17 (index, ordinal and offset, then the length from bit 18 on) in the section `.nv.info.NAME`. */
static size_t of_cubin(const unsigned char *image, const char *name) {
    const Elf64_Ehdr *head = (const void *)image;
    const Elf64_Shdr *sections = (const void *)(image + head->e_shoff);
    const char *names = (const char *)image + sections[head->e_shstrndx].sh_offset;
    char wanted[96];
    snprintf(wanted, sizeof wanted, ".nv.info.%s", name);
    for (int k = 0; k < head->e_shnum; k++) {
        if (strcmp(names + sections[k].sh_name, wanted)) continue;
        const unsigned char *at = image + sections[k].sh_offset, *end = at + sections[k].sh_size;
        while (at + 4 <= end) {
            unsigned value = at[2] | at[3] << 8;
            if (at[0] == 4 && at[1] == 0x17) return (at[12] | at[13] << 8 | at[14] << 16 | (size_t)at[15] << 24) >> 18;
            at += 4 + (at[0] == 4 ? value : 0);
        }
    }
    return 0;
}

/* Of PTX: `NAME_param_0[BYTES]`. */
static size_t of_text(const char *text, const char *name) {
    char wanted[96];
    snprintf(wanted, sizeof wanted, "%s_param_0[", name);
    const char *at = strstr(text, wanted);
    return at ? strtoul(at + strlen(wanted), NULL, 10) : 0;
}

size_t parameter_size(const void *image, const char *name) {
    return memcmp(image, ELFMAG, SELFMAG) ? of_text(image, name) : of_cubin(image, name);
}

typedef struct {
    unsigned id, pad, value[16];
} attribute;

typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream;
    attribute *attributes;
    unsigned count;
} launch_config;

int cuLaunchKernelEx(const launch_config *c, void *handle, void **parameters, void **extra) {
    STREAM_CALL(c->stream)
    (void)extra;
    object *function = find(FUNCTION, handle, __func__);
    if (!function) return leave(in_stream(stream, INVALID_HANDLE));
    int wrong = !parameters || !parameters[0] || c->grid[0] == 0 || c->block[0] == 0 || c->block[0] > 1024;
    wrong |= c->shared > function->shared || c->count > 1;
    wrong |= c->count == 1 && c->attributes->id != COOPERATIVE && c->attributes->id != SERIALIZATION;
    if (wrong) {
        complain("%s: %s in %u blocks of %u threads with %u bytes; ", __func__, function->name, c->grid[0], c->block[0], c->shared);
        return leave(in_stream(stream, INVALID_VALUE));
    }
    op *kernel = op_new(KERNEL);
    kernel->object = function;
    kernel->addresses = calloc(function->parameter / 8 + 1, sizeof(uint64_t));
    for (size_t at = 0; at + 8 <= function->parameter; at += 8) {
        uint64_t word;
        memcpy(&word, (const char *)parameters[0] + at, sizeof word);
        if (!is_address(word)) continue;
        kernel->addresses[kernel->count++] = word;
        if (!memory_at(word, 1))
            complain("%s: %s is given %#llx, which is no live memory; ", __func__, function->name, (unsigned long long)word);
    }
    push(stream, kernel);
    return leave(OK);
}

/* A map stores its address, so that launches show it. */
static int encoded(void *out, void *at) {
    memset(out, 0, 128);
    memcpy(out, &at, sizeof at);
    if (!memory_at((uint64_t)(uintptr_t)at, 1)) complain("a tensor map of %p, which is no live memory; ", at);
    return OK;
}

int cuTensorMapEncodeTiled(void *out, int type, unsigned rank, void *at, const uint64_t *dims, const uint64_t *strides,
                           const uint32_t *box, const uint32_t *steps, int a, int b, int c, int d) {
    CALL
    (void)type, (void)rank, (void)dims, (void)strides, (void)box, (void)steps, (void)a, (void)b, (void)c, (void)d;
    return leave(encoded(out, at));
}

int cuTensorMapEncodeIm2col(void *out, int type, unsigned rank, void *at, const uint64_t *dims, const uint64_t *strides,
                            const int *lower, const int *upper, unsigned channels, unsigned pixels, const uint32_t *steps,
                            int a, int b, int c, int d) {
    CALL
    (void)type, (void)rank, (void)dims, (void)strides, (void)lower, (void)upper, (void)channels, (void)pixels;
    (void)steps, (void)a, (void)b, (void)c, (void)d;
    return leave(encoded(out, at));
}
