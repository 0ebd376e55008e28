// GGUF: every file of the manifests of malformed files, split models, getters, and writing.
#include "gguf/gguf.h"
#include "gguf/parse.h"

#include "test_paths.h"

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

// Files that are sound as GGUF and wrong as models: whoever loads a model refuses them, not gguf_open.
static const char *const wrong_as_models[] = {
    "n_tensors_zero",
    "no_architecture",
    "architecture_unknown",
    "architecture_int",
    "no_tokenizer",
    "tokenizer_unknown",
    "no_tokens",
    "tokens_wrong_type",
    "scores_short",
    "token_type_short",
    "block_count_missing",
    "block_count_string",
    "block_count_huge",
    "head_count_zero",
    "head_count_negative",
    "head_count_not_dividing",
    "head_count_kv_not_dividing",
    "embedding_mismatch",
    "vocab_mismatch",
    "missing_tensor",
    "tensor_shape_wrong",
    "bos_out_of_range",
    "rms_epsilon_nan",
    "rope_dim_huge",
    "context_zero",
    "mmproj",
    "adapter",
    "vocabulary_only",
};

static bool is_wrong_as_model(const char *file)
{
    for (size_t i = 0; i < sizeof wrong_as_models / sizeof wrong_as_models[0]; i++) {
        size_t length = strlen(wrong_as_models[i]);
        if (strncmp(file, wrong_as_models[i], length) == 0 && strcmp(file + length, ".gguf") == 0)
            return true;
    }
    return false;
}

static bool mentions_any(const char *message, const json_t *mentions)
{
    size_t i;
    json_t *word;
    json_array_foreach(mentions, i, word) if (strcasestr(message, json_string_value(word))) return true;
    return json_array_size(mentions) == 0;
}

static void check_case(const char *folder, const json_t *line)
{
    const char *file = json_string_value(json_object_get(line, "file"));
    const char *must = json_string_value(json_object_get(line, "must"));
    assert_true(file && must);
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    struct gguf *gguf;
    struct error error = {0};
    enum status status = gguf_open(path, &gguf, &error);
    bool accept = strcmp(must, "accept") == 0 || is_wrong_as_model(file);
    if (status == STATUS_OK) {
        if (!accept && strcmp(must, "either") != 0)
            fail_msg("%s was accepted", file);
        assert_non_null(gguf);
    } else {
        if (accept)
            fail_msg("%s was refused: %s", file, error.message);
        assert_null(gguf);
        assert_int_equal(error.status, status);
        if (!mentions_any(error.message, json_object_get(line, "mentions")))
            fail_msg("%s: the message mentions nothing of what it should: %s", file, error.message);
        assert_int_equal(gguf_open(path, &gguf, NULL), status); // an error may be NULL
    }
    gguf_close(gguf);
}

static void check_manifest(const char *folder, size_t least)
{
    char path[4096], text[4096];
    snprintf(path, sizeof path, "%s/manifest.jsonl", folder);
    FILE *manifest = fopen(path, "rb");
    assert_non_null(manifest);
    size_t n = 0;
    while (fgets(text, sizeof text, manifest)) {
        json_t *line = json_loads(text, 0, NULL);
        assert_non_null(line);
        check_case(folder, line);
        json_decref(line);
        n++;
    }
    fclose(manifest);
    assert_in_range(n, least, 10000);
}

static void test_malformed(void **state)
{
    (void)state;
    check_manifest(TEST_GGUF_BAD, 110);
}

static void test_shared_malformed(void **state)
{
    (void)state;
    char path[4096];
    if (!test_shared_path(path, sizeof path, "fixtures/gguf-bad/manifest.jsonl"))
        return;
    *strrchr(path, '/') = '\0';
    check_manifest(path, 80);
}

