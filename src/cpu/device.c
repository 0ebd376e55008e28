// The CPU as a device.
#include "cpu/device.h"

#include "base/checked.h"
#include "cpu/plan.h"

#include <stdlib.h>
#include <sys/mman.h>

void *cpu_allocate(size_t size)
{
    const size_t huge = (size_t)2 << 20;
    bool large = size >= 4 * huge;
    size_t unit = large ? huge : 64;
    if (size > SIZE_MAX - unit)
        return NULL;
    void *memory = aligned_alloc(unit, round_up(size == 0 ? 1 : size, unit));
#ifdef MADV_HUGEPAGE
    if (memory != NULL && large)
        (void)madvise(memory, round_up(size, unit), MADV_HUGEPAGE); // only a wish
#endif
    return memory;
}

static void destroy(struct device *device)
{
    struct cpu_device *cpu = (struct cpu_device *)device;
    if (cpu == NULL)
        return;
    pool_destroy(cpu->pool);
    free(cpu);
}

static const struct device_ops ops = {
    .name = "cpu",
    .destroy = destroy,
    .pack = cpu_weights_pack,
    .pack_adapters = cpu_adapters_pack,
    .free_weights = cpu_weights_free,
    .plan = cpu_plan_create,
    .free_plan = cpu_plan_free,
    .plan_memory = cpu_plan_memory,
    .kv_kinds = cpu_plan_kv_kinds,
    .kv_allocate = cpu_plan_kv_allocate,
    .kv_head_bytes = cpu_kv_head_bytes,
    .kv_layer_bytes = cpu_kv_layer_bytes,
    .kv_copy = cpu_kv_copy,
    .run = cpu_plan_run,
    .observed = cpu_plan_observed,
    .stats = cpu_plan_stats,
    .describe = cpu_plan_describe,
};

enum status cpu_device_create(const struct cpu_device_params *params, struct device **device, struct error *error)
{
    const struct kernels *kernels = kernels_choose(params->isa);
    if (kernels == NULL)
        return error_set(error, STATUS_UNSUPPORTED,
                         "this CPU or build has no kernels named '%s' (known are c, avx2, avx512 and neon)",
                         params->isa);
    struct cpu_device *cpu = calloc(1, sizeof(*cpu));
    if (cpu == NULL)
        return error_memory(error, "the device");
    cpu->base.ops = &ops;
    cpu->base.isa = kernels->name;
    cpu->kernels = kernels;
    cpu->n_threads = params->pool.n_threads;
    enum status status = pool_create(&params->pool, &cpu->pool, error);
    if (status != STATUS_OK) {
        destroy(&cpu->base);
        return status;
    }
    *device = &cpu->base;
    return STATUS_OK;
}
