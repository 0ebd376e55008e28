// The op table and graphs: shapes, errors, placement rules, and that what the rules allow changes no bit: shards at
// segment borders, by output row and by head are computed apart and put together.
#include "cpu/kernels/kernels.h"
#include "tensor/op.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "random_weights.h"

// A weight of the graph.
static struct tensor *weight(struct graph *graph, const char *name, size_t k, size_t n)
{
    size_t ne[] = {k, n};
    return graph_weight(graph, name, DTYPE_F16, n == 0 ? 1 : 2, ne);
}

static void assert_value(const struct graph *graph, const struct tensor *value, size_t width, enum rows rows)
{
    if (value == NULL)
        fail_msg("%s", graph->error.message);
    assert_int_equal(value->ne[0], width);
    assert_int_equal(value->rows, rows);
}

static void test_table(void **state)
{
    (void)state;
    for (int op = 0; op < OP_COUNT; op++) {
        const struct op_desc *desc = op_get((enum op)op);
        assert_non_null(desc);
        assert_int_equal(desc->op, op);
        assert_true(desc->name != NULL && desc->name[0] != '\0');
        assert_true(desc->doc != NULL && strstr(desc->doc, "->") != NULL);
        assert_in_range(desc->n_sources, 1, MAX_SOURCES);
        assert_non_null(desc->infer);
        assert_non_null(desc->cost);
        for (int other = 0; other < op; other++)
            assert_string_not_equal(desc->name, op_get((enum op)other)->name);
    }
}

// Every op once, with its width, its rows and what it costs for three rows after ten.
static void test_shapes(void **state)
{
    (void)state;
    struct graph graph;
    graph_init(&graph);
    struct tensor *x = graph_embed(&graph, weight(&graph, "table", 64, 100));
    assert_value(&graph, x, 64, ROWS_BATCH);
    struct tensor *norm = weight(&graph, "norm", 64, 0), *head_norm = weight(&graph, "head_norm", 16, 0);
    assert_value(&graph, graph_rms_norm(&graph, x, norm, 1e-6f, 0), 64, ROWS_BATCH);
    assert_value(&graph, graph_rms_norm(&graph, x, head_norm, 1e-6f, 16), 64, ROWS_BATCH);
    struct tensor *wide = graph_matmul(&graph, weight(&graph, "up", 64, 96), x, 0);
    assert_value(&graph, wide, 96, ROWS_BATCH);
    assert_value(&graph, graph_add(&graph, wide, weight(&graph, "bias", 96, 0)), 96, ROWS_BATCH);
    assert_value(&graph, graph_add(&graph, x, x), 64, ROWS_BATCH);
    assert_value(&graph, graph_apply(&graph, OP_MUL, NULL, (struct tensor *[]){x, x}), 64, ROWS_BATCH);
    assert_value(&graph, graph_scale(&graph, x, 2), 64, ROWS_BATCH);
    assert_value(&graph, graph_glu(&graph, wide, wide, ACTIVATION_GELU), 96, ROWS_BATCH);
    struct tensor *q = graph_rope(&graph, x, 16, 8, 0, true);
    assert_value(&graph, q, 64, ROWS_BATCH);
    struct tensor *k = graph_matmul(&graph, weight(&graph, "k", 64, 32), x, 0);
    struct tensor *v = graph_matmul(&graph, weight(&graph, "v", 64, 48), x, 0);
    struct attributes attention = {.n_head = 4, .n_kv_head = 2, .head_dim = 16, .v_dim = 24};
    struct tensor *o = graph_attention(&graph, q, k, v, NULL, &attention);
    assert_value(&graph, o, 96, ROWS_BATCH);
    struct tensor *selected = graph_select_rows(&graph, o);
    assert_value(&graph, selected, 96, ROWS_LOGITS);
    assert_value(&graph, graph_matmul(&graph, weight(&graph, "output", 96, 100), selected, 0), 100, ROWS_LOGITS);

    for (size_t i = 0; i < graph.n_nodes; i++) {
        const struct node *node = graph.nodes[i];
        struct op_cost cost = {0};
        op_get(node->op)->cost(node, 3, 10, &cost);
        if (node->op == OP_MATMUL) {
            double products = (double)node->sources[0]->ne[0] * (double)node->sources[0]->ne[1];
            assert_true(cost.f32_ops == 2 * 3 * products && cost.bytes == 2 * products);
        } else if (node->op == OP_ATTENTION) { // 11 + 12 + 13 keys of 4 heads, twice 16 and 24 elements
            assert_true(cost.f32_ops == 2.0 * 36 * 4 * (16 + 24));
            assert_true(cost.bytes == 2.0 * 13 * 2 * (16 + 24));
        } else if (node->op == OP_EMBED) {
            assert_true(cost.bytes == 3 * 64 * 2);
        }
    }
    graph_free(&graph);
}

