// Segments of sums, their tree, and the subtrees of a run of segments: however the leaves are shared out, the sums of
// the subtrees put together are the tree's own, bit for bit.
#include "mesh/shard.h"
#include "tensor/segments.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

// The contract's tree, written down a second time: leaves [a, b) split behind the largest power of two below b - a.
static float tree(const float *leaves, uint32_t a, uint32_t b)
{
    if (b - a == 1)
        return leaves[a];
    uint32_t half = b - a > 4 ? 4 : b - a > 2 ? 2 : 1;
    return tree(leaves, a, a + half) + tree(leaves, a + half, b);
}

// And as it is written there: neighbours at a distance of 1, then 2, then 4 are added.
static float add_by_distance(const float *leaves, uint32_t n)
{
    float sums[MAX_SEGMENTS];
    memcpy(sums, leaves, n * sizeof(float));
    for (uint32_t distance = 1; distance < n; distance *= 2)
        for (uint32_t i = 0; i + distance < n; i += 2 * distance)
            sums[i] += sums[i + distance];
    return sums[0];
}

static bool is_subtree(uint32_t a, uint32_t b, uint32_t first, uint32_t end)
{
    if (a == first && b == end)
        return true;
    if (b - a <= 1)
        return false;
    uint32_t half = b - a > 4 ? 4 : b - a > 2 ? 2 : 1;
    return is_subtree(a, a + half, first, end) || is_subtree(a + half, b, first, end);
}

static void test_subtrees(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= MAX_SEGMENTS; n++) {
        for (uint32_t first = 0; first <= n; first++) {
            for (uint32_t end = first; end <= n; end++) {
                struct leaves subtrees[MAX_SUBTREES];
                struct leaves run = {.n = (uint8_t)n, .first = (uint8_t)first, .end = (uint8_t)end};
                uint32_t count = leaves_subtrees(run, subtrees), at = first;
                assert_true(count <= MAX_SUBTREES);
                for (uint32_t i = 0; i < count; i++) {
                    assert_int_equal(subtrees[i].first, at);
                    at = subtrees[i].end;
                    assert_true(is_subtree(0, n, subtrees[i].first, at));
                }
                assert_int_equal(at, end);
                for (uint32_t i = 0; i + 1 < count; i++) // no two of them are one
                    assert_false(is_subtree(0, n, subtrees[i].first, subtrees[i + 1].end));
            }
        }
    }
}

// The sum of leaves [a, b) out of what was sent for subtrees.
static float put_together(const struct leaves *subtrees, const float *sums, uint32_t count, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < count; i++)
        if (subtrees[i].first == a && subtrees[i].end == b)
            return sums[i];
    uint32_t middle = tree_split(a, b);
    float left = put_together(subtrees, sums, count, a, middle);
    return left + put_together(subtrees, sums, count, middle, b);
}

// Every way to cut n leaves into runs: a bit says whether there is a border behind a leaf.
static void test_every_division(void **state)
{
    (void)state;
    float leaves[MAX_SEGMENTS];
    uint32_t seed = 1;
    for (uint32_t n = 1; n <= MAX_SEGMENTS; n++) {
        for (uint32_t borders = 0; borders < 1u << (n - 1); borders++) {
            struct leaves all[MAX_SEGMENTS * MAX_SUBTREES];
            float sums[MAX_SEGMENTS * MAX_SUBTREES];
            uint32_t count = 0, first = 0;
            for (uint32_t i = 0; i < n; i++) {
                seed = seed * 1664525u + 1013904223u;
                leaves[i] = (float)(int32_t)seed * 0x1p-20f + 0.1f;
            }
            for (uint32_t i = 0; i < n; i++) {
                if (i + 1 < n && (borders >> i & 1) == 0)
                    continue;
                struct leaves run = {.n = (uint8_t)n, .first = (uint8_t)first, .end = (uint8_t)(i + 1)};
                uint32_t more = leaves_subtrees(run, all + count);
                for (uint32_t j = count; j < count + more; j++)
                    sums[j] = tree(leaves, all[j].first, all[j].end);
                count += more;
                first = i + 1;
            }
            float sum = put_together(all, sums, count, 0, n), expected = tree(leaves, 0, n);
            assert_memory_equal(&sum, &expected, sizeof(sum));
            sum = add_by_distance(leaves, n);
            assert_memory_equal(&sum, &expected, sizeof(sum));
        }
    }
}

