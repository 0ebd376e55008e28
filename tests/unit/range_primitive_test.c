// The factor that brings a row into F16's range, built from the table's primitive ops and run as a graph, against the
// fused one that the kernels take from exponent bits. It shows why there is a fused one: a factor by way of log and exp
// is a power of two only up to rounding. docs/numerics.md has the numbers that are asserted here; they are the same on
// every machine, since the functions are.
#include "cpu/kernels/kernels.h"
#include "cpu/plan.h"
#include "tensor/graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 5, N_ROWS = 64, N_LOGITS = 16, N_EXPONENTS = 277, N_MANTISSAS = 97 };
enum { MAX_AMAX = N_EXPONENTS * N_MANTISSAS + 16 };

// What a run computes: rows of WIDTH values that have these largest magnitudes.
struct table {
    size_t n;
    float amax[MAX_AMAX];
    float rows[MAX_AMAX][WIDTH];
    float exponent[MAX_AMAX]; // after the clamp
    float factor[MAX_AMAX];
    float fused[MAX_AMAX];
};

static void add_amax(struct table *table, float amax)
{
    const size_t i = table->n++;
    assert_true(i < MAX_AMAX);
    table->amax[i] = amax;
    for (size_t k = 0; k < WIDTH; k++)
        table->rows[i][k] = amax * (k % 2 ? -0.5f : 0.25f);
    table->rows[i][i % WIDTH] = i % 3 ? amax : -amax;
}

// Every exponent from the least subnormal to the largest, each with both ends of its binade and what lies between; and
// the borders of F16.
static void fill_table(struct table *table)
{
    static const float special[] = {0.0f,      32768.0f,   65504.0f,  65519.996f, 65520.0f, 65535.996f,
                                    131008.0f, 131039.99f, 131040.0f, 3e38f,      INFINITY, NAN};
    table->n = 0;
    for (int e = -149; e < 128; e++)
        for (int m = 0; m < N_MANTISSAS; m++) {
            const float fraction = m == 0                 ? 1.0f
                                   : m == 1               ? 0x1.000002p0f
                                   : m == N_MANTISSAS - 1 ? 0x1.fffffep0f
                                                          : 1.0f + (float)m / N_MANTISSAS;
            add_amax(table, ldexpf(fraction, e));
        }
    for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++)
        add_amax(table, special[i]);
}

// ---- the graph ----

// abs → the row's maximum → /32768 → ln → log2 → ceil → 0 … 127, and with `whole` → e ln 2 → exp.
static void build(struct graph *graph, size_t n, bool whole)
{
    const size_t extents[2] = {WIDTH, n};
    const struct attributes pool = {.pool_max = true, .pool_kernel = WIDTH, .pool_stride = WIDTH};
    const struct attributes clamp = {.low = 0.0f, .high = 127.0f};
    graph_init(graph);
    struct tensor *x = graph_embed(graph, graph_weight(graph, "rows", DTYPE_F32, 2, extents));
    x = graph_unary(graph, OP_ABS, x);
    x = graph_apply(graph, OP_POOL_1D, &pool, &x);
    x = graph_scale(graph, x, 0x1p-15f);
    x = graph_unary(graph, OP_LOG, x);
    x = graph_scale(graph, x, 0x1.715476p+0f); // log2 e
    x = graph_unary(graph, OP_CEIL, x);
    x = graph_select_rows(graph, graph_apply(graph, OP_CLAMP, &clamp, &x));
    if (whole)
        x = graph_unary(graph, OP_EXP, graph_scale(graph, x, 0x1.62e43p-1f)); // ln 2
    graph->output = x;
    if (graph->error.message[0] != 0)
        fail_msg("%s", graph->error.message);
}

static enum status read_rows(void *user, const struct tensor *weight, uint64_t offset, void *bytes, size_t size,
                             struct error *error)
{
    const struct table *table = user;
    (void)weight;
    (void)error;
    memcpy(bytes, (const uint8_t *)table->rows + offset, size);
    return STATUS_OK;
}

static int keep(void *user, size_t selected, const float *logits)
{
    float **out = user;
    (void)selected;
    *(*out)++ = logits[0];
    return 0;
}

// Runs all rows, N_ROWS at a time.
static void run(const char *isa, struct table *table, bool whole, float *out)
{
    struct graph graph;
    struct device *device;
    struct weights *weights;
    struct plan *plan;
    struct error error = {0};
    struct weight_reader reader = {.read = read_rows, .user = table};
    const struct plan_params params = {.n_rows = N_ROWS, .n_logits = N_LOGITS};
    struct row rows[N_ROWS];
    uint32_t selected[N_ROWS];
    build(&graph, table->n, whole);
    if (cpu_device_create(&(struct cpu_device_params){.pool.n_threads = 2, .isa = isa}, &device, &error) != STATUS_OK ||
        device->ops->pack(device, &graph, &reader, &weights, &error) != STATUS_OK ||
        device->ops->plan(device, &graph, weights, &params, &plan, &error) != STATUS_OK)
        fail_msg("%s", error.message);
    for (size_t begin = 0; begin < table->n; begin += N_ROWS) {
        const size_t n = table->n - begin < N_ROWS ? table->n - begin : N_ROWS;
        for (size_t i = 0; i < n; i++) {
            rows[i] = (struct row){.token = (int32_t)(begin + i)};
            selected[i] = (uint32_t)i;
        }
        const struct run part = {
            .rows = rows, .n_rows = n, .selected = selected, .n_selected = n, .on_logits = keep, .user = &out};
        if (device->ops->run(plan, &part, &error) != STATUS_OK)
            fail_msg("%s", error.message);
    }
    device->ops->free_plan(plan);
    device->ops->free_weights(weights);
    device->ops->destroy(device);
    graph_free(&graph);
}

