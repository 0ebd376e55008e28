// The command line of checkkernels.
#include "check.h"

#include "base/fpenv.h"
#include "cpu/kernels/tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char usage[] =
    "usage: checkkernels [--filter TEXT] [--table NAME] [--seed N] [--rounds N] [--digest HEX]\n"
    "                    [--bench] [--bench-mb N] [--exhaustive N]\n"
    "Compares every table of kernels that this CPU has with the C reference, bit for bit; --bench times them.\n"
    "  --filter TEXT   only kernels whose name contains TEXT (matvec_q8.q4_k, attend, swiglu …)\n"
    "  --table NAME    only this table: c, c-fma, avx2, avx512, neon\n"
    "  --digest HEX    what the reference's own results must come to with this seed, on every machine\n"
    "  --exhaustive N  instead: elementary functions and roundings of all 2^32 floats (1: minutes), or of one in N\n"
    "  --seed N        of the random inputs (printed)\n"
    "  --rounds N      how often everything is repeated with other inputs (default 1)\n"
    "  --bench-mb N    packed weights that the products' benches walk through (default 1)\n";

struct options {
    const char *filter, *table;
    uint64_t seed, rounds, bench_mb, digest, stride;
    bool bench;
};

static bool read_number(const char *text, uint64_t *value)
{
    char *end;
    if (!text || !*text)
        return false;
    *value = strtoull(text, &end, 0);
    return *end == '\0';
}

static bool read_options(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--bench") == 0) {
            options->bench = true;
            continue;
        }
        bool known = true;
        if (strcmp(argv[i], "--filter") == 0)
            options->filter = value;
        else if (strcmp(argv[i], "--table") == 0)
            options->table = value;
        else if (strcmp(argv[i], "--seed") == 0)
            known = read_number(value, &options->seed);
        else if (strcmp(argv[i], "--rounds") == 0)
            known = read_number(value, &options->rounds);
        else if (strcmp(argv[i], "--digest") == 0)
            known = read_number(value, &options->digest);
        else if (strcmp(argv[i], "--exhaustive") == 0)
            known = read_number(value, &options->stride) && options->stride > 0;
        else if (strcmp(argv[i], "--bench-mb") == 0)
            known = read_number(value, &options->bench_mb);
        else
            known = false;
        if (!known || !value)
            return false;
        i++;
    }
    return true;
}

// The C kernels against themselves: what they gave must be what they gave elsewhere.
static void check_digest(const struct options *options, struct check *check)
{
    printf("digest 0x%016llx\n", (unsigned long long)check->digest);
    if (options->digest == 0 || options->digest == check->digest)
        return;
    check_case(check, "seed %llu", (unsigned long long)options->seed);
    check_fail(check,
               "the reference's results are not those that are on record (0x%016llx): if its arithmetic was "
               "changed, see docs/numerics.md; if only cases were, record the new digest",
               (unsigned long long)options->digest);
}

// Runs all groups for one table; the number of failures.
static size_t run_table(const struct options *options, const char *name, const struct kernels *tested)
{
    struct check check = {
        .reference = &kernels_table_c_base,
        .tested = tested,
        .table = name,
        .filter = options->filter,
        .bench = options->bench,
        .bench_bytes = (size_t)options->bench_mb << 20,
        .stride = options->stride,
        .random = options->seed,
    };
    if (options->table && strcmp(options->table, name) != 0)
        return 0;
    for (uint64_t round = 0; round < options->rounds && options->stride == 0; round++) {
        check_sources(&check);
        check_rows(&check);
        check_routes(&check);
        check_products(&check);
        check_attention(&check);
    }
    if (options->stride > 0)
        check_exhaustive(&check);
    else if (tested == check.reference && !options->bench)
        check_digest(options, &check);
    if (!options->bench)
        printf("%-8s %zu checks, %zu failures\n", name, check.n_checks, check.n_failures);
    return check.n_failures;
}

int main(int argc, char **argv)
{
    struct options options = {.seed = (uint64_t)time(NULL), .rounds = 1, .bench_mb = 1};
    if (!read_options(argc, argv, &options)) {
        fputs(usage, stderr);
        return 2;
    }
    fpenv_enter();
    printf("seed %llu\n", (unsigned long long)options.seed);

    const struct {
        const char *name;
        const struct kernels *kernels;
    } tables[] = {
        {"c", &kernels_table_c_base}, {"c-fma", kernels_c() != &kernels_table_c_base ? kernels_c() : NULL},
        {"avx2", kernels_avx2()},     {"avx512", kernels_avx512()},
        {"neon", kernels_neon()},
    };
    size_t n_failures = 0, n_tables = 0;
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        if (!tables[i].kernels)
            continue;
        n_tables++;
        n_failures += run_table(&options, tables[i].name, tables[i].kernels);
    }
    if (n_tables == 1)
        printf("skipped: comparisons: this build and CPU have no table besides the C reference\n");
    return n_failures > 0;
}
