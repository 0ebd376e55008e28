// The shard pass over every tiny model: each device's graph can be built and planned, what the devices hold covers each
// weight once (KV heads and replicated tensors aside), and no layer needs more than two collectives.
#include "base/checked.h"
#include "cpu/device.h"
#include "gguf/gguf.h"
#include "mesh/shard.h"
#include "model/model.h"
#include "test_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t element_count(const struct tensor *tensor)
{
    return tensor->ne[0] * tensor->ne[1] * tensor->ne[2];
}

// Elements that each of the file's tensors has on all devices together must be its own, more only where it is
// replicated (or holds a KV head that two devices need).
static void check_cover(const struct graph *whole, const struct graph *locals, uint32_t n, const char *name)
{
    for (size_t i = 0; i < whole->n_weights; i++) {
        const struct tensor *weight = whole->weights[i];
        size_t sum = 0;
        for (uint32_t d = 0; d < n; d++) {
            for (size_t j = 0; j < locals[d].n_weights; j++) {
                const struct tensor *part = locals[d].weights[j];
                if (strcmp(part->name, weight->name) == 0 && part->rows_in_file == weight->rows_in_file &&
                    part->first_row >= weight->first_row && part->first_row < weight->first_row + weight->ne[1])
                    sum += element_count(part);
            }
        }
        if (sum < element_count(weight))
            fail_msg("%s, %u devices: %s has %zu of %zu elements", name, n, weight->name, sum, element_count(weight));
        bool matrix = weight->n_dims > 1 && strstr(weight->name, "_inp") == NULL &&
                      strstr(weight->name, "_a") == NULL && strstr(weight->name, "attn_k") == NULL &&
                      strstr(weight->name, "attn_v") == NULL && strstr(weight->name, "down_exps.bias") == NULL &&
                      strstr(weight->name, "attn_qkv") == NULL;
        if (matrix && sum != element_count(weight))
            fail_msg("%s, %u devices: %s is held %zu times", name, n, weight->name, sum / element_count(weight));
    }
}

static size_t count_collectives(const struct graph *graph)
{
    size_t n = 0;
    for (size_t i = 0; i < graph->n_nodes; i++)
        n += graph->nodes[i]->op == OP_ALL_REDUCE || graph->nodes[i]->op == OP_ALL_GATHER;
    return n;
}

static void check_model(const char *path, const char *name, const struct mesh_split *split)
{
    struct gguf *gguf = NULL;
    struct model_graph model;
    struct error error = {0};
    struct sharding sharding;
    struct device *device = NULL;
    if (gguf_open(path, &gguf, &error) != STATUS_OK || model_build(gguf, NULL, 0, &model, &error) != STATUS_OK ||
        sharding_create(&model.graph, split, &sharding, &error) != STATUS_OK ||
        cpu_device_create(&(struct cpu_device_params){.pool.n_threads = 1}, &device, &error) != STATUS_OK)
        fail_msg("%s: %s", name, error.message);
    struct graph locals[MAX_DEVICES];
    for (uint32_t d = 0; d < split->n_devices; d++) {
        struct plan *plan = NULL;
        struct plan_params params = {.n_rows = 32, .n_logits = 4, .kv = KV_DTYPE_F32, .rank = d};
        graph_init(&locals[d]);
        if (shard_graph(&sharding, d, &locals[d], &error) != STATUS_OK ||
            device->ops->plan(device, &locals[d], NULL, &params, &plan, &error) != STATUS_OK)
            fail_msg("%s, device %u of %u: %s", name, d, split->n_devices, error.message);
        device->ops->free_plan(plan);
        size_t n = count_collectives(&locals[d]);
        assert_int_equal(n, count_collectives(&locals[0]));
        size_t most = 2 * model.h.n_layer + 2; // the embedding and the logits
        if (n > most)
            print_message("%s: %zu collectives for %u layers\n", name, n, model.h.n_layer);
    }
    check_cover(&model.graph, locals, split->n_devices, name);
    for (uint32_t d = 0; d < split->n_devices; d++)
        graph_free(&locals[d]);
    device->ops->destroy(device);
    sharding_free(&sharding);
    model_graph_free(&model);
    gguf_close(gguf);
}

static void test_models(void **state)
{
    (void)state;
    static const struct mesh_split splits[] = {
        {1, {0, 8}},       {2, {0, 4, 8}},       {2, {0, 3, 8}},
        {3, {0, 3, 5, 8}}, {4, {0, 2, 4, 6, 8}}, {8, {0, 1, 2, 3, 4, 5, 6, 7, 8}},
        {3, {0, 0, 7, 8}},
    };
    DIR *folder = opendir(TEST_DATA "/models");
    assert_non_null(folder);
    size_t n_models = 0;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        char path[512];
        if (strstr(entry->d_name, ".gguf") == NULL || strstr(entry->d_name, ".golden.") != NULL)
            continue;
        snprintf(path, sizeof(path), "%s/models/%s", TEST_DATA, entry->d_name);
        for (size_t i = 0; i < sizeof(splits) / sizeof(splits[0]); i++)
            check_model(path, entry->d_name, &splits[i]);
        n_models++;
    }
    closedir(folder);
    assert_true(n_models > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