// Opened from memory, and cut off after every byte of the header: an error each time, and nothing read beyond.
static void test_every_truncation(void **state)
{
    (void)state;
    struct buffer whole = {0};
    struct error error;
    assert_int_equal(file_read_all(TEST_GGUF_BAD "/valid.gguf", 1 << 20, &whole, &error), STATUS_OK);
    struct gguf *gguf;
    for (size_t size = 0; size < whole.size; size += size < 8000 ? 1 : 509) {
        char *exact = malloc(size ? size : 1); // a sanitizer sees a read past its end
        memcpy(exact, whole.data, size);
        assert_int_not_equal(gguf_open_memory(exact, size, &gguf, &error), STATUS_OK);
        free(exact);
    }
    assert_int_equal(gguf_open_memory(whole.data, whole.size, &gguf, &error), STATUS_OK);
    char byte;
    assert_int_equal(gguf_read_tensor(gguf, &gguf->tensors[0], 0, &byte, 1, &error), STATUS_INVALID);
    gguf_close(gguf);
    buffer_free(&whole);
}

static struct gguf *open_or_fail(const char *path)
{
    struct gguf *gguf;
    struct error error;
    if (gguf_open(path, &gguf, &error) != STATUS_OK)
        fail_msg("%s", error.message);
    return gguf;
}

static void test_split(void **state)
{
    (void)state;
    struct gguf *whole = open_or_fail(TEST_GGUF_BAD "/valid.gguf");
    struct gguf *split = open_or_fail(TEST_GGUF_BAD "/split-00002-of-00003.gguf");
    struct error error;
    assert_int_equal(split->n_parts, 3);
    assert_int_equal(split->n_tensors, whole->n_tensors);
    assert_int_equal(split->n_values, whole->n_values + 3);
    assert_int_equal(split->size, split->parts[0].size + split->parts[1].size + split->parts[2].size);
    for (size_t i = 0; i < whole->n_tensors; i++) {
        const struct gguf_tensor *a = &whole->tensors[i], *b = gguf_find_tensor(split, a->name);
        assert_ptr_equal(b, &split->tensors[i]);
        assert_int_equal(b->part, i < 2 ? 0 : i < 7 ? 1 : 2);
        assert_int_equal(a->size, b->size);
        char *first = malloc(a->size), *second = malloc(a->size);
        assert_int_equal(gguf_read_tensor(whole, a, 0, first, a->size, &error), STATUS_OK);
        assert_int_equal(gguf_read_tensor(split, b, 0, second, a->size, &error), STATUS_OK);
        assert_memory_equal(first, second, a->size);
        free(first);
        free(second);
    }
    gguf_close(whole);
    gguf_close(split);
}

static void test_tensors(void **state)
{
    (void)state;
    struct gguf *gguf = open_or_fail(TEST_GGUF_BAD "/valid.gguf");
    struct error error;
    const struct gguf_tensor *tensor = gguf_find_tensor(gguf, "token_embd.weight");
    assert_non_null(tensor);
    assert_int_equal(tensor->dtype, DTYPE_F16);
    assert_true(tensor->n_dims == 2 && tensor->ne[0] == 32 && tensor->ne[1] == 264 && tensor->ne[2] == 1);
    assert_int_equal(tensor->size, 32 * 264 * 2);
    assert_null(gguf_find_tensor(gguf, "token_embd"));
    float ones[32];
    tensor = gguf_find_tensor(gguf, "output_norm.weight");
    assert_int_equal(gguf_read_tensor(gguf, tensor, 64, ones, 64, &error), STATUS_OK);
    for (int i = 0; i < 16; i++)
        assert_true(ones[i] == 1.0f);
    assert_int_equal(gguf_read_tensor(gguf, tensor, 64, ones, 65, &error), STATUS_INVALID);
    assert_int_equal(gguf_read_tensor(gguf, tensor, UINT64_MAX, ones, 2, &error), STATUS_INVALID);
    gguf_close(gguf);
}

static void expect_message(const struct error *error, const char *key, const char *word)
{
    if (!strstr(error->message, key) || !strstr(error->message, word))
        fail_msg("'%s' lacks '%s' or '%s'", error->message, key, word);
}

