// The thread pool: shares, barriers, many sizes, destruction in any state, CPUs; and the floating-point environment.
#include "base/affinity.h"
#include "base/fpenv.h"
#include "base/threads.h"

#include "test_paths.h"

#include <cmocka.h>

#include <fenv.h>
#include <hwloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void test_shares(void **state)
{
    (void)state;
    for (size_t n = 0; n < 40; n++) {
        for (size_t n_threads = 1; n_threads < 12; n_threads++) {
            size_t expected = 0, least = SIZE_MAX, most = 0;
            for (size_t i = 0; i < n_threads; i++) {
                size_t begin, end;
                pool_share(n, i, n_threads, &begin, &end);
                assert_int_equal(begin, expected);
                expected = end;
                least = end - begin < least ? end - begin : least;
                most = end - begin > most ? end - begin : most;
            }
            assert_int_equal(expected, n);
            assert_true(most - least <= 1);
        }
    }
}

enum { ROUNDS = 300, MOST = 16 };

// Each round writes with plain stores, and reads what the neighbour wrote in the round before: a barrier that lets
// a thread through early gives a wrong sum, or a race that ThreadSanitizer sees.
struct ring {
    struct pool *pool;
    unsigned long values[2][MOST];
    unsigned runs[MOST];
};

static void turn_ring(void *user, size_t index, size_t n_threads)
{
    struct ring *ring = user;
    ring->runs[index]++;
    for (int round = 0; round < ROUNDS; round++) {
        unsigned long *from = ring->values[round & 1], *to = ring->values[~round & 1];
        to[index] = from[(index + 1) % n_threads] + index + 1;
        pool_barrier(ring->pool);
    }
}

static void check_ring(size_t n_threads, int n_runs)
{
    struct ring ring = {0};
    struct error error;
    assert_int_equal(pool_create(&(struct pool_params){.n_threads = n_threads}, &ring.pool, &error), STATUS_OK);
    assert_int_equal(pool_n_threads(ring.pool), n_threads);
    unsigned long expected[2][MOST] = {0};
    for (int run = 0; run < n_runs; run++) {
        pool_run(ring.pool, turn_ring, &ring);
        for (int round = 0; round < ROUNDS; round++)
            for (size_t i = 0; i < n_threads; i++)
                expected[~round & 1][i] = expected[round & 1][(i + 1) % n_threads] + i + 1;
        assert_memory_equal(ring.values, expected, sizeof expected);
    }
    for (size_t i = 0; i < n_threads; i++)
        assert_int_equal(ring.runs[i], n_runs);
    pool_destroy(ring.pool);
}

static void test_barriers(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 3, 8, MOST};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        check_ring(sizes[i], 3);
}

static void count_run(void *user, size_t index, size_t n_threads)
{
    (void)n_threads;
    ((unsigned *)user)[index * 16]++;
}

