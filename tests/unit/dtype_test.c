// Dtypes: sizes, names, every half, and the decoders bit for bit against tests/data/blocks.gguf.
#include "gguf/gguf.h"
#include "tensor/dtype.h"

#include "test_paths.h"

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void test_table(void **state)
{
    (void)state;
    unsigned known = 0;
    for (uint32_t number = 0; number < 1000; number++) {
        const struct dtype_desc *desc = dtype_find(number);
        if (!desc)
            continue;
        known++;
        assert_int_equal(desc->dtype, number);
        assert_ptr_equal(dtype_get(desc->dtype), desc);
        assert_ptr_equal(dtype_find_name(desc->name), desc);
        assert_true(desc->block >= 1 && desc->bytes >= 1);
    }
    assert_int_equal(known, 35);
    assert_ptr_equal(dtype_find_name("Q4_K"), dtype_get(DTYPE_Q4_K));
    assert_null(dtype_find_name("q4_2"));
    assert_null(dtype_find_name(""));
    static const uint32_t removed[] = {4, 5, 31, 32, 33, 36, 37, 38};
    for (size_t i = 0; i < sizeof removed / sizeof removed[0]; i++)
        assert_null(dtype_find(removed[i]));
    assert_null(dtype_find(UINT32_MAX));
}

// The half nearest to value by another way: search among neighbours in exact arithmetic.
static uint16_t nearest_half(double value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double magnitude = fabs(value);
    if (magnitude >= 65520)
        return sign | 0x7c00;
    uint16_t low = 0, high = 0x7bff; // the largest half at or below magnitude
    while (low < high) {
        uint16_t middle = (uint16_t)((low + high + 1) / 2);
        if ((double)half_to_float(middle) <= magnitude)
            low = middle;
        else
            high = (uint16_t)(middle - 1);
    }
    double below = half_to_float(low);
    double above = low == 0x7bff ? 65536 : half_to_float((uint16_t)(low + 1));
    double down = magnitude - below, up = above - magnitude;
    bool take_above = up < down || (up == down && (low & 1));
    return (uint16_t)(sign | (low + take_above));
}

static void test_half_exhaustive(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float value = half_to_float((uint16_t)bits);
        bool is_nan = (bits & 0x7c00) == 0x7c00 && (bits & 0x3ff);
        if (is_nan) {
            assert_true(isnan(value));
            assert_int_equal(float_to_half(value), bits | 0x200);
            continue;
        }
        int exponent = (int)(bits >> 10 & 31);
        double mantissa = (double)(bits & 0x3ff);
        double expected = exponent == 31 ? (double)INFINITY
                          : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                         : ldexp(mantissa, -24);
        assert_true((double)fabsf(value) == expected);
        assert_int_equal(signbit(value) != 0, bits >> 15);
        assert_int_equal(float_to_half(value), bits);
    }
}

static void test_half_rounding(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 0x7c00; half++) {
        double here = half_to_float((uint16_t)half);
        double next = half == 0x7bff ? 65536 : half_to_float((uint16_t)(half + 1));
        float middle = (float)((here + next) / 2); // exact: one bit more than a half
        uint32_t bits = bits_of(middle);
        for (int step = -2; step <= 2; step++) {
            float value = from_bits((uint32_t)((int64_t)bits + step));
            assert_int_equal(float_to_half(value), nearest_half((double)value));
            assert_int_equal(float_to_half(-value), nearest_half((double)-value));
        }
    }
    assert_int_equal(float_to_half(65519.996f), 0x7bff);
    assert_int_equal(float_to_half(65520.0f), 0x7c00);
    assert_int_equal(float_to_half(-INFINITY), 0xfc00);
    assert_int_equal(float_to_half(0x1p-25f), 0);
    assert_int_equal(float_to_half(0x1.000002p-25f), 1);
    assert_int_equal(float_to_half(0x1p-149f), 0);
    assert_int_equal(float_to_half(-0.0f), 0x8000);
    assert_true(float_to_half(NAN) & 0x200);
}

static void test_bfloat(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float value = bfloat_to_float((uint16_t)bits);
        assert_int_equal(bits_of(value), bits << 16);
        bool is_nan = (bits & 0x7fff) > 0x7f80;
        assert_int_equal(float_to_bfloat(value), is_nan ? bits | 0x40 : bits);
        if ((bits & 0x7fff) >= 0x7f80)
            continue;
        uint32_t up = bits + 1;
        assert_int_equal(float_to_bfloat(from_bits(bits << 16 | 0x7fff)), bits);
        assert_int_equal(float_to_bfloat(from_bits(bits << 16 | 0x8000)), bits & 1 ? up : bits);
        assert_int_equal(float_to_bfloat(from_bits(bits << 16 | 0x8001)), up);
    }
    assert_true(isinf(bfloat_to_float(float_to_bfloat(3.4028235e38f))));
    assert_true(isnan(bfloat_to_float(float_to_bfloat(from_bits(0x7f800001)))));
}

