/* A profiler that writes down ranges: by the protocol of NVIDIA's tools extension, and nothing of its headers. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct callbacks {
    size_t size;
    int (*tables)(int module, void ***out, unsigned *size);
};

static FILE *out;

static int push(const char *name)
{
    fprintf(out, "push %s\n", name);
    fflush(out);
    return 0;
}

static int pop(void)
{
    fprintf(out, "pop\n");
    fflush(out);
    return 0;
}

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t))
{
    const struct callbacks *all = export_table(1);
    void **slots = NULL;
    unsigned size = 0;
    out = fopen(getenv("RANGES"), "w");
    if (!all || !out || export_table(77) != NULL)
        return 0;
    if (all->tables(99, &slots, &size) != 0 || all->tables(0, &slots, &size) != 0)
        return 0;
    /* Every module's slots may be filled in. */
    for (int module = 1; module <= 6; module++) {
        if (!all->tables(module, &slots, &size) || size < 7)
            return 0;
        for (unsigned i = 1; i < size; i++)
            *(void **)slots[i] = (void *)pop;
    }
    if (!all->tables(1, &slots, &size) || size != 16)
        return 0;
    *(void **)slots[9] = (void *)push;
    return 1;
}
