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

const char *text_of(const void *image) {
    const char *bytes = image;
    if (memcmp(bytes, ELFMAG, SELFMAG)) return bytes;
    return bytes[EI_CLASS] == ELFCLASS64 ? NULL : bytes + SELFMAG;
}

size_t parameter_size(const void *image, const char *name) {
    const char *text = text_of(image);
    return text ? of_text(text, name) : of_cubin(image, name);
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

void give_parameter(op *kernel, const object *function, const void *parameter, const char *call) {
    free(kernel->parameter), free(kernel->addresses);
    kernel->parameter = malloc(function->parameter + 1);
    memcpy(kernel->parameter, parameter, function->parameter);
    kernel->addresses = calloc(function->parameter / 8 + 1, sizeof(uint64_t));
    kernel->count = 0;
    for (size_t at = 0; at + 8 <= function->parameter; at += 8) {
        uint64_t word;
        memcpy(&word, (const char *)parameter + at, sizeof word);
        if (!is_address(word)) continue;
        kernel->addresses[kernel->count++] = word;
        if (!memory_at(word, 1))
            complain("%s: %s is given %#llx, which is no live memory; ", call, function->name, (unsigned long long)word);
    }
}

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
    kernel->grid = c->grid[0], kernel->block = c->block[0], kernel->shared = c->shared;
    kernel->together = c->count == 1 && c->attributes->id == COOPERATIVE;
    give_parameter(kernel, function, parameters[0], __func__);
    push(stream, kernel);
    return leave(OK);
}

/* A map starts with its address, so that launches show it. What describes the tensor is behind it, from byte 16 on: one byte each for
 * the size of an element and the rank, then sizes, strides, box and steps, and for windows corners, channels and pixels. */
typedef struct {
    uint64_t at, spare;
    uint8_t size, rank, pad[6];
    uint32_t dims[5], strides[8];
    uint16_t box[5];
    uint8_t steps[5], pad2;
    int16_t lower[2], upper[2];
    uint16_t channels, pixels;
} map;

enum { UINT8, UINT16, SWIZZLE_64B = 2, SWIZZLE_128B = 3 };

static map encoded(int type, unsigned rank, void *at, const uint64_t *dims, const uint64_t *strides, const uint32_t *steps) {
    map m = {.at = (uint64_t)(uintptr_t)at, .rank = (uint8_t)rank, .size = type == UINT8 ? 1 : type == UINT16 ? 2 : 4};
    for (unsigned d = 0; d < rank; d++) {
        m.dims[d] = (uint32_t)dims[d];
        m.steps[d] = (uint8_t)steps[d];
        if (d + 1 < rank) memcpy(&m.strides[2 * d], &strides[d], sizeof strides[d]);
    }
    if (!memory_at((uint64_t)(uintptr_t)at, 1)) complain("a tensor map of %p, which is no live memory; ", at);
    return m;
}

static int checked(unsigned rank, int interleave, int swizzle, unsigned row_bytes) {
    const int wanted = row_bytes == 64 ? SWIZZLE_64B : SWIZZLE_128B;
    if (rank >= 1 && rank <= 5 && interleave == 0 && swizzle == wanted) return OK;
    complain("a tensor map of %u dimensions with interleave %d and swizzle %d; ", rank, interleave, swizzle);
    return INVALID_VALUE;
}

int cuTensorMapEncodeTiled(void *out, int type, unsigned rank, void *at, const uint64_t *dims, const uint64_t *strides,
                           const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int c, int d) {
    CALL
    (void)c, (void)d;
    map m = encoded(type, rank, at, dims, strides, steps);
    if (checked(rank, interleave, swizzle, box[0] * m.size) != OK) return leave(INVALID_VALUE);
    for (unsigned k = 0; k < rank; k++) m.box[k] = (uint16_t)box[k];
    memset(out, 0, 128);
    memcpy(out, &m, sizeof m);
    return leave(OK);
}

int cuTensorMapEncodeIm2col(void *out, int type, unsigned rank, void *at, const uint64_t *dims, const uint64_t *strides,
                            const int *lower, const int *upper, unsigned channels, unsigned pixels, const uint32_t *steps,
                            int interleave, int swizzle, int c, int d) {
    CALL
    (void)c, (void)d;
    map m = encoded(type, rank, at, dims, strides, steps);
    if (checked(rank, interleave, swizzle, channels * m.size) != OK) return leave(INVALID_VALUE);
    for (unsigned k = 0; k < 2 && k + 2 < rank; k++) m.lower[k] = (int16_t)lower[k], m.upper[k] = (int16_t)upper[k];
    m.channels = (uint16_t)channels, m.pixels = (uint16_t)pixels;
    memset(out, 0, 128);
    memcpy(out, &m, sizeof m);
    return leave(OK);
}
