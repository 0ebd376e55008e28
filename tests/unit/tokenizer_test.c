// Tokenizers: every case of tests/data/tokenizer, the rules that no case shows, malformed vocabularies, and that no
// text is slow. With the argument "real", the cases of the real models instead (from the model cache).
#include "../vocabulary.h"

#include "test_paths.h"

#include <cmocka.h>

#include <jansson.h>
#include <pthread.h>
#include <strings.h>
#include <time.h>

// ---- cases in files

static struct tokenizer *open_tokenizer(const char *path)
{
    struct gguf *gguf = NULL;
    struct tokenizer *tokenizer = NULL;
    struct error error = {0};
    if (gguf_open(path, &gguf, &error) != STATUS_OK || tokenizer_create(gguf, NULL, &tokenizer, &error) != STATUS_OK)
        fail_msg("%s: %s", path, error.message);
    gguf_close(gguf);
    return tokenizer;
}

static struct token_ids read_ids(const json_t *array)
{
    struct token_ids ids = {0};
    for (size_t i = 0; i < json_array_size(array); i++)
        assert_true(token_ids_append(&ids, (int32_t)json_integer_value(json_array_get(array, i))));
    return ids;
}

static void assert_same_ids(const struct token_ids *ids, const struct token_ids *expected, const char *what)
{
    if (ids->count == expected->count &&
        (ids->count == 0 || memcmp(ids->ids, expected->ids, ids->count * sizeof *ids->ids) == 0))
        return;
    struct buffer got = {0};
    for (size_t i = 0; i < ids->count; i++)
        buffer_append_format(&got, " %d", ids->ids[i]);
    fail_msg("%s: got%s", what, got.data ? got.data : " nothing");
}

static void check_encode(const struct tokenizer *tokenizer, const json_t *line, const char *what)
{
    const json_t *text = json_object_get(line, "text");
    struct text_range all = {0, json_string_length(text)};
    struct token_ids ids = {0};
    struct token_ids expected = read_ids(json_object_get(line, "ids"));
    struct error error = {0};
    size_t n_special = json_is_true(json_object_get(line, "parse_special"));
    if (tokenizer_encode(tokenizer, json_string_value(text), all.end, &all, n_special, &ids, &error) != STATUS_OK)
        fail_msg("%s: %s", what, error.message);
    assert_same_ids(&ids, &expected, what);
    token_ids_free(&ids);
    token_ids_free(&expected);
}

// The stream must hold whole characters at every step, and in the end all of text where text is UTF-8.
static void check_streaming(const struct tokenizer *tokenizer, const struct token_ids *ids, bool special,
                            const struct buffer *text, const char *what)
{
    struct detokenizer state;
    struct buffer streamed = {0};
    detokenizer_init(&state, tokenizer, special);
    for (size_t i = 0; i < ids->count; i++) {
        assert_int_equal(detokenizer_add(&state, ids->ids[i], &streamed, NULL), STATUS_OK);
        if (!utf8_valid(streamed.data, streamed.size, NULL))
            fail_msg("%s: the stream holds half a character", what);
    }
    assert_int_equal(detokenizer_finish(&state, &streamed, NULL), STATUS_OK);
    assert_true(utf8_valid(streamed.data, streamed.size, NULL));
    if (utf8_valid(text->data, text->size, NULL)) {
        assert_int_equal(streamed.size, text->size);
        if (text->size)
            assert_memory_equal(streamed.data, text->data, text->size);
    }
    buffer_free(&streamed);
}

static void check_decode(const struct tokenizer *tokenizer, const json_t *line, const char *what)
{
    struct token_ids ids = read_ids(json_object_get(line, "ids"));
    bool special = json_is_true(json_object_get(line, "special"));
    struct buffer text = {0}, hex = {0};
    assert_int_equal(tokenizer_decode(tokenizer, ids.ids, ids.count, special, &text, NULL), STATUS_OK);
    for (size_t i = 0; i < text.size; i++)
        buffer_append_format(&hex, "%02x", (unsigned char)text.data[i]);
    const char *expected = json_string_value(json_object_get(line, "hex"));
    if (strcmp(hex.data ? hex.data : "", expected) != 0)
        fail_msg("%s: got %s", what, hex.data ? hex.data : "");
    check_streaming(tokenizer, &ids, special, &text, what);
    buffer_free(&text);
    buffer_free(&hex);
    token_ids_free(&ids);
}

static void check_pieces(const struct tokenizer *tokenizer, const json_t *line, const char *what)
{
    (void)tokenizer;
    const json_t *text = json_object_get(line, "text");
    const json_t *expected = json_object_get(line, "pieces");
    struct text_range *pieces;
    size_t n_pieces;
    assert_int_equal(pretokenize(json_string_value(json_object_get(line, "pre")), json_string_value(text),
                                 json_string_length(text), &pieces, &n_pieces, NULL),
                     STATUS_OK);
    bool same = n_pieces == json_array_size(expected);
    for (size_t i = 0; i < n_pieces && same; i++) {
        const json_t *piece = json_array_get(expected, i);
        same =
            json_string_length(piece) == pieces[i].end - pieces[i].begin &&
            memcmp(json_string_value(piece), json_string_value(text) + pieces[i].begin, json_string_length(piece)) == 0;
    }
    if (!same)
        fail_msg("%s: split into %zu other pieces", what, n_pieces);
    free(pieces);
}