static void test_parts(void **state)
{
    (void)state;
    struct segments whole, part;
    size_t first;
    segments_of_product(&whole, DTYPE_Q4_K, 1536, 0);
    assert_int_equal(whole.n, 8);
    assert_int_equal(whole.grain, 32);
    segments_part(&whole, (struct leaves){.n = 8, .first = 3, .end = 5}, &part, &first);
    assert_int_equal(part.n, 2);
    assert_int_equal(first, 3 * 192);
    assert_int_equal(part.border[0], 0);
    assert_int_equal(part.border[1], 6);
    assert_int_equal(part.border[2], 12);
    segments_of_product(&whole, DTYPE_Q4_1, 9 * 64, 64); // nine heads: cut between heads
    for (uint32_t s = 0; s <= 8; s++)
        assert_int_equal(whole.border[s] * whole.grain, s * 9 / 8 * 64);
    segments_of_product(&whole, DTYPE_F16, 50, 0); // a last grain that is not whole
    assert_int_equal(whole.n, 4);
    size_t begin, end;
    segments_range(&whole, 3, 50, &begin, &end);
    assert_int_equal(begin, 48);
    assert_int_equal(end, 50);
}

// Of every width: without gaps, cut at multiples of the unit, and every run of them counts from its own begin.
static void check_product(enum dtype dtype, size_t k, uint32_t head)
{
    struct segments whole, part;
    size_t grain = grain_of_dtype(dtype), unit = head == 0 ? grain : head;
    size_t begin, end, at = 0, first_element, part_begin, part_end;
    while (unit % grain != 0)
        unit += head;
    segments_of_product(&whole, dtype, k, head);
    size_t n_units = (k + unit - 1) / unit;
    assert_int_equal(whole.n, n_units < MAX_SEGMENTS ? n_units : MAX_SEGMENTS);
    for (uint32_t s = 0; s < whole.n; s++, at = end) {
        segments_range(&whole, s, k, &begin, &end);
        assert_int_equal(begin, at);
        assert_int_equal(begin % unit, 0);
        assert_true(end > begin);
    }
    assert_int_equal(at, k);
    for (uint32_t first = 0; first < whole.n; first++)
        for (uint32_t stop = first + 1; stop <= whole.n; stop++) {
            struct leaves leaves = {.n = (uint8_t)whole.n, .first = (uint8_t)first, .end = (uint8_t)stop};
            segments_part(&whole, leaves, &part, &first_element);
            segments_range(&whole, stop - 1, k, &begin, &at);
            assert_int_equal(part.n, stop - first);
            for (uint32_t s = 0; s < part.n; s++) {
                segments_range(&whole, first + s, k, &begin, &end);
                segments_range(&part, s, at - first_element, &part_begin, &part_end);
                assert_int_equal(part_begin + first_element, begin);
                assert_int_equal(part_end + first_element, end);
            }
            for (uint32_t s = part.n; s <= MAX_SEGMENTS; s++)
                assert_int_equal(part.border[s], part.border[part.n]);
        }
}

static void test_products(void **state)
{
    (void)state;
    static const uint32_t heads[] = {0, 16, 24, 40, 64, 80, 128, 256};
    for (size_t h = 0; h < sizeof(heads) / sizeof(heads[0]); h++) {
        for (size_t k = 1; k <= 1600; k += 7)
            check_product(DTYPE_F16, k, heads[h]);
        for (size_t k = 32; k <= 1600; k += 32)
            check_product(DTYPE_Q4_K, k, heads[h]);
    }
}

static void test_splits(void **state)
{
    (void)state;
    struct error error = {0};
    for (uint32_t n = 1; n <= MAX_DEVICES; n++) {
        struct mesh_split split = mesh_split_even(n);
        assert_int_equal(split.eighth[0], 0);
        assert_int_equal(split.eighth[n], 8);
        for (uint32_t segments = 1; segments <= 8; segments++) { // every segment is somewhere, and once
            uint32_t at = 0;
            for (uint32_t d = 0; d < n; d++) {
                struct leaves leaves = split_leaves(&split, d, segments);
                assert_int_equal(leaves.first, at);
                assert_true(leaves.end >= leaves.first);
                at = leaves.end;
            }
            assert_int_equal(at, segments);
        }
    }
    struct mesh_split split;
    bool rounded;
    assert_int_equal(mesh_split_by_shares((double[]){50, 25, 25}, 3, &split, &rounded, &error), STATUS_OK);
    assert_false(rounded);
    assert_memory_equal(split.eighth, ((uint8_t[]){0, 4, 6, 8}), 4);
    assert_int_equal(mesh_split_by_shares((double[]){5, 0, 3.3}, 3, &split, &rounded, &error), STATUS_OK);
    assert_true(rounded);
    assert_memory_equal(split.eighth, ((uint8_t[]){0, 5, 5, 8}), 4);
    assert_int_equal(mesh_split_by_shares((double[]){0, 0}, 2, &split, &rounded, &error), STATUS_INVALID);
    assert_int_equal(mesh_split_by_shares((double[]){1, -1}, 2, &split, &rounded, &error), STATUS_INVALID);
    assert_int_equal(mesh_split_by_shares((double[]){1, 1, 1, 1, 1, 1, 1, 1, 1}, 9, &split, &rounded, &error),
                     STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_subtrees), cmocka_unit_test(test_every_division),
                                       cmocka_unit_test(test_parts), cmocka_unit_test(test_products),
                                       cmocka_unit_test(test_splits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
