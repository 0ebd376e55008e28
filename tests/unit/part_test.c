// What a device computes for its part of a model, without the other devices: partial sums, put together here in the
// order of the tree, are the whole product's bits; attention of some of the heads, with incomplete groups, gives those
// heads' bits, also where thousands of positions are split over threads. On meshes: gated units as narrow as a grain a
// device, fewer logits than devices, and faults, which end all devices.
#include "base/checked.h"
#include "cpu/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "small_graph.h"

#include "mesh_crew.h"

static const char *const isas[] = {"c", "avx2", "avx512", "neon"};
enum { N_ISAS = sizeof(isas) / sizeof(isas[0]), N_OUTPUTS = 41, N_TOKENS = 37 };

static struct device *open_device(const char *isa, size_t n_threads)
{
    struct device *device = NULL;
    struct error error = {0};
    struct cpu_device_params params = {.pool = {.n_threads = n_threads, .overcommitted = true}, .isa = isa};
    if (cpu_device_create(&params, &device, &error) != STATUS_OK)
        fail_msg("%s", error.message);
    return device;
}

// [n_tokens][width] of a graph's output; free() them.
static float *run_graph(struct small_graph *small, const struct graph *graph, struct device *device, size_t batch,
                        size_t width)
{
    struct machine machine;
    struct error error = {0};
    struct plan_params params = {.n_rows = batch, .n_logits = batch};
    struct kept_rows kept = {.rows = calloc(small->n_tokens * width, sizeof(float)), .width = width};
    assert_non_null(kept.rows);
    if (graph->error.status != STATUS_OK)
        fail_msg("%s", graph->error.message);
    if (machine_open(&machine, device, small, graph, &params, &error) != STATUS_OK ||
        machine_run(&machine, small, &kept, &error) != STATUS_OK)
        fail_msg("%s", error.message);
    machine_close(&machine);
    return kept.rows;
}

// ---- partial sums ----

struct product_case {
    enum dtype dtype;
    enum precision precision;
    size_t k;
};

// weight · the columns [begin, begin + weight's) of the tokens' rows.
static void build_product(struct graph *graph, const struct small_graph *small, const struct tensor *weight,
                          const struct attributes *attributes, size_t begin)
{
    struct tensor *x = graph_embed(graph, graph_weight_like(graph, small->graph.weights[0]));
    if (x != NULL && weight->ne[0] != x->ne[0])
        x = graph_slice(graph, x, (uint32_t)x->ne[0], (uint32_t)begin, (uint32_t)weight->ne[0]);
    struct tensor *sources[] = {graph_weight_like(graph, weight), graph_select_rows(graph, x)};
    graph->output = graph_apply(graph, OP_MATMUL, attributes, sources);
}

// What one device has of a row: vectors of the subtrees of its run of leaves.
struct partial {
    struct leaves leaves;
    float *rows;
    size_t width;
};

// Element i of row t: the tree over leaves [first, end), from the subtrees that the devices have.
static float tree_sum(const struct partial *partials, uint32_t n, uint32_t first, uint32_t end, size_t t, size_t i)
{
    for (uint32_t d = 0; d < n; d++) {
        struct leaves subtrees[MAX_SUBTREES];
        uint32_t n_subtrees = leaves_subtrees(partials[d].leaves, subtrees);
        for (uint32_t s = 0; s < n_subtrees; s++)
            if (subtrees[s].first == first && subtrees[s].end == end)
                return partials[d].rows[t * partials[d].width + s * round_up(N_OUTPUTS, 16) + i];
    }
    uint32_t middle = tree_split(first, end);
    float left = tree_sum(partials, n, first, middle, t, i);
    return left + tree_sum(partials, n, middle, end, t, i);
}