// Building that must fail, with what its message must name.
static struct tensor *wrong_matmul(struct graph *graph, struct tensor *x)
{
    return graph_matmul(graph, weight(graph, "w", 48, 96), x, 0);
}
static struct tensor *wrong_vector_matmul(struct graph *graph, struct tensor *x)
{
    return graph_matmul(graph, weight(graph, "w", 64, 0), x, 0);
}
static struct tensor *wrong_add(struct graph *graph, struct tensor *x)
{
    return graph_add(graph, x, graph_matmul(graph, weight(graph, "w", 64, 96), x, 0));
}
static struct tensor *wrong_bias(struct graph *graph, struct tensor *x)
{
    return graph_add(graph, x, weight(graph, "b", 63, 0));
}
static struct tensor *wrong_rows(struct graph *graph, struct tensor *x)
{
    return graph_add(graph, x, graph_select_rows(graph, x));
}
static struct tensor *wrong_norm(struct graph *graph, struct tensor *x)
{
    return graph_rms_norm(graph, x, weight(graph, "n", 60, 0), 0, 0);
}
static struct tensor *wrong_head_norm(struct graph *graph, struct tensor *x)
{
    return graph_rms_norm(graph, x, weight(graph, "n", 24, 0), 0, 24);
}
static struct tensor *wrong_norm_matrix(struct graph *graph, struct tensor *x)
{
    return graph_rms_norm(graph, x, weight(graph, "n", 64, 2), 0, 0);
}
static struct tensor *wrong_embed(struct graph *graph, struct tensor *x)
{
    (void)x;
    return graph_embed(graph, weight(graph, "v", 64, 0));
}
static struct tensor *wrong_rope(struct graph *graph, struct tensor *x)
{
    return graph_rope(graph, x, 24, 8, 0, false);
}
static struct tensor *wrong_rope_odd(struct graph *graph, struct tensor *x)
{
    return graph_rope(graph, x, 16, 7, 0, false);
}
static struct tensor *wrong_attention(struct graph *graph, struct tensor *x)
{
    struct attributes a = {.n_head = 4, .n_kv_head = 2, .head_dim = 16, .v_dim = 16};
    return graph_attention(graph, x, x, x, NULL, &a);
}
static struct tensor *wrong_groups(struct graph *graph, struct tensor *x)
{
    struct attributes a = {.n_head = 4, .n_kv_head = 3, .head_dim = 16, .v_dim = 16};
    return graph_attention(graph, x, x, x, NULL, &a);
}
static struct tensor *wrong_select(struct graph *graph, struct tensor *x)
{
    return graph_select_rows(graph, graph_select_rows(graph, x));
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        struct tensor *(*build)(struct graph *graph, struct tensor *x);
        const char *names[3];
    } cases[] = {
        {wrong_matmul, {"matmul", "w [48, 96]", "embed.0 [64, rows]"}},
        {wrong_vector_matmul, {"matmul", "w [64]", "[64, rows]"}},
        {wrong_add, {"add", "[64, rows]", "[96, rows]"}},
        {wrong_bias, {"add", "[64, rows]", "b [63]"}},
        {wrong_rows, {"add", "embed.0", "select_rows"}},
        {wrong_norm, {"rms_norm", "n [60]", "[64, rows]"}},
        {wrong_head_norm, {"rms_norm", "n [24]", "[64, rows]"}},
        {wrong_norm_matrix, {"rms_norm", "n [64, 2]", "[64, rows]"}},
        {wrong_embed, {"embed", "v [64]", "n_vocab"}},
        {wrong_rope, {"rope", "24", "[64, rows]"}},
        {wrong_rope_odd, {"rope", "7", "[64, rows]"}},
        {wrong_attention, {"attention", "k [64]", "2 KV heads of 16"}},
        {wrong_groups, {"attention", "4 query heads", "3 KV heads"}},
        {wrong_select, {"select_rows", "select_rows.1", "batch"}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct graph graph;
        graph_init(&graph);
        struct tensor *x = graph_embed(&graph, weight(&graph, "table", 64, 100));
        assert_null(cases[i].build(&graph, x));
        assert_int_equal(graph.error.status, STATUS_INVALID);
        for (int j = 0; j < 3; j++)
            if (strstr(graph.error.message, cases[i].names[j]) == NULL)
                fail_msg("'%s' does not name '%s'", graph.error.message, cases[i].names[j]);
        graph_free(&graph);
    }
}