static void run_fused(struct table *table)
{
    _Alignas(64) float row[16 + MAX_SEGMENTS];
    struct segments segments;
    segments_make(&segments, WIDTH, 16);
    for (size_t i = 0; i < table->n; i++) {
        kernels_c()->round_f16(table->rows[i], WIDTH, &segments, row);
        table->fused[i] = row[f32_row_scales(WIDTH)];
    }
}

// ---- comparisons ----

static double ulps_off(float factor, double power)
{
    return fabs((double)factor - power) / (power * 0x1p-23);
}

struct findings {
    size_t n_same_e, n_one_more;
    size_t n_powers, n_powers_rounded_up; // amax is 2^m, m > 15: without rounding e is m - 15
    bool seen[128];
    size_t n_exponents, n_exact; // of the exponents that occur
    double worst_ulps;
    int worst_e, first_inexact_e;
};

static void compare_one(struct findings *findings, float amax, float exponent, float factor, float fused)
{
    const int e = (int)exponent, fused_e = ilogbf(fused);
    assert_true((float)e == exponent && e >= 0 && e <= 127);
    assert_true(ldexp(1.0, fused_e) == (double)fused);
    // One of the two least that bring the row into range: never one that leaves it out.
    assert_true(e == fused_e || e == fused_e + 1);
    assert_true(ldexp((double)amax, -e) < 65520);
    findings->n_same_e += e == fused_e;
    findings->n_one_more += e == fused_e + 1;
    assert_true(e == 0 || amax > 32768);
    if (amax > 32768 && ldexpf(1.0f, ilogbf(amax)) == amax) {
        findings->n_powers++;
        findings->n_powers_rounded_up += e != ilogbf(amax) - 15;
    }
    if (findings->seen[e])
        return;
    const double ulps = ulps_off(factor, ldexp(1.0, e));
    findings->seen[e] = true;
    findings->n_exponents++;
    findings->n_exact += ulps == 0;
    if (ulps != 0 && e < findings->first_inexact_e)
        findings->first_inexact_e = e;
    if (ulps > findings->worst_ulps) {
        findings->worst_ulps = ulps;
        findings->worst_e = e;
    }
}

// 0 is 2^0; inf and NaN are not hidden: the factor of inf is finite, so the row keeps its inf.
static void check_special(const struct table *table)
{
    for (size_t i = 0; i < table->n; i++) {
        if (table->amax[i] == 0)
            assert_true(table->factor[i] == 1.0f && table->exponent[i] == 0.0f);
        else if (isinf(table->amax[i]))
            assert_true(table->exponent[i] == 127.0f && isfinite(table->factor[i]) && table->fused[i] == 1.0f);
        else if (isnan(table->amax[i]))
            assert_true(isnan(table->factor[i]) && table->fused[i] == 1.0f);
    }
}

static void assert_same_bits(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_true((isnan(a[i]) && isnan(b[i])) || memcmp(&a[i], &b[i], sizeof(float)) == 0);
}

static void test_primitive_factor(void **state)
{
    (void)state;
    static struct table table; // 1 MB
    static float reference[MAX_AMAX];
    struct findings findings = {.first_inexact_e = 127};
    fill_table(&table);
    run(NULL, &table, false, table.exponent);
    run(NULL, &table, true, table.factor);
    run("c", &table, true, reference);
    assert_same_bits(reference, table.factor, table.n);
    run_fused(&table);
    check_special(&table);
    for (size_t i = 0; i < table.n; i++)
        if (isfinite(table.amax[i]))
            compare_one(&findings, table.amax[i], table.exponent[i], table.factor[i], table.fused[i]);
    print_message("%zu largest magnitudes: the same exponent %zu, one more %zu; of %zu powers of two %zu one more\n",
                  table.n, findings.n_same_e, findings.n_one_more, findings.n_powers, findings.n_powers_rounded_up);
    print_message("%zu exponents occur, %zu factors are powers of two (2^%d is the first that is not), the worst is "
                  "%.1f ulp off, at 2^%d\n",
                  findings.n_exponents, findings.n_exact, findings.first_inexact_e, findings.worst_ulps,
                  findings.worst_e);
    assert_int_equal(findings.n_same_e, 16243);
    assert_int_equal(findings.n_one_more, 10636);
    assert_int_equal(findings.n_powers_rounded_up, 0);
    assert_int_equal(findings.n_exponents, 114);
    assert_int_equal(findings.n_exact, 20);
    assert_int_equal(findings.first_inexact_e, 13);
    assert_int_equal(findings.worst_e, 104);
    assert_true(findings.worst_ulps == 34);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_primitive_factor)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
