// Weights of which a device holds a part: what its kernels give for its segments, rows and matrices are the bits of the
// whole weight; what it reads is its part of the file, and what it takes is its part of the memory.
#include "base/checked.h"
#include "cpu/device.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "test_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "random_weights.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>

// ---- a file in memory ----

// One tensor; what is read of it is counted.
struct source {
    const uint8_t *bytes;
    size_t size;
    _Atomic uint64_t read;
    uint64_t done, total; // of the progress, last
    bool passed;          // done was beyond total once
};

static enum status read_source(void *user, const struct tensor *weight, uint64_t offset, void *bytes, size_t size,
                               struct error *error)
{
    struct source *source = user;
    if (offset + size > source->size)
        return error_set(error, STATUS_INVALID, "%s: bytes %zu to %zu of %zu", weight->name, (size_t)offset,
                         (size_t)offset + size, source->size);
    memcpy(bytes, source->bytes + offset, size);
    atomic_fetch_add(&source->read, size);
    return STATUS_OK;
}

static int count_progress(void *user, uint64_t done, uint64_t total)
{
    struct source *source = user;
    source->passed = source->passed || done > total || (source->total != 0 && source->total != total);
    source->done = done;
    source->total = total;
    return 0;
}

static struct device *device;

static int open_device(void **state)
{
    (void)state;
    struct error error = {0};
    return cpu_device_create(&(struct cpu_device_params){.pool.n_threads = 2}, &device, &error) == STATUS_OK ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    device->ops->destroy(device);
    return 0;
}

static struct weights *pack_graph(const struct graph *graph, struct source *source)
{
    struct weights *weights = NULL;
    struct error error = {0};
    struct weight_reader reader = {.read = read_source, .progress = count_progress, .user = source};
    if (graph->error.status != STATUS_OK)
        fail_msg("%s", graph->error.message);
    source->total = 0;
    atomic_store(&source->read, 0);
    if (cpu_weights_pack(device, graph, &reader, &weights, &error) != STATUS_OK)
        fail_msg("%s", error.message);
    assert_false(source->passed);
    assert_int_equal(source->done, source->total);
    assert_int_equal(source->read, source->total);
    return weights;
}

// ---- weights and their parts ----

static struct tensor whole_weight(enum dtype dtype, size_t k, size_t n, size_t count)
{
    return (struct tensor){
        .name = "weight", .dtype = dtype, .n_dims = 3, .ne = {k, n, count, 1}, .rows = ROWS_NONE, .rows_in_file = n};
}

// The part that has segments [first, end) of `of`.
static struct tensor part_by_k(const struct tensor *of, uint32_t first, uint32_t end)
{
    struct tensor part = *of;
    struct segments segments;
    size_t begin, stop, unused;
    segments_of_product(&segments, of->dtype, of->ne[0], of->segment_unit);
    segments_range(&segments, first, of->ne[0], &begin, &unused);
    segments_range(&segments, end - 1, of->ne[0], &unused, &stop);
    part.columns_in_file = of->ne[0];
    part.first_column = begin;
    part.ne[0] = stop - begin;
    part.leaves = (struct leaves){.n = (uint8_t)segments.n, .first = (uint8_t)first, .end = (uint8_t)end};
    return part;
}

static struct tensor part_by_row(const struct tensor *of, size_t begin, size_t end)
{
    struct tensor part = *of;
    part.first_row = of->first_row + begin;
    part.ne[1] = end - begin;
    return part;
}

static struct tensor part_by_matrix(const struct tensor *of, size_t begin, size_t end)
{
    struct tensor part = *of;
    part.first_matrix = of->first_matrix + begin;
    part.ne[2] = end - begin;
    return part;
}

// ---- products by segment ----

enum { TOKENS = 3, MAX_K = 1280, MAX_PANELS = 4 };

// Sums of each segment: [panel][token][segment][16]; of a source in Q8 and of one in F16.
struct product {
    float sums[2][MAX_PANELS][TOKENS][MAX_SEGMENTS][PANEL_ROWS];
};