// The first error stays; whatever is built after it is nothing.
static void test_sticky_error(void **state)
{
    (void)state;
    struct graph graph;
    graph_init(&graph);
    struct tensor *x = graph_embed(&graph, weight(&graph, "table", 64, 100));
    struct tensor *bad = wrong_matmul(&graph, x);
    struct error first = graph.error;
    size_t n_nodes = graph.n_nodes, n_weights = graph.n_weights;
    assert_null(graph_scale(&graph, bad, 2));
    assert_null(graph_rope(&graph, x, 24, 8, 0, false)); // wrong, too
    assert_null(graph_add(&graph, x, x));                // right
    assert_null(weight(&graph, "late", 4, 4));
    assert_int_equal(graph_kv_layer(&graph, (struct kv_layer){.n_head = 1}), 0);
    assert_memory_equal(&graph.error, &first, sizeof(first));
    assert_int_equal(graph.n_nodes, n_nodes);
    assert_int_equal(graph.n_weights, n_weights);
    assert_int_equal(graph.n_kv_layers, 0);
    graph_free(&graph);
}

static void test_tied_weights(void **state)
{
    (void)state;
    struct graph graph;
    graph_init(&graph);
    struct tensor *table = weight(&graph, "table", 64, 100);
    assert_ptr_equal(weight(&graph, "table", 64, 100), table);
    assert_int_equal(graph.n_weights, 1);
    graph_free(&graph);
}

// ---- placement ----

static struct placement letter(char c)
{
    return c == 'R' ? placement_replicate() : c == 'P' ? placement_partial() : placement_shard((uint32_t)(c - '0'));
}

// Placements as text: R, P, or the dimension of a shard. "01>01=P": what sources have, need, and the result.
static void check_rule(const struct op_desc *desc, const struct node *node, const char *rule)
{
    struct placement have[MAX_SOURCES] = {0}, need[MAX_SOURCES] = {0}, result;
    uint32_t n = node->n_sources;
    for (uint32_t i = 0; i < n; i++)
        have[i] = letter(rule[i]);
    op_place(desc, node, have, need, &result);
    for (uint32_t i = 0; i < n; i++)
        if (!placement_equal(need[i], letter(rule[n + 1 + i])))
            fail_msg("%s %s: source %u", desc->name, rule, i);
    if (!placement_equal(result, letter(rule[2 * n + 2])))
        fail_msg("%s %s: result", desc->name, rule);
}

