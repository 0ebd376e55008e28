// Errors, arenas, buffers, maps, UTF-8, logging.
#include "base/arena.h"
#include "base/buffer.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/map.h"
#include "base/utf8.h"

#include "test_paths.h"

#include <cmocka.h>

#include <errno.h>
#include <string.h>

static void test_error(void **state)
{
    (void)state;
    struct error error;
    assert_int_equal(error_set(&error, STATUS_INVALID, "key '%s' is %d", "a\n\x01\xff\xc3\xa9", 7), STATUS_INVALID);
    assert_int_equal(error.status, STATUS_INVALID);
    assert_string_equal(error.message, "key 'a\\x0a\\x01\\xff\xc3\xa9' is 7");
    assert_int_equal(error_prefix(&error, "file '%s'", "x"), STATUS_INVALID);
    assert_string_equal(error.message, "file 'x': key 'a\\x0a\\x01\\xff\xc3\xa9' is 7");
    error_set(&error, STATUS_IO, "again: %s", error.message); // may read what it overwrites
    assert_string_equal(error.message, "again: file 'x': key 'a\\x0a\\x01\\xff\xc3\xa9' is 7");
    assert_int_equal(error_set(NULL, STATUS_FULL, "nobody listens"), STATUS_FULL);
    assert_int_equal(error_memory(&error, "a thing"), STATUS_MEMORY);
    assert_string_equal(error.message, "not enough memory for a thing");
    assert_int_equal(error_system(&error, ENOENT, "cannot open '%s'", "f"), STATUS_IO);
    assert_string_equal(error.message, "cannot open 'f': No such file or directory");
    assert_int_equal(error_system(&error, ENOMEM, "x"), STATUS_MEMORY);
}

static void test_error_is_cut(void **state)
{
    (void)state;
    struct error error;
    char text[3000];
    for (size_t shift = 0; shift < 4; shift++) { // the cut falls on every byte of a character
        memset(text, 'a', shift);
        for (size_t i = shift; i + 3 < sizeof text; i += 3)
            memcpy(text + i, "\xe2\x82\xac", 4);
        error_set(&error, STATUS_INVALID, "%s", text);
        size_t size = strlen(error.message);
        assert_in_range(size, sizeof error.message - 4, sizeof error.message - 1);
        assert_true(utf8_valid(error.message, size, NULL));
        assert_null(strchr(error.message, '\\'));
    }
    memset(text, '\xff', sizeof text);
    text[sizeof text - 1] = '\0';
    error_set(&error, STATUS_INVALID, "%s", text);
    assert_in_range(strlen(error.message), sizeof error.message - 5, sizeof error.message - 1);
    for (int i = 0; i < 100; i++)
        error_prefix(&error, "%s", text);
    assert_true(utf8_valid(error.message, strlen(error.message), NULL));
}

// However long the prefix (a path, a key), what is wrong stays readable.
static void test_error_prefix_is_cut(void **state)
{
    (void)state;
    struct error error;
    char path[3000];
    for (size_t shift = 0; shift < 3; shift++) {
        memset(path, '/', shift);
        for (size_t i = shift; i + 2 < sizeof path; i += 2)
            memcpy(path + i, "\xc3\xa9", 3);
        error_set(&error, STATUS_INVALID, "it is empty");
        error_prefix(&error, "'%s'", path);
        const char *what = strstr(error.message, ": it is empty");
        assert_true(what && strlen(what) == strlen(": it is empty"));
        assert_true(utf8_valid(error.message, strlen(error.message), NULL));
        assert_memory_equal(error.message, "...", 3);
        error_system(&error, ENOENT, "cannot open '%s'", path);
        assert_non_null(strstr(error.message, ": No such file or directory"));
    }
}