static const uint8_t *make_rows(const struct kernels *kernels, const struct packed *packed, bool q8, const float *x,
                                size_t x_stride, size_t *stride)
{
    static _Alignas(64) uint8_t rows[TOKENS * (MAX_K + 64) * sizeof(float)];
    *stride = q8 ? q8_row_bytes(packed->k) : f32_row_bytes(packed->k);
    assert_true(TOKENS * *stride <= sizeof(rows));
    for (size_t t = 0; t < TOKENS; t++) {
        uint8_t *row = rows + t * *stride;
        if (q8)
            kernels->quantize_q8(x + t * x_stride, packed->k, row);
        else
            kernels->round_f16(x + t * x_stride, packed->k, &packed->segments, (float *)(void *)row);
    }
    return rows;
}

static void multiply_panel(const struct kernels *kernels, const struct packed *packed, bool q8, size_t panel,
                           const uint8_t *rows, size_t stride, bool many, float *sums)
{
    static _Alignas(64) uint8_t memory[MAX_K * PANEL_ROWS * sizeof(float)];
    enum packed_kind kind = packed->format->kind;
    enum { Y_STRIDE = MAX_SEGMENTS * PANEL_ROWS };
    if (many && q8) {
        struct unpacked_q8 unpacked;
        assert_true(unpacked_q8_bytes(packed->k) <= sizeof(memory));
        unpacked_q8_place(&unpacked, memory, packed->k);
        kernels->unpack_q8[kind](packed, panel, &unpacked);
        kernels->gemm_q8[packed->format->scaling](packed, &unpacked, rows, stride, TOKENS, sums, Y_STRIDE, PANEL_ROWS);
    } else if (many) {
        float *unpacked = (float *)(void *)memory;
        kernels->unpack_f32[kind](packed, panel, unpacked);
        kernels->gemm_f32(packed, unpacked, (const float *)(const void *)rows, stride, TOKENS, sums, Y_STRIDE,
                          PANEL_ROWS);
    }
    for (size_t t = 0; !many && t < TOKENS; t++) {
        if (q8)
            kernels->matvec_q8[kind](packed, panel, rows + t * stride, sums + t * Y_STRIDE, PANEL_ROWS);
        else
            kernels->matvec_f32[kind](packed, panel, (const float *)(const void *)(rows + t * stride),
                                      sums + t * Y_STRIDE, PANEL_ROWS);
    }
}

static void multiply(const struct kernels *kernels, const struct packed *packed, const float *x, size_t x_stride,
                     bool many, struct product *product)
{
    assert_true(packed->n_panels <= MAX_PANELS);
    for (int q8 = 0; q8 < (packed->format->scaling == SCALING_NONE ? 1 : 2); q8++) {
        size_t stride;
        const uint8_t *rows = make_rows(kernels, packed, q8 != 0, x, x_stride, &stride);
        for (size_t p = 0; p < packed->n_panels; p++)
            multiply_panel(kernels, packed, q8 != 0, p, rows, stride, many, product->sums[q8][p][0][0]);
    }
}

// A part's sums are those of the whole, whose row `row` and segment `segment` are the part's first; by all kernels that
// a run may take.
static void check_products(const struct packed *part, const struct product *whole, size_t row, uint32_t segment,
                           const float *x, size_t x_stride, const char *what)
{
    static struct product product;
    const struct kernels *all[] = {kernels_c(), kernels_choose(NULL)};
    for (int way = 0; way < 4; way++) {
        multiply(all[way / 2], part, x, x_stride, way % 2 != 0, &product);
        for (int q8 = 0; q8 < (part->format->scaling == SCALING_NONE ? 1 : 2); q8++)
            for (size_t i = 0; i < part->n_rows; i++)
                for (size_t t = 0; t < TOKENS; t++)
                    for (uint32_t s = 0; s < part->segments.n; s++) {
                        size_t of = row + i;
                        const float *got = &product.sums[q8][i / PANEL_ROWS][t][s][i % PANEL_ROWS];
                        const float *expected = &whole->sums[q8][of / PANEL_ROWS][t][segment + s][of % PANEL_ROWS];
                        if (memcmp(got, expected, sizeof(*got)) != 0)
                            fail_msg("%s, %s: row %zu, segment %u: %a is %a", what, all[way / 2]->name, of, segment + s,
                                     (double)*expected, (double)*got);
                    }
    }
}

