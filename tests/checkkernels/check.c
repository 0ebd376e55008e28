// The harness of checkkernels: inputs, guards, comparisons, times.
#include "check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GUARD = 128, PATTERN = 0xa5, MAX_REPORTS = 20 };

// ---- random numbers and inputs ----

uint64_t check_random(struct check *check) // splitmix64
{
    uint64_t z = check->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

size_t check_random_below(struct check *check, size_t n)
{
    return (size_t)(check_random(check) >> 11) % n;
}

static float random_unit(struct check *check) // [-1, 1)
{
    return (float)((double)(int64_t)check_random(check) * 0x1p-63);
}

float check_random_normal(struct check *check)
{
    float sum = 0.0f;
    for (int i = 0; i < 6; i++)
        sum += random_unit(check);
    return sum * 0.70710678f;
}

static float random_bits(struct check *check, uint32_t max_exponent)
{
    uint64_t random = check_random(check);
    uint32_t bits = (uint32_t)(random & 0x807fffff) | (uint32_t)(random >> 40) % (max_exponent + 1) << 23;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

const char *const input_names[INPUT_COUNT] = {
    "normal", "small", "huge", "zero", "spread", "half-edge", "special",
};

static float random_input(struct check *check, enum input input)
{
    static const float edges[] = {65504,      65519.996f, 65520,   65535.996f, 131008,
                                  131039.99f, 131040,     3.4e38f, 1,          6.1e-5f};
    const uint64_t choice = check_random(check);
    switch (input) {
    case INPUT_SMALL:
        return random_bits(check, 12);
    case INPUT_HUGE:
        return random_unit(check) * 3e38f;
    case INPUT_ZERO:
        return choice & 1 ? -0.0f : 0.0f;
    case INPUT_SPREAD:
        return random_bits(check, 254);
    case INPUT_HALF_EDGE:
        if (choice % 8 < 5)
            return check_random_normal(check);
        return edges[(choice >> 8) % (sizeof(edges) / sizeof(edges[0]))] * (choice & 1 << 20 ? -1.0f : 1.0f);
    case INPUT_SPECIAL:
        if (choice % 97 == 0)
            return choice & 1 << 20 ? INFINITY : NAN;
        if (choice % 97 == 1)
            return -INFINITY;
        return check_random_normal(check);
    default:
        return choice % 61 == 0 ? 100.0f * check_random_normal(check) : check_random_normal(check);
    }
}

void check_fill(struct check *check, enum input input, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = random_input(check, input);
}

// ---- memory with guards ----

struct guarded guarded_make(size_t size, size_t offset)
{
    struct guarded guarded = {.size = size};
    size_t total = (size + offset + 2 * GUARD + 63) / 64 * 64;
    guarded.memory = aligned_alloc(64, total);
    if (!guarded.memory) {
        fprintf(stderr, "checkkernels: no memory\n");
        exit(1);
    }
    memset(guarded.memory, PATTERN, total);
    guarded.data = guarded.memory + GUARD + offset;
    return guarded;
}

float *guarded_floats(struct guarded *guarded, size_t n, size_t offset)
{
    *guarded = guarded_make(n * sizeof(float), offset * sizeof(float));
    return (float *)(void *)guarded->data;
}

void guarded_free(struct guarded *guarded)
{
    free(guarded->memory);
    *guarded = (struct guarded){0};
}

void guarded_reset(struct guarded *guarded)
{
    memset(guarded->data, PATTERN, guarded->size);
}

// ---- comparisons ----

static void report(struct check *check, const char *message)
{
    check->n_failures++;
    if (check->n_failures <= MAX_REPORTS)
        printf("FAIL %s %s [%s]: %s\n", check->table, check->kernel, check->context, message);
    else if (check->n_failures == MAX_REPORTS + 1)
        printf("FAIL %s: more failures, not shown\n", check->table);
}

void check_fail(struct check *check, const char *format, ...)
{
    char message[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    report(check, message);
}

// FNV-1a over words.
static void add_to_digest(struct check *check, uint32_t word)
{
    check->digest = (check->digest ^ word) * 0x100000001b3u;
}

void check_floats(struct check *check, const char *what, const float *expected, const float *got, size_t n)
{
    check->n_checks++;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &expected[i], sizeof(bits));
        add_to_digest(check, isnan(expected[i]) ? 0x7fc00000u : bits);
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t a, b;
        memcpy(&a, &expected[i], sizeof(a));
        memcpy(&b, &got[i], sizeof(b));
        if (a == b || (isnan(expected[i]) && isnan(got[i])))
            continue;
        check_fail(check, "%s[%zu] of %zu: the reference gives %a (%08x), this %a (%08x)", what, i, n,
                   (double)expected[i], a, (double)got[i], b);
        return;
    }
}

void check_bytes(struct check *check, const char *what, const void *expected, const void *got, size_t size)
{
    const uint8_t *a = expected, *b = got;
    check->n_checks++;
    for (size_t i = 0; i < size; i++)
        add_to_digest(check, a[i]);
    for (size_t i = 0; i < size; i++)
        if (a[i] != b[i]) {
            check_fail(check, "%s: byte %zu of %zu: the reference gives %02x, this %02x", what, i, size, a[i], b[i]);
            return;
        }
}

void check_guards(struct check *check, const struct guarded *guarded)
{
    check->n_checks++;
    for (size_t i = 1; i <= GUARD; i++) {
        if (guarded->data[-(ptrdiff_t)i] != PATTERN) {
            check_fail(check, "wrote %zu bytes before the output", i);
            return;
        }
        // The allocation is rounded up to 64, so that at least GUARD bytes lie behind.
        if (guarded->data[guarded->size + i - 1] != PATTERN) {
            check_fail(check, "wrote %zu bytes past the output", i);
            return;
        }
    }
}

bool check_begin(struct check *check, bool present, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(check->kernel, sizeof(check->kernel), format, arguments);
    va_end(arguments);
    if (check->filter && !strstr(check->kernel, check->filter))
        return false;
    if (!present)
        check_fail(check, "the table lacks it");
    return present;
}

void check_case(struct check *check, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(check->context, sizeof(check->context), format, arguments);
    va_end(arguments);
}

// ---- times ----

static double seconds_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

void check_bench(struct check *check, void (*function)(void *user), void *user, double bytes, double operations)
{
    // The number of calls that take about a millisecond, then the best of 40 such runs.
    size_t calls = 1;
    double best = 0;
    for (;;) {
        double begin = seconds_now();
        for (size_t i = 0; i < calls; i++)
            function(user);
        best = (seconds_now() - begin) / (double)calls;
        if (best * (double)calls > 1e-3)
            break;
        calls *= 2;
    }
    for (int run = 0; run < 40; run++) {
        double begin = seconds_now();
        for (size_t i = 0; i < calls; i++)
            function(user);
        double time = (seconds_now() - begin) / (double)calls;
        best = time < best ? time : best;
    }
    printf("%-8s %-24s %-32s %10.1f ns", check->table, check->kernel, check->context, best * 1e9);
    if (bytes > 0)
        printf(" %8.2f GB/s", bytes / best * 1e-9);
    if (operations > 0)
        printf(" %8.2f Gop/s", operations / best * 1e-9);
    printf("\n");
}
