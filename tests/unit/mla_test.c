// Models with latent attention as graphs and plans: what each key changes, older files, what is cached, and what is
// refused, in words that name it.
#include "cpu/plan.h"
#include "model_variant.h"

#include <math.h>

#define U32(key, value)                                                                                                \
    {                                                                                                                  \
        .kind = SET_U32, .name = key, .number = value                                                                  \
    }
#define F32(key, value)                                                                                                \
    {                                                                                                                  \
        .kind = SET_F32, .name = key, .number = value                                                                  \
    }
#define NO(key)                                                                                                        \
    {                                                                                                                  \
        .kind = DROP_KEY, .name = key                                                                                  \
    }
#define TENSOR(tensor, ...)                                                                                            \
    {                                                                                                                  \
        .kind = SHAPE, .name = tensor, .ne = { __VA_ARGS__ }                                                           \
    }

static const struct bad {
    const char *base;
    const char *words[2];
    struct edit edits[MAX_EDITS];
} bad[] = {
    {"deepseek2", {"deepseek2.attention.kv_lora_rank is 0"}, {NO("attention.kv_lora_rank")}},
    {"deepseek2", {"deepseek2.attention.kv_lora_rank is 0"}, {U32("attention.kv_lora_rank", 0)}},
    {"deepseek2", {"kv_lora_rank is 4000000000"}, {U32("attention.kv_lora_rank", 4e9)}},
    {"deepseek2", {"q_lora_rank is 4000000000"}, {U32("attention.q_lora_rank", 4e9)}},
    {"deepseek2", {"blk.0.attn_q.weight", "missing"}, {NO("attention.q_lora_rank")}},
    {"deepseek2", {"blk.0.attn_k_b.weight", "[16, 40, 4]"}, {U32("attention.kv_lora_rank", 40)}},
    {"deepseek2", {"key_length_mla is 16", "rope.dimension_count"}, {U32("attention.key_length_mla", 16)}},
    {"deepseek2", {"key_length_mla is 5000"}, {U32("attention.key_length_mla", 5000)}},
    {"deepseek2", {"value_length_mla is 0"}, {U32("attention.value_length_mla", 0)}},
    {"deepseek2", {"blk.0.attn_v_b.weight", "[32, 24, 4]"}, {U32("attention.value_length_mla", 24)}},
    {"deepseek2", {"blk.1.attn_k_b.weight", "[16, 32, 4]"}, {TENSOR("blk.1.attn_k_b.weight", 16, 32, 3)}},
    {"deepseek2", {"blk.1.attn_k_b.weight", "missing"}, {{.kind = DROP, .name = "blk.1.attn_k_b.weight"}}},
    {"deepseek2", {"deepseek2.attention.scale"}, {F32("attention.scale", 0.5)}},
    {"deepseek2", {"deepseek2.attention.sliding_window"}, {U32("attention.sliding_window", 8)}},
    {"deepseek2-old", {"blk.0.attn_kv_b.weight", "[64, 108, 1]"}, {TENSOR("blk.0.attn_kv_b.weight", 64, 109)}},
    {"mistral4",
     {"temperature_scale", "temperature_length"},
     {NO("attention.temperature_length"), NO("rope.scaling.original_context_length")}},
    {"mistral3",
     {"mistral3.attention.temperature_scale", "original_context_length"},
     {NO("rope.scaling.original_context_length")}},
    {"mistral4", {"mistral4.rope.scaling.yarn_attn_factor is -1"}, {F32("rope.scaling.yarn_attn_factor", -1)}},
    {"llama", {"llama.attention.temperature_scale"}, {F32("attention.temperature_scale", 0.1)}},
    {"qwen3", {"qwen3.attention.kv_lora_rank"}, {U32("attention.kv_lora_rank", 32)}},
};

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct variant variant;
        variant_open(&variant, bad[i].base, bad[i].edits);
        if (variant.status == STATUS_OK)
            fail_msg("%s with %s is accepted", bad[i].base, bad[i].edits[0].name);
        for (size_t w = 0; w < 2 && bad[i].words[w] != NULL; w++)
            if (strstr(variant.error.message, bad[i].words[w]) == NULL)
                fail_msg("%s with %s: \"%s\" does not say \"%s\"", bad[i].base, bad[i].edits[0].name,
                         variant.error.message, bad[i].words[w]);
        variant_close(&variant);
    }
}