static void random_x(float *x, size_t n) // beyond F16 here and there
{
    for (size_t i = 0; i < n; i++)
        x[i] = random_float() * (i / 100 % 3 == 1 ? 3e6f : 1.0f);
}

// The whole weight, all runs of segments, rows, matrices, and all three at once.
static void check_weight(enum dtype dtype, size_t k, uint32_t unit)
{
    enum { ROWS = 43, MATRICES = 2, MAX_PARTS = 64 };
    static struct product products[MATRICES];
    static float x[TOKENS * MAX_K];
    char what[96];
    struct graph graph;
    struct tensor whole = whole_weight(dtype, k, ROWS, MATRICES), parts[MAX_PARTS];
    struct segments segments;
    whole.segment_unit = unit;
    segments_of_product(&segments, dtype, k, unit);
    size_t n = 0;
    parts[n++] = whole;
    for (uint32_t first = 0; first < segments.n; first++)
        for (uint32_t end = first + 1; end <= segments.n; end++)
            if (end - first < segments.n)
                parts[n++] = part_by_k(&whole, first, end);
    const size_t borders[][2] = {{0, 16}, {16, 43}, {5, 23}, {42, 43}};
    for (size_t i = 0; i < sizeof(borders) / sizeof(borders[0]); i++)
        parts[n++] = part_by_row(&whole, borders[i][0], borders[i][1]);
    parts[n++] = part_by_matrix(&whole, 1, 2);
    struct tensor last = part_by_k(&whole, segments.n / 2, segments.n), rows = part_by_row(&last, 7, 40);
    parts[n++] = rows;
    parts[n++] = part_by_matrix(&rows, 1, 2);
    assert_true(n <= MAX_PARTS);

    struct source source = {.size = MATRICES * ROWS * k / dtype_get(dtype)->block * dtype_get(dtype)->bytes};
    uint8_t *bytes = random_rows(dtype, MATRICES * ROWS, k);
    source.bytes = bytes;
    random_x(x, TOKENS * k);
    graph_init(&graph);
    for (size_t i = 0; i < n; i++)
        parts[i].index = graph_weight_like(&graph, &parts[i])->index;
    struct weights *weights = pack_graph(&graph, &source);
    for (size_t m = 0; m < MATRICES; m++) {
        struct packed packed = cpu_weight_matrix(&weights->items[0], m);
        multiply(kernels_c(), &packed, x, k, false, &products[m]);
    }
    for (size_t i = 0; i < n; i++) {
        const struct tensor *part = &parts[i];
        const struct cpu_weight *item = &weights->items[part->index];
        assert_int_equal(item->n, part->ne[2]);
        assert_int_equal(item->packed.segments.n,
                         part->leaves.n == 0 ? segments.n : (uint32_t)(part->leaves.end - part->leaves.first));
        for (size_t m = 0; m < item->n; m++) {
            struct packed packed = cpu_weight_matrix(item, m);
            snprintf(what, sizeof(what), "%s, k %zu, unit %u: part %zu, columns from %zu", dtype_get(dtype)->name, k,
                     unit, i, part->first_column);
            check_products(&packed, &products[part->first_matrix + m], part->first_row, part->leaves.first,
                           x + part->first_column, k, what);
        }
    }
    cpu_weights_free(weights);
    graph_free(&graph);
    free(bytes);
}