static void test_placement(void **state)
{
    (void)state;
    static const struct {
        enum op op;
        uint32_t head_dim;
        const char *rules[10];
    } table[] = {
        {OP_EMBED, 0, {"R>R=R", "1>1=P", "0>R=R"}}, // by vocabulary row: all but one device contribute nothing
        {OP_RMS_NORM, 0, {"RR>RR=R", "0R>RR=R", "PR>RR=R"}},
        {OP_RMS_NORM, 16, {"RR>RR=R", "0R>0R=0", "PR>RR=R"}}, // by head
        {OP_MATMUL,
         0,
         {"RR>RR=R", "R0>RR=R", "RP>RR=R", "1R>1R=0", "10>1R=0", "1P>1R=0", "0R>00=P", "00>00=P", "0P>00=P"}},
        {OP_ADD, 0, {"RR>RR=R", "00>00=0", "PP>RR=R", "P0>RR=R", "0P>00=0", "R0>RR=R"}},
        {OP_MUL, 0, {"RR>RR=R", "00>00=0", "PP>RR=R", "0R>00=0"}},
        {OP_SCALE, 0, {"R>R=R", "0>0=0", "P>R=R"}},
        {OP_GLU, 0, {"RR>RR=R", "00>00=0", "PP>RR=R"}},
        {OP_ROPE, 16, {"R>R=R", "0>0=0", "P>R=R"}},
        {OP_ATTENTION, 16, {"RRRR>RRRR=R", "000R>0000=0", "0RRR>0000=0", "PPPR>RRRR=R", "R00R>RRRR=R"}},
        {OP_SELECT_ROWS, 0, {"R>R=R", "0>0=0", "P>R=R"}},
        {OP_ROUTE, 0, {"RR>RR=R", "0R>RR=R", "PR>RR=R"}},
        {OP_MUL_MAT_ID, 0, {"RRRR>RRRR=R", "1RRR>1RRR=0", "1000>1RRR=0", "0RRR>RRRR=R", "2RRR>RRRR=R"}},
        {OP_ADD_ID, 0, {"RRR>RRR=R", "0RR>00R=0", "PRR>RRR=R"}},
        {OP_MUL_MAT_ID_SUM,
         0,
         {"RRRRRRR>RRRRRRR=R", "1RRRRRR>1RRR1RR=0", "00RRRRR>00RR00R=P", "0RRRRRR>00RR00R=P", "2RRRRRR>RRRRRRR=R"}},
        {OP_ADD_ID_SUM, 0, {"RRR>RRR=R", "0RR>00R=0", "PRR>RRR=R"}},
        {OP_LORA, 0, {"RRRRR>RRRRR=R", "0R0RR>0RRRR=0", "00RRR>0RRRR=0", "PRRRR>RRRRR=R"}},
        {OP_LORA_HIDDEN, 0, {"RR>RR=R", "0R>RR=R"}},
        {OP_SLICE, 16, {"R>R=R", "0>0=0", "P>R=R"}},
        {OP_CONCAT, 16, {"RR>RR=R", "00>00=0", "0R>00=0", "PR>RR=R"}},
        {OP_MATMUL_HEADS, 0, {"RR>RR=R", "2R>20=0", "1R>RR=R", "0R>RR=R", "R0>RR=R"}},
        {OP_POSITION_SCALE, 0, {"R>R=R", "0>0=0", "P>R=R"}},
        {OP_SIGMOID, 0, {"R>R=R", "0>0=0", "P>R=R"}},
        {OP_DIV, 0, {"RR>RR=R", "00>00=0", "PP>RR=R", "0R>00=0"}},
        {OP_ABS, 0, {"R>R=R", "0>0=0", "P>R=R"}},
        {OP_EXP, 0, {"R>R=R", "0>0=0", "P>R=R"}},
        {OP_LOG, 0, {"R>R=R", "0>0=0", "P>R=R"}},
        {OP_CEIL, 0, {"R>R=R", "0>0=0", "P>R=R"}},
        {OP_CLAMP, 0, {"R>R=R", "0>0=0", "P>R=R"}},
        {OP_POOL_1D, 0, {"R>R=R", "0>0=0", "P>R=R"}}, // of windows side by side
        {OP_ALL_REDUCE, 0, {"R>R=R", "P>R=R"}},
        {OP_ALL_GATHER, 0, {"R>R=R", "0>R=R"}},
        {OP_ADD_SCALED, 0, {"RRR>RRR=R", "000>00R=0", "PPP>RRR=R"}},
    };
    bool seen[OP_COUNT] = {false};
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const struct op_desc *desc = op_get(table[i].op);
        struct tensor heads = {.ne = {64, 1, 1, 1}}; // what the rule of concat looks at: 4 heads each
        struct node node = {
            .op = table[i].op,
            .sources = {&heads, &heads},
            .n_sources = desc->n_sources,
            .attributes = {
                .head_dim = table[i].head_dim, .width = table[i].head_dim, .pool_kernel = 16, .pool_stride = 16}};
        for (int j = 0; j < 10 && table[i].rules[j] != NULL; j++)
            check_rule(desc, &node, table[i].rules[j]);
        seen[table[i].op] = true;
    }
    for (int op = 0; op < OP_COUNT; op++)
        assert_true(seen[op]);
    // An op without a rule replicates.
    struct op_desc without = *op_get(OP_ADD);
    without.place = NULL;
    struct node node = {.op = OP_ADD, .n_sources = 2};
    check_rule(&without, &node, "00>RR=R");
    check_rule(&without, &node, "PR>RR=R");
}

