// The loops of limits.h for C and x86. Each function names its own target, so this file needs no flags; limits_of is
// only called for kernels that this CPU has. (For Arm, compilers want flags: kernels/arm/neon_limits.c.)
#include "cpu/limits.h"

#include <string.h>

enum { CHAINS = 12 }; // independent accumulators: latency × units of all CPUs so far is below that

static double c_spin_int8(size_t n, uint64_t *sink)
{
    volatile uint32_t start = 3; // unsigned: it wraps
    uint32_t a = start, b = start + 1, sums[4] = {1, 2, 3, 4};
    for (size_t i = 0; i < n; i++) {
        for (int j = 0; j < 4; j++)
            sums[j] = sums[j] * a + b;
        b ^= (uint32_t)i;
    }
    for (int j = 0; j < 4; j++)
        *sink += sums[j];
    return (double)n * 4 * 2;
}

static double c_spin_f32(size_t n, uint64_t *sink)
{
    volatile float start = 0.5f;
    float a = start, b = start * 2, sums[CHAINS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    for (size_t i = 0; i < n; i++) {
        for (int j = 0; j < CHAINS; j++)
            sums[j] = sums[j] * a + b;
    }
    for (int j = 0; j < CHAINS; j++)
        *sink += (uint64_t)sums[j];
    return (double)n * CHAINS * 2;
}

static void c_read(const uint8_t *bytes, size_t size, uint64_t *sink)
{
    uint64_t sums[8] = {0};
    for (size_t i = 0; i < size; i += 64) {
        uint64_t words[8];
        memcpy(words, bytes + i, sizeof(words));
        for (int j = 0; j < 8; j++)
            sums[j] += words[j];
    }
    for (int j = 0; j < 8; j++)
        *sink += sums[j];
}

static const struct limits c_limits = {"c", c_spin_int8, c_spin_f32, c_read};

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))

AVX2 static double avx2_spin_int8(size_t n, uint64_t *sink)
{
    volatile int start = 3;
    const __m256i a = _mm256_set1_epi8((char)start), b = _mm256_set1_epi8((char)(start + 1)),
                  one = _mm256_set1_epi16(1);
    __m256i sums[CHAINS];
    for (int j = 0; j < CHAINS; j++)
        sums[j] = _mm256_set1_epi32(j + start);
    for (size_t i = 0; i < n; i++) {
        for (int j = 0; j < CHAINS; j++) {
            __m256i products = _mm256_maddubs_epi16(_mm256_xor_si256(a, sums[j]), b);
            sums[j] = _mm256_add_epi32(sums[j], _mm256_madd_epi16(products, one));
        }
    }
    for (int j = 0; j < CHAINS; j++)
        *sink += (uint64_t)_mm256_extract_epi64(sums[j], 0);
    return (double)n * CHAINS * 32 * 2;
}

AVX2 static double avx2_spin_f32(size_t n, uint64_t *sink)
{
    volatile float start = 0.5f;
    const __m256 a = _mm256_set1_ps(start), b = _mm256_set1_ps(start * 2);
    __m256 sums[CHAINS];
    for (int j = 0; j < CHAINS; j++)
        sums[j] = _mm256_set1_ps((float)j);
    for (size_t i = 0; i < n; i++) {
        for (int j = 0; j < CHAINS; j++)
            sums[j] = _mm256_fmadd_ps(sums[j], a, b);
    }
    for (int j = 0; j < CHAINS; j++)
        *sink += (uint64_t)_mm256_cvtss_f32(sums[j]);
    return (double)n * CHAINS * 8 * 2;
}

AVX2 static void avx2_read(const uint8_t *bytes, size_t size, uint64_t *sink)
{
    __m256i sums[8];
    for (int j = 0; j < 8; j++)
        sums[j] = _mm256_setzero_si256();
    for (size_t i = 0; i + 256 <= size; i += 256) {
        for (int j = 0; j < 8; j++)
            sums[j] = _mm256_xor_si256(sums[j], _mm256_load_si256((const void *)(bytes + i + (size_t)j * 32)));
    }
    for (int j = 0; j < 8; j++)
        *sink += (uint64_t)_mm256_extract_epi64(sums[j], 0);
}

AVX512 static double avx512_spin_int8(size_t n, uint64_t *sink)
{
    volatile int start = 3;
    const __m512i a = _mm512_set1_epi8((char)start), b = _mm512_set1_epi8((char)(start + 1));
    __m512i sums[CHAINS];
    for (int j = 0; j < CHAINS; j++)
        sums[j] = _mm512_set1_epi32(j + start);
    for (size_t i = 0; i < n; i++) {
        for (int j = 0; j < CHAINS; j++)
            sums[j] = _mm512_dpbusd_epi32(sums[j], a, b);
    }
    for (int j = 0; j < CHAINS; j++)
        *sink += (uint64_t)_mm_cvtsi128_si64(_mm512_castsi512_si128(sums[j])); // a sum of lanes would overflow int
    return (double)n * CHAINS * 64 * 2;
}

AVX512 static double avx512_spin_f32(size_t n, uint64_t *sink)
{
    volatile float start = 0.5f;
    const __m512 a = _mm512_set1_ps(start), b = _mm512_set1_ps(start * 2);
    __m512 sums[CHAINS];
    for (int j = 0; j < CHAINS; j++)
        sums[j] = _mm512_set1_ps((float)j);
    for (size_t i = 0; i < n; i++) {
        for (int j = 0; j < CHAINS; j++)
            sums[j] = _mm512_fmadd_ps(sums[j], a, b);
    }
    for (int j = 0; j < CHAINS; j++)
        *sink += (uint64_t)_mm512_cvtss_f32(sums[j]);
    return (double)n * CHAINS * 16 * 2;
}

AVX512 static void avx512_read(const uint8_t *bytes, size_t size, uint64_t *sink)
{
    __m512i sums[8];
    for (int j = 0; j < 8; j++)
        sums[j] = _mm512_setzero_si512();
    for (size_t i = 0; i + 512 <= size; i += 512) {
        for (int j = 0; j < 8; j++)
            sums[j] = _mm512_xor_si512(sums[j], _mm512_load_si512((const void *)(bytes + i + (size_t)j * 64)));
    }
    for (int j = 0; j < 8; j++)
        *sink += (uint64_t)_mm_cvtsi128_si64(_mm512_castsi512_si128(sums[j]));
}

static const struct limits isa_limits[] = {
    {"avx512", avx512_spin_int8, avx512_spin_f32, avx512_read},
    {"avx2", avx2_spin_int8, avx2_spin_f32, avx2_read},
};
#endif

const struct limits *limits_of(const char *isa)
{
#if defined(__x86_64__)
    for (size_t i = 0; i < sizeof(isa_limits) / sizeof(isa_limits[0]); i++) {
        if (strcmp(isa_limits[i].isa, isa) == 0)
            return &isa_limits[i];
    }
#elif defined(HAVE_KERNELS_NEON)
    if (strcmp(limits_neon.isa, isa) == 0)
        return &limits_neon;
#endif
    return &c_limits;
}
