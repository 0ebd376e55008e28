// A heap that counts: allocations while it is armed, and the bytes of those that are aligned (the device's). For tests
// linked with counting_heap_link of meson.build. Include it once.
#ifndef MOTE_TESTS_COUNTING_HEAP_H
#define MOTE_TESTS_COUNTING_HEAP_H

#include <stdatomic.h>
#include <stdlib.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void **piece, size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_posix_memalign(void **piece, size_t alignment, size_t size);

static struct {
    atomic_bool armed;
    atomic_size_t n, aligned_bytes;
} heap;

static void count(size_t aligned_bytes)
{
    if (atomic_load(&heap.armed)) {
        atomic_fetch_add(&heap.n, 1);
        atomic_fetch_add(&heap.aligned_bytes, aligned_bytes);
    }
}

void *__wrap_malloc(size_t size)
{
    count(0);
    return __real_malloc(size);
}

void *__wrap_calloc(size_t number, size_t size)
{
    count(0);
    return __real_calloc(number, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    count(0);
    return __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    count(size);
    return __real_aligned_alloc(alignment, size);
}

int __wrap_posix_memalign(void **piece, size_t alignment, size_t size)
{
    count(size);
    return __real_posix_memalign(piece, alignment, size);
}

static void arm(void)
{
    atomic_store(&heap.n, 0);
    atomic_store(&heap.aligned_bytes, 0);
    atomic_store(&heap.armed, true);
}

static void disarm(void)
{
    atomic_store(&heap.armed, false);
}

#endif