// ---- the rules on numbers ----

// Leaves [a, b), added as the contract's tree.
static void tree(float (*leaves)[PANEL_ROWS], uint32_t a, uint32_t b, float *sum)
{
    if (b - a == 1) {
        memcpy(sum, leaves[a], sizeof(*leaves));
        return;
    }
    uint32_t half = 1;
    while (2 * half < b - a)
        half *= 2;
    float right[PANEL_ROWS];
    tree(leaves, a, a + half, sum);
    tree(leaves, a + half, b, right);
    for (int i = 0; i < PANEL_ROWS; i++)
        sum[i] += right[i];
}

// Products of a panel with x, from one row.
static void multiply(const struct packed *packed, size_t panel, const float *x, float *y)
{
    const struct kernels *kernels = kernels_c();
    enum packed_kind kind = packed->format->kind;
    _Alignas(64) uint8_t row[8192];
    if (packed->format->scaling != SCALING_NONE) {
        assert_true(q8_row_bytes(packed->k) <= sizeof(row));
        kernels->quantize_q8(x, packed->k, row);
        kernels->matvec_q8[kind](packed, panel, row, y, 0);
    } else {
        assert_true(f32_row_bytes(packed->k) <= sizeof(row));
        kernels->round_f16(x, packed->k, &packed->segments, (float *)(void *)row);
        kernels->matvec_f32[kind](packed, panel, (const float *)(const void *)row, y, 0);
    }
}

// A device's part: segments [a, b) of a weight.
static struct packed shard_of(const struct packed *whole, enum dtype dtype, const uint8_t *rows, uint32_t a, uint32_t b,
                              size_t *begin)
{
    size_t end, unused;
    segments_range(&whole->segments, a, whole->k, begin, &unused);
    segments_range(&whole->segments, b - 1, whole->k, &unused, &end);
    struct packed part = pack(dtype, rows, whole->n_rows, whole->k, *begin, end - *begin);
    part.segments = (struct segments){.n = b - a, .grain = whole->segments.grain};
    for (uint32_t s = 0; s <= MAX_SEGMENTS; s++)
        part.segments.border[s] = whole->segments.border[a + s < b ? a + s : b] - whole->segments.border[a];
    return part;
}

// K cut at segment borders, from one segment a device to one device: the sums of complete subtrees, added as a tree,
// are the bits of the whole. Some x do not fit in F16, so that segments are scaled.
static void test_matmul_by_k(void **state)
{
    (void)state;
    enum { ROWS = 32, MAX_K = 768 };
    static const size_t widths[] = {768, 256, 96 + 512, 1024 - 512 + 160};
    float x[MAX_K], expected[PANEL_ROWS], y[PANEL_ROWS], leaves[MAX_SEGMENTS][PANEL_ROWS];
    for (int d = 0; d < N_DTYPES; d++) {
        for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
            size_t k = widths[w];
            if (k % dtype_get(dtypes[d])->block != 0)
                continue;
            uint8_t *rows = random_rows(dtypes[d], ROWS, k);
            for (size_t i = 0; i < k; i++)
                x[i] = random_float() * (i / 100 % 2 == 0 ? 1.0f : 1e6f);
            struct packed whole = pack(dtypes[d], rows, ROWS, k, 0, k);
            multiply(&whole, 1, x, expected);
            for (uint32_t size = 1; size <= whole.segments.n; size *= 2) { // segments a device holds
                uint32_t n = whole.segments.n / size;
                if (n * size != whole.segments.n)
                    continue;
                for (uint32_t i = 0; i < n; i++) {
                    size_t begin;
                    struct packed part = shard_of(&whole, dtypes[d], rows, i * size, (i + 1) * size, &begin);
                    multiply(&part, 1, x + begin, leaves[i]);
                    free(part.data);
                }
                tree(leaves, 0, n, y);
                if (memcmp(y, expected, sizeof(y)) != 0)
                    fail_msg("%s, k %zu: %u segments a device", dtype_get(dtypes[d])->name, k, size);
            }
            free(whole.data);
            free(rows);
        }
    }
}

