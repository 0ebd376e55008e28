// Parts of heads on the CPU device: a product with a matrix a head gives the bits of the products one by one, in every
// format and at sizes that fill no panel; joining, also with a head that all share; the temperature; and values that
// are taken out of the keys' pages.
#include "cpu/plan.h"
#include "tensor/elementary.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "small_graph.h"

enum { N_TOKENS = 21 };

// A graph over an embedding of N_TOKENS rows, with its weights' bytes.
struct layer {
    struct small_graph small;
    struct tensor *x;
};

static size_t weight_bytes(enum dtype dtype, size_t n_rows, size_t k)
{
    const struct dtype_desc *desc = dtype_get(dtype);
    return n_rows * (k / desc->block) * desc->bytes;
}

// bytes: copied.
static struct tensor *weight(struct layer *layer, const char *name, enum dtype dtype, uint32_t n_dims, const size_t *ne,
                             const uint8_t *bytes)
{
    struct tensor *tensor =
        small_graph_weight(&layer->small, name, dtype, ne[0], n_dims < 2 ? 0 : ne[1], n_dims < 3 ? 0 : ne[2]);
    memcpy(layer->small.bytes[tensor->index], bytes, weight_bytes(dtype, tensor->ne[1] * tensor->ne[2], ne[0]));
    return tensor;
}

// table: [N_TOKENS][n_embd]
static void layer_open(struct layer *layer, const float *table, size_t n_embd)
{
    small_graph_open(&layer->small, N_TOKENS);
    layer->small.kv = KV_DTYPE_F32;
    size_t ne[] = {n_embd, N_TOKENS};
    layer->x = graph_embed(&layer->small.graph,
                           weight(layer, "table", DTYPE_F32, 2, ne, (const uint8_t *)(const void *)table));
}

static void layer_close(struct layer *layer)
{
    small_graph_close(&layer->small);
}

// y [width] of every row, `batch` rows at a time; free() them.
static float *run_layer(struct layer *layer, struct tensor *y, const char *isa, size_t n_threads, size_t batch)
{
    struct error error = {0};
    struct device *device = NULL;
    struct machine machine;
    struct graph *graph = &layer->small.graph;
    struct plan_params params = {.n_rows = batch, .n_logits = 3};
    if (graph->output == NULL) // the same layer runs several times
        graph->output = graph_scale(graph, graph_select_rows(graph, y), 1);
    if (graph->error.status != STATUS_OK)
        fail_msg("%s", graph->error.message);
    struct kept_rows kept = {.rows = calloc(N_TOKENS * graph->output->ne[0], sizeof(float)),
                             .width = graph->output->ne[0]};
    assert_non_null(kept.rows);
    if (cpu_device_create(&(struct cpu_device_params){.pool.n_threads = n_threads, .isa = isa}, &device, &error) !=
            STATUS_OK ||
        machine_open(&machine, device, &layer->small, graph, &params, &error) != STATUS_OK ||
        machine_run(&machine, &layer->small, &kept, &error) != STATUS_OK)
        fail_msg("%s", error.message);
    machine_close(&machine);
    device->ops->destroy(device);
    return kept.rows;
}

static float *random_table(size_t width, float size)
{
    float *table = malloc(N_TOKENS * width * sizeof(float));
    assert_non_null(table);
    for (size_t i = 0; i < N_TOKENS * width; i++)
        table[i] = random_float() * size;
    return table;
}

static const struct way {
    const char *isa;
    size_t n_threads, batch;
} ways[] = {{"c", 1, N_TOKENS}, {"c", 3, 1}, {NULL, 2, 2}, {NULL, 4, 5}, {NULL, 1, N_TOKENS}};
enum { N_WAYS = sizeof(ways) / sizeof(ways[0]) };

static void expect_rows(struct layer *layer, struct tensor *y, const float *expected, const char *what)
{
    for (size_t w = 0; w < N_WAYS; w++) {
        float *rows = run_layer(layer, y, ways[w].isa, ways[w].n_threads, ways[w].batch);
        if (memcmp(rows, expected, N_TOKENS * layer->small.graph.output->ne[0] * sizeof(float)) != 0)
            fail_msg("%s: other bits with %s kernels, %zu threads, batches of %zu", what,
                     ways[w].isa == NULL ? "the best" : ways[w].isa, ways[w].n_threads, ways[w].batch);
        free(rows);
    }
}

// ---- a matrix a head ----

struct heads {
    size_t k, n, count;
    float size; // of the sources: beyond F16 or not
};