typedef void check_line(const struct tokenizer *tokenizer, const json_t *line, const char *what);

static void check_file(const struct tokenizer *tokenizer, const char *name, check_line *check, size_t least)
{
    char path[4096];
    static char text[1 << 20];
    snprintf(path, sizeof path, "%s/tokenizer/%s", TEST_DATA, name);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s cannot be opened", path);
    size_t n = 0;
    while (fgets(text, sizeof text, file)) {
        json_t *line = json_loads(text, JSON_ALLOW_NUL, NULL);
        assert_non_null(line);
        check(tokenizer, line, text);
        json_decref(line);
        n++;
    }
    fclose(file);
    assert_in_range(n, least, 100000);
}

static void test_pretokenize(void **state)
{
    (void)state;
    check_file(NULL, "pretokenize.jsonl", check_pieces, 595);
}

static void test_own_vocabularies(void **state)
{
    (void)state;
    static const char *const names[] = {"bpe-gpt2", "bpe-llama3", "spm-bytes", "spm-unknown"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[4096], cases[64], decode[64];
        snprintf(path, sizeof path, "%s/tokenizer/%s.gguf", TEST_DATA, names[i]);
        snprintf(cases, sizeof cases, "%s.jsonl", names[i]);
        snprintf(decode, sizeof decode, "%s.decode.jsonl", names[i]);
        struct tokenizer *tokenizer = open_tokenizer(path);
        check_file(tokenizer, cases, check_encode, 170);
        check_file(tokenizer, decode, check_decode, 10);
        tokenizer_destroy(tokenizer);
    }
}

