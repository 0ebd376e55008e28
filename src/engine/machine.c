// The limits of this machine, measured: what a figure of `mote bench` is compared with.
#include "engine/engine.h"

#include "base/threads.h"
#include "cpu/device.h"
#include "cpu/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    READ_BYTES = 512 << 20, // far more than the caches hold
    UNIT = 512,             // bytes that a reading loop takes at a time
    SPIN_ROUNDS = 1 << 22,
    ROUNDS = 3,
};

struct measurement {
    const struct limits *limits;
    uint8_t *bytes;
    size_t n_bytes;
    double (*spin)(size_t n, uint64_t *sink); // one of the limits' loops
    double ops;                               // of it, one thread
    _Atomic uint64_t sink;                    // so that no result can be left out
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void read_stream(void *user, size_t index, size_t n_threads)
{
    struct measurement *m = user;
    size_t begin, end;
    pool_share(m->n_bytes / UNIT, index, n_threads, &begin, &end);
    uint64_t sink = 0;
    m->limits->read(m->bytes + begin * UNIT, (end - begin) * UNIT, &sink);
    m->sink += sink;
}

static void spin(void *user, size_t index, size_t n_threads)
{
    struct measurement *m = user;
    (void)n_threads;
    uint64_t sink = 0;
    double ops = m->spin(SPIN_ROUNDS, &sink);
    if (index == 0)
        m->ops = ops;
    m->sink += sink;
}

// The best rate of a few rounds; amount 0: m->ops of each thread.
static double best_rate(struct pool *pool, void (*function)(void *, size_t, size_t), struct measurement *m,
                        double amount)
{
    double best = 0;
    for (int round = 0; round < ROUNDS + 1; round++) { // the first warms up
        double start = now();
        pool_run(pool, function, m);
        double seconds = now() - start;
        double done = amount != 0 ? amount : m->ops * (double)pool_n_threads(pool);
        if (round > 0 && done / seconds > best)
            best = done / seconds;
    }
    return best;
}

static void name_cpu(char *name, size_t size)
{
    snprintf(name, size, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (file == NULL)
        return;
    char line[256];
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL) {
            snprintf(name, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
            break;
        }
    }
    fclose(file);
}

mote_status mote_machine_measure(size_t n_threads, const char *isa, mote_machine *machine, mote_error *error)
{
    struct error *inner = inner_error(error);
    struct device *device = NULL;
    struct cpu_device_params params = {.pool.n_threads = n_threads != 0 ? n_threads : threads_available(), .isa = isa};
    enum status status = cpu_device_create(&params, &device, inner);
    if (status != STATUS_OK)
        return (mote_status)status;
    struct cpu_device *cpu = (struct cpu_device *)device;
    struct measurement m = {.limits = limits_of(device->isa), .n_bytes = READ_BYTES, .bytes = cpu_allocate(READ_BYTES)};
    if (m.bytes == NULL) {
        status = error_memory(inner, "measuring the machine");
    } else {
        memset(m.bytes, 1, m.n_bytes);
        m.spin = m.limits->spin_int8;
        machine->int8_ops = best_rate(cpu->pool, spin, &m, 0);
        m.spin = m.limits->spin_f32;
        machine->f32_ops = best_rate(cpu->pool, spin, &m, 0);
        machine->read_bytes = best_rate(cpu->pool, read_stream, &m, (double)m.n_bytes);
        name_cpu(machine->cpu, sizeof(machine->cpu));
        free(m.bytes);
    }
    device->ops->destroy(device);
    return (mote_status)status;
}

const char *mote_machine_isas(void)
{
    // All orders in which tables can be present: "c" always, then those of one architecture.
    if (kernels_avx512() != NULL)
        return "c avx2 avx512";
    if (kernels_avx2() != NULL)
        return "c avx2";
    return kernels_neon() != NULL ? "c neon" : "c";
}
