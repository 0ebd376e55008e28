// The placement rules on numbers: every op of the table, with its sources placed in every way (whole, a shard where it
// is needed or elsewhere, a partial sum), over 2 to 8 devices, run as local graphs with the collectives between them,
// gives the bits of the whole graph on one device. And what the shard pass promises: no collective twice for a value,
// none where a part is there that is needed, the same ones in the same order on all devices.
#include "mesh/shard.h"
#include "tensor/op.h"

#include "test_paths.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SANITIZER_STRIDE = 5 }; // of the runs with sources placed by hand
#else
enum { SANITIZER_STRIDE = 1 };
#endif

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "small_graph.h"

#include "mesh_crew.h"
#include "mesh_ops_cases.h"

// ---- placing sources ----

// Letters: R whole; 0, 1, 2 a shard of that dimension (of a value: as it is needed); X a shard of a value, elsewhere; P
// a partial sum.
static const char *letters_of(const struct tensor *source)
{
    static const char *const by_dims[] = {"R", "R0", "R01", "R012"};
    if (source == NULL)
        return "R";
    if (source->rows == ROWS_NONE)
        return by_dims[source->n_dims];
    return source->producer->op == OP_MATMUL ? "R0XP" : source->producer->op == OP_MUL_MAT_ID ? "R0X" : "R";
}

static struct placement placement_of_letter(char letter)
{
    return letter == 'R'   ? placement_replicate()
           : letter == 'P' ? placement_partial()
                           : placement_shard(letter == 'X' ? 0 : (uint32_t)(letter - '0'));
}

// Ranges of n elements, at multiples of unit.
static void cut_evenly(const struct mesh_split *split, size_t n, size_t unit, struct row_range *ranges)
{
    size_t n_units = n / unit;
    for (uint32_t d = 0; d < split->n_devices; d++)
        ranges[d] =
            (struct row_range){n_units * split->eighth[d] / 8 * unit, n_units * split->eighth[d + 1] / 8 * unit};
}

static size_t at_most(size_t a, size_t b)
{
    return a < b ? a : b;
}

static struct part cut_along_k(const struct mesh_split *split, const struct tensor *weight, uint32_t unit)
{
    struct part part = {.placement = placement_shard(0)};
    struct segments segments;
    segments_of_product(&segments, weight->dtype, weight->ne[0], unit);
    for (uint32_t d = 0; d < split->n_devices; d++) {
        struct leaves leaves = split_leaves(split, d, segments.n);
        part.leaves[d] = leaves;
        part.ranges[d] =
            (struct row_range){at_most((size_t)segments.border[leaves.first] * segments.grain, weight->ne[0]),
                               at_most((size_t)segments.border[leaves.end] * segments.grain, weight->ne[0])};
    }
    return part;
}

// The op under test: its weights as its rule says, and its result.
static void place_op(struct sharding *sharding, const struct node *node, const struct op_case *c,
                     const struct placement *need, struct placement result)
{
    struct part *part = &sharding->values[node->result->index];
    for (uint32_t i = 0; i < node->n_sources; i++) {
        const struct tensor *source = node->sources[i];
        if (source == NULL || source->rows != ROWS_NONE || result.kind != PLACED_PARTIAL)
            continue;
        if (need[i].kind == PLACED_SHARD && need[i].dim == 0)
            sharding->weights[source->index] =
                cut_along_k(&sharding->split, source, i == 0 ? node->attributes.segment_unit : 0);
        if (need[i].kind == PLACED_SHARD && need[i].dim == 1) { // a table
            struct part *table = &sharding->weights[source->index];
            table->placement = need[i];
            cut_evenly(&sharding->split, source->ne[1], 1, table->ranges);
            table->ranges[sharding->split.n_devices - 1].end = source->ne[1];
        }
    }
    if (node->op == OP_MUL_MAT_ID_SUM && node->sources[4] != NULL && result.kind == PLACED_PARTIAL)
        sharding->apart[node->result->index] = sharding->weights[node->sources[4]->index].leaves[0].n !=
                                               sharding->weights[node->sources[0]->index].leaves[0].n;
    if (result.kind == PLACED_SHARD) {
        size_t unit = node->op == OP_ATTENTION ? node->attributes.v_dim : c->unit == 0 ? 1 : c->unit;
        part->placement = result;
        cut_evenly(&sharding->split, node->result->ne[0], unit, part->ranges);
    }
    sharding_settle(sharding);
}