static struct partial run_partial(struct small_graph *small, const struct product_case *c,
                                  const struct segments *segments, struct leaves leaves, struct device *device,
                                  size_t batch)
{
    struct graph graph;
    struct segments own;
    struct leaves subtrees[MAX_SUBTREES];
    struct tensor part = *small->graph.weights[1];
    size_t first;
    segments_part(segments, leaves, &own, &first);
    size_t end = (size_t)segments->border[leaves.end] * segments->grain;
    part.first_column = first;
    part.columns_in_file = c->k;
    part.ne[0] = (end < c->k ? end : c->k) - first;
    part.leaves = leaves;
    graph_init(&graph);
    build_product(&graph, small, &part, &(struct attributes){.precision = c->precision, .leaves = leaves}, first);
    struct partial partial = {.leaves = leaves, .width = leaves_subtrees(leaves, subtrees) * round_up(N_OUTPUTS, 16)};
    partial.rows = run_graph(small, &graph, device, batch, partial.width);
    graph_free(&graph);
    return partial;
}

static void check_product(struct small_graph *small, const struct product_case *c, const struct mesh_split *split,
                          const float *expected, struct device *device, size_t batch)
{
    struct segments segments;
    struct partial partials[MAX_DEVICES];
    uint32_t n = 0;
    segments_of_product(&segments, c->dtype, c->k, 0);
    for (uint32_t d = 0; d < split->n_devices; d++) {
        struct leaves leaves = split_leaves(split, d, segments.n);
        if (leaves.first < leaves.end)
            partials[n++] = run_partial(small, c, &segments, leaves, device, batch);
    }
    for (size_t t = 0; t < N_TOKENS; t++) {
        for (size_t i = 0; i < N_OUTPUTS; i++) {
            float sum = tree_sum(partials, n, 0, segments.n, t, i);
            if (memcmp(&sum, &expected[t * N_OUTPUTS + i], sizeof(sum)) != 0)
                fail_msg("%s, %s sources, k %zu, %u devices, %s, batches of %zu: token %zu, output %zu is %a, not %a",
                         dtype_get(c->dtype)->name, precision_name(c->precision), c->k, split->n_devices, device->isa,
                         batch, t, i, (double)sum, (double)expected[t * N_OUTPUTS + i]);
        }
    }
    for (uint32_t d = 0; d < n; d++)
        free(partials[d].rows);
}

static void check_products(const struct product_case *c, struct device *devices[N_ISAS][2], size_t *number)
{
    struct small_graph small;
    small_graph_open(&small, N_TOKENS);
    float *table =
        (float *)(void *)small.bytes[small_graph_weight(&small, "table", DTYPE_F32, c->k, N_TOKENS, 0)->index];
    for (size_t i = 0; i < N_TOKENS * c->k; i++) // some segments of some rows must be scaled to fit in F16
        table[i] *= i / 32 % 3 == 1 ? 0x1p18f : 1;
    struct tensor *weight = small_graph_weight(&small, "weight", c->dtype, c->k, N_OUTPUTS, 0);
    build_product(&small.graph, &small, weight, &(struct attributes){.precision = c->precision}, 0);
    float *expected = run_graph(&small, &small.graph, devices[0][0], N_TOKENS, N_OUTPUTS);
    for (size_t isa = 0; isa < N_ISAS; isa++) {
        for (size_t i = 0; i < 4 && devices[isa][0] != NULL; i++, (*number)++)
            check_product(&small, c, &splits[*number % N_SPLITS], expected, devices[isa][i % 2],
                          i < 2    ? 1
                          : i == 2 ? 5
                                   : N_TOKENS);
    }
    free(expected);
    small_graph_close(&small);
}

static void test_partial_sums(void **state)
{
    (void)state;
    struct device *devices[N_ISAS][2] = {0};
    size_t number = 0;
    for (size_t isa = 0; isa < N_ISAS; isa++)
        for (size_t t = 0; t < 2 && kernels_choose(isas[isa]) != NULL; t++)
            devices[isa][t] = open_device(isas[isa], t + 1);
    for (size_t d = 0; d < N_DTYPES; d++) {
        enum dtype dtype = dtypes[d];
        bool k_quant = dtype_get(dtype)->block == 256;
        const size_t sizes[] = {k_quant ? 512 : 224, 768, dtype_get(dtype)->block == 1 ? 100 : 256};
        for (size_t i = 0; i < 3; i++) {
            struct product_case c = {dtype, precision_of_weight(dtype), sizes[i]};
            check_products(&c, devices, &number);
            c.precision = i == 0 ? PRECISION_F32 : i == 1 ? PRECISION_F16 : PRECISION_BF16;
            if (c.precision != precision_of_weight(dtype))
                check_products(&c, devices, &number);
        }
    }
    for (size_t isa = 0; isa < N_ISAS; isa++)
        for (size_t t = 0; t < 2 && devices[isa][t] != NULL; t++)
            devices[isa][t]->ops->destroy(devices[isa][t]);
    assert_true(number > 500);
}