// Widths with a border in a super-block (768, 1280), with fewer segments than 8, and with a last grain that is not
// whole; units are heads.
static void test_parts(void **state)
{
    (void)state;
    static const struct {
        size_t k;
        uint32_t unit;
    } cases[] = {{32, 0}, {96, 0},   {160, 0},   {256, 0}, {576, 0}, {576, 64}, {768, 0}, {768, 80},
                 {1, 0},  {1280, 0}, {1280, 80}, {40, 0},  {17, 0},  {572, 0},  {100, 20}};
    for (int d = 0; d < N_DTYPES; d++)
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
            if (cases[i].k % dtype_get(dtypes[d])->block == 0)
                check_weight(dtypes[d], cases[i].k, cases[i].unit);
}

// ---- bytes ----

// What n devices that share one weight along K, or by row, read and take together, against one device.
static void check_bytes(enum dtype dtype, size_t k, uint32_t n_devices, bool by_k)
{
    enum { ROWS = 128 };
    const struct tensor whole = whole_weight(dtype, k, ROWS, 1);
    struct source source = {.size = ROWS * k / dtype_get(dtype)->block * dtype_get(dtype)->bytes};
    uint8_t *bytes = random_rows(dtype, ROWS, k);
    uint64_t read = 0, taken = 0, taken_whole = 0;
    source.bytes = bytes;
    for (uint32_t d = 0; d <= n_devices; d++) { // the last: one device
        struct graph graph;
        struct tensor part = whole;
        if (d < n_devices)
            part = by_k ? part_by_k(&whole, d * 8 / n_devices, (d + 1) * 8 / n_devices)
                        : part_by_row(&whole, d * ROWS / n_devices, (d + 1) * ROWS / n_devices);
        graph_init(&graph);
        graph_weight_like(&graph, &part);
        struct weights *weights = pack_graph(&graph, &source);
        if (d < n_devices) {
            read += source.read;
            taken += weights->bytes;
        } else {
            assert_int_equal(source.read, source.size);
            taken_whole = weights->bytes;
        }
        cpu_weights_free(weights);
        graph_free(&graph);
    }
    if (!by_k)
        assert_int_equal(read, source.size);
    // Two devices whose border lies in a super-block both read it all, and hold its values.
    size_t block = dtype_get(dtype)->block, n_blocks = k / block;
    size_t twice = by_k && n_blocks % n_devices != 0 ? n_devices - 1 : 0;
    if (block < 256 || twice == 0)
        assert_int_equal(read, source.size);
    else
        assert_in_range(read, source.size, source.size / n_blocks * (n_blocks + twice));
    if ((double)taken > 1.05 * (double)taken_whole || (n_devices == 2 && (double)read > 1.05 * (double)source.size))
        fail_msg("%s, k %zu on %u devices: %zu bytes read of %zu, %zu taken of %zu", dtype_get(dtype)->name, k,
                 n_devices, (size_t)read, source.size, (size_t)taken, (size_t)taken_whole);
    free(bytes);
}

static void test_bytes(void **state)
{
    (void)state;
    static const size_t widths[] = {2048, 8960, 11008}; // 11008: borders lie in super-blocks
    for (int d = 0; d < N_DTYPES; d++)
        for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++)
            for (uint32_t n = 2; n <= 8; n *= 2) {
                check_bytes(dtypes[d], widths[w], n, false);
                check_bytes(dtypes[d], widths[w], n, true);
            }
}

// ---- vectors ----