// A source that is a value, by way of the weight that makes it.
static void place_value(struct sharding *sharding, const struct tensor *value, char letter, const struct part *need)
{
    const struct tensor *weight = value->producer->sources[0];
    struct part *part = letter == 'R' ? NULL : &sharding->weights[weight->index];
    if (letter == 'P')
        *part = cut_along_k(&sharding->split, weight, 0);
    if (letter != '0' && letter != 'X')
        return;
    part->placement = placement_shard(1);
    if (letter == '0' && need->placement.kind == PLACED_SHARD)
        memcpy(part->ranges, need->ranges, sizeof(part->ranges));
    else
        cut_evenly(&sharding->split, value->ne[0], 1, part->ranges);
}

// Whether a value is there as a node needs it.
static bool is_as_needed(const struct sharding *sharding, const struct tensor *value, const struct part *need)
{
    const struct part *part = &sharding->values[value->index];
    if (part->placement.kind == PLACED_REPLICATE)
        return true;
    return part->placement.kind == PLACED_SHARD && need->placement.kind == PLACED_SHARD &&
           memcmp(part->ranges, need->ranges, sharding->split.n_devices * sizeof(part->ranges[0])) == 0;
}

// ---- one combination ----

struct combination {
    struct small_graph *small;
    const struct op_case *c;
    const struct node *node;
    const float *expected;
    char letters[MAX_SOURCES + 1];
};

// The collectives that there must be: one for each source that lies otherwise than needed, one for the result where it
// is not whole, one for a shared expert's sum that can't join.
static size_t count_expected(const struct combination *combination, const struct sharding *sharding,
                             const struct part *needs)
{
    const struct node *node = combination->node;
    size_t n = 0;
    for (uint32_t i = 0; i < node->n_sources; i++) {
        const struct tensor *source = node->sources[i];
        if (source == NULL || source->rows == ROWS_NONE || is_as_needed(sharding, source, &needs[i]))
            continue;
        bool before = false;
        for (uint32_t j = 0; j < i; j++)
            before = before || (node->sources[j] == source && !is_as_needed(sharding, source, &needs[j]));
        n += !before;
    }
    n += sharding->values[node->result->index].placement.kind != PLACED_REPLICATE;
    return n + (sharding->apart[node->result->index] ? 1 : 0);
}

static void check_way(const struct combination *combination, const struct way *way, bool cut_table)
{
    const struct node *node = combination->node;
    const struct graph *graph = &combination->small->graph;
    struct placement have[MAX_SOURCES] = {0}, need[MAX_SOURCES] = {0}, result;
    struct part needs[MAX_SOURCES];
    struct sharding sharding;
    struct error error = {0};
    char what[128];
    snprintf(what, sizeof(what), "%s with %s", combination->c->name, combination->letters);
    for (uint32_t i = 0; i < node->n_sources; i++)
        have[i] = placement_of_letter(combination->letters[i]);
    op_place(op_get(node->op), node, have, need, &result);
    if (sharding_init(graph, way->split, &sharding, &error) != STATUS_OK)
        fail_msg("%s", error.message);
    place_op(&sharding, node, combination->c, need, result);
    if (!placement_equal(sharding.values[node->result->index].placement, result))
        fail_msg("%s: the result is placed otherwise than the rule says", what);
    for (uint32_t i = 0; i < node->n_sources; i++) {
        const struct tensor *source = node->sources[i];
        if (source == NULL)
            continue;
        needs[i] = sharding_need(&sharding, node, i);
        bool whole_head = node->op == OP_ATTENTION && needs[i].placement.kind == PLACED_REPLICATE;
        if (!placement_equal(needs[i].placement, need[i]) && !whole_head)
            fail_msg("%s: the pass needs source %u otherwise than the rule says", what, i);
    }
    for (uint32_t i = 0; i < node->n_sources; i++)
        if (node->sources[i] != NULL && node->sources[i]->rows != ROWS_NONE)
            place_value(&sharding, node->sources[i], combination->letters[i], &needs[i]);
    const struct node *first = graph->nodes[0];
    cut_table = cut_table && first != node;
    if (cut_table) {
        struct part *table = &sharding.weights[first->sources[0]->index];
        table->placement = placement_shard(1);
        cut_evenly(way->split, first->sources[0]->ne[1], 1, table->ranges);
        table->ranges[way->split->n_devices - 1].end = first->sources[0]->ne[1];
    }
    sharding_settle(&sharding);
    size_t expected = count_expected(combination, &sharding, needs) + cut_table;
    size_t n = check_sharding(combination->small, &sharding, way, combination->expected, what);
    if (n != expected)
        fail_msg("%s, %u devices: %zu collectives, not %zu", what, way->split->n_devices, n, expected);
    sharding_free(&sharding);
}

