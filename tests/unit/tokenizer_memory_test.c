// Memory runs out at the n-th allocation, for every n: making a tokenizer, encoding, decoding and streaming must fail
// cleanly and leak nothing. Linked with --wrap for malloc and its kin.
#include "../vocabulary.h"

#include "test_paths.h"

#include <cmocka.h>

#include "failing_heap.h"

static const char text[] = "the <tool> three<|end|>  12345 aaaaaaaa \xff\xe2\x96\x81the ahaha 中中é";

static struct vocabulary vocabulary; // made before the heap fails

static enum status make_and_use(struct error *error)
{
    static const struct text_range all = {0, sizeof text - 1};
    struct tokenizer *tokenizer;
    struct token_ids ids = {0};
    struct buffer decoded = {0}, streamed = {0};
    struct detokenizer stream;
    enum status status = tokenizer_create(&vocabulary.gguf, NULL, &tokenizer, error);
    if (status != STATUS_OK) {
        assert_null(tokenizer);
        return status;
    }
    status = tokenizer_encode(tokenizer, text, all.end, &all, 1, &ids, error);
    if (status != STATUS_OK)
        assert_int_equal(ids.count, 0); // what could not be finished is taken back
    if (status == STATUS_OK)
        status = tokenizer_decode(tokenizer, ids.ids, ids.count, true, &decoded, error);
    detokenizer_init(&stream, tokenizer, true);
    for (size_t i = 0; i < ids.count && status == STATUS_OK; i++)
        status = detokenizer_add(&stream, ids.ids[i], &streamed, error);
    if (status == STATUS_OK)
        status = detokenizer_finish(&stream, &streamed, error);
    buffer_free(&decoded);
    buffer_free(&streamed);
    token_ids_free(&ids);
    tokenizer_destroy(tokenizer);
    return status;
}

static void test_bpe(void **state)
{
    (void)state;
    vocabulary_make_bpe(&vocabulary);
    vocabulary_text(&vocabulary, "tokenizer.ggml.pre", "deepseek-coder");
    vocabulary_finish(&vocabulary, "gpt2");
    exhaust(make_and_use);
    vocabulary_free(&vocabulary);
}

static void test_spm(void **state)
{
    (void)state;
    vocabulary_make_spm(&vocabulary);
    vocabulary_finish(&vocabulary, "llama");
    exhaust(make_and_use);
    vocabulary_free(&vocabulary);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_bpe), cmocka_unit_test(test_spm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