static void test_plain(void **state)
{
    (void)state;
    float values[3];
    dtype_get(DTYPE_F32)->decode((const float[]){1.5f, -0.0f, INFINITY}, values, 3);
    assert_true(values[0] == 1.5f && signbit(values[1]) && isinf(values[2]));
    dtype_get(DTYPE_F64)->decode((const double[]){0.1, -2e40, 3}, values, 3);
    assert_true(values[0] == 0.1f && values[1] == -INFINITY && values[2] == 3.0f);
    dtype_get(DTYPE_I8)->decode((const int8_t[]){-128, 127, 0}, values, 3);
    assert_true(values[0] == -128 && values[1] == 127 && values[2] == 0);
    dtype_get(DTYPE_I16)->decode((const int16_t[]){-32768, 32767, 1}, values, 3);
    assert_true(values[0] == -32768 && values[1] == 32767 && values[2] == 1);
    dtype_get(DTYPE_I32)->decode((const int32_t[]){INT32_MIN, 16777217, -1}, values, 3);
    assert_true(values[0] == -0x1p31f && values[1] == 16777216 && values[2] == -1);
    dtype_get(DTYPE_I64)->decode((const int64_t[]){INT64_MIN, 5, -1}, values, 3);
    assert_true(values[0] == -0x1p63f && values[1] == 5 && values[2] == -1);
    dtype_get(DTYPE_F16)->decode((const uint16_t[]){0x3c00, 0xfbff, 1}, values, 3);
    assert_true(values[0] == 1 && values[1] == -65504 && values[2] == 0x1p-24f);
    dtype_get(DTYPE_BF16)->decode((const uint16_t[]){0x3f80, 0xff80, 1}, values, 3);
    assert_true(values[0] == 1 && values[1] == -INFINITY && bits_of(values[2]) == 0x10000);
    dtype_get(DTYPE_Q4_0)->decode(NULL, values, 0);
}

// Every exponent and every nibble, in F64: 2^(e - 127) times E2M1. Beyond F32's range: infinite.
static void test_mxfp4(void **state)
{
    (void)state;
    static const double e2m1[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
    for (int exponent = 0; exponent < 256; exponent++) {
        uint8_t block[17] = {(uint8_t)exponent};
        float values[32];
        for (int i = 0; i < 16; i++)
            block[1 + i] = (uint8_t)(i | (15 - i) << 4);
        dtype_get(DTYPE_MXFP4)->decode(block, values, 32);
        for (int i = 0; i < 16; i++) {
            assert_true(values[i] == (float)ldexp(e2m1[i], exponent - 127));
            assert_true(values[16 + i] == (float)ldexp(e2m1[15 - i], exponent - 127));
            assert_true(exponent > 252 || isfinite(values[i]));
        }
        assert_true((double)mxfp4_scale((uint8_t)exponent) == ldexp(1, exponent - 128));
    }
}

static void *read_whole(const struct gguf *file, const struct gguf_tensor *tensor)
{
    struct error error;
    void *bytes = malloc(tensor->size);
    assert_non_null(bytes);
    if (gguf_read_tensor(file, tensor, 0, bytes, tensor->size, &error) != STATUS_OK)
        fail_msg("%s", error.message);
    return bytes;
}

// Every FMT.blocks of a file, whose format has a decoder, decodes to FMT.values; -0 and 0 are equal. Returns how many.
static unsigned check_blocks(const char *path)
{
    struct gguf *file;
    struct error error;
    if (gguf_open(path, &file, &error) != STATUS_OK)
        fail_msg("%s", error.message);
    unsigned n_formats = 0;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct gguf_tensor *tensor = &file->tensors[i];
        const char *suffix = strstr(tensor->name, ".blocks");
        if (!suffix)
            continue;
        char name[80];
        snprintf(name, sizeof name, "%.*s", (int)(suffix - tensor->name), tensor->name);
        const struct dtype_desc *desc = dtype_find_name(name);
        assert_non_null(desc);
        strcat(name, ".values");
        const struct gguf_tensor *expected = gguf_find_tensor(file, name);
        assert_non_null(expected);
        assert_int_equal(tensor->size % desc->bytes, 0);
        size_t n = tensor->size / desc->bytes * desc->block;
        assert_int_equal(expected->n_elements, n);
        if (!desc->decode)
            continue;
        unsigned char *blocks = read_whole(file, tensor);
        float *want = read_whole(file, expected);
        unsigned char *shifted = malloc(tensor->size + 1); // blocks may lie at odd addresses
        float *got = malloc(n * sizeof *got);
        assert_true(shifted && got);
        memcpy(shifted + 1, blocks, tensor->size);
        desc->decode(shifted + 1, got, n);
        for (size_t k = 0; k < n; k++)
            if (bits_of(got[k]) != bits_of(want[k]) && !(got[k] == 0 && want[k] == 0))
                fail_msg("%s: element %zu is %a, not %a", desc->name, k, (double)got[k], (double)want[k]);
        free(blocks);
        free(want);
        free(shifted);
        free(got);
        n_formats++;
    }
    gguf_close(file);
    return n_formats;
}

static void test_blocks(void **state)
{
    (void)state;
    assert_int_equal(check_blocks(TEST_DATA "/blocks.gguf"), 11);
}

static void test_shared_blocks(void **state)
{
    (void)state;
    char path[4096];
    if (!test_shared_path(path, sizeof path, "fixtures/blocks/blocks.gguf"))
        return;
    assert_int_equal(check_blocks(path), 13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),  cmocka_unit_test(test_half_exhaustive), cmocka_unit_test(test_half_rounding),
        cmocka_unit_test(test_bfloat), cmocka_unit_test(test_plain),           cmocka_unit_test(test_mxfp4),
        cmocka_unit_test(test_blocks), cmocka_unit_test(test_shared_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