// ---- all of them ----

enum { MAX_COMBINATIONS = 2048, MAX_KEYS = 512 };

// The next combination of letters; false: there is none.
static bool next_letters(const struct node *node, char *letters)
{
    for (uint32_t i = 0; i < node->n_sources; i++) {
        const char *all = letters_of(node->sources[i]), *at = strchr(all, letters[i]);
        if (at[1] != '\0') {
            letters[i] = at[1];
            return true;
        }
        letters[i] = all[0];
    }
    return false;
}

// What decides the local graphs: placements of values, and those that weights need. Where it was seen, a combination
// differs from an earlier one only by placements of weights that the rule does not ask for.
static bool is_new(const struct combination *combination, char keys[][2 * MAX_SOURCES + 2], size_t *n_keys)
{
    const struct node *node = combination->node;
    struct placement have[MAX_SOURCES] = {0}, need[MAX_SOURCES] = {0}, result;
    char key[2 * MAX_SOURCES + 2] = {0};
    for (uint32_t i = 0; i < node->n_sources; i++)
        have[i] = placement_of_letter(combination->letters[i]);
    op_place(op_get(node->op), node, have, need, &result);
    for (uint32_t i = 0; i < node->n_sources; i++) {
        bool weight = node->sources[i] != NULL && node->sources[i]->rows == ROWS_NONE;
        key[2 * i] = weight ? 'w' : combination->letters[i];
        key[2 * i + 1] = (char)('a' + (need[i].kind == PLACED_SHARD ? 2 + need[i].dim : (uint32_t)need[i].kind));
    }
    key[2 * node->n_sources] = (char)('a' + result.kind);
    for (size_t i = 0; i < *n_keys; i++)
        if (memcmp(keys[i], key, sizeof(key)) == 0)
            return false;
    assert_true(*n_keys < MAX_KEYS);
    memcpy(keys[(*n_keys)++], key, sizeof(key));
    return true;
}

static void fill_ropes(struct small_graph *small, float *ropes)
{
    for (size_t i = 0; i < small->n_tokens * N_ROT; i++)
        ropes[i] = random_float();
    small->ropes = ropes;
    small->n_rot = N_ROT;
}

static const struct node *build_case(struct small_graph *small, const struct op_case *c, float *ropes)
{
    small_graph_open(small, c->n_tokens == 0 ? 19 : c->n_tokens);
    small->kv = c->kv;
    fill_ropes(small, ropes);
    struct tensor *y = c->build(small, c);
    if (y == NULL)
        fail_msg("%s: %s", c->name, small->graph.error.message);
    const struct node *node = y->producer;
    assert_int_equal(node->op, c->op);
    if (y->rows == ROWS_PAIRS)
        y = graph_mul_mat_id_sum(&small->graph, named_weight(small, "last", DTYPE_F32, y->ne[0], 24, N_EXPERT), y,
                                 routed(small), NULL, NULL, true);
    small->graph.output = y != NULL && y->rows == ROWS_BATCH ? graph_select_rows(&small->graph, y) : y;
    if (small->graph.error.status != STATUS_OK)
        fail_msg("%s: %s", c->name, small->graph.error.message);
    return node;
}