// ---- attention of some heads ----

struct heads_case {
    uint32_t n_head, n_kv_head, head_dim, v_dim, window;
    bool v_in_k, sinks;
    enum kv_dtype kv;
};

enum { N_FILLED = SMALL_PAGES * KV_PAGE_POSITIONS, N_FAR = 6, MAX_FAR_PAGES = 300 };
// Far positions see the same few pages again and again: more chunks than there are positions to fill them with.
static const uint32_t far_positions[N_FAR] = {256, 300, 5000, 16383, 16384, 18000};

// Heads [first, end) of the case: q, k and v are parts of the tokens' rows.
static void build_heads(struct graph *graph, const struct small_graph *small, const struct heads_case *c,
                        uint32_t first, uint32_t end)
{
    uint32_t group = c->n_head / c->n_kv_head, kv_first = first / group, n_kv = (end + group - 1) / group - kv_first;
    struct tensor *x = graph_embed(graph, graph_weight_like(graph, small->graph.weights[0]));
    uint32_t width = (uint32_t)small->graph.weights[0]->ne[0], k_at = c->n_head * c->head_dim;
    uint32_t v_at = k_at + c->n_kv_head * c->head_dim;
    struct attributes a = {.n_head = end - first,
                           .n_kv_head = n_kv,
                           .group = group,
                           .first_in_group = first % group,
                           .head_dim = c->head_dim,
                           .v_dim = c->v_dim,
                           .window = c->window,
                           .v_in_k = c->v_in_k,
                           .score_scale = 0.25f};
    a.layer = graph_kv_layer(
        graph, (struct kv_layer){
                   .n_head = n_kv, .k_dim = c->head_dim, .v_dim = c->v_dim, .window = c->window, .v_in_k = c->v_in_k});
    struct tensor *q = graph_slice(graph, x, width, first * c->head_dim, (end - first) * c->head_dim);
    struct tensor *k = graph_slice(graph, x, width, k_at + kv_first * c->head_dim, n_kv * c->head_dim);
    struct tensor *v = NULL, *sinks = NULL;
    if (!c->v_in_k)
        v = graph_slice(graph, x, width, v_at + kv_first * c->v_dim, n_kv * c->v_dim);
    if (c->sinks) {
        struct tensor part = *small->graph.weights[1];
        part.first_column = first;
        part.columns_in_file = c->n_head;
        part.ne[0] = end - first;
        sinks = graph_weight_like(graph, &part);
    }
    graph->output = graph_select_rows(graph, graph_attention(graph, q, k, v, sinks, &a));
}