static void test_arena(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 0);
    unsigned char *last = NULL;
    for (size_t size = 0; size < 5000; size += 7) {
        unsigned char *piece = arena_alloc(&arena, size);
        assert_non_null(piece);
        assert_ptr_not_equal(piece, last);
        assert_int_equal((uintptr_t)piece % 16, 0);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(piece[i], 0);
        memset(piece, 0xff, size);
        last = piece;
    }
    unsigned char *large = arena_alloc(&arena, 3 << 20);
    assert_non_null(large);
    memset(large, 0xff, 3 << 20);
    char *text = arena_copy_text(&arena, "abc\0def", 7);
    assert_memory_equal(text, "abc\0def", 8);
    assert_null(arena_alloc(&arena, SIZE_MAX));
    assert_null(arena_alloc(&arena, SIZE_MAX - 8));
    assert_null(arena_alloc_array(&arena, SIZE_MAX / 2, 3));
    assert_null(arena_copy_text(&arena, "", SIZE_MAX));
    arena_free(&arena);
    assert_int_equal(arena.used, 0);
    assert_non_null(arena_alloc(&arena, 1));
    arena_free(&arena);
}

static void test_arena_limit(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 100);
    assert_non_null(arena_alloc(&arena, 64));
    assert_null(arena_alloc(&arena, 64));
    assert_non_null(arena_alloc(&arena, 32));
    assert_null(arena_alloc(&arena, 1));
    arena_free(&arena);
    assert_non_null(arena_alloc(&arena, 64));
    arena_free(&arena);
}

static void test_buffer(void **state)
{
    (void)state;
    struct buffer buffer = {0};
    assert_true(buffer_append_text(&buffer, "ab"));
    assert_true(buffer_append_byte(&buffer, 0));
    assert_true(buffer_append_format(&buffer, "%d-%s", 12, "x"));
    assert_int_equal(buffer.size, 7);
    assert_memory_equal(buffer.data,
                        "ab\0"
                        "12-x",
                        8);
    for (int i = 0; i < 100000; i++)
        assert_true(buffer_append(&buffer, "0123456789", 10));
    assert_int_equal(buffer.size, 1000007);
    assert_int_equal(buffer.data[buffer.size], 0);
    assert_false(buffer_reserve(&buffer, SIZE_MAX - 5));
    assert_true(buffer.failed && !buffer.data && buffer.size == 0);
    assert_false(buffer_append_text(&buffer, "x")); // stays failed
    buffer_free(&buffer);
    assert_true(buffer_append(&buffer, "", 0));
    assert_string_equal(buffer.data, "");
    buffer_free(&buffer);
}

static void test_array_grow(void **state)
{
    (void)state;
    void *array = NULL;
    size_t capacity = 0;
    assert_true(array_grow(&array, &capacity, 0, 8));
    assert_null(array);
    assert_true(array_grow(&array, &capacity, 1, 8));
    assert_true(array && capacity >= 1);
    void *before = array;
    size_t old = capacity;
    assert_false(array_grow(&array, &capacity, SIZE_MAX / 2, 8));
    assert_true(array == before && capacity == old);
    free(array);
}

static void test_map(void **state)
{
    (void)state;
    enum { N = 20000 };
    struct map map = {0};
    static char keys[N][12];
    uint32_t value;
    assert_false(map_find(&map, "a", 1, &value));
    for (uint32_t i = 0; i < N; i++) {
        int size = snprintf(keys[i], sizeof keys[i], "key%u", i);
        bool added;
        assert_true(map_add(&map, keys[i], (size_t)size, i, &added, NULL));
        assert_true(added);
    }
    assert_int_equal(map.count, N);
    for (uint32_t i = 0; i < N; i++) {
        assert_true(map_find(&map, keys[i], strlen(keys[i]), &value));
        assert_int_equal(value, i);
        assert_false(map_find(&map, keys[i], strlen(keys[i]) - 1, NULL) && i >= 10 && keys[i][3] == '0');
    }
    bool added;
    uint32_t existing;
    assert_true(map_add(&map, "key5", 4, 99, &added, &existing));
    assert_true(!added && existing == 5);
    assert_true(map_add(&map, "", 0, 7, &added, &existing)); // an empty key is a key
    assert_true(added && map_find(&map, NULL, 0, &value) && value == 7);
    assert_true(map_add(&map, "a\0b", 3, 8, &added, NULL));
    assert_true(map_find(&map, "a\0b", 3, &value) && value == 8);
    assert_false(map_find(&map, "a\0c", 3, &value));
    assert_false(map_reserve(&map, SIZE_MAX / 2));
    map_free(&map);
    assert_false(map_find(&map, "key5", 4, &value));
}