// As the pass places by itself.
static void check_inferred(struct small_graph *small, const float *expected, const struct way *way, const char *what)
{
    struct sharding sharding;
    struct error error = {0};
    if (sharding_create(&small->graph, way->split, &sharding, &error) != STATUS_OK)
        fail_msg("%s: %s", what, error.message);
    check_sharding(small, &sharding, way, expected, what);
    sharding_free(&sharding);
}

// As many ways a combination as it takes to see most of them within an op.
static size_t check_case(const struct op_case *c, size_t *number)
{
    static char keys[MAX_KEYS][2 * MAX_SOURCES + 2];
    static float ropes[SMALL_TOKENS * N_ROT];
    struct small_graph small;
    struct combination combination = {.small = &small, .c = c};
    size_t n_keys = 0, n_runs = 0, n_combinations = 1;
    combination.node = build_case(&small, c, ropes);
    float *expected = run_alone(&small, c->name);
    combination.expected = expected;
    memset(combination.letters, 'R', combination.node->n_sources);
    for (uint32_t i = 0; i < combination.node->n_sources; i++)
        n_combinations *= strlen(letters_of(combination.node->sources[i]));
    size_t n_ways = n_combinations < 10 ? N_SPLITS : n_combinations < 20 ? 4 : 1;
    do {
        bool twins = combination.node->n_sources == 2 && combination.node->sources[0] == combination.node->sources[1];
        if ((twins && combination.letters[0] != combination.letters[1]) || !is_new(&combination, keys, &n_keys))
            continue;
        for (size_t i = 0; i < n_ways; i++, n_runs++) {
            struct way way = way_number((*number)++);
            if (*number % SANITIZER_STRIDE != 0)
                continue;
            check_way(&combination, &way, *number % 3 == 0);
        }
    } while (next_letters(combination.node, combination.letters));
    for (size_t i = 0; i < N_SPLITS; i++, n_runs++) {
        struct way way = way_number((*number)++);
        check_inferred(&small, expected, &way, c->name);
    }
    free(expected);
    small_graph_close(&small);
    return n_runs;
}

static void test_all_ops(void **state)
{
    (void)state;
    size_t number = 0, n_runs = 0;
    for (size_t i = 0; i < N_OP_CASES; i++)
        n_runs += check_case(&op_cases[i], &number);
    print_message("%d cases, %zu runs over several devices\n", N_OP_CASES, n_runs);
    if (SANITIZER_STRIDE > 1)
        print_message("skipped: four of five of these runs, under a sanitizer\n");
}

// ---- several ops ----

// The range scale by primitives (docs/numerics.md), of a row that is cut between segments: the largest magnitudes of
// the segments, and so their exponents, are a shard, and nothing is exchanged for them.
static void test_range_primitives(void **state)
{
    (void)state;
    enum { SEGMENT = 48, N_SEGMENTS = 8 };
    static const struct attributes pool = {.pool_max = true, .pool_kernel = SEGMENT, .pool_stride = SEGMENT},
                                   clamp = {.low = 0, .high = 127};
    struct small_graph small;
    small_graph_open(&small, 19);
    struct graph *graph = &small.graph;
    struct tensor *from = value(&small, (size_t)SEGMENT * N_SEGMENTS), *x = graph_unary(graph, OP_ABS, from);
    x = graph_scale(graph, graph_apply(graph, OP_POOL_1D, &pool, &x), 0x1p-15f);
    x = graph_scale(graph, graph_unary(graph, OP_LOG, x), 0x1.715476p+0f); // log2 e
    x = graph_unary(graph, OP_CEIL, x);
    struct tensor *exponent = graph_apply(graph, OP_CLAMP, &clamp, &x);
    struct tensor *factor = graph_unary(graph, OP_EXP, graph_scale(graph, exponent, -0x1.62e43p-1f)); // ln 2
    graph->output = graph_select_rows(graph, factor);
    if (graph->error.status != STATUS_OK)
        fail_msg("%s", graph->error.message);
    float *expected = run_alone(&small, "the range scale");
    size_t n_scaled = 0;
    for (size_t i = 0; i < 19 * (size_t)N_SEGMENTS; i++)
        n_scaled += expected[i] < 0.75f;
    assert_in_range(n_scaled, 1, 19 * N_SEGMENTS - 1);
    for (size_t i = 0; i < (size_t)N_SPLITS * N_LINKS; i++) {
        struct way way = way_number(i);
        struct sharding sharding;
        struct error error = {0};
        if (sharding_init(graph, way.split, &sharding, &error) != STATUS_OK)
            fail_msg("%s", error.message);
        for (size_t n = 1; n < graph->n_nodes - 1; n++) { // all but the embedding and the selected rows
            const struct tensor *result = graph->nodes[n]->result;
            struct part *part = &sharding.values[result->index];
            part->placement = placement_shard(0);
            cut_evenly(way.split, result->ne[0], result->ne[0] / N_SEGMENTS, part->ranges);
            if (result != from)
                assert_true(is_as_needed(&sharding, graph->nodes[n]->sources[0],
                                         &(struct part[]){sharding_need(&sharding, graph->nodes[n], 0)}[0]));
        }
        size_t n_collectives = check_sharding(&small, &sharding, &way, expected, "the range scale");
        assert_int_equal(n_collectives, 1); // the factors, which are the output
        sharding_free(&sharding);
    }
    free(expected);
    small_graph_close(&small);
}

