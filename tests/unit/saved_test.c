// Saved sessions: they go on with the bits that they would have had, in every KV dtype, with windows whose pages are
// gone, latents and several rules of precision; files that are cut short, altered or made to mislead are refused.
#include "mote.h"

#include "test_paths.h"

#include <cmocka.h>
#include <string.h>

enum { N_VOCAB_MAX = 1024, N_TOKENS = 200, N_CONTEXT = 256, HEADER_BYTES = 72, FIRST_PAGE_AT = 56 };

static mote_error error;
static char path[256];

struct engine {
    mote_model *model;
    mote_engine *engine;
};

static struct engine make(const char *name, mote_kv kv, const char *precision, size_t n_batch)
{
    char file[512];
    struct engine made = {0};
    mote_engine_params params;
    snprintf(file, sizeof(file), "%s/models/%s.gguf", TEST_DATA, name);
    if (mote_model_open(file, NULL, &made.model, &error) != MOTE_OK)
        fail_msg("%s", error.message);
    mote_engine_params_default(&params);
    params.n_threads = 1;
    params.n_context = N_CONTEXT;
    params.n_batch = n_batch;
    params.n_sessions = 2;
    params.n_logits = 1;
    params.kv = kv;
    params.precision = precision;
    if (mote_engine_create(made.model, &params, &made.engine, &error) != MOTE_OK)
        fail_msg("%s: %s", name, error.message);
    return made;
}

static void destroy(struct engine *made)
{
    mote_engine_destroy(made->engine);
    mote_model_close(made->model);
}

static mote_session *make_session(const struct engine *made)
{
    mote_session *session = NULL;
    assert_int_equal(mote_session_create(made->engine, &session, &error), MOTE_OK);
    return session;
}

static void fill_tokens(int32_t tokens[N_TOKENS])
{
    for (int32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * 37 + i / 7) % 250;
}

struct last {
    float logits[N_VOCAB_MAX];
    size_t n_vocab;
};

static int keep_last(void *user, size_t input, size_t index, const float *logits)
{
    struct last *last = user;
    (void)input;
    (void)index;
    memcpy(last->logits, logits, last->n_vocab * sizeof(float));
    return 0;
}

static void feed(const struct engine *made, mote_session *session, const int32_t *tokens, size_t n, struct last *last)
{
    mote_input input = {.session = session, .tokens = tokens, .n_tokens = n, .want = MOTE_WANT_LAST};
    last->n_vocab = mote_model_n_vocab(made->model);
    assert_true(last->n_vocab <= N_VOCAB_MAX);
    if (mote_engine_run(made->engine, &input, 1, keep_last, last, &error) != MOTE_OK)
        fail_msg("%s", error.message);
}

static uint8_t *read_file(size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*size + 8);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