// Prompts that fill the pages, then far rows one by one: [N_FILLED + N_FAR][(end - first) * v_dim].
static float *run_heads(struct small_graph *small, const struct heads_case *c, uint32_t first, uint32_t end,
                        struct device *device)
{
    struct graph graph;
    struct machine machine;
    struct error error = {0};
    struct plan_params params = {.n_rows = 48, .n_logits = 48};
    uint32_t ids[MAX_FAR_PAGES];
    const uint32_t *const pages[MAX_KV_KINDS] = {ids, ids, ids, ids};
    for (uint32_t i = 0; i < MAX_FAR_PAGES; i++)
        ids[i] = i * 3 % SMALL_PAGES;
    graph_init(&graph);
    build_heads(&graph, small, c, first, end);
    if (graph.error.status != STATUS_OK)
        fail_msg("%s", graph.error.message);
    if (machine_open(&machine, device, small, &graph, &params, &error) != STATUS_OK)
        fail_msg("%s", error.message);
    struct kept_rows kept = {.width = (size_t)(end - first) * c->v_dim};
    kept.rows = calloc((N_FILLED + N_FAR) * kept.width, sizeof(float));
    assert_non_null(kept.rows);
    for (size_t n; kept.first < N_FILLED + N_FAR; kept.first += n) {
        struct row rows[48];
        uint32_t selected[48];
        n = kept.first >= N_FILLED ? 1 : N_FILLED - kept.first < 48 ? N_FILLED - kept.first : 48;
        for (size_t i = 0; i < n; i++) {
            size_t t = kept.first + i;
            uint32_t position = t < N_FILLED ? (uint32_t)t : far_positions[t - N_FILLED];
            rows[i] = (struct row){.token = (int32_t)(t % small->graph.weights[0]->ne[1]), .position = position};
            selected[i] = (uint32_t)i;
        }
        struct run run = {.rows = rows, .n_rows = n, .selected = selected, .n_selected = n, .pages = pages};
        run.on_logits = keep_row;
        run.user = &kept;
        if (device->ops->run(machine.plan, &run, &error) != STATUS_OK)
            fail_msg("%s", error.message);
    }
    machine_close(&machine);
    graph_free(&graph);
    return kept.rows;
}

static void check_heads(const struct heads_case *c, struct device *const *devices, size_t n_devices)
{
    struct small_graph small;
    small_graph_open(&small, 0);
    small.kv = c->kv;
    size_t n_kv = c->n_kv_head, width = c->n_head * c->head_dim + n_kv * (c->head_dim + (c->v_in_k ? 0 : c->v_dim));
    small_graph_weight(&small, "table", DTYPE_F32, width, 101, 0);
    if (c->sinks)
        small_graph_weight(&small, "sinks", DTYPE_F32, c->n_head, 0, 0);
    float *whole = run_heads(&small, c, 0, c->n_head, devices[0]);
    size_t row = (size_t)c->n_head * c->v_dim, number = 0;
    for (uint32_t first = 0; first < c->n_head; first++) {
        for (uint32_t end = first + 1; end <= c->n_head; end += 2, number++) {
            struct device *device = devices[number % n_devices];
            float *part = run_heads(&small, c, first, end, device);
            size_t part_row = (size_t)(end - first) * c->v_dim;
            for (size_t t = 0; t < N_FILLED + N_FAR; t++)
                if (memcmp(part + t * part_row, whole + t * row + first * c->v_dim, part_row * sizeof(float)) != 0)
                    fail_msg("heads %u to %u of %u (%zu KV heads, keys of %u): row %zu has other bits with %s", first,
                             end, c->n_head, n_kv, c->head_dim, t, device->isa);
            free(part);
        }
    }
    free(whole);
    small_graph_close(&small);
}

static void test_heads(void **state)
{
    (void)state;
    static const struct heads_case cases[] = {
        {9, 3, 16, 16, 0, false, false, KV_DTYPE_F16},  {9, 3, 32, 32, 0, false, true, KV_DTYPE_Q8_0},
        {8, 1, 12, 20, 0, false, true, KV_DTYPE_F32},   {6, 6, 8, 8, 0, false, false, KV_DTYPE_F16},
        {7, 1, 24, 16, 0, true, false, KV_DTYPE_F16},   {5, 1, 64, 32, 0, true, true, KV_DTYPE_Q8_0},
        {10, 2, 16, 16, 70, false, true, KV_DTYPE_F16}, {4, 2, 16, 8, 17000, false, false, KV_DTYPE_F32},
    };
    struct device *devices[] = {open_device(NULL, 1), open_device(NULL, 2), open_device(NULL, 3), open_device("c", 1),
                                open_device(NULL, 5)};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_heads(&cases[i], devices, sizeof(devices) / sizeof(devices[0]));
    for (size_t d = 0; d < sizeof(devices) / sizeof(devices[0]); d++)
        devices[d]->ops->destroy(devices[d]);
}