static bool model_path(char *path, size_t capacity, const char *name)
{
    const char *cache = getenv("MOTE_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache)
        snprintf(path, capacity, "%s/%s", cache, name);
    else if (xdg && *xdg)
        snprintf(path, capacity, "%s/mote/%s", xdg, name);
    else
        snprintf(path, capacity, "%s/.cache/mote/%s", home ? home : "", name);
    if (access(path, R_OK) == 0)
        return true;
    printf("skipped: the tokenizer of %s: %s is not there (tools/fetch_model.py fetches it)\n", name, path);
    return false;
}

static void test_smollm2(void **state)
{
    (void)state;
    char path[4096];
    if (!model_path(path, sizeof path, "smollm2.gguf"))
        return;
    struct tokenizer *tokenizer = open_tokenizer(path);
    check_file(tokenizer, "smollm2.jsonl", check_encode, 231);
    check_file(tokenizer, "smollm2.decode.jsonl", check_decode, 70);
    assert_false(tokenizer_adds_bos(tokenizer));
    assert_int_equal(tokenizer_n_tokens(tokenizer), 49152);
    assert_true(tokenizer_is_end(tokenizer, 2)); // <|im_end|>, the file's eos
    assert_true(tokenizer_is_end(tokenizer, 0)); // <|endoftext|>
    assert_false(tokenizer_is_end(tokenizer, 1));
    tokenizer_destroy(tokenizer);
}

static void test_gemma3(void **state)
{
    (void)state;
    char path[4096];
    if (!model_path(path, sizeof path, "gemma3-270m.gguf"))
        return;
    struct tokenizer *tokenizer = open_tokenizer(path);
    check_file(tokenizer, "gemma3.jsonl", check_encode, 249);
    check_file(tokenizer, "gemma3.decode.jsonl", check_decode, 72);
    assert_true(tokenizer_adds_bos(tokenizer));
    assert_int_equal(tokenizer_bos(tokenizer), 2);
    assert_true(tokenizer_is_end(tokenizer, 1));   // <eos>
    assert_true(tokenizer_is_end(tokenizer, 106)); // <end_of_turn>
    tokenizer_destroy(tokenizer);
}

// ---- vocabularies in memory

static struct tokenizer *create(struct vocabulary *vocabulary, const char *pre)
{
    struct tokenizer *tokenizer;
    struct error error = {0};
    if (tokenizer_create(&vocabulary->gguf, pre, &tokenizer, &error) != STATUS_OK)
        fail_msg("%s", error.message);
    vocabulary_free(vocabulary);
    return tokenizer;
}

static struct tokenizer *make_bpe(void)
{
    static struct vocabulary vocabulary;
    vocabulary_make_bpe(&vocabulary);
    vocabulary_finish(&vocabulary, "gpt2");
    return create(&vocabulary, "gpt-2");
}

static struct tokenizer *make_spm(bool space_prefix)
{
    static struct vocabulary vocabulary;
    vocabulary_make_spm(&vocabulary);
    vocabulary_bool(&vocabulary, "tokenizer.ggml.add_space_prefix", space_prefix);
    vocabulary_finish(&vocabulary, "llama");
    return create(&vocabulary, NULL);
}

// Whether text becomes `pieces`, which are separated by '|'.
static void assert_pieces(const struct tokenizer *tokenizer, const char *text, size_t size,
                          const struct text_range *special, size_t n_special, const char *pieces)
{
    struct token_ids ids = {0};
    struct buffer joined = {0};
    assert_int_equal(tokenizer_encode(tokenizer, text, size, special, n_special, &ids, NULL), STATUS_OK);
    for (size_t i = 0; i < ids.count; i++) {
        struct gguf_string piece = tokenizer_piece(tokenizer, ids.ids[i]);
        buffer_append_text(&joined, i ? "|" : "");
        buffer_append(&joined, piece.text, piece.size);
    }
    assert_string_equal(joined.data ? joined.data : "", pieces);
    buffer_free(&joined);
    token_ids_free(&ids);
}

static void test_special_ranges(void **state)
{
    (void)state;
    struct tokenizer *bpe = make_bpe();
    static const char text[] = "<|end|><|end|><|end|>";
    size_t size = sizeof text - 1;
    static const struct text_range second = {7, 14}, cut[] = {{0, 6}, {8, 21}}, short_range = {0, 3};
    assert_pieces(bpe, text, size, NULL, 0, "<|||e|n|d|||>|<|||e|n|d|||>|<|||e|n|d|||>");
    assert_pieces(bpe, text, size, &second, 1, "<|||e|n|d|||>|<|end|>|<|||e|n|d|||>");
    assert_pieces(bpe, text, size, cut, 2, "<||e|n|d|||>|<|||e|n|d|||>|<|end|>"); // the control token "<|" fits
    assert_pieces(bpe, text, size, &short_range, 1, "<||e|n|d|||>|<|||e|n|d|||>|<|||e|n|d|||>");
    // User-defined tokens everywhere, the longest first.
    assert_pieces(bpe, "<toolbox><tool><too", 19, NULL, 0, "<toolbox>|<tool>|<|t|o|o");
    tokenizer_destroy(bpe);

    struct tokenizer *spm = make_spm(true);
    static const char turn[] = "the<s>the</s>";
    static const struct text_range all = {0, sizeof turn - 1}, front = {0, 6};
    assert_pieces(spm, turn, all.end, &all, 1, "▁the|<s>|▁the|</s>");
    assert_pieces(spm, turn, all.end, &front, 1, "▁the|<s>|▁the|<0x3C>|<0x2F>|<0x73>|<0x3E>");
    assert_pieces(spm, "<tool>", 6, NULL, 0, "▁|<tool>");
    assert_pieces(spm, "<s>", 3, &all, 1, "<s>");
    assert_pieces(spm, "", 0, NULL, 0, "");
    tokenizer_destroy(spm);
}

static void test_sentencepiece_rules(void **state)
{
    (void)state;
    struct tokenizer *spm = make_spm(false);
    assert_pieces(spm, "the the", 7, NULL, 0, "the|▁the");
    assert_pieces(spm, "▁the", 6, NULL, 0, "▁the");        // a mark is a space
    assert_pieces(spm, "    the", 7, NULL, 0, "   |▁the"); // the user-defined run of three comes first
    assert_pieces(spm, "e t", 3, NULL, 0, "e▁t");          // a merge may cross a space
    assert_pieces(spm, "he t", 4, NULL, 0, "he|▁|t");      // unless a better one was first
    assert_pieces(spm, "aaaaaaa", 7, NULL, 0, "aaaa|aa|a");
    assert_pieces(spm, "ha", 2, NULL, 0, "h|a"); // merged into an unused token, taken apart
    assert_pieces(spm, "aha", 3, NULL, 0, "a|h|a");
    assert_pieces(spm, "中é\xff", 6, NULL, 0, "中|<0xC3>|<0xA9>|<0xFF>"); // bytes, also of what is not UTF-8
    tokenizer_destroy(spm);
}

static void test_invalid_utf8(void **state)
{
    (void)state;
    static const char text[] = "the \xff\xfe the\xf0\x9f\x98 \xed\xa0\x80";
    size_t size = sizeof text - 1;
    struct tokenizer *tokenizers[] = {make_bpe(), make_spm(false)};
    for (size_t i = 0; i < 2; i++) {
        struct token_ids ids = {0};
        struct buffer decoded = {0};
        assert_int_equal(tokenizer_encode(tokenizers[i], text, size, NULL, 0, &ids, NULL), STATUS_OK);
        assert_int_equal(tokenizer_decode(tokenizers[i], ids.ids, ids.count, false, &decoded, NULL), STATUS_OK);
        assert_int_equal(decoded.size, size);
        assert_memory_equal(decoded.data, text, size);
        check_streaming(tokenizers[i], &ids, false, &decoded, "invalid UTF-8");
        buffer_free(&decoded);
        token_ids_free(&ids);
        tokenizer_destroy(tokenizers[i]);
    }
}

static void assert_streamed(struct detokenizer *state, const char *byte_piece, const char *expected)
{
    struct buffer text = {0};
    int32_t id = tokenizer_find(state->tokenizer, byte_piece, strlen(byte_piece));
    assert_true(id >= 0);
    assert_int_equal(detokenizer_add(state, id, &text, NULL), STATUS_OK);
    assert_string_equal(text.data ? text.data : "", expected);
    buffer_free(&text);
}

static void test_streaming(void **state)
{
    (void)state;
    struct tokenizer *spm = make_spm(true);
    struct detokenizer stream;
    struct buffer rest = {0};
    detokenizer_init(&stream, spm, false);
    assert_streamed(&stream, "<s>", "");
    assert_streamed(&stream, "▁the", "the"); // the prefix is dropped once, control tokens or not
    assert_streamed(&stream, "▁the", " the");
    assert_streamed(&stream, "<0xF0>", "");
    assert_streamed(&stream, "<0x9F>", "");
    assert_streamed(&stream, "<0x98>", "");
    assert_streamed(&stream, "<0x80>", "😀");
    assert_streamed(&stream, "<0xE4>", "");
    assert_streamed(&stream, "<0xB8>", "");
    assert_streamed(&stream, "the", "\xef\xbf\xbdthe"); // one for the cut character
    assert_streamed(&stream, "<0xC0>", "\xef\xbf\xbd");
    assert_streamed(&stream, "<0xE4>", "");
    assert_streamed(&stream, "<0xE4>", "\xef\xbf\xbd");
    assert_int_equal(detokenizer_finish(&stream, &rest, NULL), STATUS_OK);
    assert_string_equal(rest.data, "\xef\xbf\xbd");
    buffer_free(&rest);
    struct error error = {0};
    assert_int_equal(detokenizer_add(&stream, 100000, &rest, &error), STATUS_INVALID);
    assert_non_null(strstr(error.message, "100000"));
    static const int32_t negative = -1;
    assert_int_equal(tokenizer_decode(spm, &negative, 1, true, &rest, NULL), STATUS_INVALID);
    tokenizer_destroy(spm);
}

static void test_lookups(void **state)
{
    (void)state;
    struct tokenizer *bpe = make_bpe();
    struct tokenizer *spm = make_spm(false);
    const struct tokenizer *const both[] = {bpe, spm};
    for (size_t i = 0; i < 2; i++) {
        for (int32_t id = 0; (size_t)id < tokenizer_n_tokens(both[i]); id++) {
            struct gguf_string piece = tokenizer_piece(both[i], id);
            int32_t found = tokenizer_find(both[i], piece.text, piece.size);
            assert_in_range(found, 0, id); // the first of equal ones
            assert_string_equal(tokenizer_piece(both[i], found).text, piece.text);
        }
        assert_int_equal(tokenizer_find(both[i], "no such piece", 13), -1);
    }
    assert_int_equal(tokenizer_type(spm, tokenizer_find(spm, "<0x41>", 6)), TOKEN_BYTE);
    assert_int_equal(tokenizer_bos(spm), tokenizer_find(spm, "<s>", 3)); // by name: the file has no key
    assert_int_equal(tokenizer_eos(spm), tokenizer_find(spm, "</s>", 4));
    assert_true(tokenizer_adds_bos(spm));
    assert_false(tokenizer_adds_eos(spm));
    assert_int_equal(tokenizer_bos(bpe), -1);
    assert_false(tokenizer_adds_bos(bpe));
    tokenizer_destroy(bpe);
    tokenizer_destroy(spm);
}

static void test_ends(void **state)
{
    (void)state;
    static struct vocabulary vocabulary;
    for (int harmony = 0; harmony < 2; harmony++) {
        vocabulary_make_bpe(&vocabulary);
        int32_t eot = vocabulary_token(&vocabulary, "<eot of this file>", TOKEN_CONTROL, 0);
        int32_t plain = vocabulary_token(&vocabulary, "</s>", TOKEN_NORMAL, 0);
        int32_t turn = vocabulary_token(&vocabulary, "<end_of_turn>", TOKEN_USER_DEFINED, 0);
        int32_t finish = harmony ? vocabulary_token(&vocabulary, "<|return|>", TOKEN_CONTROL, 0) : eot;
        vocabulary_u32(&vocabulary, "tokenizer.ggml.eot_token_id", (uint32_t)eot);
        vocabulary_u32(&vocabulary, "tokenizer.ggml.bos_token_id", 5);
        vocabulary_u32(&vocabulary, "tokenizer.ggml.eos_token_id", 6);
        vocabulary_bool(&vocabulary, "tokenizer.ggml.add_eos_token", true);
        vocabulary_finish(&vocabulary, "gpt2");
        struct tokenizer *tokenizer = create(&vocabulary, "llama3");
        assert_true(tokenizer_is_end(tokenizer, eot));
        assert_true(tokenizer_is_end(tokenizer, 6));
        assert_true(tokenizer_is_end(tokenizer, turn));
        assert_true(tokenizer_is_end(tokenizer, finish));
        assert_true(tokenizer_is_end(tokenizer, tokenizer_find(tokenizer, "<|endoftext|>", 13)));
        assert_false(tokenizer_is_end(tokenizer, plain)); // text, not a control token
        assert_false(tokenizer_is_end(tokenizer, 5));
        assert_false(tokenizer_is_end(tokenizer, -1));
        // Where <|return|> ends a turn, <|end|> ends one message of it.
        assert_int_equal(tokenizer_is_end(tokenizer, tokenizer_find(tokenizer, "<|end|>", 7)), !harmony);
        assert_true(tokenizer_adds_bos(tokenizer)); // as Llama 3's pre-tokenizer implies
        assert_true(tokenizer_adds_eos(tokenizer));
        tokenizer_destroy(tokenizer);
    }
}

// ---- pre-tokenizers

static void assert_split(const char *pre, const char *text, const char *pieces)
{
    struct text_range *ranges;
    size_t n_ranges;
    struct buffer joined = {0};
    assert_int_equal(pretokenize(pre, text, strlen(text), &ranges, &n_ranges, NULL), STATUS_OK);
    for (size_t i = 0; i < n_ranges; i++) {
        buffer_append_text(&joined, i ? "_" : "");
        buffer_append(&joined, text + ranges[i].begin, ranges[i].end - ranges[i].begin);
    }
    assert_string_equal(joined.data ? joined.data : "", pieces);
    buffer_free(&joined);
    free(ranges);
}

static void test_pre_names(void **state)
{
    (void)state;
    assert_split("default", "a=12345 b", "a_=_123_45_ b");
    assert_split("gpt-2", "a=12345 b", "a_=_12345_ b");
    assert_split("glm4", "a=12345", "a_=_123_45");
    assert_split("deepseek-r1-qwen", "a=12345", "a_=_1_2_3_4_5");
    assert_split("llama4", "camelCase", "camel_Case");
    assert_split("gpt-2",
                 "a\xe1\xa0\x8e"
                 "b",
                 "a_\xe1\xa0\x8e_b"); // U+180E is no space any more
    assert_split("gpt-2", "", "");
    struct text_range *ranges;
    size_t n_ranges;
    static const char *const unknown[] = {"nosuch", "", " ", "gpt", "gpt-2 olmo", "qwen"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        struct error error = {0};
        assert_int_equal(pretokenize(unknown[i], "a", 1, &ranges, &n_ranges, &error), STATUS_UNSUPPORTED);
        assert_null(ranges);
        assert_non_null(strstr(error.message, unknown[i]));
        assert_non_null(strstr(error.message, "llama-bpe")); // the known ones
        assert_non_null(strstr(error.message, "deepseek-llm"));
    }
}

static void test_pre_override(void **state)
{
    (void)state;
    static struct vocabulary vocabulary;
    static const char *const stored[] = {NULL, "gpt-2", "nosuch"};
    static const char *const overrides[] = {NULL, "qwen2", "nosuch"};
    for (size_t i = 0; i < 9; i++) {
        const char *file = stored[i / 3], *override = overrides[i % 3];
        vocabulary_make_bpe(&vocabulary);
        if (file)
            vocabulary_text(&vocabulary, "tokenizer.ggml.pre", file);
        vocabulary_finish(&vocabulary, "gpt2");
        struct tokenizer *tokenizer;
        struct error error = {0};
        enum status status = tokenizer_create(&vocabulary.gguf, override, &tokenizer, &error);
        vocabulary_free(&vocabulary);
        const char *used = override ? override : file;
        if (used && strcmp(used, "nosuch") == 0) {
            assert_int_equal(status, STATUS_UNSUPPORTED);
            assert_non_null(strstr(error.message, "'nosuch'"));
            assert_null(tokenizer);
            continue;
        }
        assert_int_equal(status, STATUS_OK);
        // The merge 12 3 is reached where digits stay together.
        assert_pieces(tokenizer, "123", 3, NULL, 0, used && strcmp(used, "qwen2") == 0 ? "1|2|3" : "123");
        tokenizer_destroy(tokenizer);
    }
}

// ---- no text is slow

static void repeat(struct buffer *text, const char *unit, size_t size)
{
    text->size = 0;
    while (text->size < size)
        assert_true(buffer_append(text, unit, strlen(unit)));
}

static uint64_t count_steps(const struct tokenizer *tokenizer, const struct buffer *text)
{
    struct token_ids ids = {0};
    struct buffer decoded = {0};
    uint64_t before = tokenizer_merge_steps();
    assert_int_equal(tokenizer_encode(tokenizer, text->data, text->size, NULL, 0, &ids, NULL), STATUS_OK);
    uint64_t steps = tokenizer_merge_steps() - before;
    assert_int_equal(tokenizer_decode(tokenizer, ids.ids, ids.count, true, &decoded, NULL), STATUS_OK);
    assert_int_equal(decoded.size, text->size);
    assert_memory_equal(decoded.data, text->data, text->size);
    buffer_free(&decoded);
    token_ids_free(&ids);
    return steps;
}

static void test_linear(void **state)
{
    (void)state;
    static const char *const units[] = {" ", "a",  "A",   "1",   "\n", "\r\n",  " \n", "中",  "\xff",
                                        "!", "aA", " th", "the", "'s", "<tool", "<|",  "he ", "e\xcc\x81"};
    struct tokenizer *tokenizers[] = {make_bpe(), make_spm(false)};
    struct buffer text = {0};
    for (size_t i = 0; i < 2; i++) {
        for (size_t unit = 0; unit < sizeof units / sizeof *units; unit++) {
            repeat(&text, units[unit], 1 << 16);
            uint64_t once = count_steps(tokenizers[i], &text);
            repeat(&text, units[unit], 1 << 17);
            uint64_t twice = count_steps(tokenizers[i], &text);
            if ((double)twice > 2.2 * (double)once + 64)
                fail_msg("'%s': %llu steps for half of a text, %llu for all of it", units[unit],
                         (unsigned long long)once, (unsigned long long)twice);
            assert_in_range(twice, 0, 8u << 17);
        }
        tokenizer_destroy(tokenizers[i]);
    }
    buffer_free(&text);
}

// Splitting is not counted, so its time is taken: some of the expressions are quadratic when run as written.
static void test_long_runs(void **state)
{
    (void)state;
    static const char *const names[] = {"default",        "gpt-2",       "llama-bpe",  "qwen35",
                                        "gpt-4o",         "tekken",      "kimi-k2",    "smollm",
                                        "deepseek-coder", "deepseek-v3", "seed-coder", "deepseek-llm"};
    static const char *const units[] = {" ", "a", "A", "7", "\n", "中", "\xcc\x81", "!", "\xe3\x80\x80"};
    struct buffer text = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (size_t unit = 0; unit < sizeof units / sizeof *units; unit++) {
            repeat(&text, units[unit], 1 << 18);
            assert_true(buffer_append_text(&text, "x")); // so that nothing reaches to the end
            struct text_range *pieces;
            size_t n_pieces;
            clock_t begin = clock();
            assert_int_equal(pretokenize(names[i], text.data, text.size, &pieces, &n_pieces, NULL), STATUS_OK);
            double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
            size_t at = 0;
            for (size_t piece = 0; piece < n_pieces; piece++) {
                assert_int_equal(pieces[piece].begin, at);
                at = pieces[piece].end;
            }
            assert_int_equal(at, text.size);
            if (seconds > 10) // a quadratic one takes more, and far more for a longer text
                fail_msg("%s takes %.1f s for a run of '%s'", names[i], seconds, units[unit]);
            free(pieces);
        }
    }
    buffer_free(&text);
}