// A value that several nodes need, whole and in parts, is exchanged once.
static void test_readers(void **state)
{
    (void)state;
    struct small_graph small;
    small_graph_open(&small, 19);
    struct graph *graph = &small.graph;
    struct tensor *x = value(&small, 96), *weights[2];
    for (int i = 0; i < 2; i++)
        weights[i] = named_weight(&small, "reader", DTYPE_F16, 96, 40, 0);
    struct tensor *a = graph_matmul(graph, weights[0], x, 0), *b = graph_matmul(graph, weights[1], x, 0);
    struct tensor *norm = graph_rms_norm(graph, x, named_weight(&small, "norm", DTYPE_F32, 96, 0, 0), 1e-5f, 0);
    struct tensor *c = graph_matmul(graph, weights[0], norm, 0);
    graph->output = graph_select_rows(graph, graph_add(graph, graph_add(graph, a, b), graph_add(graph, a, c)));
    if (graph->error.status != STATUS_OK)
        fail_msg("%s", graph->error.message);
    float *expected = run_alone(&small, "readers");
    for (size_t i = 0; i < (size_t)N_SPLITS * 3; i++) {
        struct way way = way_number(i);
        struct sharding sharding;
        struct error error = {0};
        if (sharding_init(graph, way.split, &sharding, &error) != STATUS_OK)
            fail_msg("%s", error.message);
        for (int w = 0; w < 2; w++) // a and c, then b: partial sums of parts of x
            sharding.weights[weights[w]->index] = cut_along_k(way.split, weights[w], 0);
        place_value(&sharding, x, "XP0"[i / N_SPLITS], &sharding.weights[weights[0]->index]);
        sharding_settle(&sharding);
        // The norm needs x whole, so its parts are taken of that; a, b, c: one sum each; c takes parts of the norm.
        size_t n_collectives = check_sharding(&small, &sharding, &way, expected, "readers");
        assert_int_equal(n_collectives, 4);
        sharding_free(&sharding);
    }
    free(expected);
    small_graph_close(&small);
}

// Parts of one whole value that are as wide as each other but begin elsewhere.
static void test_slices(void **state)
{
    (void)state;
    static const struct row_range cuts[2][3] = {{{0, 16}, {16, 48}, {48, 96}}, {{0, 32}, {32, 64}, {64, 96}}};
    static const struct mesh_split split = {3, {0, 2, 4, 8}};
    const struct way way = {.split = &split, .link = &links[0], .batch = 7, .n_threads = 2};
    struct small_graph small;
    struct sharding sharding;
    struct error error = {0};
    struct tensor *parts[2];
    small_graph_open(&small, 19);
    struct tensor *x = value(&small, 96);
    for (int i = 0; i < 2; i++)
        parts[i] = graph_scale(&small.graph, x, 2 + (float)i);
    small.graph.output = graph_select_rows(&small.graph, graph_add(&small.graph, parts[0], parts[1]));
    if (small.graph.error.status != STATUS_OK || sharding_init(&small.graph, &split, &sharding, &error) != STATUS_OK)
        fail_msg("%s%s", small.graph.error.message, error.message);
    for (int i = 0; i < 2; i++) {
        struct part *part = &sharding.values[parts[i]->index];
        part->placement = placement_shard(0);
        memcpy(part->ranges, cuts[i], sizeof(cuts[i]));
    }
    float *expected = run_alone(&small, "slices");
    size_t n_collectives = check_sharding(&small, &sharding, &way, expected, "slices");
    assert_int_equal(n_collectives, 2);
    free(expected);
    sharding_free(&sharding);
    small_graph_close(&small);
}