// Output rows on several devices, cut anywhere: an output's bits do not depend on its lane.
static void test_matmul_by_row(void **state)
{
    (void)state;
    enum { ROWS = 40, CUT = 21, K = 256 };
    float x[K], whole_y[48], part_y[48];
    for (int i = 0; i < K; i++)
        x[i] = random_float();
    for (int d = 0; d < N_DTYPES; d++) {
        const struct dtype_desc *desc = dtype_get(dtypes[d]);
        uint8_t *rows = random_rows(dtypes[d], ROWS, K);
        struct packed whole = pack(dtypes[d], rows, ROWS, K, 0, K);
        struct packed part = pack(dtypes[d], rows + CUT * (K / desc->block * desc->bytes), ROWS - CUT, K, 0, K);
        for (size_t panel = 0; panel < whole.n_panels; panel++)
            multiply(&whole, panel, x, whole_y + panel * PANEL_ROWS);
        for (size_t panel = 0; panel < part.n_panels; panel++)
            multiply(&part, panel, x, part_y + panel * PANEL_ROWS);
        assert_memory_equal(part_y, whole_y + CUT, (ROWS - CUT) * sizeof(float));
        free(part.data);
        free(whole.data);
        free(rows);
    }
}

// Query heads that share a KV head, together and one a device; and their norms. Kernels of every instruction set.
static void test_heads(void **state)
{
    (void)state;
    enum { HEADS = 5, DIM = 32, STRIDE = 48 };
    const struct kernels *const tables[] = {kernels_c(), kernels_avx2(), kernels_avx512(), kernels_neon()};
    float q[HEADS * DIM + 1], weight_values[DIM], expected[HEADS * DIM + 1], got[DIM];
    for (size_t i = 0; i < HEADS * DIM; i++)
        q[i] = random_float() * 3;
    for (size_t i = 0; i < DIM; i++)
        weight_values[i] = random_float();
    _Alignas(64) static uint8_t k[64 * DIM * 4], v[64 * DIM * 4];
    static float k_scale[64 * 2], v_scale[64 * 2];
    for (size_t t = 0; t < 4; t++) {
        const struct kernels *kernels = tables[t];
        if (kernels == NULL)
            continue;
        for (size_t h = 0; h < HEADS; h++)
            kernels->rms_norm(q + h * DIM, weight_values, DIM, 1e-6f, expected + 1 + h * DIM); // at another alignment
        for (size_t h = 0; h < HEADS; h++) {
            kernels->rms_norm(q + h * DIM, weight_values, DIM, 1e-6f, got);
            assert_memory_equal(got, expected + 1 + h * DIM, sizeof(got));
        }
        for (int kv = 0; kv < KV_DTYPE_COUNT; kv++) {
            for (uint32_t p = 0; p < 50; p++) {
                float row[DIM];
                for (size_t i = 0; i < DIM; i++)
                    row[i] = random_float();
                kernels->store_k[kv](row, DIM, p, k, k_scale);
                kernels->store_v[kv](row, DIM, p, v, v_scale);
            }
            struct attention_chunk chunk = {
                .k = k, .v = v, .k_scale = k_scale, .v_scale = v_scale, .scale = 0.25f, .first = 3, .last = 50};
            float m[HEADS], l[HEADS], o[HEADS * STRIDE], m1, l1, o1[STRIDE], scratch[1024];
            assert_true(attend_scratch_floats(HEADS, DIM) <= 1024);
            kernels->attend[kv](&chunk, q, DIM, HEADS, DIM, DIM, m, l, o, STRIDE, scratch);
            for (size_t h = 0; h < HEADS; h++) {
                kernels->attend[kv](&chunk, q + h * DIM, DIM, 1, DIM, DIM, &m1, &l1, o1, STRIDE, scratch);
                assert_memory_equal(&m1, &m[h], sizeof(m1));
                assert_memory_equal(&l1, &l[h], sizeof(l1));
                assert_memory_equal(o1, o + h * STRIDE, DIM * sizeof(float));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),        cmocka_unit_test(test_shapes),        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_sticky_error), cmocka_unit_test(test_tied_weights),  cmocka_unit_test(test_placement),
        cmocka_unit_test(test_matmul_by_k),  cmocka_unit_test(test_matmul_by_row), cmocka_unit_test(test_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
