// Local graphs of a sharding on devices of the CPU, over several links and splits, against the whole graph on one
// device; and whether their collectives are the same ones in the same order. Include it once, after small_graph.h.
#ifndef MOTE_TESTS_MESH_CREW_H
#define MOTE_TESTS_MESH_CREW_H

#include "base/threads.h"
#include "copying_transport.h"
#include "mesh/shard.h"

#include <math.h>

static const struct mesh_split splits[] = {
    {2, {0, 4, 8}},    {3, {0, 3, 5, 8}}, {4, {0, 2, 4, 6, 8}}, {8, {0, 1, 2, 3, 4, 5, 6, 7, 8}},
    {3, {0, 0, 7, 8}}, {2, {0, 3, 8}},    {4, {0, 1, 1, 8, 8}}, {2, {0, 8, 8}},
};
enum { N_SPLITS = sizeof(splits) / sizeof(splits[0]) };

// How devices meet: whether what comes is copied, and from how many bytes on sums go by shares.
static const struct link {
    bool copies;
    size_t scatter_bytes;
} links[] = {{false, 0}, {false, 1}, {true, 0}, {true, 1}, {true, 20000}};
enum { N_LINKS = sizeof(links) / sizeof(links[0]) };

static const size_t batches[] = {1, 7, SMALL_TOKENS};
enum { N_BATCHES = sizeof(batches) / sizeof(batches[0]) };

// ---- what runs ----

// Made once, as threads cost more than the runs.
static struct {
    struct device *devices[2][MAX_DEVICES]; // of 1 and 2 threads
    struct pool *drivers[MAX_DEVICES + 1];  // of as many threads
} hall;

static int open_hall(void **state)
{
    struct error error = {0};
    (void)state;
    for (size_t d = 0; d < MAX_DEVICES; d++)
        for (size_t t = 0; t < 2; t++)
            if (cpu_device_create(&(struct cpu_device_params){.pool = {.n_threads = t + 1, .overcommitted = true}},
                                  &hall.devices[t][d], &error) != STATUS_OK)
                fail_msg("%s", error.message);
    for (size_t n = 2; n <= MAX_DEVICES; n++)
        if (pool_create(&(struct pool_params){.n_threads = n, .overcommitted = true}, &hall.drivers[n], &error) !=
            STATUS_OK)
            fail_msg("%s", error.message);
    return 0;
}

static int close_hall(void **state)
{
    (void)state;
    for (size_t d = 0; d < MAX_DEVICES; d++)
        for (size_t t = 0; t < 2; t++)
            hall.devices[t][d]->ops->destroy(hall.devices[t][d]);
    for (size_t n = 2; n <= MAX_DEVICES; n++)
        pool_destroy(hall.drivers[n]);
    return 0;
}

// How a graph is run over devices.
struct way {
    const struct mesh_split *split;
    const struct link *link;
    size_t batch, n_threads; // n_threads: of each device, 1 or 2
};

static struct way way_number(size_t i)
{
    return (struct way){.split = &splits[i % N_SPLITS],
                        .link = &links[i % N_LINKS],
                        .batch = batches[i % N_BATCHES],
                        .n_threads = 1 + i / 2 % 2};
}

struct rank {
    struct graph graph;
    struct machine machine;
    struct error error;
};

struct crew {
    struct small_graph *small;
    const struct way *way;
    struct transport *transport;
    struct rank ranks[MAX_DEVICES];
    struct kept_rows kept;
};

static void drive(void *user, size_t index, size_t n_threads)
{
    struct crew *crew = user;
    struct rank *rank = &crew->ranks[index];
    (void)n_threads;
    rank->error.status = machine_run(&rank->machine, crew->small, index == 0 ? &crew->kept : NULL, &rank->error);
    if (rank->error.status != STATUS_OK)
        crew->transport->ops->leave(crew->transport, (uint32_t)index);
}

static void crew_open(struct crew *crew, const char *what)
{
    const struct way *way = crew->way;
    uint32_t n = way->split->n_devices;
    struct error error = {0};
    enum status status = way->link->copies ? transport_copying_create(n, &crew->transport, &error)
                                           : transport_threads_create(n, true, &crew->transport, &error);
    if (status != STATUS_OK)
        fail_msg("%s", error.message);
    crew->transport->scatter_bytes = way->link->scatter_bytes;
    for (uint32_t d = 0; d < n; d++) {
        struct plan_params params = {.n_rows = way->batch, .n_logits = 5, .transport = crew->transport, .rank = d};
        if (machine_open(&crew->ranks[d].machine, hall.devices[way->n_threads - 1][d], crew->small,
                         &crew->ranks[d].graph, &params, &error) != STATUS_OK)
            fail_msg("%s, device %u of %u: %s", what, d, n, error.message);
    }
}