static void test_utf8_every_code_point(void **state)
{
    (void)state;
    for (uint32_t code_point = 0; code_point <= 0x10ffff; code_point++) {
        if (code_point >= 0xd800 && code_point < 0xe000)
            continue;
        char text[4];
        uint32_t back;
        size_t length = utf8_encode(code_point, text);
        assert_int_equal(length, code_point < 0x80 ? 1 : code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4);
        assert_int_equal(utf8_decode(text, length, &back), length);
        assert_int_equal(back, code_point);
        for (size_t size = 1; size < length; size++) {
            assert_int_equal(utf8_decode(text, size, &back), 0);
            assert_int_equal(utf8_incomplete_tail(text, size), size);
        }
        assert_int_equal(utf8_incomplete_tail(text, length), 0);
    }
}

static void test_utf8_invalid(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\x80",
        "\xbf",
        "\xc0\x80",
        "\xc1\xbf",
        "\xe0\x80\x80",
        "\xe0\x9f\xbf",
        "\xed\xa0\x80",
        "\xed\xbf\xbf",
        "\xf0\x80\x80\x80",
        "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xff",
        "\xe2\x28\xa1",
        "\xe2\x82\x28",
        "\xc3",
        "\xf0\x9f\x98",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[32] = "0123456789";
        size_t at;
        strcat(text, bad[i]);
        assert_false(utf8_valid(text, strlen(text), &at));
        assert_int_equal(at, 10);
        uint32_t code_point;
        assert_int_equal(utf8_decode(bad[i], strlen(bad[i]), &code_point), 0);
    }
    assert_true(utf8_valid("", 0, NULL));
    assert_true(utf8_valid("01234567\xc3\xa9"
                           "01234567",
                           18, NULL));
    // What can become a character yet, and what cannot.
    assert_int_equal(utf8_incomplete_tail("ab\xe2\x82", 4), 2);
    assert_int_equal(utf8_incomplete_tail("ab\xe0\x80", 4), 0);
    assert_int_equal(utf8_incomplete_tail("ab\xf0", 3), 1);
    assert_int_equal(utf8_incomplete_tail("ab\xf4\x90", 4), 0);
    assert_int_equal(utf8_incomplete_tail("ab\x80\x80\x80\x80", 6), 0);
    assert_int_equal(utf8_incomplete_tail("", 0), 0);
}

static void keep_message(void *user, enum log_level level, const char *message)
{
    snprintf(user, 64, "%d %s", (int)level, message);
}

static void test_log(void **state)
{
    (void)state;
    char kept[64] = "";
    struct log log = {keep_message, kept};
    log_message(&log, LOG_WARNING, "%s %d", "x", 3);
    assert_string_equal(kept, "2 x 3");
    log_message(&log, LOG_INFO, "%s", "a\nb");
    assert_string_equal(kept, "1 a\\x0ab");
    log_message(NULL, LOG_INFO, "dropped");
    log_message(&(struct log){0}, LOG_INFO, "dropped");
}

static void test_checked(void **state)
{
    (void)state;
    uint64_t result;
    assert_true(checked_add(UINT64_MAX - 1, 1, &result) && result == UINT64_MAX);
    assert_false(checked_add(UINT64_MAX, 1, &result));
    assert_true(checked_mul(UINT32_MAX, UINT32_MAX, &result));
    assert_false(checked_mul(UINT64_C(1) << 32, UINT64_C(1) << 32, &result));
    assert_int_equal(round_up(0, 32), 0);
    assert_int_equal(round_up(33, 32), 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error),
        cmocka_unit_test(test_error_is_cut),
        cmocka_unit_test(test_error_prefix_is_cut),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_arena_limit),
        cmocka_unit_test(test_buffer),
        cmocka_unit_test(test_array_grow),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_utf8_every_code_point),
        cmocka_unit_test(test_utf8_invalid),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
