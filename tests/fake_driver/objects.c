/* What is handed out, and what the test asks and tells. */
#include "fake.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[KINDS] = {"primary context", "stream",           "event",       "module",        "function",
                                         "graph",           "executable graph", "memory pool", "device memory", "page-locked memory"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
object *all, *primary;
int retained, sticky, hang, paused, has_pools = 1, device_count = 1, last_retained = -1;
long delay, driver_version = 12080, memory_limit = 8L << 30, shuffle, side_by_side;
static object *dead;
static long calls, fail_at = -1, hang_at = -1;
static int fail_code;
static char failed_call[64], misuse[2048], text[8192];
/* The function of each call since the last start, and all that were called since the library was loaded. */
static const char *trace[1 << 16], *seen[128];
static __thread object *current;

void complain(const char *format, ...) {
    size_t used = strlen(misuse);
    va_list list;
    va_start(list, format);
    vsnprintf(misuse + used, sizeof misuse - used, format, list);
    va_end(list);
}

/* Codes after which a context is unusable. */
static int lasts(int code) { return code == 214 || code == 220 || code == 700 || code == 702 || (code >= 714 && code <= 719); }

static void remember(const char *call) {
    for (size_t k = 0; k < sizeof seen / sizeof *seen; k++) {
        if (!seen[k]) seen[k] = call;
        if (seen[k] == call || !strcmp(seen[k], call)) return;
    }
}

int enter(const char *call, int needs_context) {
    pthread_mutex_lock(&lock);
    remember(call);
    int failed = !paused && calls == fail_at;
    if (!paused && calls < (long)(sizeof trace / sizeof *trace)) trace[calls] = call;
    if (!paused && calls == hang_at) hang = 1;
    calls += !paused;
    if (failed) {
        snprintf(failed_call, sizeof failed_call, "%s", call);
        if (lasts(fail_code) && retained) sticky = fail_code;
    }
    if (needs_context && (!current || current != primary)) complain("%s: no context is current; ", call);
    return failed ? fail_code : needs_context ? sticky : OK;
}

int leave(int code) {
    pthread_mutex_unlock(&lock);
    return code;
}

object *add(enum kind kind) {
    object *o = calloc(1, sizeof *o);
    o->kind = kind;
    o->next = all;
    return all = o;
}

object *find(enum kind kind, const void *handle, const char *call) {
    for (object *o = all; o; o = o->next)
        if (o == handle && o->kind == kind) return o;
    complain("%s: %p is not a live %s; ", call, handle, names[kind]);
    return NULL;
}

void take_out(object *gone) {
    for (object **o = &all; *o; o = &(*o)->next)
        if (*o == gone) {
            *o = gone->next;
            op_free(gone->first);
            gone->first = gone->last = NULL;
            gone->next = dead;
            dead = gone;
            return;
        }
}

int cuCtxSetCurrent(void *context) {
    QUERY
    if (sticky) return leave(sticky);
    object *found = find(PRIMARY, context, __func__);
    if (found) current = found;
    return leave(found ? OK : INVALID_CONTEXT);
}

/* Counts calls from 0 on and fails the n-th with a code; -1 fails none. */
void fake_start(long n, int code) {
    pthread_mutex_lock(&lock);
    calls = 0, fail_at = n, fail_code = code, sticky = 0, hang_at = -1, hang = 0;
    failed_call[0] = misuse[0] = 0;
    if (!all) {
        while (dead) {
            object *o = dead;
            dead = o->next;
            free(o);
        }
        reset_memory();
    }
    pthread_mutex_unlock(&lock);
}

/* The device whose primary context was retained last. */
long fake_device(void) {
    return last_retained;
}

/* Pairs of nodes of the graph that was instantiated last that may run at the same time. */
long fake_side_by_side(void) {
    return side_by_side;
}

void fake_set(const char *what, long to) {
    pthread_mutex_lock(&lock);
    if (!strcmp(what, "paused")) paused = (int)to;
    if (!strcmp(what, "pools")) has_pools = (int)to;
    if (!strcmp(what, "devices")) device_count = (int)to;
    if (!strcmp(what, "hang_at")) hang_at = to;
    if (!strcmp(what, "delay")) delay = to;
    if (!strcmp(what, "version")) driver_version = to;
    if (!strcmp(what, "memory")) memory_limit = to;
    if (!strcmp(what, "shuffle")) shuffle = to;
    /* As if the process had ended. */
    if (!strcmp(what, "forget")) {
        while (all) take_out(all);
        primary = NULL;
        retained = 0;
    }
    pthread_mutex_unlock(&lock);
}

long fake_calls(void) { return calls; }
const char *fake_failed(void) { return failed_call; }
const char *fake_call(long n) { return n >= 0 && n < calls && n < (long)(sizeof trace / sizeof *trace) ? trace[n] : ""; }
const char *fake_misuse(void) { return misuse; }

/* How much is handed out, as text; empty if nothing is. */
const char *fake_alive(void) {
    pthread_mutex_lock(&lock);
    text[0] = 0;
    if (retained > 1) snprintf(text, sizeof text, "context retained %d times; ", retained);
    for (int k = 0; k < KINDS; k++) {
        int n = 0;
        for (object *o = all; o; o = o->next) n += o->kind == (enum kind)k;
        size_t used = strlen(text);
        if (n) snprintf(text + used, sizeof text - used, "%d x %s; ", n, names[k]);
    }
    pthread_mutex_unlock(&lock);
    return text;
}

/* The functions that were called, separated by spaces. */
const char *fake_seen(void) {
    pthread_mutex_lock(&lock);
    text[0] = 0;
    for (size_t k = 0; k < sizeof seen / sizeof *seen && seen[k]; k++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s ", seen[k]);
    }
    pthread_mutex_unlock(&lock);
    return text;
}
