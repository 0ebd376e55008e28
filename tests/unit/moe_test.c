// Models with experts as graphs: what each key and each tensor that may be there changes, and what is refused, in words
// that name it.
#include "model_variant.h"

#include "tensor/op.h"

#include <math.h>

// A file that must be refused, and what the message must say.
struct bad {
    const char *base;
    enum status status;
    const char *words[3];
    struct edit edits[MAX_EDITS];
};

#define KEY(edit_kind, key, value)                                                                                     \
    {                                                                                                                  \
        .kind = edit_kind, .name = key, .number = value                                                                \
    }
#define TENSOR(tensor, ...)                                                                                            \
    {                                                                                                                  \
        .kind = SHAPE, .name = tensor, .ne = { __VA_ARGS__ }                                                           \
    }

static const struct bad bad_routing[] = {
    {"mixtral",
     STATUS_INVALID,
     {"llama.expert_used_count is 9", "expert_count"},
     {KEY(SET_U32, "expert_used_count", 9)}},
    {"mixtral", STATUS_INVALID, {"llama.expert_used_count is 0"}, {KEY(SET_U32, "expert_used_count", 0)}},
    {"mixtral", STATUS_INVALID, {"llama.expert_used_count is 0"}, {KEY(DROP_KEY, "expert_used_count", 0)}},
    {"mixtral", STATUS_INVALID, {"llama.expert_count", "blk.0.ffn_gate_inp.weight"}, {KEY(SET_U32, "expert_count", 0)}},
    {"granitemoe", STATUS_INVALID, {"granitemoe.expert_count", "ffn_gate_inp"}, {KEY(DROP_KEY, "expert_count", 0)}},
    {"qwen3moe", STATUS_INVALID, {"qwen3moe.expert_count is 0", "between 1"}, {KEY(SET_U32, "expert_count", 0)}},
    {"qwen3moe", STATUS_INVALID, {"qwen3moe.expert_count' is missing"}, {KEY(DROP_KEY, "expert_count", 0)}},
    {"qwen3moe",
     STATUS_INVALID,
     {"qwen3moe.expert_count", "string", "integer"},
     {{.kind = SET_STRING, .name = "expert_count", .text = "eight"}}},
    {"qwen3moe", STATUS_INVALID, {"qwen3moe.expert_count is 70000"}, {KEY(SET_U32, "expert_count", 70000)}},
    {"glm4moe",
     STATUS_INVALID,
     {"glm4moe.expert_group_count is 3", "divide expert_count"},
     {KEY(SET_U32, "expert_group_count", 3)}},
    {"glm4moe",
     STATUS_INVALID,
     {"glm4moe.expert_group_used_count is 5", "expert_group_count"},
     {KEY(SET_U32, "expert_group_count", 4), KEY(SET_U32, "expert_group_used_count", 5)}},
    {"glm4moe",
     STATUS_INVALID,
     {"glm4moe.expert_group_used_count is 0"},
     {KEY(SET_U32, "expert_group_count", 4), KEY(SET_U32, "expert_group_used_count", 0)}},
    {"glm4moe", // groups of two, three are used
     STATUS_INVALID,
     {"glm4moe.expert_group_used_count is 1", "expert_used_count"},
     {KEY(SET_U32, "expert_group_count", 4), KEY(SET_U32, "expert_group_used_count", 1)}},
    {"glm4moe",
     STATUS_INVALID,
     {"glm4moe.experts_per_group is 3"},
     {KEY(SET_U32, "expert_group_count", 4), KEY(SET_U32, "expert_group_used_count", 2),
      KEY(SET_U32, "experts_per_group", 3)}},
    {"glm4moe", STATUS_UNSUPPORTED, {"expert_gating_func is 5", "sigmoid"}, {KEY(SET_U32, "expert_gating_func", 5)}},
    {"glm4moe", STATUS_INVALID, {"expert_weights_norm", "bool"}, {KEY(SET_U32, "expert_weights_norm", 1)}},
    {"glm4moe", STATUS_INVALID, {"expert_weights_scale", "NaN"}, {KEY(SET_F32, "expert_weights_scale", (double)NAN)}},
};