// ---- threads

struct thread_work {
    const struct tokenizer *tokenizer;
    const struct buffer *text;
    struct token_ids ids;
    enum status status;
};

static void *encode_in_thread(void *user)
{
    struct thread_work *work = user;
    work->status = tokenizer_encode(work->tokenizer, work->text->data, work->text->size, NULL, 0, &work->ids, NULL);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct tokenizer *tokenizers[] = {make_bpe(), make_spm(true)};
    struct buffer text = {0};
    repeat(&text, "the three  aaa <tool> 123 中中 it's\n\n", 20000);
    for (size_t i = 0; i < 2; i++) {
        enum { N = 4 };
        struct thread_work work[N];
        pthread_t threads[N];
        for (size_t t = 0; t < N; t++) {
            work[t] = (struct thread_work){.tokenizer = tokenizers[i], .text = &text};
            assert_int_equal(pthread_create(&threads[t], NULL, encode_in_thread, &work[t]), 0);
        }
        for (size_t t = 0; t < N; t++) {
            assert_int_equal(pthread_join(threads[t], NULL), 0);
            assert_int_equal(work[t].status, STATUS_OK);
            assert_same_ids(&work[t].ids, &work[0].ids, "a thread");
        }
        for (size_t t = 0; t < N; t++)
            token_ids_free(&work[t].ids);
        tokenizer_destroy(tokenizers[i]);
    }
    buffer_free(&text);
}