// Blocks as models have them, with adapters on all products, placed by the pass itself: A of a product that is cut
// along K is cut with it.
static struct tensor *build_adapted_block(struct small_graph *small)
{
    struct graph *graph = &small->graph;
    add_pairs(small, "gate", N_EMBD, 288, 1);
    add_pairs(small, "down", 288, 72, 1);
    add_pairs(small, "heads", 24, 16, 3);
    add_pairs(small, "gate_exps", 72, 208, N_EXPERT);
    add_pairs(small, "down_exps", 208, N_EMBD, N_EXPERT);
    struct tensor *x = embedded(small);
    struct tensor *gate = graph_matmul(graph, small_graph_weight(small, "gate", DTYPE_Q8_0, N_EMBD, 288, 0), x, 0);
    struct tensor *up = graph_matmul(graph, small_graph_weight(small, "up", DTYPE_BF16, N_EMBD, 288, 0), x, 0);
    struct tensor *hidden = graph_glu(graph, gate, up, ACTIVATION_SILU);
    x = graph_matmul(graph, small_graph_weight(small, "down", DTYPE_F16, 288, 72, 0), hidden, 0);
    struct tensor *heads = graph_matmul_heads(graph, small_graph_weight(small, "heads", DTYPE_F16, 24, 16, 3), x);
    struct tensor *route = routed(small);
    hidden = graph_mul_mat_id(graph, small_graph_weight(small, "gate_exps", DTYPE_F16, 72, 208, N_EXPERT), x, route,
                              NULL, false);
    hidden = graph_glu(graph, hidden, hidden, ACTIVATION_RELU);
    x = graph_mul_mat_id_sum(graph, small_graph_weight(small, "down_exps", DTYPE_F16, 208, N_EMBD, N_EXPERT), hidden,
                             route, NULL, NULL, false);
    struct tensor *last = graph_matmul(graph, small_graph_weight(small, "mix", DTYPE_F32, 48, N_EMBD, 0), heads, 0);
    return graph_add(graph, x, last);
}

static void test_adapters(void **state)
{
    (void)state;
    struct small_graph small;
    small_graph_open(&small, 19);
    struct tensor *y = graph_select_rows(&small.graph, build_adapted_block(&small));
    struct tensor *head = small_graph_weight(&small, "head", DTYPE_Q8_0, N_EMBD, 100, 0);
    small.graph.output = graph_matmul(&small.graph, head, y, 0);
    if (small.graph.error.status != STATUS_OK)
        fail_msg("%s", small.graph.error.message);
    use_adapters(&small);
    float *expected = run_alone(&small, "adapters");
    for (size_t i = 0; i < (size_t)N_SPLITS * N_LINKS * N_BATCHES; i++) {
        struct way way = way_number(i);
        check_inferred(&small, expected, &way, "adapters");
    }
    free(expected);
    small_graph_close(&small);
}

// ---- docs/mesh.md ----

enum { SAYS_PARTIAL = 1, SAYS_SHARD = 2 }; // and the dimensions of shards, from SAYS_SHARD << 1 on

static unsigned word_of(struct placement placement)
{
    return placement.kind == PLACED_REPLICATE ? 0 : placement.kind == PLACED_PARTIAL ? SAYS_PARTIAL : SAYS_SHARD;
}

