// Adapters: which files are refused and with which words, which rows a session's scales reach, and what the plan shows.
// What they compute is in tests/golden/lora_test.c.
#include "gguf/gguf.h"
#include "mote.h"

#include "test_paths.h"

#include <cmocka.h>
#include <math.h>
#include <string.h>

#define LLAMA TEST_DATA "/models/llama.gguf" // 64 wide, 264 or more tokens

static mote_error error;

struct tensor_line {
    const char *name;
    uint64_t ne[3]; // 0 beyond the dimensions
};

// An adapter's file as a table. Keys that are NULL are llama's right ones; "": left out.
struct adapter_file {
    const char *type, *architecture, *kind, *alpha;
    bool invoked; // adapter.alora.invocation_tokens
    struct tensor_line tensors[4];
    const char *words[4]; // of the error
};

static void must(enum status status, const struct error *failed)
{
    if (status != STATUS_OK)
        fail_msg("%s", failed->message);
}

static void add_key(struct gguf_writer *writer, const char *key, const char *given, const char *right)
{
    struct error failed = {0};
    const char *text = given == NULL ? right : given;
    if (text[0] != '\0')
        must(gguf_writer_add_string(writer, key, text, &failed), &failed);
}

static void write_file(const struct adapter_file *file, const char *path)
{
    static const float zeros[64 * 1024];
    static const int32_t token = 5;
    struct error failed = {0};
    struct gguf_writer *writer = NULL;
    must(gguf_writer_create(path, &writer, &failed), &failed);
    add_key(writer, "general.type", file->type, "adapter");
    add_key(writer, "general.architecture", file->architecture, "llama");
    add_key(writer, "adapter.type", file->kind, "lora");
    if (file->alpha == NULL)
        must(gguf_writer_add_f32(writer, "adapter.lora.alpha", 8, &failed), &failed);
    else
        add_key(writer, "adapter.lora.alpha", file->alpha, "");
    struct gguf_value invoked = {.key = {"adapter.alora.invocation_tokens", 31},
                                 .type = GGUF_ARRAY,
                                 .element = GGUF_I32,
                                 .count = 1,
                                 .array = &token};
    if (file->invoked)
        must(gguf_writer_add_value(writer, &invoked, &failed), &failed);
    for (const struct tensor_line *line = file->tensors; line < file->tensors + 4 && line->name != NULL; line++) {
        uint32_t n_dims = line->ne[1] == 0 ? 1 : line->ne[2] == 0 ? 2 : 3;
        must(gguf_writer_add_tensor(writer, line->name, DTYPE_F32, n_dims, line->ne, &failed), &failed);
    }
    for (const struct tensor_line *line = file->tensors; line < file->tensors + 4 && line->name != NULL; line++) {
        size_t n = line->ne[0] * (line->ne[1] == 0 ? 1 : line->ne[1]) * (line->ne[2] == 0 ? 1 : line->ne[2]);
        assert_true(n <= sizeof(zeros) / sizeof(zeros[0]));
        must(gguf_writer_write(writer, zeros, n * sizeof(float), &failed), &failed);
    }
    must(gguf_writer_finish(writer, &failed), &failed);
}

static mote_status make_engine(mote_model *model, const mote_adapter *adapters, size_t n, mote_engine **engine)
{
    mote_engine_params params;
    mote_engine_params_default(&params);
    params.n_threads = 2;
    params.n_context = 128;
    params.n_batch = 16;
    params.n_sessions = 4;
    params.adapters = adapters;
    params.n_adapters = n;
    return mote_engine_create(model, &params, engine, &error);
}

static mote_model *open_llama(void)
{
    mote_model *model = NULL;
    if (mote_model_open(LLAMA, NULL, &model, &error) != MOTE_OK)
        fail_msg("%s", error.message);
    return model;
}