// ---- malformed vocabularies

enum flaw {
    FLAW_NO_MODEL,
    FLAW_MODEL_UNKNOWN,
    FLAW_NO_TOKENS,
    FLAW_EMPTY_TOKENS,
    FLAW_TYPES_SHORT,
    FLAW_TYPES_STRINGS,
    FLAW_TYPE_NINE,
    FLAW_SCORES_MISSING,
    FLAW_SCORES_SHORT,
    FLAW_SCORE_NAN,
    FLAW_BYTE_NAME,
    FLAW_MERGES_MISSING,
    FLAW_MERGE_ONE_PIECE,
    FLAW_MERGE_NO_RIGHT,
    FLAW_MERGE_UNKNOWN_PART,
    FLAW_MERGE_UNKNOWN_RESULT,
    FLAW_BOS_RANGE,
    FLAW_EOT_RANGE,
    FLAW_PAD_RANGE,
    FLAW_EOS_TEXT,
    FLAW_ADD_BOS_NUMBER,
    FLAW_PRE_NUMBER,
    N_FLAWS
};

static const char *const flaw_mentions[N_FLAWS] = {
    [FLAW_NO_MODEL] = "tokenizer.ggml.model",
    [FLAW_MODEL_UNKNOWN] = "'nosuch'",
    [FLAW_NO_TOKENS] = "tokenizer.ggml.tokens",
    [FLAW_EMPTY_TOKENS] = "tokenizer.ggml.tokens is empty",
    [FLAW_TYPES_SHORT] = "tokenizer.ggml.token_type has",
    [FLAW_TYPES_STRINGS] = "tokenizer.ggml.token_type should be",
    [FLAW_TYPE_NINE] = "token_type[3] is 9",
    [FLAW_SCORES_MISSING] = "tokenizer.ggml.scores",
    [FLAW_SCORES_SHORT] = "tokenizer.ggml.scores has",
    [FLAW_SCORE_NAN] = "tokenizer.ggml.scores[7] is NaN",
    [FLAW_BYTE_NAME] = "<0xZZ>",
    [FLAW_MERGES_MISSING] = "tokenizer.ggml.merges",
    [FLAW_MERGE_ONE_PIECE] = "'the'",
    [FLAW_MERGE_NO_RIGHT] = "'the '",
    [FLAW_MERGE_UNKNOWN_PART] = "'nosuch a'",
    [FLAW_MERGE_UNKNOWN_RESULT] = "the merged piece",
    [FLAW_BOS_RANGE] = "tokenizer.ggml.bos_token_id is 5000",
    [FLAW_EOT_RANGE] = "tokenizer.ggml.eot_token_id is 4294967295",
    [FLAW_PAD_RANGE] = "tokenizer.ggml.padding_token_id is 5000",
    [FLAW_EOS_TEXT] = "tokenizer.ggml.eos_token_id",
    [FLAW_ADD_BOS_NUMBER] = "tokenizer.ggml.add_bos_token",
    [FLAW_PRE_NUMBER] = "tokenizer.ggml.pre",
};