// Idle workers fall asleep between runs (the pause is longer than they spin), and wake again.
static void test_sleep_and_wake(void **state)
{
    (void)state;
    struct pool *pool;
    struct error error;
    unsigned counts[3 * 16] = {0};
    assert_int_equal(pool_create(&(struct pool_params){.n_threads = 3}, &pool, &error), STATUS_OK);
    for (int i = 0; i < 20; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        for (int k = 0; k < 50; k++)
            pool_run(pool, count_run, counts);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(counts[i * 16], 1000);
    pool_destroy(pool);
}

static void test_create_and_destroy(void **state)
{
    (void)state;
    struct pool *pool;
    struct error error;
    assert_int_equal(pool_create(&(struct pool_params){.n_threads = 0}, &pool, &error), STATUS_INVALID);
    assert_null(pool);
    assert_int_equal(pool_create(&(struct pool_params){.n_threads = SIZE_MAX}, &pool, &error), STATUS_INVALID);
    for (size_t n = 1; n < 8; n++) {
        assert_int_equal(pool_create(&(struct pool_params){.n_threads = n}, &pool, &error), STATUS_OK);
        pool_destroy(pool); // workers may not even have begun
    }
    pool_destroy(NULL);
}

struct seen {
    uint64_t control[4];
    int blocked[4];
};

static void look_around(void *user, size_t index, size_t n_threads)
{
    (void)n_threads;
    struct seen *seen = user;
    sigset_t set;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    seen->blocked[index] = sigismember(&set, SIGINT) && sigismember(&set, SIGTERM);
    struct fpenv here = fpenv_enter();
    fpenv_leave(here);
    seen->control[index] = here.control;
}

static void test_workers_are_set_up(void **state)
{
    (void)state;
    struct pool *pool;
    struct error error;
    struct seen seen = {0};
    struct fpenv saved = fpenv_enter();
    struct fpenv contract = fpenv_enter(); // what fpenv_enter sets
    fesetround(FE_UPWARD);                 // a worker must not inherit it
    assert_int_equal(pool_create(&(struct pool_params){.n_threads = 4}, &pool, &error), STATUS_OK);
    fpenv_leave(contract);
    pool_run(pool, look_around, &seen);
    pool_destroy(pool);
    fpenv_leave(saved);
    assert_false(seen.blocked[0]);
    for (int i = 1; i < 4; i++) {
        assert_true(seen.blocked[i]);
        assert_int_equal(seen.control[i], contract.control);
    }
}

struct whereabouts {
    hwloc_bitmap_t cpus[3];
};

static void note_cpus(void *user, size_t index, size_t n_threads)
{
    (void)n_threads;
    struct whereabouts *whereabouts = user;
    struct affinity *affinity = affinity_create(NULL);
    hwloc_bitmap_zero(whereabouts->cpus[index]);
    if (affinity)
        affinity_read(affinity, whereabouts->cpus[index]);
    free(affinity);
}

// A worker stays where it was put; the caller is there while it runs, and then has its own CPUs again.
static void test_cpus(void **state)
{
    (void)state;
    struct whereabouts before, in;
    for (int i = 0; i < 3; i++) {
        before.cpus[i] = hwloc_bitmap_alloc();
        in.cpus[i] = hwloc_bitmap_alloc();
    }
    note_cpus(&before, 0, 1);
    assert_false(hwloc_bitmap_iszero(before.cpus[0]));
    hwloc_bitmap_t first = hwloc_bitmap_alloc(), last = hwloc_bitmap_alloc(), none = hwloc_bitmap_alloc();
    hwloc_bitmap_only(first, (unsigned)hwloc_bitmap_first(before.cpus[0]));
    hwloc_bitmap_only(last, (unsigned)hwloc_bitmap_last(before.cpus[0]));
    hwloc_bitmap_only(none, 1 << 19); // a CPU that this machine lacks: the thread stays where it was
    const struct hwloc_bitmap_s *workers[] = {last, none};
    struct pool *pool;
    struct error error;
    struct pool_params params = {.n_threads = 3, .worker_cpus = workers, .caller_cpus = first};
    assert_int_equal(pool_create(&params, &pool, &error), STATUS_OK);
    for (int run = 0; run < 2; run++) {
        pool_run(pool, note_cpus, &in);
        assert_true(hwloc_bitmap_isequal(in.cpus[0], first));
        assert_true(hwloc_bitmap_isequal(in.cpus[1], last));
        assert_true(hwloc_bitmap_isequal(in.cpus[2], before.cpus[0]));
        note_cpus(&in, 0, 1);
        assert_true(hwloc_bitmap_isequal(in.cpus[0], before.cpus[0]));
    }
    pool_destroy(pool);
    params = (struct pool_params){.n_threads = 1, .caller_cpus = last}; // alone
    assert_int_equal(pool_create(&params, &pool, &error), STATUS_OK);
    pool_run(pool, note_cpus, &in);
    assert_true(hwloc_bitmap_isequal(in.cpus[0], last));
    note_cpus(&in, 0, 1);
    assert_true(hwloc_bitmap_isequal(in.cpus[0], before.cpus[0]));
    pool_destroy(pool);
    for (int i = 0; i < 3; i++) {
        hwloc_bitmap_free(before.cpus[i]);
        hwloc_bitmap_free(in.cpus[i]);
    }
    hwloc_bitmap_free(first);
    hwloc_bitmap_free(last);
    hwloc_bitmap_free(none);
}

static void test_fpenv(void **state)
{
    (void)state;
    volatile float tiny = 0x1p-126f, half = 0.5f, one = 1.0f, bit = 0x1p-30f;
    fesetround(FE_UPWARD);
#if defined(__x86_64__)
    unsigned before = __builtin_ia32_stmxcsr() | 0x8040; // flush to zero, denormals are zero
    __builtin_ia32_ldmxcsr(before);
    assert_true(tiny * half == 0);
#endif
    assert_true(one + bit > 1);
    struct fpenv saved = fpenv_enter();
    assert_true(tiny * half == 0x1p-127f);
    assert_true(one + bit == 1);
    assert_true(-one - bit == -1);
    fpenv_leave(saved);
    assert_true(one + bit > 1);
#if defined(__x86_64__)
    assert_int_equal(__builtin_ia32_stmxcsr() & 0xffc0, before & 0xffc0);
    __builtin_ia32_ldmxcsr(before & ~0x8040u);
#endif
    fesetround(FE_TONEAREST);
}

static void test_available(void **state)
{
    (void)state;
    size_t n = threads_available();
    assert_in_range(n, 1, (size_t)sysconf(_SC_NPROCESSORS_CONF));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_barriers),
        cmocka_unit_test(test_sleep_and_wake),
        cmocka_unit_test(test_create_and_destroy),
        cmocka_unit_test(test_workers_are_set_up),
        cmocka_unit_test(test_cpus),
        cmocka_unit_test(test_fpenv),
        cmocka_unit_test(test_available),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
