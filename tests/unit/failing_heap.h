// A heap that fails at the n-th allocation, for every n. For tests linked with failing_heap_link of meson.build, which
// puts these functions between the code and the C library. Include it once, after cmocka.h.
#ifndef MOTE_TESTS_FAILING_HEAP_H
#define MOTE_TESTS_FAILING_HEAP_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
char *__real_strdup(const char *text);
void __real_free(void *old);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *old);

static struct { // of all threads
    atomic_bool armed;
    atomic_long until_failure; // allocations that succeed before all fail
    atomic_long live;          // allocations not freed
} heap;

static bool take(void)
{
    return !heap.armed || heap.until_failure-- > 0;
}

static void *keep(void *piece)
{
    heap.live += heap.armed && piece;
    return piece;
}

void *__wrap_malloc(size_t size)
{
    return take() ? keep(__real_malloc(size)) : NULL;
}

void *__wrap_calloc(size_t count, size_t size)
{
    return take() ? keep(__real_calloc(count, size)) : NULL;
}

void *__wrap_realloc(void *old, size_t size)
{
    if (!take())
        return NULL;
    void *piece = __real_realloc(old, size);
    heap.live += heap.armed && piece && !old;
    return piece;
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return take() ? keep(__real_aligned_alloc(alignment, size)) : NULL;
}

char *__wrap_strdup(const char *text)
{
    return take() ? keep(__real_strdup(text)) : NULL;
}

void __wrap_free(void *old)
{
    heap.live -= heap.armed && old;
    __real_free(old);
}

static void arm(long until_failure)
{
    heap.until_failure = until_failure;
    heap.live = 0;
    heap.armed = true;
}

// Runs step with 0, 1, 2 … allocations until it succeeds.
static void exhaust(enum status (*step)(struct error *error))
{
    for (long n = 0;; n++) {
        assert_in_range(n, 0, 2000);
        struct error error = {0};
        arm(n);
        enum status status = step(&error);
        heap.armed = false;
        assert_int_equal(heap.live, 0);
        if (status == STATUS_OK) {
            assert_in_range(n, 5, 2000); // it did allocate
            return;
        }
        assert_int_equal(status, STATUS_MEMORY);
        assert_int_equal(error.status, STATUS_MEMORY);
        assert_non_null(strstr(error.message, "memory"));
    }
}

#endif
