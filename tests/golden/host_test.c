// A host program built with -ffast-math, whose start-up code sets flush-to-zero: the library sets its own
// floating-point environment and gives the host's back, so the bits are those of tiny_test.c.
#include "golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_fast_math_host(void **state)
{
    (void)state;
    char path[512];
    size_t n_tokens;
    snprintf(path, sizeof(path), "%s/models/llama.golden.gguf", TEST_DATA);
    mote_model *file = golden_open(path);
    int32_t *tokens = golden_i32(file, "tokens", &n_tokens);
    mote_model_close(file);
    snprintf(path, sizeof(path), "%s/models/llama.gguf", TEST_DATA);
    for (size_t threads = 1; threads <= 3; threads++) {
        struct runner runner;
        runner_open(&runner, path, &(struct setup){.n_threads = threads});
        float *logits = runner_logits(&runner, tokens, n_tokens);
        assert_true(golden_hash(logits, n_tokens * runner.n_vocab) == 0x1f22f07075020f03u); // as in tiny_test.c
        free(logits);
        runner_close(&runner);
    }
#if defined(__x86_64__) && !defined(__clang__)
    volatile float tiny = 1e-39f;     // subnormal
    assert_true(tiny * 0.5f == 0.0f); // the host's flush-to-zero is what it was
#endif
    free(tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fast_math_host)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