static void open_good(struct variant *variant, const char *name, const struct edit *edits)
{
    static const struct edit none[1];
    variant_open(variant, name, edits == NULL ? none : edits);
    if (variant->status != STATUS_OK)
        fail_msg("%s: %s", name, variant->error.message);
}

static const struct attributes *attention_of(const struct variant *variant)
{
    const struct node *node = variant_node(variant, OP_ATTENTION, 0);
    assert_non_null(node);
    return &node->attributes;
}

static void test_attention(void **state)
{
    (void)state;
    struct variant variant;
    open_good(&variant, "deepseek2", NULL);
    const struct attributes *a = attention_of(&variant);
    assert_int_equal(a->n_kv_head, 1);
    assert_int_equal(a->head_dim, 48);
    assert_int_equal(a->v_dim, 32);
    assert_true(a->v_in_k && a->window == 0);
    double magnitude = 0.1 * log(4) + 1;
    assert_true(fabs((double)a->score_scale - magnitude * magnitude / sqrt(32)) < 1e-7);
    assert_true(variant.model.ropes[0].magnitude == 1);
    assert_null(variant_node(&variant, OP_POSITION_SCALE, 0));
    assert_int_equal(variant_node(&variant, OP_ROUTE, 0)->attributes.routing.group_best, 2);
    variant_close(&variant);

    // Without the key the magnitude is in cosines and sines; without YaRN there is none.
    static const struct edit in_rope[] = {NO("rope.scaling.yarn_log_multiplier"), {.kind = NO_EDIT}};
    open_good(&variant, "deepseek2", in_rope);
    assert_true(attention_of(&variant)->score_scale == (float)(1 / sqrt(32)));
    assert_true(fabs(variant.model.ropes[0].magnitude - magnitude) < 1e-9);
    variant_close(&variant);
    static const struct edit larger[] = {F32("rope.scaling.factor", 40), {.kind = NO_EDIT}};
    open_good(&variant, "deepseek2", larger);
    magnitude = 0.1 * log(40) + 1;
    assert_true(fabs((double)attention_of(&variant)->score_scale - magnitude * magnitude / sqrt(32)) < 1e-7);
    variant_close(&variant);
}

static void test_groups(void **state)
{
    (void)state;
    struct variant variant;
    open_good(&variant, "deepseek2-groups", NULL); // V2: softmax
    assert_int_equal(variant_node(&variant, OP_ROUTE, 0)->attributes.routing.group_best, 1);
    variant_close(&variant);
    static const struct edit unsaid[] = {NO("expert_gating_func"), {.kind = NO_EDIT}}; // files of V2 may not say it
    open_good(&variant, "deepseek2-groups", unsaid);
    assert_int_equal(variant_node(&variant, OP_ROUTE, 0)->attributes.routing.gating, GATING_SOFTMAX);
    assert_int_equal(variant_node(&variant, OP_ROUTE, 0)->attributes.routing.group_best, 1);
    variant_close(&variant);
}

static void test_temperature(void **state)
{
    (void)state;
    static const struct edit far[] = {U32("attention.temperature_length", 100), {.kind = NO_EDIT}};
    static const struct edit original[] = {NO("attention.temperature_length"), {.kind = NO_EDIT}};
    static const struct edit none[] = {NO("attention.temperature_scale"), {.kind = NO_EDIT}};
    static const struct edit large[] = {
        F32("attention.temperature_scale", 0.1), U32("attention.temperature_length", 64), {.kind = NO_EDIT}};
    static const struct {
        const char *base;
        const struct edit *edits;
        uint32_t length; // 0: no temperature
    } cases[] = {{"mistral4", NULL, 16}, {"mistral4", far, 100},  {"mistral4", original, 16},
                 {"mistral4", none, 0},  {"mistral3", NULL, 16},  {"mistral3", far, 100},
                 {"mistral3", none, 0},  {"deepseek2", large, 64}}; // Mistral Large 3 is a deepseek2
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct variant variant;
        open_good(&variant, cases[i].base, cases[i].edits);
        const struct node *node = variant_node(&variant, OP_POSITION_SCALE, 0);
        assert_int_equal(node != NULL, cases[i].length != 0);
        if (node != NULL)
            assert_int_equal(node->attributes.temperature_length, cases[i].length);
        variant_close(&variant);
    }
}