static const struct bad bad_tensors[] = {
    {"mixtral",
     STATUS_INVALID,
     {"blk.1.ffn_down_exps.weight", "[32, 64, 7]", "[32, 64, 8]"},
     {TENSOR("blk.1.ffn_down_exps.weight", 32, 64, 7)}},
    {"mixtral",
     STATUS_INVALID,
     {"blk.0.ffn_up_exps.weight", "[64, 31, 8]", "[64, 32, 8]"},
     {TENSOR("blk.0.ffn_up_exps.weight", 64, 31, 8)}},
    {"mixtral",
     STATUS_INVALID,
     {"blk.0.ffn_gate_inp.weight", "[64, 9, 1]"},
     {TENSOR("blk.0.ffn_gate_inp.weight", 64, 9)}},
    {"mixtral", // an expert more, and in the key too, but not in the tensors
     STATUS_INVALID,
     {"blk.0.ffn_gate_inp.weight", "[64, 9, 1]"},
     {KEY(SET_U32, "expert_count", 9)}},
    {"mixtral", // experts that are tensors of their own, the second of which is missing
     STATUS_INVALID,
     {"blk.0.ffn_gate.1.weight' is missing"},
     {{.kind = RENAME, .name = "blk.0.ffn_gate_exps.weight", .text = "blk.0.ffn_gate.0.weight", .ne = {64, 32, 1}}}},
    {"mixtral",
     STATUS_INVALID,
     {"blk.0.ffn_gate.1.weight", "[64, 31, 1]", "[64, 32, 1]"},
     {{.kind = RENAME, .name = "blk.0.ffn_gate_exps.weight", .text = "blk.0.ffn_gate.0.weight", .ne = {64, 32, 1}},
      TENSOR("blk.0.ffn_gate.1.weight", 64, 31)}},
    {"mixtral",
     STATUS_UNSUPPORTED,
     {"blk.0.ffn_gate.1.weight' is f32", "'blk.0.ffn_gate.0.weight' is f16", "convert"},
     {{.kind = RENAME, .name = "blk.0.ffn_gate_exps.weight", .text = "blk.0.ffn_gate.0.weight", .ne = {64, 32, 1}},
      TENSOR("blk.0.ffn_gate.1.weight", 64, 32)}},
    {"mixtral",
     STATUS_INVALID,
     {"blk.1.ffn_gate_exps.weight' is missing"},
     {{.kind = DROP, .name = "blk.1.ffn_gate_exps.weight"}}},
    {"mixtral", STATUS_INVALID, {"blk.0.ffn_down_exps.scale", "[7, 1, 1]"}, {TENSOR("blk.0.ffn_down_exps.scale", 7)}},
    {"gpt-oss", STATUS_INVALID, {"blk.2.ffn_up_exps.bias", "[31, 8, 1]"}, {TENSOR("blk.2.ffn_up_exps.bias", 31, 8)}},
    {"gpt-oss",
     STATUS_INVALID,
     {"blk.3.attn_sinks.weight", "missing"},
     {{.kind = DROP, .name = "blk.3.attn_sinks.weight"}}},
    {"gpt-oss", STATUS_INVALID, {"blk.3.attn_sinks.weight", "[5, 1, 1]"}, {TENSOR("blk.3.attn_sinks.weight", 5)}},
    {"glm4moe", STATUS_INVALID, {"blk.1.exp_probs_b.bias", "[4, 1, 1]"}, {TENSOR("blk.1.exp_probs_b.bias", 4)}},
    {"glm4moe",
     STATUS_INVALID,
     {"blk.2.ffn_up_shexp.weight", "[64, 30, 1]"},
     {TENSOR("blk.2.ffn_up_shexp.weight", 64, 30)}},
    {"glm4moe", // the key asks for experts where the layer is dense
     STATUS_INVALID,
     {"blk.0.ffn_gate_inp.weight' is missing"},
     {KEY(SET_U32, "leading_dense_block_count", 0)}},
    {"glm4moe", // and the other way round
     STATUS_INVALID,
     {"blk.1.ffn_gate.weight' is missing"},
     {KEY(SET_U32, "leading_dense_block_count", 2)}},
    {"qwen3moe",
     STATUS_INVALID,
     {"blk.0.ffn_up_shexp.weight' is missing"},
     {KEY(SET_U32, "expert_shared_feed_forward_length", 48)}},
    {"qwen3moe",
     STATUS_INVALID,
     {"ffn_gate_exps", "[64, 32, 8]", "[64, 33, 8]"},
     {KEY(SET_U32, "expert_feed_forward_length", 33)}},
    {"glm4moe",
     STATUS_INVALID,
     {"expert_shared_feed_forward_length is 33554432"},
     {KEY(SET_U32, "expert_shared_count", 1 << 20), KEY(SET_U32, "expert_shared_feed_forward_length", 1 << 25)}},
    {"glm4moe",
     STATUS_INVALID,
     {"expert_shared_feed_forward_length is 4294967295"},
     {KEY(SET_U32, "expert_shared_count", 1e9)}},
    {"glm4moe", STATUS_INVALID, {"glm4moe.feed_forward_length", "layer 0"}, {KEY(DROP_KEY, "feed_forward_length", 0)}},
    {"qwen3moe",
     STATUS_INVALID,
     {"feed_forward_length"},
     {KEY(DROP_KEY, "feed_forward_length", 0), KEY(DROP_KEY, "expert_feed_forward_length", 0)}},
    // tensors that nobody reads
    {"mixtral", STATUS_UNSUPPORTED, {"blk.0.attn_q_norm.weight", "llama"}, {TENSOR("blk.0.attn_q_norm.weight", 16)}},
    {"mixtral", // a gate of a shared expert that is not there
     STATUS_UNSUPPORTED,
     {"blk.0.ffn_gate_inp_shexp.weight"},
     {TENSOR("blk.0.ffn_gate_inp_shexp.weight", 64, 1)}},
    {"mixtral", STATUS_UNSUPPORTED, {"blk.1.attn_q.scale"}, {TENSOR("blk.1.attn_q.scale", 1)}},
    {"qwen3moe", STATUS_UNSUPPORTED, {"blk.2.attn_norm.weight"}, {TENSOR("blk.2.attn_norm.weight", 64)}},
    {"qwen3moe", STATUS_UNSUPPORTED, {"token_embd_norm.weight"}, {TENSOR("token_embd_norm.weight", 64)}},
};