#define Q "blk.0.attn_q.weight"
#define RIGHT_PAIR                                                                                                     \
    {                                                                                                                  \
        {Q ".lora_a", {64, 4}},                                                                                        \
        {                                                                                                              \
            Q ".lora_b",                                                                                               \
            {                                                                                                          \
                4, 64                                                                                                  \
            }                                                                                                          \
        }                                                                                                              \
    }

static void test_refusals(void **state)
{
    (void)state;
    static const struct adapter_file files[] = {
        {.type = "model", .tensors = RIGHT_PAIR, .words = {"not an adapter", "general.type"}},
        {.type = "", .tensors = RIGHT_PAIR, .words = {"not an adapter", "general.type"}},
        {.kind = "vera", .tensors = RIGHT_PAIR, .words = {"adapter.type", "vera", "lora"}},
        {.kind = "", .tensors = RIGHT_PAIR, .words = {"adapter.type", "missing"}},
        {.alpha = "", .tensors = RIGHT_PAIR, .words = {"adapter.lora.alpha", "missing"}},
        {.alpha = "eight", .tensors = RIGHT_PAIR, .words = {"adapter.lora.alpha"}},
        {.invoked = true, .tensors = RIGHT_PAIR, .words = {"adapter.alora.invocation_tokens"}},
        {.architecture = "qwen3", .tensors = RIGHT_PAIR, .words = {"'qwen3'", "'llama'"}},
        {.architecture = "qwen3",
         .tensors = {{"blk.0.ffn_gate_inp.weight.lora_a", {64, 2}}, {"blk.0.ffn_gate_inp.weight.lora_b", {2, 8}}},
         .words = {"'qwen3'", "'llama'", "first tensor", "'blk.0.ffn_gate_inp.weight.lora_a' [64, 2]"}},
        {.architecture = "", .tensors = RIGHT_PAIR, .words = {"general.architecture"}},
        {.words = {"no tensors"}},
        {.tensors = {{"blk.99.attn_q.weight.lora_a", {64, 4}}, {"blk.99.attn_q.weight.lora_b", {4, 64}}},
         .words = {"'blk.99.attn_q.weight.lora_a' [64, 4]", "another model"}},
        {.tensors = {{Q ".lora_a", {96, 4}}, {Q ".lora_b", {4, 64}}}, // another width
         .words = {"'" Q ".lora_a' [96, 4]", "'" Q ".lora_b' [4, 64]", "'" Q "' [64, 64]", "another model"}},
        {.tensors = {{Q ".lora_a", {64, 4}}, {Q ".lora_b", {4, 128}}}, .words = {"[4, 128]", "[64, 64]"}},
        {.tensors = {{Q ".lora_a", {64, 4}}, {Q ".lora_b", {8, 64}}}, .words = {"[64, 4]", "[8, 64]"}}, // two ranks
        {.tensors = {{Q ".lora_a", {64, 4, 8}}, {Q ".lora_b", {4, 64, 8}}}, .words = {"[64, 4, 8]", "[64, 64]"}},
        {.tensors = {{"token_embd.weight.lora_a", {64, 4}}, {"token_embd.weight.lora_b", {4, 265}}}, // not flipped
         .words = {"token_embd.weight.lora_a", "another model"}},
        {.tensors = {{Q ".lora_a", {64, 4}}}, .words = {Q ".lora_a", Q ".lora_b", "damaged"}},
        {.tensors = {{Q ".lora_b", {4, 64}}}, .words = {Q ".lora_b", Q ".lora_a", "damaged"}},
        {.tensors = {{Q, {64, 64}}}, .words = {Q, "neither"}},
        {.tensors = {{".lora_a", {64, 4}}, {".lora_b", {4, 64}}}, .words = {".lora_a", "neither"}},
        {.tensors = {{"output_norm.weight.lora_a", {64, 4}}, {"output_norm.weight.lora_b", {4, 1}}},
         .words = {"output_norm.weight.lora_a", "no product"}},
        {.tensors = {{Q ".lora_a", {64, 4}}, // the second pair is the first that does not fit
                     {Q ".lora_b", {4, 64}},
                     {"output.weight.lora_b", {4, 3}},
                     {"output.weight.lora_a", {64, 4}}},
         .words = {"'output.weight.lora_a' [64, 4]", "'output.weight.lora_b' [4, 3]"}},
    };
    char folder[] = "/tmp/mote-adapter-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/bad.gguf", folder);
    mote_model *model = open_llama();
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        write_file(&files[i], path);
        mote_adapter adapter = {.path = path, .scale = 1};
        mote_engine *engine = NULL;
        mote_status status = make_engine(model, &adapter, 1, &engine);
        if (status != MOTE_INVALID && status != MOTE_UNSUPPORTED)
            fail_msg("case %zu: status %d (%s)", i, status, error.message);
        assert_null(engine);
        if (strstr(error.message, path) == NULL)
            fail_msg("case %zu: \"%s\" does not name the file", i, error.message);
        for (size_t w = 0; w < 4 && files[i].words[w] != NULL; w++) {
            if (strstr(error.message, files[i].words[w]) == NULL)
                fail_msg("case %zu: \"%s\" lacks \"%s\"", i, error.message, files[i].words[w]);
        }
        unlink(path);
    }
    rmdir(folder);
    mote_model_close(model);
}