static void write_file(const uint8_t *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void save(mote_session *session)
{
    if (mote_session_save(session, path, &error) != MOTE_OK)
        fail_msg("%s", error.message);
}

static void check_goes_on(const char *name, mote_kv kv, const char *precision)
{
    static const size_t splits[] = {1, 63, 64, 65, 130, 199};
    int32_t tokens[N_TOKENS];
    fill_tokens(tokens);
    struct engine writer = make(name, kv, precision, 64), reader = make(name, kv, precision, 17);
    struct last expected, last;
    mote_session *session = make_session(&writer);
    feed(&writer, session, tokens, N_TOKENS, &expected);
    for (size_t i = 0; i < sizeof(splits) / sizeof(splits[0]); i++) {
        mote_session_clear(session);
        feed(&writer, session, tokens, splits[i], &last);
        save(session);
        size_t size, again_size;
        uint8_t *bytes = read_file(&size);
        // Another session holds the first pages, so that the restored one's have other ids.
        mote_session *other = make_session(&reader), *restored = make_session(&reader);
        feed(&reader, other, tokens + 3, 70, &last);
        if (mote_session_restore(restored, path, &error) != MOTE_OK)
            fail_msg("%s, %zu tokens: %s", name, splits[i], error.message);
        assert_int_equal(mote_session_n_tokens(restored), splits[i]);
        assert_memory_equal(mote_session_tokens(restored), tokens, splits[i] * sizeof(*tokens));
        save(restored);
        uint8_t *again = read_file(&again_size);
        assert_int_equal(again_size, size);
        assert_memory_equal(again, bytes, size);
        feed(&reader, restored, tokens + splits[i], N_TOKENS - splits[i], &last);
        if (memcmp(last.logits, expected.logits, last.n_vocab * sizeof(float)) != 0)
            fail_msg("%s: restored at %zu tokens it goes on with other bits", name, splits[i]);
        assert_int_equal(mote_session_restore(restored, path, &error), MOTE_INVALID); // it has tokens
        free(again);
        free(bytes);
        mote_session_destroy(restored);
        mote_session_destroy(other);
    }
    mote_session_destroy(session);
    destroy(&reader);
    destroy(&writer);
}

static void test_goes_on(void **state)
{
    (void)state;
    check_goes_on("llama", MOTE_KV_F16, NULL);
    check_goes_on("gemma3", MOTE_KV_F32, NULL); // windows of 8
    check_goes_on("gpt-oss", MOTE_KV_F16, NULL);
    check_goes_on("mistral4", MOTE_KV_F16, NULL); // latents
    check_goes_on("qwen3", MOTE_KV_Q8_0, NULL);
}

static void test_several_rules(void **state)
{
    (void)state;
    check_goes_on("llama", MOTE_KV_F16, "attn=f32,ffn=f32");
    check_goes_on("llama", MOTE_KV_F16, "ffn_down=bf16,attn=f32,output=f32");
}

// A refused file leaves an empty session, which takes the good one.
static void refused(const struct engine *made, mote_session *session, const char *what, size_t at)
{
    (void)made;
    mote_status status = mote_session_restore(session, path, &error);
    if (status == MOTE_OK)
        fail_msg("a file that is %s at %zu is taken", what, at);
    assert_true(error.message[0] != '\0');
    assert_int_equal(mote_session_n_tokens(session), 0);
}

static void test_damaged_files(void **state)
{
    (void)state;
    int32_t tokens[N_TOKENS];
    fill_tokens(tokens);
    struct engine made = make("llama", MOTE_KV_F16, NULL, 64);
    struct last last;
    mote_session *session = make_session(&made);
    feed(&made, session, tokens, 6, &last);
    save(session);
    mote_session_clear(session);
    size_t size;
    uint8_t *bytes = read_file(&size);
    for (size_t at = 0; at < size; at += at < 120 || at + 24 > size ? 1 : 211) {
        write_file(bytes, at);
        refused(&made, session, "cut", at);
        bytes[at] ^= (uint8_t)(1 << at % 8);
        write_file(bytes, size);
        bytes[at] ^= (uint8_t)(1 << at % 8);
        refused(&made, session, "altered", at);
    }
    bytes[size] = 0;
    write_file(bytes, size + 1);
    refused(&made, session, "longer", size);
    write_file(bytes, size);
    assert_int_equal(mote_session_restore(session, path, &error), MOTE_OK);
    free(bytes);
    mote_session_destroy(session);
    destroy(&made);
}

// The checksum of a file whose parts are all whole words.
static void put_checksum(uint8_t *bytes, size_t size)
{
    uint64_t sum = 0, word;
    for (size_t at = 0; at < size; at += sizeof(word)) {
        memcpy(&word, bytes + at, sizeof(word));
        sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
        sum ^= sum >> 29;
    }
    memcpy(bytes + size, &sum, sizeof(sum));
}

// Files that are sound but lack pages which the next token sees: it would read and write another session's.
static void test_pages_that_are_missing(void **state)
{
    static const struct {
        const char *name;
        size_t n_tokens;
        uint32_t first;
    } cases[] = {{"llama", 100, 2}, {"llama", 64, 1}, {"gemma3", 100, 2}};
    (void)state;
    int32_t tokens[N_TOKENS];
    fill_tokens(tokens);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct engine made = make(cases[i].name, MOTE_KV_F16, NULL, 64);
        struct last last;
        mote_session *session = make_session(&made);
        feed(&made, session, tokens, cases[i].n_tokens, &last);
        save(session);
        mote_session_clear(session);
        size_t size, settings = HEADER_BYTES + cases[i].n_tokens * sizeof(*tokens);
        uint8_t *bytes = read_file(&size);
        uint64_t sum;
        memcpy(&sum, bytes + size - sizeof(sum), sizeof(sum));
        put_checksum(bytes, size - sizeof(sum));
        assert_memory_equal(bytes + size - sizeof(sum), &sum, sizeof(sum)); // else the file below proves nothing
        for (uint32_t kind = 0; kind < 2; kind++)
            memcpy(bytes + FIRST_PAGE_AT + 4 * kind, &cases[i].first, sizeof(cases[i].first));
        put_checksum(bytes, settings);
        write_file(bytes, settings + sizeof(sum));
        refused(&made, session, "without its last pages", i);
        assert_non_null(strstr(error.message, "damaged"));
        free(bytes);
        mote_session_destroy(session);
        destroy(&made);
    }
}

static int make_path(void **state)
{
    (void)state;
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof(path), "%s/mote-saved-XXXXXX", folder != NULL ? folder : "/tmp");
    int file = mkstemp(path);
    return file < 0 ? -1 : close(file);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_several_rules),
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_pages_that_are_missing),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