static const struct bad bad_keys[] = {
    {"mixtral",
     STATUS_UNSUPPORTED,
     {"llama.attn_logit_softcapping", "cap"},
     {KEY(SET_F32, "attn_logit_softcapping", 30)}},
    {"mixtral", STATUS_UNSUPPORTED, {"llama.attention.clamp_kqv"}, {KEY(SET_F32, "attention.clamp_kqv", 8)}},
    {"mixtral", STATUS_UNSUPPORTED, {"llama.logit_scale"}, {KEY(SET_F32, "logit_scale", 0.5)}},
    {"qwen2", STATUS_UNSUPPORTED, {"qwen2.expert_count"}, {KEY(SET_U32, "expert_count", 8)}},
    {"qwen3moe", STATUS_UNSUPPORTED, {"router_logit_softcapping"}, {KEY(SET_F32, "router_logit_softcapping", 30)}},
    {"qwen3moe", STATUS_UNSUPPORTED, {"attention.causal"}, {KEY(SET_BOOL, "attention.causal", 0)}},
    {"qwen3moe", STATUS_UNSUPPORTED, {"ssm.conv_kernel"}, {KEY(SET_U32, "ssm.conv_kernel", 4)}},
    {"qwen3moe",
     STATUS_UNSUPPORTED,
     {"rope.dimension_sections"},
     {{.kind = SET_BOOLS, .name = "rope.dimension_sections", .text = "1110"}}},
    {"gpt-oss", STATUS_UNSUPPORTED, {"swiglu_clamp_exp"}, {KEY(SET_F32, "swiglu_clamp_exp", 10)}},
    {"mellum", STATUS_UNSUPPORTED, {"attention.key_length_swa"}, {KEY(SET_U32, "attention.key_length_swa", 8)}},
    {"mellum",
     STATUS_INVALID,
     {"mellum.attention.sliding_window_pattern has 3 elements", "block_count"},
     {{.kind = SET_BOOLS, .name = "attention.sliding_window_pattern", .text = "101"}}},
    {"mellum",
     STATUS_INVALID,
     {"mellum.attention.sliding_window_pattern"},
     {{.kind = SET_STRING, .name = "attention.sliding_window_pattern", .text = "LLLG"}}},
    {"mellum", STATUS_INVALID, {"rope.freq_base"}, {KEY(SET_F32, "rope.freq_base_swa", 0.5)}},
    {"mellum",
     STATUS_UNSUPPORTED,
     {"rope.scaling.type", "longrope"},
     {{.kind = SET_STRING, .name = "rope.scaling.type", .text = "longrope"}}},
    {"mixtral",
     STATUS_INVALID,
     {"rope.scaling.type", "rope_freqs.weight"},
     {{.kind = SET_STRING, .name = "rope.scaling.type", .text = "llama3"}}},
    {"mixtral", STATUS_UNSUPPORTED, {"rope.scaling.attn_factor"}, {KEY(SET_F32, "rope.scaling.attn_factor", 0.5)}},
    {"granite",
     STATUS_UNSUPPORTED,
     {"granite.attention.head_count_kv", "1 for layer 0 and 0 for layer 1"},
     {{.kind = SET_BOOLS, .name = "attention.head_count_kv", .text = "10"}}},
    {"granite",
     STATUS_INVALID,
     {"granite.attention.head_count has 1 elements", "2 layers"},
     {{.kind = SET_BOOLS, .name = "attention.head_count", .text = "1"}}},
    {"granite", STATUS_INVALID, {"granite.attention.scale"}, {KEY(SET_F32, "attention.scale", -1)}},
    {"qwen2moe", STATUS_UNSUPPORTED, {"qwen2moe.num_loops"}, {KEY(SET_U32, "num_loops", 2)}},
    {"deepseek2", STATUS_UNSUPPORTED, {"deepseek2.hash_layer_count"}, {KEY(SET_U32, "hash_layer_count", 1)}},
    {"mistral4", STATUS_UNSUPPORTED, {"mistral4.attention.value_scale"}, {KEY(SET_F32, "attention.value_scale", 0.5)}},
    {"mixtral",
     STATUS_UNSUPPORTED,
     {"llama.hidden_activation"},
     {{.kind = SET_STRING, .name = "hidden_activation", .text = "gelu"}}},
    {"glm4moe",
     STATUS_INVALID,
     {"nextn_predict_layers is 3", "block_count"},
     {KEY(SET_U32, "nextn_predict_layers", 3)}},
};

