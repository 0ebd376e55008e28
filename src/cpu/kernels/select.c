// Which tables of kernels this CPU can run. A feature counts only where the operating system saves its registers.
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/tables.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

// The tables of this build.
#ifdef HAVE_KERNELS_C_FMA
#define TABLE_C_FMA (&kernels_table_c_fma)
#else
#define TABLE_C_FMA (&kernels_table_c_base)
#endif
#ifdef HAVE_KERNELS_AVX2
#define TABLE_AVX2 (&kernels_table_avx2)
#else
#define TABLE_AVX2 NULL
#endif
#ifdef HAVE_KERNELS_AVX512
#define TABLE_AVX512 (&kernels_table_avx512)
#else
#define TABLE_AVX512 NULL
#endif
#ifdef HAVE_KERNELS_NEON
#define TABLE_NEON (&kernels_table_neon)
#else
#define TABLE_NEON NULL
#endif

struct features {
    bool fma;    // AVX, FMA
    bool avx2;   // AVX2, FMA, F16C
    bool avx512; // the above, F, BW, VL, DQ, VNNI
    bool neon;   // ASIMD with dot products
};

#if defined(__x86_64__)
// The extended control register 0: which register states the operating system saves.
static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool has_bits(uint64_t value, uint64_t bits)
{
    return (value & bits) == bits;
}

static struct features detect_features(void)
{
    struct features features = {0};
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return features;
    enum { FMA = 1u << 12, OSXSAVE = 1u << 27, AVX = 1u << 28, F16C = 1u << 29 };
    enum { XCR0_AVX = 0x6, XCR0_AVX512 = 0xe6 }; // xmm and ymm; also opmask and zmm
    if (!has_bits(c, OSXSAVE | AVX | FMA))
        return features;
    uint64_t xcr0 = read_xcr0();
    features.fma = has_bits(xcr0, XCR0_AVX);
    bool f16c = c & F16C;

    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return features;
    enum { AVX2 = 1u << 5, AVX512F = 1u << 16, AVX512DQ = 1u << 17, AVX512BW = 1u << 30, AVX512VNNI = 1u << 11 };
    const uint32_t avx512vl = 1u << 31;
    features.avx2 = features.fma && f16c && has_bits(b, AVX2);
    features.avx512 = features.avx2 && has_bits(xcr0, XCR0_AVX512) && has_bits(c, AVX512VNNI) &&
                      has_bits(b, AVX512F | AVX512DQ | AVX512BW | avx512vl);
    return features;
}
#elif defined(__aarch64__)
static struct features detect_features(void)
{
    unsigned long needed = HWCAP_ASIMD | HWCAP_ASIMDDP;
    return (struct features){.neon = (getauxval(AT_HWCAP) & needed) == needed};
}
#else
static struct features detect_features(void)
{
    return (struct features){0};
}
#endif

const struct kernels *kernels_c(void)
{
    return detect_features().fma ? TABLE_C_FMA : &kernels_table_c_base;
}

const struct kernels *kernels_avx2(void)
{
    return detect_features().avx2 ? TABLE_AVX2 : NULL;
}

const struct kernels *kernels_avx512(void)
{
    return detect_features().avx512 ? TABLE_AVX512 : NULL;
}

const struct kernels *kernels_neon(void)
{
    return detect_features().neon ? TABLE_NEON : NULL;
}

const struct kernels *kernels_choose(const char *name)
{
    // Best first; the C table is always there.
    const struct kernels *const tables[] = {kernels_avx512(), kernels_avx2(), kernels_neon(), kernels_c()};
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
        if (tables[i] && (!name || strcmp(tables[i]->name, name) == 0))
            return tables[i];
    return NULL;
}