static void test_parameters(void **state)
{
    (void)state;
    mote_model *model = open_llama();
    mote_engine *engine = NULL;
    static const mote_adapter wrong[] = {{"/nowhere/adapter.gguf", 1}, {NULL, 1}, {LLAMA, NAN}, {LLAMA, INFINITY}};
    static const char *const words[] = {"/nowhere/adapter.gguf", "needs a file", "finite", "finite"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_not_equal(make_engine(model, &wrong[i], 1, &engine), MOTE_OK);
        assert_non_null(strstr(error.message, words[i]));
    }
    assert_int_equal(make_engine(model, wrong, 257, &engine), MOTE_INVALID);
    assert_int_equal(make_engine(model, NULL, 0, &engine), MOTE_OK);
    assert_int_equal(mote_engine_n_adapters(engine), 0);
    mote_session *session = NULL;
    assert_int_equal(mote_session_create(engine, &session, &error), MOTE_OK);
    assert_int_equal(mote_session_set_adapters(session, NULL, 0, &error), MOTE_OK);
    assert_int_equal(mote_session_set_adapters(session, &wrong[0].scale, 1, &error), MOTE_INVALID);
    mote_session_destroy(session);
    mote_engine_destroy(engine);
    mote_model_close(model);
}

// ---- sessions ----

#define TINY TEST_DATA "/lora/qwen3moe-tiny.gguf"

static const mote_adapter tiny_adapters[] = {{TEST_DATA "/lora/qwen3moe-tiny.lora-experts.gguf", 0.5f},
                                             {TEST_DATA "/lora/qwen3moe-tiny.lora-attention.gguf", -0.75f}};
static const int32_t tokens[] = {5, 6, 7, 8, 9, 10, 11};
enum { N_TOKENS = sizeof(tokens) / sizeof(tokens[0]), N_VOCAB_MAX = 512 };

struct last {
    float logits[N_VOCAB_MAX];
    size_t n_vocab;
};

static int keep(void *user, size_t input, size_t index, const float *logits)
{
    struct last *last = user;
    (void)input;
    (void)index;
    memcpy(last->logits, logits, last->n_vocab * sizeof(float));
    return 0;
}

static void run(mote_engine *engine, mote_session *session, struct last *last)
{
    mote_input input = {.session = session, .tokens = tokens, .n_tokens = N_TOKENS, .want = MOTE_WANT_LAST};
    if (mote_engine_run(engine, &input, 1, keep, last, &error) != MOTE_OK)
        fail_msg("%s", error.message);
}

