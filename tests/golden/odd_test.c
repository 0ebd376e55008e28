// Models of odd shapes (tools/make_odd_models.py, make_odd_moe_models.py) against a forward pass in float64, and one
// answer on them: widths that fill no vector, one KV head or as many as query heads, values of another length than
// keys, every dtype and scaling; experts with every gating, in groups, merged, scaled, shared, and in some layers only.
#include "golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct odd {
    const char *name;
    double allowed; // difference by default precision, in deviations of the logits (a third of it was measured)
    uint64_t f32_hash, default_hash; // of all logits
};

static const struct odd odd_models[] = {
    {"gemma3-supers", 1.2, 0x98e73c6cfbb6baa3, 0xf855eb9041dd5e79},
    {"llama-factors", 0.15, 0xb802b5df12a6a219, 0xab8ea92549797e8b},
    {"llama-linear", 5e-3, 0x783e79802243f2fe, 0xd42fe8ca954e8690},
    {"llama-yarn", 8e-3, 0xfee5d1084038c666, 0xc494fc8ac91cbb22},
    {"qwen2-yarn", 6e-3, 0x7957ac2a863d8eef, 0x85c44c0c774d48e2},
    {"qwen2-mxfp4", 0.13, 0x3b75626ce8e77c5f, 0x6d8ff36e88c4ec14},
    {"qwen3-blocks", 0.2, 0x4aabc668090fd4d1, 0x62c74e81e83c7d93},
    {"bailingmoe-ling", 1.2e-2, 0x53c62eeb50feca9a, 0xedfad7bb04c7528d},
    {"glm4moe-groups", 6e-3, 0xad10f8b894c36bf8, 0xa4333d261ab3119c},
    {"gpt-oss-odd", 0.3, 0x1d3547730e44752d, 0x6885a1f1d6d752be},
    {"granite-biases", 2e-3, 0x91f5787c981ca033, 0x28a78e994ec3207e},
    {"granitemoe-shared", 4e-3, 0xd78a9a0572f90655, 0xdc5e43010f0dab20},
    {"llama-experts", 0.6, 0xad888f1039128ea8, 0xb0a768f9ae98215f},
    {"mellum-odd", 2e-2, 0x42631760299a71b3, 0x34936fb7295881a5},
    {"olmoe-bounds", 6e-3, 0x644b742650c01880, 0xc6d63907d01e08ba},
    {"qwen2moe-merged", 0.13, 0x5f18231b0d4619b6, 0xa80405149b61241d},
};

enum { N_ODD = sizeof(odd_models) / sizeof(odd_models[0]) };

static void test_oracle(void **state)
{
    (void)state;
    const size_t stride = golden_stride();
    for (size_t i = 0; i < N_ODD; i += stride) {
        struct golden oracle;
        golden_load(&oracle, TEST_DATA "/odd", odd_models[i].name);
        for (int f32 = 0; f32 < 2; f32++) {
            size_t n;
            float *logits = golden_run(&oracle, &(struct setup){.f32 = f32 != 0}, &n);
            double apart = golden_difference(logits + n - oracle.n_logits, oracle.logits, oracle.n_logits) /
                           golden_deviation(oracle.logits, oracle.n_logits);
            double allowed = f32 != 0 ? 1e-4 : odd_models[i].allowed;
            print_message("%s %s: %.2e deviations from the oracle (allowed %.2e)\n", odd_models[i].name,
                          f32 != 0 ? "f32" : "default", apart, allowed);
            assert_true(apart <= allowed);
            free(logits);
        }
        golden_free(&oracle);
    }
}

static void test_one_answer(void **state)
{
    (void)state;
    static const struct setup setups[] = {{.isa = "c", .n_threads = 3, .n_batch = 1},
                                          {.isa = "avx2", .n_threads = 2, .n_batch = 33},
                                          {.isa = "avx2", .n_threads = 8, .n_batch = 3, .n_logits = 2},
                                          {.isa = "avx512", .n_threads = 3, .n_batch = 7},
                                          {.isa = "avx512", .n_threads = 1, .n_batch = 512},
                                          {.isa = "neon", .n_threads = 2, .n_batch = 5},
                                          {.isa = "neon", .n_threads = 1, .n_batch = 512}};
    const size_t stride = golden_stride();
    for (size_t i = 0; i < N_ODD; i += stride) {
        struct golden oracle;
        golden_load(&oracle, TEST_DATA "/odd", odd_models[i].name);
        for (int f32 = 0; f32 < 2; f32++) {
            size_t n;
            float *reference = golden_run(&oracle, &(struct setup){.f32 = f32 != 0, .isa = "c", .n_threads = 1}, &n);
            for (size_t s = 0; s < sizeof(setups) / sizeof(setups[0]); s++) {
                struct setup setup = setups[s];
                setup.f32 = f32 != 0;
                if (strstr(mote_machine_isas(), setup.isa) == NULL)
                    continue;
                float *logits = golden_run(&oracle, &setup, &n);
                if (memcmp(logits, reference, n * sizeof(float)) != 0)
                    fail_msg("%s f32=%d: %s kernels, batches of %zu, %zu threads give other bits", odd_models[i].name,
                             f32, setup.isa, setup.n_batch, setup.n_threads);
                free(logits);
            }
            golden_check_hash(odd_models[i].name, f32 != 0, reference, n,
                              f32 != 0 ? odd_models[i].f32_hash : odd_models[i].default_hash);
            free(reference);
        }
        golden_free(&oracle);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oracle),
        cmocka_unit_test(test_one_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