// Yarn's betas are the file's own, and 0 stands for the usual ones.
static void test_betas(void **state)
{
    (void)state;
    static const struct edit zero[] = {
        F32("rope.scaling.yarn_beta_fast", 0), F32("rope.scaling.yarn_beta_slow", 0), {.kind = NO_EDIT}};
    static const struct edit usual[] = {
        F32("rope.scaling.yarn_beta_fast", 32), F32("rope.scaling.yarn_beta_slow", 1), {.kind = NO_EDIT}};
    struct variant own, a, b;
    open_good(&own, "mistral4-far", NULL);
    open_good(&a, "mistral4-far", zero);
    open_good(&b, "mistral4-far", usual);
    size_t size = 4 * sizeof(double);
    assert_int_equal(own.model.ropes[0].n_rot, 8);
    assert_memory_equal(a.model.ropes[0].frequencies, b.model.ropes[0].frequencies, size);
    assert_memory_not_equal(own.model.ropes[0].frequencies, b.model.ropes[0].frequencies, size);
    variant_close(&own);
    variant_close(&a);
    variant_close(&b);
}

static void test_old_file(void **state)
{
    (void)state;
    struct variant variant;
    open_good(&variant, "deepseek2-old", NULL);
    const struct tensor *k = variant_node(&variant, OP_MATMUL_HEADS, 0)->sources[0];
    const struct tensor *v = variant_node(&variant, OP_MATMUL_HEADS, 1)->sources[0];
    assert_string_equal(k->name, "blk.0.attn_kv_b.weight");
    assert_string_equal(v->name, k->name);
    assert_int_equal(k->dtype, DTYPE_F32);
    assert_int_equal(k->turned_rows, 36);
    assert_int_equal(k->ne[0], 20);
    assert_int_equal(k->ne[1], 64);
    assert_int_equal(v->dtype, DTYPE_Q4_0);
    assert_int_equal(v->first_row, 20);
    assert_int_equal(v->rows_in_file, 36);
    assert_int_equal(v->ne[2], 3);
    variant_close(&variant);
    // A file that has both needs the old tensor for nothing.
    static const struct edit both[] = {{.kind = SHAPE, .name = "blk.0.attn_kv_b.weight", .ne = {32, 128}},
                                       {.kind = NO_EDIT}};
    open_good(&variant, "deepseek2", both);
    assert_string_equal(variant_node(&variant, OP_MATMUL_HEADS, 0)->sources[0]->name, "blk.0.attn_k_b.weight");
    variant_close(&variant);
}

// The cache holds one key a position, and nothing for values.
static void test_cache(void **state)
{
    (void)state;
    static const struct {
        enum kv_dtype kv;
        size_t page_bytes; // of a layer: 96 elements, and what scales them
    } cases[] = {
        {KV_DTYPE_F32, 64 * (96 * 4 + 4)}, {KV_DTYPE_F16, 64 * (96 * 2 + 4)}, {KV_DTYPE_Q8_0, 64 * (96 + 3 * 4)}};
    struct variant variant;
    struct device *device = NULL;
    struct error error = {0};
    open_good(&variant, "deepseek2-blocks", NULL);
    variant_must(cpu_device_create(&(struct cpu_device_params){.pool.n_threads = 1, .isa = "c"}, &device, &error),
                 &error);
    for (size_t i = 0; i < 3; i++) {
        struct plan *plan = NULL;
        struct plan_params params = {.n_rows = 8, .n_logits = 1, .kv = cases[i].kv};
        struct kv_kind_layout kinds[MAX_KV_KINDS];
        variant_must(device->ops->plan(device, &variant.model.graph, NULL, &params, &plan, &error), &error);
        assert_int_equal(device->ops->kv_kinds(plan, kinds), 1);
        assert_int_equal(kinds[0].n_layers, 3);
        assert_int_equal(kinds[0].page_bytes, 3 * cases[i].page_bytes);
        device->ops->free_plan(plan);
    }
    device->ops->destroy(device);
    variant_close(&variant);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad),   cmocka_unit_test(test_attention), cmocka_unit_test(test_groups),
        cmocka_unit_test(test_betas), cmocka_unit_test(test_old_file),  cmocka_unit_test(test_temperature),
        cmocka_unit_test(test_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