static void check_vectors(enum dtype dtype, uint32_t n_dims, size_t n, size_t first, size_t width)
{
    enum { COUNT = 3 };
    size_t count = n_dims == 1 ? 1 : COUNT, first_row = n_dims == 1 ? 0 : 1; // a table: its last vectors
    struct graph graph;
    struct source source = {.size = count * n / dtype_get(dtype)->block * dtype_get(dtype)->bytes};
    uint8_t *bytes = random_rows(dtype, count, n);
    source.bytes = bytes;
    float *values = malloc(count * n * sizeof(*values));
    assert_non_null(values);
    dtype_get(dtype)->decode(bytes, values, count * n);
    struct tensor like = {.name = "bias",
                          .dtype = dtype,
                          .n_dims = n_dims,
                          .ne = {width, count - first_row, 1, 1},
                          .rows = ROWS_NONE,
                          .first_row = first_row,
                          .rows_in_file = count,
                          .first_column = first,
                          .columns_in_file = n};
    graph_init(&graph);
    struct tensor *bias = graph_weight_like(&graph, &like);
    if (n_dims == 2) { // what makes a table of it
        struct node node = {.op = OP_ADD_ID, .sources = {NULL, bias}, .n_sources = 3};
        struct node *nodes[] = {&node};
        struct graph with_node = graph;
        with_node.nodes = nodes;
        with_node.n_nodes = 1;
        struct weights *weights = pack_graph(&with_node, &source);
        assert_null(weights->items[0].packed.format);
        assert_int_equal(weights->items[0].n, count - first_row);
        for (size_t v = first_row; v < count; v++)
            assert_memory_equal(cpu_weight_vector(&weights->items[0], v - first_row), values + v * n + first,
                                width * sizeof(float));
        cpu_weights_free(weights);
    } else {
        struct weights *weights = pack_graph(&graph, &source);
        const float *vector = cpu_weight_vector(&weights->items[0], 0);
        assert_memory_equal(vector, values + first, width * sizeof(float));
        for (size_t i = width; i < round_up(width, 16); i++)
            assert_true(vector[i] == 0.0f);
        cpu_weights_free(weights);
    }
    graph_free(&graph);
    free(values);
    free(bytes);
}

// Also where a range begins or ends inside a block.
static void test_vectors(void **state)
{
    (void)state;
    static const size_t ranges[][2] = {{0, 768}, {0, 96}, {96, 96}, {700, 68}, {17, 3}, {240, 300}, {256, 512}};
    for (int d = 0; d < N_DTYPES; d++)
        for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
            for (uint32_t n_dims = 1; n_dims <= 2; n_dims++)
                check_vectors(dtypes[d], n_dims, 768, ranges[i][0], ranges[i][1]);
}

// ---- out of files ----

static enum status read_file(void *user, const struct tensor *weight, uint64_t offset, void *bytes, size_t size,
                             struct error *error)
{
    return model_read_weight(user, weight, offset, bytes, size, error);
}

static struct weights *pack_file(const struct graph *graph, const struct gguf *gguf)
{
    struct weights *weights = NULL;
    struct error error = {0};
    struct weight_reader reader = {.read = read_file, .user = (void *)(uintptr_t)gguf};
    if (cpu_weights_pack(device, graph, &reader, &weights, &error) != STATUS_OK)
        fail_msg("%s", error.message);
    return weights;
}

// The rows of a part are those of the whole weight.
static void check_rows(const struct tensor *of, const struct cpu_weight *whole, const struct tensor *part,
                       const struct cpu_weight *item)
{
    float *expected = malloc(of->ne[0] * sizeof(float)), *got = malloc(part->ne[0] * sizeof(float));
    assert_non_null(expected);
    assert_non_null(got);
    for (size_t m = 0; m < item->n; m++)
        for (size_t row = 0; row < part->ne[1]; row++) {
            struct packed a = cpu_weight_matrix(whole, part->first_matrix - of->first_matrix + m);
            struct packed b = cpu_weight_matrix(item, m);
            packed_read_row(&a, part->first_row - of->first_row + row, expected);
            packed_read_row(&b, row, got);
            if (memcmp(expected + part->first_column, got, part->ne[0] * sizeof(float)) != 0)
                fail_msg("%s: matrix %zu, row %zu, columns from %zu", of->name, m, row, part->first_column);
        }
    free(expected);
    free(got);
}