static void assert_refused(const struct bad *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct variant variant;
        variant_open(&variant, cases[i].base, cases[i].edits);
        const char *first = cases[i].edits[0].name;
        if (variant.status != cases[i].status)
            fail_msg("%s with %s: status %d instead of %d: %s", cases[i].base, first, (int)variant.status,
                     (int)cases[i].status, variant.error.message);
        for (size_t w = 0; w < 3 && cases[i].words[w] != NULL; w++) {
            if (strstr(variant.error.message, cases[i].words[w]) == NULL)
                fail_msg("%s with %s: \"%s\" does not say \"%s\"", cases[i].base, first, variant.error.message,
                         cases[i].words[w]);
        }
        variant_close(&variant);
    }
}

#define ASSERT_REFUSED(cases) assert_refused(cases, sizeof(cases) / sizeof(cases[0]))

static void test_bad_routing(void **state)
{
    (void)state;
    ASSERT_REFUSED(bad_routing);
}

static void test_bad_tensors(void **state)
{
    (void)state;
    ASSERT_REFUSED(bad_tensors);
}

static void test_bad_keys(void **state)
{
    (void)state;
    ASSERT_REFUSED(bad_keys);
}

// ---- what is built ----

static void open_good(struct variant *variant, const char *name, const struct edit *edits)
{
    static const struct edit none[1];
    variant_open(variant, name, edits == NULL ? none : edits);
    if (variant->status != STATUS_OK)
        fail_msg("%s: %s", name, variant->error.message);
}

static const struct routing *routing_of(const struct variant *variant)
{
    const struct node *route = variant_node(variant, OP_ROUTE, 0);
    assert_non_null(route);
    return &route->attributes.routing;
}

// The order that lets a device fuse: what is one step stands together.
static void test_order(void **state)
{
    (void)state;
    static const enum op expected[] = {OP_MATMUL,     OP_MATMUL,  OP_MATMUL,         OP_MATMUL,
                                       OP_GLU,        OP_SIGMOID, OP_ROUTE,          OP_MUL_MAT_ID,
                                       OP_MUL_MAT_ID, OP_GLU,     OP_MUL_MAT_ID_SUM, OP_ADD};
    static const char *const weights[] = {"blk.0.ffn_gate_inp.weight", "blk.0.ffn_gate_inp_shexp.weight",
                                          "blk.0.ffn_gate_shexp.weight", "blk.0.ffn_up_shexp.weight"};
    struct variant variant;
    open_good(&variant, "qwen2moe", NULL);
    const struct graph *graph = &variant.model.graph;
    size_t first = 0;
    while (first < graph->n_nodes &&
           (graph->nodes[first]->op != OP_MATMUL || strcmp(graph->nodes[first]->sources[0]->name, weights[0]) != 0))
        first++;
    assert_true(first + sizeof(expected) / sizeof(expected[0]) <= graph->n_nodes);
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        const struct node *node = graph->nodes[first + i];
        assert_string_equal(op_get(node->op)->name, op_get(expected[i])->name);
        if (i < 4)
            assert_string_equal(node->sources[0]->name, weights[i]);
    }
    const struct node *sum = variant_node(&variant, OP_MUL_MAT_ID_SUM, 0);
    assert_int_equal(sum->sources[4]->ne[0], 48); // the shared expert
    assert_non_null(sum->sources[6]);             // and its gate
    assert_int_equal(sum->result->ne[0], 64);
    variant_close(&variant);
}

// Who fixes what, and that the file may say otherwise.
static void test_routing(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum gating gating;
        uint32_t n_used;
        bool normalize, biased;
        double scale;
    } families[] = {
        {"mixtral", GATING_SOFTMAX, 2, true, false, 1},
        {"qwen2moe", GATING_SOFTMAX, 3, false, false, 1},
        {"qwen3moe", GATING_SOFTMAX, 3, true, false, 1},
        {"olmoe", GATING_SOFTMAX, 2, false, false, 1},
        {"granitemoe", GATING_SOFTMAX_SELECTED, 3, false, false, 1},
        {"mellum", GATING_SOFTMAX, 3, true, false, 1},
        {"gpt-oss", GATING_SOFTMAX_SELECTED, 3, false, false, 1},
        {"glm4moe", GATING_SIGMOID, 3, true, true, 1.5},
    };
    static const struct edit edits[] = {
        KEY(SET_U32, "expert_gating_func", 4),      KEY(SET_BOOL, "expert_weights_norm", 1),
        KEY(SET_F32, "expert_weights_scale", 2.5),  KEY(SET_U32, "expert_group_count", 2),
        KEY(SET_U32, "expert_group_used_count", 1), {0}};
    static const struct edit others[] = {KEY(SET_BOOL, "expert_weights_norm", 0),
                                         KEY(SET_F32, "expert_weights_scale", 0),
                                         KEY(SET_U32, "expert_gating_func", 0),
                                         {0}};
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        struct variant variant;
        open_good(&variant, families[i].name, NULL);
        const struct routing *r = routing_of(&variant);
        assert_int_equal(r->n_expert, 8);
        assert_int_equal(r->n_used, families[i].n_used);
        assert_int_equal(r->gating, families[i].gating);
        assert_int_equal(r->normalize, families[i].normalize);
        assert_true((double)r->weight_scale == families[i].scale);
        assert_true(r->n_group <= 1);
        assert_int_equal(variant_node(&variant, OP_ROUTE, 0)->sources[1] != NULL, families[i].biased);
        variant_close(&variant);

        open_good(&variant, families[i].name, edits);
        r = routing_of(&variant);
        assert_int_equal(r->gating, GATING_SQRT_SOFTPLUS);
        assert_true(r->normalize && r->weight_scale == 2.5f);
        assert_true(r->n_group == 2 && r->n_group_used == 1 && r->group_best == 2);
        variant_close(&variant);

        open_good(&variant, families[i].name, others); // 0 is none, not nothing
        r = routing_of(&variant);
        assert_true(!r->normalize && r->weight_scale == 1);
        assert_int_equal(r->gating, families[i].gating);
        variant_close(&variant);
    }
}