// A file with values of all kinds, written and read back.
static void write_values(const char *path)
{
    static const struct gguf_string names[] = {{"a", 1}, {"", 0}, {"x\0y", 3}};
    static const int32_t integers[] = {INT32_MIN, -1, 5};
    static const uint64_t wide[] = {1, UINT64_MAX};
    static const unsigned char bools[] = {1, 0, 1};
    const struct gguf_value inner[] = {
        {.key = {"", 0}, .type = GGUF_ARRAY, .element = GGUF_I32, .count = 3, .array = integers},
        {.key = {"", 0}, .type = GGUF_ARRAY, .element = GGUF_STRING, .count = 3, .strings = names},
    };
    const struct gguf_value values[] = {
        {.key = {"u8", 2}, .type = GGUF_U8, .u = 200},
        {.key = {"i8", 2}, .type = GGUF_I8, .i = -3},
        {.key = {"u16", 3}, .type = GGUF_U16, .u = 65535},
        {.key = {"i16", 3}, .type = GGUF_I16, .i = -32768},
        {.key = {"i32", 3}, .type = GGUF_I32, .i = 77},
        {.key = {"u64", 3}, .type = GGUF_U64, .u = UINT64_C(1) << 40},
        {.key = {"small_u64", 9}, .type = GGUF_U64, .u = 4},
        {.key = {"i64", 3}, .type = GGUF_I64, .i = INT64_MIN},
        {.key = {"f64", 3}, .type = GGUF_F64, .f = 0.1},
        {.key = {"huge_f64", 8}, .type = GGUF_F64, .f = 1e300},
        {.key = {"nan", 3}, .type = GGUF_F32, .f = (double)NAN},
        {.key = {"inf", 3}, .type = GGUF_F32, .f = -(double)INFINITY},
        {.key = {"integers", 8}, .type = GGUF_ARRAY, .element = GGUF_I32, .count = 3, .array = integers},
        {.key = {"wide", 4}, .type = GGUF_ARRAY, .element = GGUF_U64, .count = 2, .array = wide},
        {.key = {"bools", 5}, .type = GGUF_ARRAY, .element = GGUF_BOOL, .count = 3, .array = bools},
        {.key = {"names", 5}, .type = GGUF_ARRAY, .element = GGUF_STRING, .count = 3, .strings = names},
        {.key = {"nested", 6}, .type = GGUF_ARRAY, .element = GGUF_ARRAY, .count = 2, .arrays = inner},
        {.key = {"general.alignment", 17}, .type = GGUF_U32, .u = 256},
    };
    struct gguf_writer *writer;
    struct error error;
    assert_int_equal(gguf_writer_create(path, &writer, &error), STATUS_OK);
    assert_int_equal(gguf_writer_add_string(writer, "text", "h\xc3\xa9", &error), STATUS_OK);
    assert_int_equal(gguf_writer_add_u32(writer, "u32", UINT32_MAX, &error), STATUS_OK);
    assert_int_equal(gguf_writer_add_f32(writer, "f32", 0.1f, &error), STATUS_OK);
    assert_int_equal(gguf_writer_add_bool(writer, "yes", true, &error), STATUS_OK);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        assert_int_equal(gguf_writer_add_value(writer, &values[i], &error), STATUS_OK);
    assert_int_equal(gguf_writer_add_tensor(writer, "t", DTYPE_F32, 2, (const uint64_t[]){3, 2}, &error), STATUS_OK);
    assert_int_equal(gguf_writer_add_tensor(writer, "q", DTYPE_Q8_0, 1, (const uint64_t[]){64}, &error), STATUS_OK);
    assert_int_equal(gguf_writer_add_tensor(writer, "b", DTYPE_I8, 1, (const uint64_t[]){1}, &error), STATUS_OK);
    unsigned char data[24 + 68 + 1];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i + 1);
    for (size_t at = 0; at < sizeof data; at += 31) // pieces that cross tensors
        assert_int_equal(gguf_writer_write(writer, data + at, sizeof data - at < 31 ? sizeof data - at : 31, &error),
                         STATUS_OK);
    assert_int_equal(gguf_writer_finish(writer, &error), STATUS_OK);
}

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/mote-gguf-test-XXXXXX");
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return chdir("/") == 0 && rmdir(folder) == 0 ? 0 : -1; // fails where a test left a file behind
}

