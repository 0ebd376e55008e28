// What a model runs on: one device of this machine's cores, or a mesh of several.
#include "engine/engine.h"

#include "cpu/device.h"
#include "mesh/groups.h"

size_t engine_threads(size_t asked, const struct ranks *ranks)
{
    size_t n = threads_available(), on_host = ranks == NULL ? 1 : ranks->module.n_on_host;
    if (asked != 0)
        return asked;
    return n / on_host > 1 ? n / on_host : 1;
}

size_t numa_nodes_available(void)
{
    return groups_numa_nodes_here();
}

static enum status create_cpu(const struct engine_settings *settings, size_t n_threads, struct device **device,
                              struct error *error)
{
    const struct cpu_device_params params = {.pool.n_threads = n_threads, .isa = settings->isa};
    return cpu_device_create(&params, device, error);
}

static enum status create_of_rank(const struct engine_settings *settings, struct device **device, struct error *error)
{
    struct device *own = NULL;
    enum status status = create_cpu(settings, settings->n_threads, &own, error);
    const struct mesh_params params = {.split = settings->split,
                                       .transport = &settings->ranks->transport,
                                       .local = &own,
                                       .n_local = 1,
                                       .first_rank = settings->ranks->module.rank};
    return status == STATUS_OK ? mesh_create(&params, device, error) : status;
}

static void tell_groups(const struct groups *groups, const struct log *log)
{
    for (uint32_t d = 0; d < groups->n; d++) {
        char where[256];
        const struct group *group = &groups->groups[d];
        group_describe(group, where, sizeof(where));
        log_message(log, LOG_INFO, "device %u: %zu thread%s on %s", d, group->n_threads,
                    group->n_threads == 1 ? "" : "s", where);
    }
}

// A device a group of this machine's cores. The first thread of each is its driver in the mesh, which says where it
// runs.
static enum status create_of_groups(const struct engine_settings *settings, const struct groups *groups,
                                    struct device **device, struct error *error)
{
    struct device *local[MAX_DEVICES] = {0};
    const struct hwloc_bitmap_s *drivers[MAX_DEVICES] = {0};
    struct mesh_params params = {.split = settings->split,
                                 .n_local = groups->n,
                                 .local = local,
                                 .cpus = drivers,
                                 .overcommitted = groups->overcommitted};
    enum status status = transport_threads_create(groups->n, groups->overcommitted, &params.transport, error);
    if (status != STATUS_OK)
        return status;
    for (uint32_t d = 0; d < groups->n && status == STATUS_OK; d++) {
        const struct group *group = &groups->groups[d];
        struct cpu_device_params cpu = {.pool = {.n_threads = group->n_threads, .overcommitted = groups->overcommitted},
                                        .isa = settings->isa};
        if (group->thread_cpus != NULL) {
            drivers[d] = group->thread_cpus[0];
            cpu.pool.worker_cpus = group->thread_cpus + 1;
        }
        status = cpu_device_create(&cpu, &local[d], error);
    }
    if (status == STATUS_OK)
        return mesh_create(&params, device, error);
    for (uint32_t d = 0; d < groups->n && local[d] != NULL; d++)
        local[d]->ops->destroy(local[d]);
    params.transport->ops->destroy(params.transport);
    return status;
}

enum status engine_device_create(const struct engine_settings *settings, const struct log *log, struct device **device,
                                 struct error *error)
{
    uint32_t n = settings->split.n_devices;
    if (n == 1)
        return create_cpu(settings, settings->n_threads, device, error);
    if (settings->ranks != NULL)
        return create_of_rank(settings, device, error);
    const struct groups_params params = {
        .split = settings->split, .numa = settings->numa, .n_threads = settings->n_threads};
    struct groups groups;
    enum status status = groups_choose_here(&params, &groups, error);
    if (status != STATUS_OK)
        return status;
    tell_groups(&groups, log);
    status = create_of_groups(settings, &groups, device, error);
    groups_free(&groups);
    return status;
}