// What a model has: turned weights, experts in a tensor each, parts of a fused tensor.
static size_t check_model(const char *path)
{
    struct gguf *gguf = NULL;
    struct model_graph model;
    struct error error = {0};
    struct graph graph;
    if (gguf_open(path, &gguf, &error) != STATUS_OK || model_build(gguf, NULL, 0, &model, &error) != STATUS_OK)
        fail_msg("%s: %s", path, error.message);
    struct weights *whole = pack_file(&model.graph, gguf);
    size_t n = 0, n_turned = 0;
    struct tensor *parts = calloc(4 * model.graph.n_weights, sizeof(*parts));
    const struct tensor **wholes = calloc(4 * model.graph.n_weights, sizeof(*wholes));
    assert_non_null(parts);
    assert_non_null(wholes);
    graph_init(&graph);
    for (size_t i = 0; i < model.graph.n_weights; i++) {
        const struct tensor *of = model.graph.weights[i];
        const struct packed *packed = &whole->items[of->index].packed;
        if (packed->format == NULL)
            continue;
        n_turned += of->turned_rows != 0;
        size_t before = n;
        parts[n++] = part_by_row(of, of->ne[1] / 3, of->ne[1]);
        if (of->ne[2] > 1)
            parts[n++] = part_by_matrix(of, of->ne[2] / 2, of->ne[2]);
        struct segments segments;
        segments_of_product(&segments, of->dtype, of->ne[0], 0);
        if (segments.n > 1) {
            parts[n++] = part_by_k(of, segments.n / 3, segments.n);
            struct tensor corner = part_by_k(of, segments.n / 2, segments.n);
            corner = part_by_row(&corner, of->ne[1] / 2, of->ne[1]);
            parts[n++] = part_by_matrix(&corner, of->ne[2] - 1, of->ne[2]);
        }
        for (size_t j = before; j < n; j++) {
            wholes[j] = of;
            struct tensor *made = graph_weight_like(&graph, &parts[j]);
            assert_non_null(made);
            parts[j].index = made->index;
        }
    }
    struct weights *cut = pack_file(&graph, gguf);
    for (size_t j = 0; j < n; j++)
        check_rows(wholes[j], &whole->items[wholes[j]->index], &parts[j], &cut->items[parts[j].index]);
    cpu_weights_free(cut);
    cpu_weights_free(whole);
    graph_free(&graph);
    free(parts);
    free(wholes);
    model_graph_free(&model);
    gguf_close(gguf);
    return n_turned;
}

static void test_models(void **state)
{
    (void)state;
    static const char *const folders[] = {TEST_DATA "/models", TEST_DATA "/odd"};
    size_t n_models = 0, n_turned = 0;
    for (size_t f = 0; f < sizeof(folders) / sizeof(folders[0]); f++) {
        DIR *folder = opendir(folders[f]);
        assert_non_null(folder);
        for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
            char path[512];
            if (strstr(entry->d_name, ".gguf") == NULL || strstr(entry->d_name, ".golden.") != NULL)
                continue;
            snprintf(path, sizeof(path), "%s/%s", folders[f], entry->d_name);
            n_turned += check_model(path);
            n_models++;
        }
        closedir(folder);
    }
    assert_true(n_models > 40);
    assert_true(n_turned > 0);
}

// ---- memory ----

static bool heap_is_small;
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return heap_is_small && size > 1 << 20 ? NULL : __real_aligned_alloc(alignment, size);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    struct graph graph;
    struct error error = {0};
    struct source source = {0};
    struct weights *weights = NULL;
    struct weight_reader reader = {.read = read_source, .user = &source};
    const struct tensor whole = whole_weight(DTYPE_F32, 1024, 4096, 1), part = part_by_k(&whole, 0, 4);
    graph_init(&graph);
    graph_weight(&graph, "small.weight", DTYPE_F32, 2, (size_t[]){1024, 256});
    graph_weight_like(&graph, &part);
    heap_is_small = true;
    enum status status = cpu_weights_pack(device, &graph, &reader, &weights, &error);
    heap_is_small = false;
    assert_int_equal(status, STATUS_MEMORY);
    assert_null(weights);
    assert_int_equal(source.read, 0);
    assert_non_null(strstr(error.message, "out of memory"));
    assert_non_null(strstr(error.message, "9 MiB on this device"));
    assert_non_null(strstr(error.message, "'weight' is the most (8 MiB)"));
    graph_free(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),  cmocka_unit_test(test_bytes),         cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_models), cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