// ---- little to share ----

// Gated units as narrow as a grain a device, and fewer logits than a tile or than there are devices.
static void build_narrow(struct small_graph *small, enum dtype dtype, enum precision precision, size_t n_ff,
                         size_t n_vocabulary)
{
    struct graph *graph = &small->graph;
    struct tensor *rows = small_graph_weight(small, "table", DTYPE_F32, 256, N_TOKENS, 0);
    float *table = (float *)(void *)small->bytes[rows->index];
    for (size_t i = 0; i < (size_t)N_TOKENS * 256; i++) // hidden units beyond F16
        table[i] *= i / 256 % 2 == 1 ? 0x1p12f : 1;
    struct tensor *x = graph_embed(graph, rows);
    struct attributes down = {.precision = precision};
    struct tensor *gate = graph_matmul(graph, small_graph_weight(small, "gate", DTYPE_F16, 256, n_ff, 0), x, 0);
    struct tensor *up = graph_matmul(graph, small_graph_weight(small, "up", DTYPE_F16, 256, n_ff, 0), x, 0);
    struct tensor *hidden = graph_glu(graph, gate, up, ACTIVATION_SILU);
    struct tensor *sources[] = {small_graph_weight(small, "down", dtype, n_ff, 256, 0), hidden};
    x = graph_add(graph, x, graph_apply(graph, OP_MATMUL, &down, sources));
    struct tensor *head = small_graph_weight(small, "head", DTYPE_BF16, 256, n_vocabulary, 0);
    graph->output = graph_matmul(graph, head, graph_select_rows(graph, x), 0);
    if (graph->error.status != STATUS_OK)
        fail_msg("%s", graph->error.message);
}

static void test_narrow(void **state)
{
    (void)state;
    static const struct {
        enum dtype dtype;
        enum precision precision;
        size_t n_ff, n_vocabulary;
    } cases[] = {
        {DTYPE_F16, PRECISION_F16, 128, 5},   {DTYPE_F16, PRECISION_F16, 33, 17},
        {DTYPE_F16, PRECISION_F16, 16, 1},    {DTYPE_BF16, PRECISION_BF16, 128, 7},
        {DTYPE_F32, PRECISION_F32, 48, 3},    {DTYPE_F32, PRECISION_F16, 144, 40},
        {DTYPE_Q4_0, PRECISION_Q8, 256, 9},   {DTYPE_Q8_0, PRECISION_Q8, 96, 2},
        {DTYPE_Q5_1, PRECISION_F16, 288, 16}, {DTYPE_Q4_K, PRECISION_Q8, 256, 31},
        {DTYPE_Q6_K, PRECISION_BF16, 256, 8}, {DTYPE_MXFP4, PRECISION_F32, 32, 4},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct small_graph small;
        small_graph_open(&small, N_TOKENS);
        build_narrow(&small, cases[i].dtype, cases[i].precision, cases[i].n_ff, cases[i].n_vocabulary);
        float *expected = run_alone(&small, "narrow");
        for (size_t j = 0; j < 2 * (size_t)N_SPLITS; j++) {
            struct way way = way_number(i * 7 + j);
            struct sharding sharding;
            struct error error = {0};
            if (sharding_create(&small.graph, way.split, &sharding, &error) != STATUS_OK)
                fail_msg("%s", error.message);
            check_sharding(&small, &sharding, &way, expected, dtype_get(cases[i].dtype)->name);
            sharding_free(&sharding);
        }
        free(expected);
        small_graph_close(&small);
    }
}

// ---- faults on a mesh ----

enum { N_EXPERT = 6 };

