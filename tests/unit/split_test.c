// Which eighths devices get.
#include "mesh/mesh.h"

#include "test_paths.h"

#include <cmocka.h>

#include <math.h>
#include <string.h>

static void check(const struct mesh_split *split, uint32_t n, const char *expected)
{
    char text[64];
    size_t at = 0;
    assert_int_equal(split->n_devices, n);
    assert_int_equal(split->eighth[0], 0);
    assert_int_equal(split->eighth[n], 8);
    for (uint32_t d = 0; d < n; d++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%d", d == 0 ? "" : " ",
                               split->eighth[d + 1] - split->eighth[d]);
    assert_string_equal(text, expected);
}

static void test_even(void **state)
{
    (void)state;
    static const char *const expected[] = {"8",         "4 4",         "3 2 3",         "2 2 2 2",
                                           "2 1 2 1 2", "1 2 1 1 2 1", "1 1 1 2 1 1 1", "1 1 1 1 1 1 1 1"};
    for (uint32_t n = 1; n <= MAX_DEVICES; n++) {
        struct mesh_split split = mesh_split_even(n);
        check(&split, n, expected[n - 1]);
    }
}

static void test_shares(void **state)
{
    (void)state;
    static const struct {
        double shares[MAX_DEVICES];
        size_t n;
        const char *expected;
        bool rounded;
    } cases[] = {
        {{50, 25, 25}, 3, "4 2 2", false},
        {{3, 1}, 2, "6 2", false},
        {{1}, 1, "8", false},
        {{0.375, 0.625}, 2, "3 5", false},
        {{50, 30, 20}, 3, "4 2 2", true},
        {{1, 1, 1}, 3, "3 2 3", true}, // as evenly as without
        {{0, 1}, 2, "0 8", false},
        {{1, 0, 5, 2}, 4, "1 0 5 2", false},
        {{1000, 1}, 2, "8 0", true},
        {{1e-300, 1e-300}, 2, "4 4", false},
        {{1e300, 1e300, 0, 0, 0, 0, 0, 0}, 8, "4 4 0 0 0 0 0 0", false},
        {{1, 1, 1, 1, 1, 1, 1, 1}, 8, "1 1 1 1 1 1 1 1", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct mesh_split split;
        struct error error;
        bool rounded;
        assert_int_equal(mesh_split_by_shares(cases[i].shares, cases[i].n, &split, &rounded, &error), STATUS_OK);
        check(&split, (uint32_t)cases[i].n, cases[i].expected);
        assert_int_equal(rounded, cases[i].rounded);
    }
}

static void test_wrong_shares(void **state)
{
    (void)state;
    static const struct {
        double shares[MAX_DEVICES + 1];
        size_t n;
        const char *mentions;
    } cases[] = {
        {{0}, 0, "0 shares"},
        {{1, 1, 1, 1, 1, 1, 1, 1, 1}, 9, "9 shares"},
        {{0, 0}, 2, "all be zero"},
        {{1, -1, 2}, 3, "share 2"},
        {{1, NAN}, 2, "share 2"},
        {{INFINITY, 1}, 2, "share 1"},
        {{1.7e308, 1.7e308}, 2, "exceed"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct mesh_split split;
        struct error error = {0};
        bool rounded;
        assert_int_equal(mesh_split_by_shares(cases[i].shares, cases[i].n, &split, &rounded, &error), STATUS_INVALID);
        assert_non_null(strstr(error.message, cases[i].mentions));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_even),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_wrong_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