// Files of the wild that leave something open, or say something of what they do not have.
static void test_files_of_the_wild(void **state)
{
    (void)state;
    static const struct edit open_gating[] = {KEY(DROP_KEY, "expert_gating_func", 0), {0}};
    static const struct edit no_multiplier[] = {KEY(SET_F32, "rope.scaling.yarn_log_multiplier", 0), {0}};
    static const struct edit states[] = {
        KEY(SET_U32, "ssm.conv_kernel", 4), KEY(SET_BOOL, "rope.scaling.finetuned", 1), {0}};
    static const struct edit no_shared[] = {KEY(SET_U32, "expert_shared_feed_forward_length", 0), {0}};
    static const struct edit sections[] = {{.kind = SET_BOOLS, .name = "rope.dimension_sections", .text = "1110"}, {0}};
    struct variant variant;
    open_good(&variant, "deepseek2", open_gating); // like V3: it has a bias that chooses
    assert_int_equal(routing_of(&variant)->gating, GATING_SIGMOID);
    assert_int_equal(routing_of(&variant)->group_best, 2);
    variant_close(&variant);
    open_good(&variant, "deepseek2-lite", open_gating);
    assert_int_equal(routing_of(&variant)->gating, GATING_SOFTMAX);
    variant_close(&variant);

    open_good(&variant, "mistral3", NULL);
    assert_true(variant.model.ropes[0].magnitude == 1);
    variant_close(&variant);
    open_good(&variant, "mistral3", no_multiplier); // 0 is as if it were not there
    assert_true(fabs(variant.model.ropes[0].magnitude - (0.1 * log(4) + 1)) < 1e-6);
    variant_close(&variant);

    open_good(&variant, "qwen3moe", no_shared);
    assert_null(variant_node(&variant, OP_MUL_MAT_ID_SUM, 0)->sources[4]);
    variant_close(&variant);
    open_good(&variant, "glm4moe", sections); // GLM 4.5V, without its images
    variant_close(&variant);

    open_good(&variant, "granite", states); // Granite 4, all of whose layers are attention
    variant_close(&variant);
}

// Groups of one expert have one best, not two.
static void test_small_groups(void **state)
{
    (void)state;
    static const struct edit edits[] = {KEY(SET_U32, "expert_group_count", 8),
                                        KEY(SET_U32, "expert_group_used_count", 4),
                                        KEY(SET_U32, "experts_per_group", 1),
                                        {0}};
    struct variant variant;
    open_good(&variant, "glm4moe", edits);
    assert_int_equal(routing_of(&variant)->group_best, 1);
    variant_close(&variant);
}

// Gate and up in one tensor: the first half of the rows is the gate.
static void test_merged(void **state)
{
    (void)state;
    static const struct edit edits[] = {{.kind = RENAME,
                                         .name = "blk.0.ffn_up_exps.weight",
                                         .text = "blk.0.ffn_gate_up_exps.weight",
                                         .ne = {64, 64, 8}},
                                        {.kind = DROP, .name = "blk.0.ffn_gate_exps.weight"},
                                        {0}};
    struct variant variant;
    open_good(&variant, "mixtral", edits);
    const struct node *glu = variant_node(&variant, OP_GLU, 0);
    const struct tensor *gate = glu->sources[0]->producer->sources[0], *up = glu->sources[1]->producer->sources[0];
    assert_string_equal(gate->name, "blk.0.ffn_gate_up_exps.weight");
    assert_string_equal(up->name, gate->name);
    assert_true(gate->first_row == 0 && up->first_row == 32 && gate->rows_in_file == 64 && up->rows_in_file == 64);
    assert_true(gate->ne[1] == 32 && up->ne[1] == 32 && gate->ne[2] == 8);
    variant_close(&variant);
}

