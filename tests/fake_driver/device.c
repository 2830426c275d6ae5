/* Devices, the primary context, modules. */
#include "fake.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned flags) {
    QUERY
    return leave(flags ? INVALID_VALUE : OK);
}

int cuDriverGetVersion(int *version) {
    QUERY
    *version = (int)driver_version;
    return leave(OK);
}

int cuGetErrorName(int code, const char **out) {
    static __thread char text[32];
    snprintf(text, sizeof text, "FAKE_%d", code);
    *out = text;
    return OK;
}

int cuGetErrorString(int code, const char **out) {
    (void)code;
    *out = "a fault of the test";
    return OK;
}

static int known(int device) {
    return device >= 0 && device < device_count ? OK : INVALID_DEVICE;
}

int cuDeviceGetCount(int *count) {
    QUERY
    *count = (int)device_count;
    return leave(OK);
}

int cuDeviceGet(int *device, int ordinal) {
    QUERY
    *device = ordinal;
    return leave(known(ordinal));
}

/* Equal devices that differ in the last byte. */
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    QUERY
    for (int i = 0; i < 16; i++) uuid[i] = (unsigned char)(0xa0 + i);
    uuid[15] = (unsigned char)device;
    return leave(known(device));
}

int cuDeviceGetName(char *to, int room, int device) {
    QUERY
    snprintf(to, (size_t)room, "Fake GPU");
    return leave(known(device));
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    QUERY
    *bytes = (size_t)8 << 30;
    return leave(known(device));
}

/* The compute capability times ten: KILN_EMULATED_CAPABILITY, by default 90. */
static int capability(void) {
    const char *text = getenv("KILN_EMULATED_CAPABILITY");
    return text ? atoi(text) : 90;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    QUERY
    switch (attribute) {
        case 13: *value = 1500000; break;   /* clock in kHz */
        case 16: *value = 8; break;         /* multiprocessors */
        case 36: *value = 2000000; break;   /* memory clock in kHz */
        case 37: *value = 1024; break;      /* bits of the memory's bus */
        case 38: *value = 64 << 10; break;  /* bytes of the L2: what clears it is filled often */
        case 75: *value = capability() / 10; break;
        case 76: *value = capability() % 10; break;
        /* Shared memory of a multiprocessor, and below of a block: less where there are no tensor copies. */
        case 81: *value = (capability() >= 90 ? 228 : 100) << 10; break;
        case 82: *value = 65536; break;     /* registers of a multiprocessor */
        case 97: *value = (capability() >= 90 ? 227 : 99) << 10; break;
        case 115: *value = has_pools; break;
        default: *value = 0;
    }
    return leave(known(device));
}

int cuDevicePrimaryCtxRetain(void **out, int device) {
    QUERY
    if (known(device) != OK) return leave(INVALID_DEVICE);
    last_retained = device;
    if (retained++ == 0) primary = add(PRIMARY);
    *out = primary;
    return leave(OK);
}

/* The last one ends the context, and with it what made it unusable. */
int cuDevicePrimaryCtxRelease_v2(int device) {
    int code = enter(__func__, 0);
    (void)device;
    if (retained == 0) {
        complain("%s: nobody has retained it; ", __func__);
        return leave(INVALID_CONTEXT);
    }
    if (--retained == 0) {
        take_out(primary);
        primary = NULL;
        sticky = 0;
    }
    return leave(code);
}

int cuModuleLoadData(void **out, const void *image) {
    CALL
    outside_of_recording(__func__);
    if (!image) return leave(INVALID_VALUE);
    object *module = add(MODULE);
    module->image = image;
    module->emulated = emulator_module(image);
    if (emulates() && !module->emulated) {
        take_out(module);
        return leave(NO_BINARY);
    }
    *out = module;
    return leave(OK);
}

int cuModuleUnload(void *handle) {
    GIVE_BACK
    object *module = find(MODULE, handle, __func__);
    for (object *o = all; module && o;) {
        object *next = o->next;
        if (o->kind == FUNCTION && o->module == module) take_out(o);
        o = next;
    }
    if (module) {
        emulator_forget(module->emulated);
        module->emulated = NULL;
        take_out(module);
    }
    LEAVE_WITH(module);
}

/* The image must still be there: kernels are found right after they are loaded. */
int cuModuleGetFunction(void **out, void *handle, const char *name) {
    CALL
    object *module = find(MODULE, handle, __func__);
    if (!module) return leave(INVALID_HANDLE);
    size_t bytes = parameter_size(module->image, name);
    if (!bytes) {
        complain("%s: no kernel %s; ", __func__, name);
        return leave(500);
    }
    object *function = add(FUNCTION);
    function->module = module;
    function->parameter = bytes;
    function->shared = 48 << 10;
    snprintf(function->name, sizeof function->name, "%s", name);
    *out = function;
    return leave(OK);
}

int cuFuncGetAttribute(int *value, int attribute, void *function) {
    CALL
    *value = attribute == 4 ? 32 : 0;
    return leave(find(FUNCTION, function, __func__) ? OK : INVALID_HANDLE);
}

int cuFuncSetAttribute(void *handle, int attribute, int value) {
    CALL
    object *function = find(FUNCTION, handle, __func__);
    if (!function) return leave(INVALID_HANDLE);
    if (attribute == 8 && (value < 0 || value > 227 << 10)) return leave(INVALID_VALUE);
    if (attribute == 8) function->shared = (unsigned)value;
    return leave(OK);
}