// Two blocks of experts, so that there is more to run behind the fault.
static void build_experts(struct small_graph *small, const int32_t *slots)
{
    static const struct routing routing = {.n_expert = N_EXPERT, .n_used = 3, .normalize = true};
    struct graph *graph = &small->graph;
    struct tensor *x = graph_embed(graph, small_graph_weight(small, "table", DTYPE_F32, 64, N_TOKENS, 0));
    for (uint32_t layer = 0; layer < 2; layer++) {
        char names[3][16];
        static const char *const kinds[] = {"router", "up", "down"};
        for (int i = 0; i < 3; i++)
            snprintf(names[i], sizeof(names[i]), "%s%u", kinds[i], layer);
        size_t count = slots != NULL ? N_EXPERT - 2 : N_EXPERT;
        struct tensor *logits =
            graph_matmul(graph, small_graph_weight(small, names[0], DTYPE_F32, 64, N_EXPERT, 0), x, 0);
        struct tensor *route = graph_route(graph, logits, NULL, &routing, layer);
        struct tensor *both[] = {small_graph_weight(small, names[1], DTYPE_F16, 64, 144, count), x, route, NULL};
        struct attributes a = {.precision = PRECISION_F16, .slots = slots};
        struct tensor *up = graph_apply(graph, OP_MUL_MAT_ID, &a, both);
        struct tensor *hidden = graph_glu(graph, up, up, ACTIVATION_RELU);
        struct tensor *down[] = {
            small_graph_weight(small, names[2], DTYPE_F16, 144, 64, count), hidden, route, NULL, NULL, NULL, NULL};
        x = graph_add(graph, x, graph_apply(graph, OP_MUL_MAT_ID_SUM, &a, down));
    }
    struct tensor *head = small_graph_weight(small, "head", DTYPE_F16, 64, 50, 0);
    graph->output = graph_matmul(graph, head, graph_select_rows(graph, x), 0);
    if (graph->error.status != STATUS_OK)
        fail_msg("%s", graph->error.message);
}

// All devices end, with the fault or because another one has it.
static void expect_fault(struct small_graph *small, const struct way *way, const char *text)
{
    struct sharding sharding;
    struct error error = {0};
    struct crew crew = {.small = small, .way = way};
    if (sharding_create(&small->graph, way->split, &sharding, &error) != STATUS_OK)
        fail_msg("%s", error.message);
    for (uint32_t d = 0; d < way->split->n_devices; d++) {
        graph_init(&crew.ranks[d].graph);
        if (shard_graph(&sharding, d, &crew.ranks[d].graph, &error) != STATUS_OK)
            fail_msg("device %u of %u: %s", d, way->split->n_devices, error.message);
    }
    crew_open(&crew, text);
    crew.kept = (struct kept_rows){.rows = calloc(N_TOKENS * 50, sizeof(float)), .width = 50};
    assert_non_null(crew.kept.rows);
    pool_run(hall.drivers[way->split->n_devices], drive, &crew);
    bool said = false;
    for (uint32_t d = 0; d < way->split->n_devices; d++) {
        const struct error *e = &crew.ranks[d].error;
        said = said || (e->status == STATUS_INVALID && strstr(e->message, text) != NULL);
        if (e->status == STATUS_OK)
            fail_msg("%s: device %u of %u ended without an error", text, d, way->split->n_devices);
    }
    if (!said)
        fail_msg("no device says '%s', but: %s", text, crew.ranks[0].error.message);
    free(crew.kept.rows);
    crew_close(&crew);
    sharding_free(&sharding);
}

static void test_faults(void **state)
{
    (void)state;
    static const int32_t slots[N_EXPERT] = {0, 1, 2, 3, -1, 99};
    for (size_t i = 0; i < (size_t)N_SPLITS * N_LINKS; i++) {
        struct way way = way_number(i);
        struct small_graph small;
        small_graph_open(&small, N_TOKENS);
        build_experts(&small, NULL);
        float *router = (float *)(void *)small.bytes[small.graph.weights[1]->index];
        for (size_t j = 0; j < 64; j++)
            router[(i % N_EXPERT) * 64 + j] = NAN;
        expect_fault(&small, &way, "router of layer 0");
        small_graph_close(&small);
        small_graph_open(&small, N_TOKENS);
        build_experts(&small, slots);
        expect_fault(&small, &way, "not in memory");
        small_graph_close(&small);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partial_sums),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, open_hall, close_hall);
}