// The products one by one: a slice of the row times the head's matrix, joined.
static struct tensor *one_by_one(struct layer *layer, const struct heads *h, enum dtype dtype, const uint8_t *bytes)
{
    struct tensor *joined = NULL;
    for (size_t i = 0; i < h->count; i++) {
        char name[32];
        size_t ne[] = {h->k, h->n};
        snprintf(name, sizeof(name), "head%zu", i);
        struct tensor *matrix = weight(layer, name, dtype, 2, ne, bytes + i * weight_bytes(dtype, h->n, h->k));
        struct tensor *part = graph_slice(&layer->small.graph, layer->x, (uint32_t)(h->k * h->count),
                                          (uint32_t)(i * h->k), (uint32_t)h->k);
        part = graph_matmul(&layer->small.graph, matrix, part, 0);
        joined = i == 0 ? part : graph_concat(&layer->small.graph, joined, (uint32_t)(i * h->n), part, (uint32_t)h->n);
    }
    return joined;
}

static void test_matmul_heads(void **state)
{
    (void)state;
    static const struct heads shapes[] = {
        {256, 24, 3, 1}, {256, 16, 1, 0x1p20f}, {512, 33, 5, 1}, {256, 7, 2, 0x1p-3f}};
    static const struct heads odd[] = {{12, 40, 3, 1}, {40, 20, 4, 0x1p18f}, {1, 1, 6, 1}};
    for (size_t d = 0; d < N_DTYPES; d++) {
        bool plain = dtype_get(dtypes[d])->block == 1;
        for (size_t s = 0; s < 4 + (plain ? 3u : 0u); s++) {
            const struct heads *h = s < 4 ? &shapes[s] : &odd[s - 4];
            float *table = random_table(h->k * h->count, h->size);
            uint8_t *bytes = random_rows(dtypes[d], h->n * h->count, h->k);
            struct layer apart, together;
            layer_open(&apart, table, h->k * h->count);
            struct tensor *y = one_by_one(&apart, h, dtypes[d], bytes);
            float *expected = run_layer(&apart, y, "c", 1, N_TOKENS);
            layer_open(&together, table, h->k * h->count);
            size_t ne[] = {h->k, h->n, h->count};
            y = graph_matmul_heads(&together.small.graph, weight(&together, "heads", dtypes[d], 3, ne, bytes),
                                   together.x);
            expect_rows(&together, y, expected, dtype_get(dtypes[d])->name);
            layer_close(&apart);
            layer_close(&together);
            free(expected);
            free(bytes);
            free(table);
        }
    }
}

// ---- joining ----

// Heads of a, each with the only head of b behind it, which is turned in the same step.
static void test_shared_head(void **state)
{
    (void)state;
    enum { N_HEAD = 5, A = 6, B = 4, WIDTH = N_HEAD * A + B };
    float *table = random_table(WIDTH, 1), *ropes = random_table(B, 1), *turned = NULL;
    struct layer layer, alone;
    layer_open(&alone, table, WIDTH);
    alone.small.n_rot = B;
    alone.small.ropes = ropes;
    struct tensor *b = graph_slice(&alone.small.graph, alone.x, WIDTH, N_HEAD * A, B);
    b = graph_rope(&alone.small.graph, b, B, B, 0, false);
    turned = run_layer(&alone, b, "c", 1, N_TOKENS);

    layer_open(&layer, table, WIDTH);
    layer.small.n_rot = B;
    layer.small.ropes = ropes;
    struct tensor *a = graph_slice(&layer.small.graph, layer.x, WIDTH, 0, N_HEAD * A);
    b = graph_rope(&layer.small.graph, graph_slice(&layer.small.graph, layer.x, WIDTH, N_HEAD * A, B), B, B, 0, false);
    struct tensor *y = graph_concat(&layer.small.graph, a, A, b, B);
    float *expected = malloc(N_TOKENS * N_HEAD * (A + B) * sizeof(float)), *at = expected;
    for (size_t t = 0; t < N_TOKENS; t++) {
        for (size_t h = 0; h < N_HEAD; h++, at += A + B) {
            memcpy(at, table + t * WIDTH + h * A, A * sizeof(float));
            memcpy(at + A, turned + t * B, B * sizeof(float));
        }
    }
    expect_rows(&layer, y, expected, "concat");
    layer_close(&layer);
    layer_close(&alone);
    free(ropes);
    free(turned);
    free(expected);
    free(table);
}

// ---- the temperature ----