static void test_optional_tensors(void **state)
{
    (void)state;
    static const struct edit edits[] = {
        TENSOR("blk.0.ffn_gate_exps.scale", 8),  TENSOR("blk.0.ffn_up_exps.scale", 8),
        TENSOR("blk.0.ffn_down_exps.scale", 8),  TENSOR("blk.0.ffn_down_exps.bias", 64, 8),
        TENSOR("blk.0.ffn_up_exps.bias", 32, 8), TENSOR("blk.0.ffn_gate_inp.bias", 8),
        TENSOR("blk.0.exp_probs_b", 8),          {0}};
    struct variant variant;
    open_good(&variant, "mixtral", edits);
    const struct node *gate = variant_node(&variant, OP_MUL_MAT_ID, 0), *up = variant_node(&variant, OP_MUL_MAT_ID, 1);
    const struct node *sum = variant_node(&variant, OP_MUL_MAT_ID_SUM, 0), *glu = variant_node(&variant, OP_GLU, 0);
    assert_string_equal(gate->sources[3]->name, "blk.0.ffn_gate_exps.scale");
    assert_string_equal(up->sources[3]->name, "blk.0.ffn_up_exps.scale");
    assert_string_equal(sum->sources[3]->name, "blk.0.ffn_down_exps.scale");
    assert_ptr_equal(glu->sources[0], gate->result);
    assert_ptr_equal(glu->sources[1], variant_node(&variant, OP_ADD_ID, 0)->result);
    assert_ptr_equal(variant_node(&variant, OP_ADD_ID_SUM, 0)->sources[0], sum->result);
    assert_string_equal(variant_node(&variant, OP_ROUTE, 0)->sources[1]->name, "blk.0.exp_probs_b");
    assert_int_equal(variant_node(&variant, OP_ROUTE, 0)->sources[0]->producer->op, OP_ADD);
    assert_null(variant_node(&variant, OP_ROUTE, 1)->sources[1]); // the other layer has none of these
    assert_null(variant_node(&variant, OP_ADD_ID, 1));
    variant_close(&variant);
}

// A shared expert by its tensors alone, by length, by count, and of a family's default size.
static void test_shared(void **state)
{
    (void)state;
    static const struct edit by_tensors[] = {TENSOR("blk.0.ffn_gate_shexp.weight", 64, 40),
                                             TENSOR("blk.0.ffn_up_shexp.weight", 64, 40),
                                             TENSOR("blk.0.ffn_down_shexp.weight", 40, 64),
                                             {0}};
    static const struct edit by_count[] = {KEY(SET_U32, "expert_shared_count", 2),
                                           {.kind = SHAPE, .name = "blk.1.ffn_gate_shexp.weight", .ne = {64, 64}},
                                           {.kind = SHAPE, .name = "blk.1.ffn_up_shexp.weight", .ne = {64, 64}},
                                           {.kind = SHAPE, .name = "blk.1.ffn_down_shexp.weight", .ne = {64, 64}},
                                           {.kind = SHAPE, .name = "blk.2.ffn_gate_shexp.weight", .ne = {64, 64}},
                                           {.kind = SHAPE, .name = "blk.2.ffn_up_shexp.weight", .ne = {64, 64}},
                                           {.kind = SHAPE, .name = "blk.2.ffn_down_shexp.weight", .ne = {64, 64}},
                                           {0}};
    struct variant variant;
    open_good(&variant, "granitemoe", by_tensors);
    const struct node *sum = variant_node(&variant, OP_MUL_MAT_ID_SUM, 0);
    assert_true(sum->sources[4]->ne[0] == 40 && sum->sources[6] == NULL);
    assert_null(variant_node(&variant, OP_MUL_MAT_ID_SUM, 1)->sources[4]);
    variant_close(&variant);

    open_good(&variant, "glm4moe", by_count);
    assert_int_equal(variant_node(&variant, OP_MUL_MAT_ID_SUM, 1)->sources[4]->ne[0], 64);
    variant_close(&variant);
}

// Which layers have experts: by key, and where no key says so, by their tensors.
static void test_layers(void **state)
{
    (void)state;
    static const struct edit dense[] = {
        {.kind = DROP, .name = "blk.1.ffn_gate_inp.weight"},
        {.kind = DROP, .name = "blk.1.ffn_gate_exps.weight"},
        {.kind = RENAME, .name = "blk.1.ffn_up_exps.weight", .text = "blk.1.ffn_up.weight", .ne = {64, 96, 1}},
        {.kind = RENAME, .name = "blk.1.ffn_down_exps.weight", .text = "blk.1.ffn_down.weight", .ne = {96, 64, 1}},
        {.kind = SHAPE, .name = "blk.1.ffn_gate.weight", .ne = {64, 96}},
        {0}};
    static const struct edit every_second[] = {
        KEY(DROP_KEY, "leading_dense_block_count", 0), KEY(SET_U32, "interleave_moe_layer_step", 2), {0}};
    struct variant variant;
    open_good(&variant, "qwen3moe", dense);
    assert_non_null(variant_node(&variant, OP_ROUTE, 0));
    assert_null(variant_node(&variant, OP_ROUTE, 1));
    variant_close(&variant);
    variant_open(&variant, "glm4moe", every_second); // layer 1 of 0, 1, 2, but the third has experts too
    assert_int_equal(variant.status, STATUS_INVALID);
    assert_non_null(strstr(variant.error.message, "blk.2.ffn_gate.weight"));
    variant_close(&variant);
}