static void test_scales(void **state)
{
    (void)state;
    mote_model *model = NULL;
    mote_engine *plain = NULL, *engine = NULL;
    mote_session *session = NULL, *other = NULL;
    assert_int_equal(mote_model_open(TINY, NULL, &model, &error), MOTE_OK);
    assert_int_equal(make_engine(model, NULL, 0, &plain), MOTE_OK);
    if (make_engine(model, tiny_adapters, 2, &engine) != MOTE_OK)
        fail_msg("%s", error.message);
    struct last base = {.n_vocab = mote_model_n_vocab(model)}, first = base, again = base;
    assert_true(base.n_vocab <= N_VOCAB_MAX);
    assert_int_equal(mote_session_create(plain, &session, &error), MOTE_OK);
    run(plain, session, &base);
    mote_session_destroy(session);

    assert_int_equal(mote_session_create(engine, &session, &error), MOTE_OK);
    run(engine, session, &first); // a new session has the scales of the engine's parameters
    static const float off[2] = {0, 0}, given[2] = {0.5f, -0.75f}, bad[2] = {1, NAN};
    assert_int_equal(mote_session_set_adapters(session, off, 2, &error), MOTE_INVALID); // it has tokens
    assert_non_null(strstr(error.message, "clear"));
    mote_session_clear(session);
    assert_int_equal(mote_session_set_adapters(session, off, 1, &error), MOTE_INVALID);
    assert_int_equal(mote_session_set_adapters(session, bad, 2, &error), MOTE_INVALID);
    assert_int_equal(mote_session_set_adapters(session, off, 2, &error), MOTE_OK);
    run(engine, session, &again); // without adapters: the bits of an engine that has none
    assert_memory_equal(again.logits, base.logits, base.n_vocab * sizeof(float));
    assert_memory_not_equal(first.logits, base.logits, base.n_vocab * sizeof(float));
    assert_int_equal(mote_session_create(engine, &other, &error), MOTE_OK);
    assert_int_equal(mote_session_set_adapters(other, given, 2, &error), MOTE_OK);
    run(engine, other, &again);
    assert_memory_equal(again.logits, first.logits, base.n_vocab * sizeof(float));
    mote_session_destroy(other);
    mote_session_destroy(session);
    mote_engine_destroy(engine);
    mote_engine_destroy(plain);
    mote_model_close(model);
}

// What the adapters take is predicted, and the plan shows where they are.
static void test_plan(void **state)
{
    (void)state;
    mote_model *model = NULL;
    mote_engine_params params;
    mote_memory with, without;
    char *json = NULL;
    assert_int_equal(mote_model_open(TINY, NULL, &model, &error), MOTE_OK);
    mote_engine_params_default(&params);
    params.n_threads = 2;
    params.n_batch = 16;
    assert_int_equal(mote_engine_predict(model, &params, &without, &error), MOTE_OK);
    assert_int_equal(mote_model_describe(model, MOTE_PLAN, &params, &json, &error), MOTE_OK);
    assert_null(strstr(json, "lora"));
    mote_free(json);
    params.adapters = tiny_adapters;
    params.n_adapters = 2;
    assert_int_equal(mote_engine_predict(model, &params, &with, &error), MOTE_OK);
    assert_true(with.weights > without.weights && with.work > without.work);
    assert_int_equal(mote_model_describe(model, MOTE_PLAN, &params, &json, &error), MOTE_OK);
    assert_non_null(strstr(json, "\"kind\":\"lora\""));
    assert_non_null(
        strstr(json, "\"name\":\"blk.1.ffn_down_exps.weight.lora_a\",\"dtype\":\"f32\",\"shape\":[32,4,8]"));
    assert_non_null(strstr(json, "\"embed\",\"lora\""));
    assert_non_null(strstr(json, "\"matmul\",\"lora\",\"matmul\",\"lora\",\"matmul\",\"lora\""));
    assert_non_null(strstr(json, "\"mul_mat_id\",\"lora\",\"mul_mat_id\",\"lora\",\"swiglu\""));
    assert_non_null(strstr(json, "\"mul_mat_id_sum\",\"lora\""));
    mote_free(json);
    mote_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