// What a rule makes of all ways in which its sources may be placed: what a result that isn't whole can be, and which
// dimensions of weights are cut for it.
static unsigned words_of_rule(const struct op_case *c)
{
    static float ropes[SMALL_TOKENS * N_ROT];
    struct small_graph small;
    char letters[MAX_SOURCES + 1] = {0};
    unsigned words = 0;
    const struct node *node = build_case(&small, c, ropes);
    memset(letters, 'R', node->n_sources);
    do {
        struct placement have[MAX_SOURCES] = {0}, need[MAX_SOURCES] = {0}, result;
        for (uint32_t i = 0; i < node->n_sources; i++)
            have[i] = placement_of_letter(letters[i]);
        op_place(op_get(node->op), node, have, need, &result);
        words |= word_of(result);
        for (uint32_t i = 0; i < node->n_sources && result.kind != PLACED_REPLICATE; i++)
            if (node->sources[i] != NULL && need[i].kind == PLACED_SHARD)
                words |= (SAYS_SHARD << 1) << need[i].dim;
    } while (next_letters(node, letters));
    small_graph_close(&small);
    return words;
}

// Of "weight Shard(1) → Shard(0); …": alternatives, each its sources and then its result.
static unsigned words_of_text(char *text)
{
    static const char arrow[] = "→";
    unsigned words = 0;
    for (char *rest = NULL, *one = strtok_r(text, ";", &rest); one != NULL; one = strtok_r(NULL, ";", &rest)) {
        char *to = strstr(one, arrow);
        for (char *at = strstr(one, "Shard("); at != NULL; at = strstr(at + 1, "Shard("))
            if (to != NULL && at < to)
                words |= (SAYS_SHARD << 1) << (unsigned)(at[6] - '0');
        words |= to != NULL && strstr(to, "Shard(") != NULL ? SAYS_SHARD : 0;
        words |= to != NULL && strstr(to, "Partial") != NULL ? SAYS_PARTIAL : 0;
    }
    return words;
}

// The words of the table's rows, by op. A row begins with names, each with what it is about behind it.
static void read_table(unsigned *words, bool *named)
{
    char path[512], line[1024];
    bool inside = false;
    snprintf(path, sizeof(path), "%s/docs/mesh.md", TEST_SOURCE_ROOT);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        fail_msg("%s cannot be read", path);
    while (fgets(line, sizeof(line), file) != NULL) {
        inside = strncmp(line, "| op |", 6) == 0 || (inside && line[0] == '|');
        char *text = inside ? strchr(line + 1, '|') : NULL;
        if (text == NULL)
            continue;
        *text++ = '\0';
        unsigned said = words_of_text(text);
        for (char *rest = NULL, *name = strtok_r(line + 1, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest))
            for (int op = 0; op < OP_COUNT; op++) {
                size_t size = strlen(op_get((enum op)op)->name);
                name += strspn(name, " ");
                if (strncmp(name, op_get((enum op)op)->name, size) == 0 && strchr(" ", name[size]) != NULL) {
                    words[op] |= said;
                    named[op] = true;
                }
            }
    }
    fclose(file);
}

static void test_table_in_docs(void **state)
{
    (void)state;
    unsigned documented[OP_COUNT] = {0}, ruled[OP_COUNT] = {0};
    bool named[OP_COUNT] = {false};
    read_table(documented, named);
    for (size_t i = 0; i < N_OP_CASES; i++)
        ruled[op_cases[i].op] |= words_of_rule(&op_cases[i]);
    for (int op = 0; op < OP_COUNT; op++) {
        if (documented[op] != ruled[op])
            fail_msg("docs/mesh.md says otherwise of %s than its rule: %#x, not %#x", op_get((enum op)op)->name,
                     documented[op], ruled[op]);
        if (ruled[op] != 0 && !named[op])
            fail_msg("docs/mesh.md has no %s", op_get((enum op)op)->name);
    }
}

// Behind the others: every op has run on a device of a mesh.
static void test_none_missing(void **state)
{
    (void)state;
    for (int op = 0; op < OP_COUNT; op++)
        if (!seen[op])
            fail_msg("%s was on no device", op_get((enum op)op)->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_ops),       cmocka_unit_test(test_range_primitives),
        cmocka_unit_test(test_readers),       cmocka_unit_test(test_slices),
        cmocka_unit_test(test_adapters),      cmocka_unit_test(test_none_missing),
        cmocka_unit_test(test_table_in_docs),
    };
    return cmocka_run_group_tests(tests, open_hall, close_hall);
}