// Older files of Qwen's families: feed_forward_length is of all used experts together.
static void test_older_qwen(void **state)
{
    (void)state;
    static const struct edit edits[] = {KEY(DROP_KEY, "expert_feed_forward_length", 0), {0}};
    struct variant variant;
    open_good(&variant, "qwen3moe", edits); // 96 = 3 used · 32
    assert_int_equal(variant_node(&variant, OP_MUL_MAT_ID, 0)->result->ne[0], 32);
    variant_close(&variant);
}

static void assert_windows(const char *name, const struct edit *edits, const uint32_t *windows, size_t n)
{
    struct variant variant;
    open_good(&variant, name, edits);
    assert_int_equal(variant.model.graph.n_kv_layers, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(variant.model.graph.kv_layers[i].window, windows[i]);
        assert_int_equal(variant_node(&variant, OP_ATTENTION, i)->attributes.window, windows[i]);
    }
    variant_close(&variant);
}

static void test_windows(void **state)
{
    (void)state;
    static const struct edit none[] = {{0}}, third[] = {KEY(SET_U32, "attention.sliding_window_pattern", 3), {0}};
    static const struct edit all[] = {KEY(SET_U32, "attention.sliding_window_pattern", 0), {0}};
    static const struct edit no_pattern[] = {KEY(DROP_KEY, "attention.sliding_window_pattern", 0), {0}};
    static const struct edit off[] = {KEY(SET_U32, "attention.sliding_window", 0), {0}};
    static const struct edit on[] = {KEY(SET_U32, "attention.sliding_window", 5), {0}};
    assert_windows("mellum", none, (uint32_t[]){8, 0, 8, 0}, 4);
    assert_windows("mellum", third, (uint32_t[]){8, 8, 0, 8}, 4);
    assert_windows("mellum", all, (uint32_t[]){8, 8, 8, 8}, 4);
    assert_windows("mellum", no_pattern, (uint32_t[]){8, 8, 8, 0}, 4);
    assert_windows("mellum", off, (uint32_t[]){0, 0, 0, 0}, 4);
    assert_windows("gpt-oss", none, (uint32_t[]){8, 0, 8, 0}, 4);
    assert_windows("gpt-oss", third, (uint32_t[]){8, 8, 0, 8}, 4);
    assert_windows("mixtral", on, (uint32_t[]){5, 5}, 2);
    assert_windows("qwen3moe", on, (uint32_t[]){5, 5}, 2);
    assert_windows("qwen2moe", none, (uint32_t[]){0, 0}, 2);
}

// Mellum: windows turn at their own base and without scaling; elsewhere scaling is for all layers.
static void test_rotations(void **state)
{
    (void)state;
    static const struct edit base[] = {KEY(SET_F32, "rope.freq_base_swa", 500), {0}};
    struct variant variant;
    open_good(&variant, "mellum", base);
    assert_int_equal(variant.model.n_ropes, 2);
    const struct rope *full = &variant.model.ropes[0], *window = &variant.model.ropes[1];
    assert_true(full->magnitude > 1 && window->magnitude == 1);
    for (uint32_t i = 0; i < 8; i++)
        assert_true(fabs(window->frequencies[i] * pow(500, 2.0 * i / 16) - 1) < 1e-12);
    assert_true(fabs(full->frequencies[7] * pow(10000, 14.0 / 16) * 4 - 1) <
                1e-12); // slow pairs: divided by the factor
    assert_int_equal(variant_node(&variant, OP_ROPE, 0)->attributes.rope, 1);
    assert_int_equal(variant_node(&variant, OP_ROPE, 2)->attributes.rope, 0);
    variant_close(&variant);

    open_good(&variant, "gpt-oss", base);
    assert_int_equal(variant.model.n_ropes, 2);
    assert_true(variant.model.ropes[0].magnitude > 1 && variant.model.ropes[1].magnitude > 1);
    variant_close(&variant);
    open_good(&variant, "gpt-oss", NULL);
    assert_int_equal(variant.model.n_ropes, 1);
    variant_close(&variant);
}