static void make_flawed(struct vocabulary *vocabulary, enum flaw flaw)
{
    static const char *const merges[N_FLAWS] = {
        [FLAW_MERGE_ONE_PIECE] = "the",
        [FLAW_MERGE_NO_RIGHT] = "the ",
        [FLAW_MERGE_UNKNOWN_PART] = "nosuch a",
        [FLAW_MERGE_UNKNOWN_RESULT] = "x y",
    };
    bool spm = flaw >= FLAW_SCORES_MISSING && flaw <= FLAW_BYTE_NAME;
    if (spm)
        vocabulary_make_spm(vocabulary);
    else
        vocabulary_make_bpe(vocabulary);
    if (merges[flaw])
        vocabulary->merges[vocabulary->n_merges++] = vocabulary_string(vocabulary, merges[flaw], strlen(merges[flaw]));
    if (flaw == FLAW_TYPE_NINE)
        vocabulary->types[3] = 9;
    if (flaw == FLAW_SCORE_NAN)
        vocabulary->scores[7] = __builtin_nanf("");
    if (flaw == FLAW_BYTE_NAME)
        vocabulary_token(vocabulary, "<0xZZ>", TOKEN_BYTE, 0);
    if (flaw == FLAW_BOS_RANGE)
        vocabulary_u32(vocabulary, "tokenizer.ggml.bos_token_id", 5000);
    if (flaw == FLAW_EOT_RANGE)
        vocabulary_u32(vocabulary, "tokenizer.ggml.eot_token_id", UINT32_MAX);
    if (flaw == FLAW_PAD_RANGE)
        vocabulary_u32(vocabulary, "tokenizer.ggml.padding_token_id", 5000);
    if (flaw == FLAW_EOS_TEXT)
        vocabulary_text(vocabulary, "tokenizer.ggml.eos_token_id", "2");
    if (flaw == FLAW_ADD_BOS_NUMBER)
        vocabulary_u32(vocabulary, "tokenizer.ggml.add_bos_token", 1);
    if (flaw == FLAW_PRE_NUMBER)
        vocabulary_u32(vocabulary, "tokenizer.ggml.pre", 1);

    uint32_t n = vocabulary->n_tokens;
    if (flaw != FLAW_NO_MODEL)
        vocabulary_text(vocabulary, "tokenizer.ggml.model",
                        flaw == FLAW_MODEL_UNKNOWN ? "nosuch"
                        : spm                      ? "llama"
                                                   : "gpt2");
    if (flaw != FLAW_NO_TOKENS)
        vocabulary_array(vocabulary, "tokenizer.ggml.tokens", GGUF_STRING, vocabulary->tokens,
                         flaw == FLAW_EMPTY_TOKENS ? 0 : n);
    if (flaw == FLAW_TYPES_STRINGS)
        vocabulary_array(vocabulary, "tokenizer.ggml.token_type", GGUF_STRING, vocabulary->tokens, n);
    else
        vocabulary_array(vocabulary, "tokenizer.ggml.token_type", GGUF_I32, vocabulary->types,
                         flaw == FLAW_TYPES_SHORT ? n - 1 : n);
    if (spm && flaw != FLAW_SCORES_MISSING)
        vocabulary_array(vocabulary, "tokenizer.ggml.scores", GGUF_F32, vocabulary->scores,
                         flaw == FLAW_SCORES_SHORT ? n - 1 : n);
    if (!spm && flaw != FLAW_MERGES_MISSING)
        vocabulary_array(vocabulary, "tokenizer.ggml.merges", GGUF_STRING, vocabulary->merges, vocabulary->n_merges);
}