static void crew_close(struct crew *crew)
{
    for (uint32_t d = 0; d < crew->way->split->n_devices; d++) {
        machine_close(&crew->ranks[d].machine);
        graph_free(&crew->ranks[d].graph);
    }
    crew->transport->ops->destroy(crew->transport);
}

static float *run_alone(struct small_graph *small, const char *what)
{
    struct machine machine;
    struct error error = {0};
    struct kept_rows kept = {.width = small->graph.output->ne[0]};
    struct plan_params params = {.n_rows = small->n_tokens, .n_logits = 3};
    kept.rows = calloc(small->n_tokens * kept.width, sizeof(float));
    assert_non_null(kept.rows);
    if (machine_open(&machine, hall.devices[1][0], small, &small->graph, &params, &error) != STATUS_OK ||
        machine_run(&machine, small, &kept, &error) != STATUS_OK)
        fail_msg("%s: %s", what, error.message);
    machine_close(&machine);
    return kept.rows;
}

static void expect_bits(const float *actual, const float *expected, size_t n, size_t width, const struct way *way,
                        const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&actual[i], &expected[i], sizeof(float)) != 0 && !(isnan(actual[i]) && isnan(expected[i])))
            fail_msg("%s: %u devices (from eighth %u), batches of %zu, %zu threads%s, scatter %zu: token %zu, output "
                     "%zu is %a, not %a",
                     what, way->split->n_devices, way->split->eighth[1], way->batch, way->n_threads,
                     way->link->copies ? ", copied" : "", way->link->scatter_bytes, i / width, i % width,
                     (double)actual[i], (double)expected[i]);
}

// ---- what the shard pass promises ----

static bool seen[OP_COUNT];

static bool same_collective(const struct collective *a, const struct collective *b)
{
    return a->kind == b->kind && a->n_devices == b->n_devices && a->root == b->root && a->adapters == b->adapters &&
           a->width == b->width && a->rows == b->rows && a->per_row == b->per_row &&
           memcmp(a->leaves, b->leaves, sizeof(a->leaves)) == 0 && memcmp(a->ranges, b->ranges, sizeof(a->ranges)) == 0;
}

static const struct collective *next_collective(const struct graph *graph, size_t *at)
{
    for (; *at < graph->n_nodes; (*at)++) {
        seen[graph->nodes[*at]->op] = true;
        if (graph->nodes[*at]->attributes.collective != NULL)
            return graph->nodes[(*at)++]->attributes.collective;
    }
    return NULL;
}

// The same collectives in the same order on all devices; returns how many.
static size_t check_collectives(const struct crew *crew, const char *what)
{
    size_t n = 0, first_at = 0, at[MAX_DEVICES] = {0};
    for (;; n++) {
        const struct collective *first = next_collective(&crew->ranks[0].graph, &first_at);
        for (uint32_t d = 1; d < crew->way->split->n_devices; d++) {
            const struct collective *other = next_collective(&crew->ranks[d].graph, &at[d]);
            if ((first == NULL) != (other == NULL) || (first != NULL && !same_collective(first, other)))
                fail_msg("%s: collective %zu of device %u is another one than device 0's", what, n, d);
        }
        if (first == NULL)
            return n;
    }
}

// Runs over the devices; returns how many collectives there were.
static size_t check_sharding(struct small_graph *small, const struct sharding *sharding, const struct way *way,
                             const float *expected, const char *what)
{
    struct crew crew = {.small = small, .way = way};
    struct error error = {0};
    size_t width = small->graph.output->ne[0], n = small->n_tokens * width;
    for (uint32_t d = 0; d < way->split->n_devices; d++) {
        graph_init(&crew.ranks[d].graph);
        if (shard_graph(sharding, d, &crew.ranks[d].graph, &error) != STATUS_OK)
            fail_msg("%s, device %u of %u: %s", what, d, way->split->n_devices, error.message);
    }
    size_t n_collectives = check_collectives(&crew, what);
    crew_open(&crew, what);
    crew.kept = (struct kept_rows){.rows = malloc(n * sizeof(float)), .width = width};
    assert_non_null(crew.kept.rows);
    memset(crew.kept.rows, 0xa5, n * sizeof(float));
    pool_run(hall.drivers[way->split->n_devices], drive, &crew);
    for (uint32_t d = 0; d < way->split->n_devices; d++)
        if (crew.ranks[d].error.status != STATUS_OK && crew.ranks[d].error.status != STATUS_CANCELLED)
            fail_msg("%s, device %u of %u: %s", what, d, way->split->n_devices, crew.ranks[d].error.message);
    expect_bits(crew.kept.rows, expected, n, width, way, what);
    free(crew.kept.rows);
    crew_close(&crew);
    return n_collectives;
}

#endif