static void test_temperature(void **state)
{
    (void)state;
    enum { WIDTH = 24, LENGTH = 16 };
    static const uint32_t positions[N_TOKENS] = {0,  1,  15, 16,  17,  31,   32,    47,        48,         160, 511,
                                                 99, 64, 63, 512, 800, 8191, 65536, 123456789, 2147483647, 16};
    const float scale = 0.3f;
    float *table = random_table(WIDTH, 1), expected[N_TOKENS * WIDTH];
    for (size_t t = 0; t < N_TOKENS; t++) {
        double exact = 1 + (double)scale * log(1 + floor((double)positions[t] / LENGTH));
        struct attributes attributes = {.temperature_scale = scale, .temperature_length = LENGTH};
        float factor = cpu_temperature(&attributes, positions[t]);
        assert_true(fabs((double)factor - exact) <= exact * 0x1p-24);
        assert_true(positions[t] >= LENGTH || factor == 1);
        for (size_t i = 0; i < WIDTH; i++)
            expected[t * WIDTH + i] = table[t * WIDTH + i] * factor;
    }
    for (uint32_t head_dim = 0; head_dim <= 8; head_dim += 8) { // a row at once, or by heads
        struct layer layer;
        layer_open(&layer, table, WIDTH);
        memcpy(layer.small.positions, positions, sizeof(positions));
        expect_rows(&layer, graph_position_scale(&layer.small.graph, layer.x, head_dim, scale, LENGTH), expected,
                    "position_scale");
        layer_close(&layer);
    }
    free(table);
}

// ---- values out of keys ----

static void check_latent(enum kv_dtype kv, size_t head_dim, size_t v_dim, uint32_t first, uint32_t last)
{
    enum { N = KV_PAGE_POSITIONS, GUARD = 64 };
    static const size_t element[] = {[KV_DTYPE_F32] = 4, [KV_DTYPE_F16] = 2, [KV_DTYPE_Q8_0] = 1};
    size_t size = element[kv], n_scales = kv == KV_DTYPE_Q8_0 ? head_dim / 32 : 1, bytes = cpu_latent_bytes(kv, v_dim);
    uint8_t *k = malloc(size * head_dim * N), *memory = cpu_allocate(bytes + GUARD);
    float *scales = malloc(n_scales * N * sizeof(float));
    for (size_t i = 0; i < size * head_dim * N; i++)
        k[i] = (uint8_t)random_bits();
    for (size_t i = 0; i < n_scales * N; i++)
        scales[i] = random_float();
    memset(memory, 0xaa, bytes + GUARD);
    struct attention_chunk chunk = {.k = k, .k_scale = scales, .first = first, .last = last};
    cpu_latent_values(kv, &chunk, v_dim, memory);
    const uint8_t *v = chunk.v;
    for (size_t p = first; p < last; p++) {
        for (size_t j = 0; j < v_dim; j++) {
            size_t from = kv == KV_DTYPE_Q8_0 ? (j / 4 * N + p) * 4 + j % 4 : (j * N + p) * size;
            assert_memory_equal(v + (p * v_dim + j) * size, k + from, size);
        }
        if (kv == KV_DTYPE_F16)
            assert_true(chunk.v_scale[p] == scales[p]);
        for (size_t b = 0; kv == KV_DTYPE_Q8_0 && b < v_dim / 32; b++)
            assert_true(chunk.v_scale[p * (v_dim / 32) + b] == scales[b * N + p]);
    }
    for (size_t i = 0; i < GUARD; i++)
        assert_int_equal(memory[bytes + i], 0xaa);
    free(k);
    free(memory);
    free(scales);
}

static void test_latent_values(void **state)
{
    (void)state;
    static const struct {
        uint32_t first, last;
    } seen[] = {{0, 64}, {0, 1}, {63, 64}, {5, 41}, {8, 16}, {33, 64}};
    static const size_t plain[][2] = {{48, 32}, {9, 1}, {13, 7}, {24, 20}, {576, 512}, {8, 8}},
                        q8[][2] = {{96, 64}, {64, 32}, {576, 512}};
    for (size_t s = 0; s < sizeof(seen) / sizeof(seen[0]); s++) {
        for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
            check_latent(KV_DTYPE_F32, plain[i][0], plain[i][1], seen[s].first, seen[s].last);
            check_latent(KV_DTYPE_F16, plain[i][0], plain[i][1], seen[s].first, seen[s].last);
        }
        for (size_t i = 0; i < sizeof(q8) / sizeof(q8[0]); i++)
            check_latent(KV_DTYPE_Q8_0, q8[i][0], q8[i][1], seen[s].first, seen[s].last);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul_heads),
        cmocka_unit_test(test_shared_head),
        cmocka_unit_test(test_temperature),
        cmocka_unit_test(test_latent_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