static void test_numbers(void **state)
{
    (void)state;
    write_values("v.gguf");
    struct gguf *gguf = open_or_fail("v.gguf");
    unlink("v.gguf");
    struct error error;
    uint32_t u = 1234;
    float f = 12;
    assert_int_equal(gguf_get_u32(gguf, "none", false, &u, &error), STATUS_OK);
    assert_int_equal(u, 1234);
    assert_int_equal(gguf_get_u32(gguf, "none", true, &u, &error), STATUS_INVALID);
    expect_message(&error, "'none'", "missing");
    static const struct {
        const char *key;
        uint32_t value;
    } good[] = {{"u8", 200}, {"u16", 65535}, {"i32", 77}, {"small_u64", 4}, {"u32", UINT32_MAX}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(gguf_get_u32(gguf, good[i].key, true, &u, &error), STATUS_OK);
        assert_int_equal(u, good[i].value);
    }
    static const struct {
        const char *key, *word;
    } bad[] = {{"i8", "-3"},        {"i16", "-32768"}, {"i64", "negative"}, {"u64", "1099511627776"},
               {"f32", "type f32"}, {"yes", "bool"},   {"text", "string"},  {"integers", "array of i32"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        u = 99;
        assert_int_equal(gguf_get_u32(gguf, bad[i].key, false, &u, &error), STATUS_INVALID);
        expect_message(&error, bad[i].key, bad[i].word);
        assert_int_equal(u, 99);
    }
    assert_int_equal(gguf_get_f32(gguf, "f32", true, &f, &error), STATUS_OK);
    assert_true(f == 0.1f);
    assert_int_equal(gguf_get_f32(gguf, "f64", true, &f, &error), STATUS_OK);
    assert_true(f == 0.1f);
    assert_int_equal(gguf_get_f32(gguf, "huge_f64", true, &f, &error), STATUS_INVALID);
    assert_int_equal(gguf_get_f32(gguf, "nan", true, &f, &error), STATUS_INVALID);
    expect_message(&error, "'nan'", "NaN");
    assert_int_equal(gguf_get_f32(gguf, "inf", true, &f, &error), STATUS_INVALID);
    expect_message(&error, "'inf'", "infinite");
    assert_int_equal(gguf_get_f32(gguf, "u32", true, &f, &error), STATUS_INVALID);
    expect_message(&error, "'u32'", "type u32");
    bool yes = false;
    assert_int_equal(gguf_get_bool(gguf, "yes", true, &yes, &error), STATUS_OK);
    assert_true(yes);
    assert_int_equal(gguf_get_bool(gguf, "u32", true, &yes, &error), STATUS_INVALID);
    gguf_close(gguf);
}

static void test_texts_and_arrays(void **state)
{
    (void)state;
    write_values("v.gguf");
    struct gguf *gguf = open_or_fail("v.gguf");
    unlink("v.gguf");
    struct error error;
    struct gguf_string text;
    const struct gguf_value *array = NULL;
    assert_int_equal(gguf_get_string(gguf, "text", true, &text, &error), STATUS_OK);
    assert_string_equal(text.text, "h\xc3\xa9");
    assert_int_equal(gguf_get_string(gguf, "u8", true, &text, &error), STATUS_INVALID);
    expect_message(&error, "'u8'", "string");
    assert_int_equal(gguf_get_array(gguf, "names", GGUF_STRING, true, &array, &error), STATUS_OK);
    assert_int_equal(array->count, 3);
    assert_int_equal(array->strings[2].size, 3);
    assert_memory_equal(array->strings[2].text, "x\0y", 4);
    assert_int_equal(gguf_get_array(gguf, "integers", GGUF_STRING, true, &array, &error), STATUS_INVALID);
    expect_message(&error, "array of i32", "array of string");
    assert_int_equal(gguf_get_array(gguf, "none", GGUF_STRING, false, &array, &error), STATUS_OK);
    assert_int_equal(gguf_get_integer_array(gguf, "integers", true, &array, &error), STATUS_OK);
    assert_int_equal(gguf_array_integer(array, 0), INT32_MIN);
    assert_int_equal(gguf_get_integer_array(gguf, "bools", true, &array, &error), STATUS_OK);
    assert_int_equal(gguf_array_integer(array, 2), 1);
    assert_int_equal(gguf_get_integer_array(gguf, "wide", true, &array, &error), STATUS_OK);
    assert_int_equal(gguf_array_integer(array, 0), 1);
    assert_int_equal(gguf_get_integer_array(gguf, "names", true, &array, &error), STATUS_INVALID);
    const struct gguf_value *nested = gguf_find(gguf, "nested");
    assert_int_equal(nested->count, 2);
    assert_int_equal(gguf_array_integer(&nested->arrays[0], 2), 5);
    assert_string_equal(nested->arrays[1].strings[0].text, "a");
    assert_int_equal(gguf_find(gguf, "i64")->i, INT64_MIN);
    gguf_close(gguf);
}

static void test_written_tensors(void **state)
{
    (void)state;
    write_values("v.gguf");
    struct gguf *gguf = open_or_fail("v.gguf");
    unlink("v.gguf");
    struct error error;
    assert_int_equal(gguf->alignment, 256);
    static const char *const names[] = {"t", "q", "b"};
    unsigned char expected = 1, bytes[68];
    for (size_t i = 0; i < 3; i++) {
        const struct gguf_tensor *tensor = gguf_find_tensor(gguf, names[i]);
        assert_int_equal(tensor->offset % 256, 0);
        assert_int_equal(gguf_read_tensor(gguf, tensor, 0, bytes, tensor->size, &error), STATUS_OK);
        for (size_t k = 0; k < tensor->size; k++)
            assert_int_equal(bytes[k], expected++);
    }
    gguf_close(gguf);
}

// What was read and is written again is the same file, byte by byte.
static void test_copy(void **state)
{
    (void)state;
    static const char *const files[] = {"valid", "alignment_64", "unknown_keys"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s.gguf", TEST_GGUF_BAD, files[i]);
        struct gguf *gguf = open_or_fail(path);
        struct gguf_writer *writer;
        struct error error;
        assert_int_equal(gguf_writer_create("copy.gguf", &writer, &error), STATUS_OK);
        for (size_t k = 0; k < gguf->n_values; k++)
            assert_int_equal(gguf_writer_add_value(writer, &gguf->values[k], &error), STATUS_OK);
        for (size_t k = 0; k < gguf->n_tensors; k++) {
            const struct gguf_tensor *tensor = &gguf->tensors[k];
            assert_int_equal(
                gguf_writer_add_tensor(writer, tensor->name, tensor->dtype, tensor->n_dims, tensor->ne, &error),
                STATUS_OK);
        }
        for (size_t k = 0; k < gguf->n_tensors; k++) {
            const struct gguf_tensor *tensor = &gguf->tensors[k];
            char *data = malloc(tensor->size);
            assert_int_equal(gguf_read_tensor(gguf, tensor, 0, data, tensor->size, &error), STATUS_OK);
            assert_int_equal(gguf_writer_write(writer, data, tensor->size, &error), STATUS_OK);
            free(data);
        }
        assert_int_equal(gguf_writer_finish(writer, &error), STATUS_OK);
        gguf_close(gguf);
        struct buffer original = {0}, copy = {0};
        assert_int_equal(file_read_all(path, 1 << 20, &original, &error), STATUS_OK);
        assert_int_equal(file_read_all("copy.gguf", 1 << 20, &copy, &error), STATUS_OK);
        assert_int_equal(copy.size, original.size);
        assert_memory_equal(copy.data, original.data, copy.size);
        buffer_free(&original);
        buffer_free(&copy);
        unlink("copy.gguf");
    }
}

static void test_writer_refuses(void **state)
{
    (void)state;
    struct gguf_writer *writer;
    struct error error;
    const uint64_t good[] = {32, 2}, zero[] = {32, 0}, huge[] = {UINT64_C(1) << 40, UINT64_C(1) << 40}, odd[] = {33};
    assert_int_equal(gguf_writer_create("nosuch/x.gguf", &writer, &error), STATUS_IO);
    assert_null(writer);
    assert_int_equal(gguf_writer_create("x.gguf", &writer, &error), STATUS_OK);
    assert_int_equal(gguf_writer_add_u32(writer, "a", 1, &error), STATUS_OK);
    assert_int_equal(gguf_writer_add_u32(writer, "a", 1, &error), STATUS_INVALID);
    expect_message(&error, "'a'", "twice");
    assert_int_equal(gguf_writer_add_u32(writer, "", 1, &error), STATUS_INVALID);
    assert_int_equal(gguf_writer_add_u32(writer, "\xff", 1, &error), STATUS_INVALID);
    assert_int_equal(gguf_writer_add_u32(writer, "general.alignment", 48, &error), STATUS_INVALID);
    assert_int_equal(gguf_writer_add_tensor(writer, "t", DTYPE_F32, 0, good, &error), STATUS_INVALID);
    assert_int_equal(gguf_writer_add_tensor(writer, "t", DTYPE_F32, 5, good, &error), STATUS_INVALID);
    assert_int_equal(gguf_writer_add_tensor(writer, "t", DTYPE_F32, 2, zero, &error), STATUS_INVALID);
    assert_int_equal(gguf_writer_add_tensor(writer, "t", DTYPE_F32, 2, huge, &error), STATUS_INVALID);
    assert_int_equal(gguf_writer_add_tensor(writer, "t", DTYPE_Q8_0, 1, odd, &error), STATUS_INVALID);
    assert_int_equal(gguf_writer_add_tensor(writer, "t", (enum dtype)4, 1, odd, &error), STATUS_INVALID);
    char name[80];
    memset(name, 'n', sizeof name);
    name[65] = '\0';
    assert_int_equal(gguf_writer_add_tensor(writer, name, DTYPE_F32, 2, good, &error), STATUS_INVALID);
    name[64] = '\0';
    assert_int_equal(gguf_writer_add_tensor(writer, name, DTYPE_F32, 2, good, &error), STATUS_OK);
    assert_int_equal(gguf_writer_add_tensor(writer, name, DTYPE_F32, 2, good, &error), STATUS_INVALID);
    float data[65] = {0};
    assert_int_equal(gguf_writer_write(writer, data, 10, &error), STATUS_OK);
    assert_int_equal(gguf_writer_add_u32(writer, "late", 1, &error), STATUS_INVALID);
    assert_int_equal(gguf_writer_write(writer, data, sizeof data, &error), STATUS_INVALID);
    gguf_writer_abort(writer);
    gguf_writer_abort(NULL);
    assert_int_equal(access("x.gguf", F_OK), -1);

    assert_int_equal(gguf_writer_create("x.gguf", &writer, &error), STATUS_OK);
    assert_int_equal(gguf_writer_add_tensor(writer, "t", DTYPE_F32, 2, good, &error), STATUS_OK);
    assert_int_equal(gguf_writer_write(writer, data, 8, &error), STATUS_OK);
    assert_int_equal(gguf_writer_finish(writer, &error), STATUS_INVALID);
    expect_message(&error, "'t'", "8 of its 256 bytes");
    assert_int_equal(access("x.gguf", F_OK), -1);

    assert_int_equal(gguf_writer_create("x.gguf", &writer, &error), STATUS_OK); // nothing at all is a file, too
    assert_int_equal(gguf_writer_finish(writer, &error), STATUS_OK);
    struct gguf *gguf = open_or_fail("x.gguf");
    assert_true(gguf->n_values == 0 && gguf->n_tensors == 0);
    gguf_close(gguf);
    unlink("x.gguf");
}

static void test_no_file(void **state)
{
    (void)state;
    struct gguf *gguf;
    struct error error;
    assert_int_equal(gguf_open("nosuch.gguf", &gguf, &error), STATUS_IO);
    expect_message(&error, "nosuch.gguf", "No such file");
    assert_int_equal(gguf_open(".", &gguf, &error), STATUS_INVALID);
    expect_message(&error, "'.'", "directory");
    assert_int_equal(mkfifo("fifo.gguf", 0600), 0);
    assert_int_equal(gguf_open("fifo.gguf", &gguf, &error), STATUS_INVALID);
    expect_message(&error, "fifo.gguf", "FIFO");
    unlink("fifo.gguf");
    gguf_close(NULL);
}

// A file that loses its end after it was opened.
static void test_cut_while_read(void **state)
{
    (void)state;
    write_values("v.gguf");
    struct gguf *gguf = open_or_fail("v.gguf");
    struct error error;
    char bytes[68];
    const struct gguf_tensor *tensor = gguf_find_tensor(gguf, "q");
    assert_int_equal(truncate("v.gguf", (off_t)tensor->offset + 5), 0);
    assert_int_equal(gguf_read_tensor(gguf, tensor, 0, bytes, tensor->size, &error), STATUS_IO);
    expect_message(&error, "tensor 'q'", "cut short");
    gguf_close(gguf);
    unlink("v.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_shared_malformed),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_texts_and_arrays),
        cmocka_unit_test(test_written_tensors),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_writer_refuses),
        cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_cut_while_read),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