static void test_attention_options(void **state)
{
    (void)state;
    static const struct edit no_rope[] = {KEY(SET_BOOL, "rope.scaling.finetuned", 0), {0}};
    static const struct edit bounds[] = {KEY(SET_F32, "attention.clamp_kqv", 8), {0}};
    static const struct edit fused[] = {
        {.kind = RENAME, .name = "blk.0.attn_q.weight", .text = "blk.0.attn_qkv.weight", .ne = {64, 256, 1}},
        {.kind = DROP, .name = "blk.0.attn_k.weight"},
        {.kind = DROP, .name = "blk.0.attn_v.weight"},
        {0}};
    static const struct edit no_norms[] = {{.kind = DROP, .name = "blk.0.attn_q_norm.weight"},
                                           {.kind = DROP, .name = "blk.0.attn_k_norm.weight"},
                                           {.kind = DROP, .name = "blk.1.attn_q_norm.weight"},
                                           {.kind = DROP, .name = "blk.1.attn_k_norm.weight"},
                                           {.kind = DROP, .name = "blk.2.attn_q_norm.weight"},
                                           {.kind = DROP, .name = "blk.2.attn_k_norm.weight"},
                                           {0}};
    struct variant variant;
    open_good(&variant, "granitemoe", no_rope);
    assert_null(variant_node(&variant, OP_ROPE, 0));
    assert_true(variant_node(&variant, OP_ATTENTION, 0)->attributes.score_scale == 0.2f);
    assert_int_equal(variant.model.graph.output->producer->op, OP_SCALE);
    assert_true(variant.model.graph.output->producer->attributes.factor == 2.0f);
    variant_close(&variant);

    open_good(&variant, "olmoe", bounds);
    const struct node *clamp = variant_node(&variant, OP_CLAMP, 2);
    assert_true(clamp != NULL && clamp->attributes.low == -8 && clamp->attributes.high == 8);
    assert_int_equal(variant_node(&variant, OP_CLAMP, 0)->sources[0]->producer->op, OP_RMS_NORM);
    assert_int_equal(variant_node(&variant, OP_RMS_NORM, 1)->attributes.head_dim, 0); // over all heads
    variant_close(&variant);

    open_good(&variant, "qwen3moe", fused);
    const struct node *attention = variant_node(&variant, OP_ATTENTION, 0);
    const struct tensor *v = attention->sources[2]->producer->sources[0];
    assert_true(v->first_row == 192 && v->rows_in_file == 256 && v->ne[1] == 64);
    variant_close(&variant);

    open_good(&variant, "glm4moe", no_norms);
    assert_int_equal(variant_node(&variant, OP_ROPE, 0)->attributes.n_rot, 8);
    assert_int_equal(variant_node(&variant, OP_ROPE, 0)->sources[0]->producer->op, OP_ADD);
    variant_close(&variant);
}

// Layers at the end that predict further tokens are counted by block_count and left out.
static void test_further_tokens(void **state)
{
    (void)state;
    static const struct edit edits[] = {
        KEY(SET_U32, "nextn_predict_layers", 1), TENSOR("blk.2.nextn.eh_proj.weight", 128, 64), {0}};
    struct variant variant;
    open_good(&variant, "glm4moe", edits);
    assert_int_equal(variant.model.h.n_layer, 2);
    assert_int_equal(variant.model.graph.n_kv_layers, 2);
    for (size_t i = 0; i < variant.model.graph.n_weights; i++)
        assert_null(strstr(variant.model.graph.weights[i]->name, "blk.2."));
    variant_close(&variant);
}

// Keys that ask for nothing are no reason to refuse a file.
static void test_neutral_keys(void **state)
{
    (void)state;
    static const struct edit edits[] = {KEY(SET_F32, "attn_logit_softcapping", 0),
                                        KEY(SET_U32, "attention.key_length_swa", 32),
                                        KEY(SET_U32, "rope.dimension_count_swa", 32),
                                        KEY(SET_F32, "logit_scale", 1),
                                        KEY(SET_BOOL, "attention.causal", 1),
                                        KEY(SET_BOOL, "use_parallel_residual", 0),
                                        {.kind = SET_BOOLS, .name = "swiglu_clamp_exp", .text = "00"},
                                        KEY(SET_BOOL, "rope.scaling.finetuned", 0),
                                        {.kind = SET_STRING, .name = "hidden_activation", .text = "silu"},
                                        KEY(SET_U32, "something_new", 7),
                                        TENSOR("mm.input_projection.weight", 8, 8),
                                        {0}};
    struct variant variant;
    open_good(&variant, "qwen3moe", edits);
    assert_non_null(variant_node(&variant, OP_ROPE, 0));
    variant_close(&variant);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_routing),
        cmocka_unit_test(test_bad_tensors),
        cmocka_unit_test(test_bad_keys),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_routing),
        cmocka_unit_test(test_small_groups),
        cmocka_unit_test(test_files_of_the_wild),
        cmocka_unit_test(test_merged),
        cmocka_unit_test(test_optional_tensors),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_older_qwen),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_rotations),
        cmocka_unit_test(test_attention_options),
        cmocka_unit_test(test_further_tokens),
        cmocka_unit_test(test_neutral_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
