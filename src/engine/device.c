// What a model runs on: one device of this machine's cores, or a mesh of several.
#include "engine/engine.h"

#include "cpu/device.h"

size_t engine_threads(size_t asked, const struct ranks *ranks)
{
    size_t n = threads_available(), on_host = ranks == NULL ? 1 : ranks->module.n_on_host;
    if (asked != 0)
        return asked;
    return n / on_host > 1 ? n / on_host : 1;
}

size_t numa_nodes_available(void)
{
    return 1;
}

enum status engine_device_create(const struct engine_settings *settings, struct device **device, struct error *error)
{
    uint32_t n = settings->split.n_devices;
    if (settings->ranks != NULL && n > 1) {
        struct device *own = NULL;
        enum status made = cpu_device_create(
            &(struct cpu_device_params){.pool.n_threads = settings->n_threads, .isa = settings->isa}, &own, error);
        const struct mesh_params one = {.split = settings->split,
                                        .transport = &settings->ranks->transport,
                                        .local = &own,
                                        .n_local = 1,
                                        .first_rank = settings->ranks->module.rank};
        return made == STATUS_OK ? mesh_create(&one, device, error) : made;
    }
    if (n == 1)
        return cpu_device_create(
            &(struct cpu_device_params){.pool.n_threads = settings->n_threads, .isa = settings->isa}, device, error);
    struct device *local[MAX_DEVICES] = {0};
    struct mesh_params params = {.split = settings->split, .n_local = n, .local = local};
    size_t a_device = settings->n_threads / n > 1 ? settings->n_threads / n : 1;
    bool overcommitted = a_device * n > threads_available();
    enum status status = transport_threads_create(n, overcommitted, &params.transport, error);
    if (status != STATUS_OK)
        return status;
    for (uint32_t d = 0; d < n && status == STATUS_OK; d++)
        status = cpu_device_create(&(struct cpu_device_params){.pool.n_threads = a_device, .isa = settings->isa},
                                   &local[d], error);
    if (status == STATUS_OK)
        return mesh_create(&params, device, error);
    for (uint32_t d = 0; d < n && local[d] != NULL; d++)
        local[d]->ops->destroy(local[d]);
    params.transport->ops->destroy(params.transport);
    return status;
}