static void test_malformed(void **state)
{
    (void)state;
    static struct vocabulary vocabulary;
    for (int flaw = 0; flaw < N_FLAWS; flaw++) {
        make_flawed(&vocabulary, (enum flaw)flaw);
        struct tokenizer *tokenizer;
        struct error error = {0};
        enum status status = tokenizer_create(&vocabulary.gguf, NULL, &tokenizer, &error);
        if (status == STATUS_OK)
            fail_msg("the flaw that should be told by %s is accepted", flaw_mentions[flaw]);
        assert_null(tokenizer);
        assert_int_equal(error.status, status);
        if (!strstr(error.message, flaw_mentions[flaw]))
            fail_msg("'%s' does not mention %s", error.message, flaw_mentions[flaw]);
        assert_int_equal(tokenizer_create(&vocabulary.gguf, NULL, &tokenizer, NULL), status); // an error may be NULL
        vocabulary_free(&vocabulary);
    }
}

static void test_malformed_files(void **state)
{
    (void)state;
    static const char *const files[][2] = {
        {"no_tokenizer", "tokenizer"},      {"tokenizer_unknown", "nosuch"}, {"no_tokens", "tokens"},
        {"tokens_wrong_type", "type"},      {"scores_short", "scores"},      {"bos_out_of_range", "bos"},
        {"token_type_short", "token_type"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s.gguf", TEST_GGUF_BAD, files[i][0]);
        struct gguf *gguf;
        struct tokenizer *tokenizer;
        struct error error = {0};
        assert_int_equal(gguf_open(path, &gguf, &error), STATUS_OK);
        assert_int_not_equal(tokenizer_create(gguf, NULL, &tokenizer, &error), STATUS_OK);
        if (!strcasestr(error.message, files[i][1]))
            fail_msg("%s: '%s' does not mention %s", files[i][0], error.message, files[i][1]);
        gguf_close(gguf);
    }
    tokenizer_destroy(open_tokenizer(TEST_GGUF_BAD "/valid.gguf"));
}

// Oddities that files have and that are no errors.
static void test_tolerated(void **state)
{
    (void)state;
    static struct vocabulary vocabulary;
    vocabulary_make_bpe(&vocabulary);
    vocabulary_token(&vocabulary, "the", TOKEN_NORMAL, 0);          // a duplicate
    vocabulary_token(&vocabulary, "<tool>", TOKEN_USER_DEFINED, 0); // another
    vocabulary_token(&vocabulary, "x", TOKEN_CONTROL, 0);           // a control token that is a letter
    vocabulary_token(&vocabulary, "xy", TOKEN_CONTROL, 0);          // and one that a merge would give
    vocabulary_token(&vocabulary, "", TOKEN_CONTROL, 0);
    vocabulary.merges[vocabulary.n_merges++] = vocabulary_string(&vocabulary, "x y", 3);
    vocabulary.types[10] = 0; // undefined
    vocabulary_finish(&vocabulary, "gpt2");
    struct tokenizer *tokenizer = create(&vocabulary, "llama-bpe");
    assert_pieces(tokenizer, "xy the<tool>", 12, NULL, 0, "x|y|Ġthe|<tool>");
    struct token_ids ids = {0};
    assert_int_equal(tokenizer_encode(tokenizer, "xythe", 5, NULL, 0, &ids, NULL), STATUS_OK);
    for (size_t i = 0; i < ids.count; i++)
        assert_int_not_equal(tokenizer_type(tokenizer, ids.ids[i]), TOKEN_CONTROL);
    token_ids_free(&ids);
    tokenizer_destroy(tokenizer);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pretokenize),     cmocka_unit_test(test_own_vocabularies),
        cmocka_unit_test(test_special_ranges),  cmocka_unit_test(test_sentencepiece_rules),
        cmocka_unit_test(test_invalid_utf8),    cmocka_unit_test(test_streaming),
        cmocka_unit_test(test_lookups),         cmocka_unit_test(test_ends),
        cmocka_unit_test(test_pre_names),       cmocka_unit_test(test_pre_override),
        cmocka_unit_test(test_linear),          cmocka_unit_test(test_long_runs),
        cmocka_unit_test(test_threads),         cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_malformed_files), cmocka_unit_test(test_tolerated),
    };
    static const struct CMUnitTest real[] = {cmocka_unit_test(test_smollm2), cmocka_unit_test(test_gemma3)};
    if (argc > 1 && strcmp(argv[1], "real") == 0)
        return cmocka_run_group_tests(real, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
