// Which CPUs devices get, on machines that hwloc makes up. A choice is compared in words: for each device its CPUs, @
// its NUMA nodes, and the CPUs of each thread; * is any.
#include "base/threads.h"
#include "mesh/groups.h"

#include "test_paths.h"

#include <cmocka.h>

#include <hwloc.h>
#include <stdlib.h>
#include <string.h>

struct machine {
    hwloc_topology_t topology;
    hwloc_bitmap_t allowed;
};

static hwloc_bitmap_t cpus_of(const char *list)
{
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    assert_int_equal(hwloc_bitmap_list_sscanf(cpus, list), 0);
    return cpus;
}

// allowed NULL: all. fast: CPUs that are faster than the rest; NULL: none.
static struct machine make(const char *description, const char *allowed, const char *fast)
{
    struct machine machine;
    assert_int_equal(hwloc_topology_init(&machine.topology), 0);
    assert_int_equal(hwloc_topology_set_synthetic(machine.topology, description), 0);
    assert_int_equal(hwloc_topology_load(machine.topology), 0);
    machine.allowed =
        allowed ? cpus_of(allowed) : hwloc_bitmap_dup(hwloc_topology_get_topology_cpuset(machine.topology));
    if (fast) {
        hwloc_bitmap_t quick = cpus_of(fast), slow = hwloc_bitmap_alloc();
        hwloc_bitmap_andnot(slow, hwloc_topology_get_topology_cpuset(machine.topology), quick);
        assert_int_equal(hwloc_cpukinds_register(machine.topology, quick, 2, 0, NULL, 0), 0);
        assert_int_equal(hwloc_cpukinds_register(machine.topology, slow, 1, 0, NULL, 0), 0);
        hwloc_bitmap_free(quick);
        hwloc_bitmap_free(slow);
    }
    return machine;
}

static void unmake(struct machine *machine)
{
    hwloc_topology_destroy(machine->topology);
    hwloc_bitmap_free(machine->allowed);
}

static size_t append_cpus(char *text, size_t at, size_t size, const struct hwloc_bitmap_s *cpus)
{
    if (!cpus)
        return at + (size_t)snprintf(text + at, size - at, "*");
    int n = hwloc_bitmap_list_snprintf(text + at, size - at, cpus);
    assert_in_range(n, 0, size - at - 1);
    return at + (size_t)n;
}

static void describe(const struct groups *groups, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t d = 0; d < groups->n; d++) {
        const struct group *group = &groups->groups[d];
        at += (size_t)snprintf(text + at, size - at, "%s", d == 0 ? "" : " | ");
        at = append_cpus(text, at, size, group->cpus);
        if (group->nodes) {
            at += (size_t)snprintf(text + at, size - at, "@");
            at = append_cpus(text, at, size, group->nodes);
        }
        at += (size_t)snprintf(text + at, size - at, ":");
        for (size_t i = 0; i < group->n_threads; i++) {
            at += (size_t)snprintf(text + at, size - at, " ");
            at = append_cpus(text, at, size, group->thread_cpus ? group->thread_cpus[i] : NULL);
        }
        assert_true(at < size);
    }
}

static void check(const struct machine *machine, const struct groups_params *params, const char *expected)
{
    struct groups groups;
    struct error error;
    char text[4096];
    assert_int_equal(groups_choose(machine->topology, machine->allowed, params, &groups, &error), STATUS_OK);
    describe(&groups, text, sizeof(text));
    assert_string_equal(text, expected);
    groups_free(&groups);
}

static void check_even(const struct machine *machine, uint32_t n, size_t n_threads, const char *expected)
{
    struct groups_params params = {.split = mesh_split_even(n), .n_threads = n_threads, .quota = SIZE_MAX};
    check(machine, &params, expected);
}

static void check_nodes(const struct machine *machine, uint32_t n, size_t n_threads, const char *expected)
{
    struct groups_params params = {
        .split = mesh_split_even(n), .numa = true, .n_threads = n_threads, .quota = SIZE_MAX};
    assert_int_equal(groups_numa_nodes(machine->topology, machine->allowed), n);
    check(machine, &params, expected);
}

static void test_two_packages(void **state)
{
    (void)state;
    struct machine machine = make("pack:2 [numa] l3:1 core:4 pu:2", NULL, NULL);
    check_even(&machine, 2, 8, "0-7@0: 0-1 2-3 4-5 6-7 | 8-15@1: 8-9 10-11 12-13 14-15");
    check_nodes(&machine, 2, 8, "0-7@0: 0-1 2-3 4-5 6-7 | 8-15@1: 8-9 10-11 12-13 14-15");
    check_even(&machine, 4, 8, "0-3@0: 0-1 2-3 | 4-7@0: 4-5 6-7 | 8-11@1: 8-9 10-11 | 12-15@1: 12-13 14-15");
    check_even(&machine, 1, 2, "0-15@0-1: 0-15 0-15");
    // Fewer threads than cores: which of its cores a device uses is left to the system. More: its hyperthreads too.
    check_even(&machine, 2, 2, "0-7@0: 0-7 | 8-15@1: 8-15");
    check_even(&machine, 2, 3, "0-7@0: 0-7 0-7 | 8-15@1: 8-15");
    check_even(&machine, 2, 10, "0-7@0: 0-7 0-7 0-7 0-7 0-7 | 8-15@1: 8-15 8-15 8-15 8-15 8-15");
    // More threads than CPUs.
    check_even(&machine, 2, 17, "*: * * * * * * * * * | *: * * * * * * * *");
    unmake(&machine);
}

// Where the system numbers CPUs in turn over the packages, and all first hyperthreads before the second ones.
static void test_odd_numbers_of_cpus(void **state)
{
    (void)state;
    struct machine machine = make("pack:2 [numa] core:2 pu:2(indexes=0,4,2,6,1,5,3,7)", NULL, NULL);
    check_even(&machine, 2, 4, "0,2,4,6@0: 0,4 2,6 | 1,3,5,7@1: 1,5 3,7");
    struct groups groups;
    struct groups_params params = {.split = mesh_split_even(2), .n_threads = 4, .quota = 8};
    char text[64];
    assert_int_equal(groups_choose(machine.topology, machine.allowed, &params, &groups, NULL), STATUS_OK);
    group_describe(&groups.groups[1], text, sizeof(text));
    assert_string_equal(text, "CPUs 1,3,5,7 of NUMA node 1");
    groups_free(&groups);
    check_nodes(&machine, 2, 4, "0,2,4,6@0: 0,4 2,6 | 1,3,5,7@1: 1,5 3,7");
    unmake(&machine);
}

static void test_four_nodes(void **state)
{
    (void)state;
    struct machine machine = make("pack:2 group:2 [numa] core:2 pu:1", NULL, NULL);
    check_nodes(&machine, 4, 8, "0-1@0: 0 1 | 2-3@1: 2 3 | 4-5@2: 4 5 | 6-7@3: 6 7");
    check_even(&machine, 4, 8, "0-1@0: 0 1 | 2-3@1: 2 3 | 4-5@2: 4 5 | 6-7@3: 6 7");
    check_even(&machine, 2, 8, "0-3@0-1: 0 1 2 3 | 4-7@2-3: 4 5 6 7");
    check_even(&machine, 8, 8, "0@0: 0 | 1@0: 1 | 2@1: 2 | 3@1: 3 | 4@2: 4 | 5@2: 5 | 6@3: 6 | 7@3: 7");
    // The cores follow the work: 3, 2 and 3 eighths of it.
    check_even(&machine, 3, 8, "0-2@0-1: 0 1 2 | 3-4@1-2: 3 4 | 5-7@2-3: 5 6 7");
    struct groups_params params = {.split = {.n_devices = 3, .eighth = {0, 4, 6, 8}}, .n_threads = 8, .quota = 100};
    check(&machine, &params, "0-3@0-1: 0 1 2 3 | 4-5@2: 4 5 | 6-7@3: 6 7");
    // A device that has nothing still takes part.
    params.split = (struct mesh_split){.n_devices = 3, .eighth = {0, 4, 4, 8}};
    check(&machine, &params, "0-3@0-1: 0 1 2 3 | 4@2: 4 | 5-7@2-3: 5 6 7");
    unmake(&machine);
}

// Cores that do not divide are cut where the machine parts them most.
static void test_borders(void **state)
{
    (void)state;
    struct machine machine = make("pack:1 l3:3 core:2 pu:1", NULL, NULL);
    check_even(&machine, 4, 6, "0-1@0: 0 1 | 2@0: 2 | 3@0: 3 | 4-5@0: 4 5");
    unmake(&machine);
    machine = make("pack:2 [numa] core:3 pu:1", NULL, NULL);
    check_even(&machine, 4, 6, "0-1@0: 0 1 | 2@0: 2 | 3-4@1: 3 4 | 5@1: 5");
    check_even(&machine, 5, 6, "0-1@0: 0 1 | 2@0: 2 | 3@1: 3 | 4@1: 4 | 5@1: 5");
    unmake(&machine);
}

static void test_kinds(void **state)
{
    (void)state;
    struct machine machine = make("core:6 pu:1", NULL, "0-1");
    check_even(&machine, 2, 6, "0,2-3@0: 0 2 3 | 1,4-5@0: 1 4 5");
    check_even(&machine, 2, 4, "0,2-3@0: 0 2 | 1,4-5@0: 1 4");
    check_even(&machine, 2, 2, "0@0: 0 | 1@0: 1"); // the slow ones are not needed
    check_even(&machine, 4, 6, "0,2@0: 0 2 | 3@0: 3 | 1,4@0: 1 4 | 5@0: 5");
    unmake(&machine);
    machine = make("core:6 pu:1", NULL, "3-5"); // what one has too few of one kind it gets of the other
    check_even(&machine, 2, 6, "0,3-4@0: 3 4 0 | 1-2,5@0: 5 1 2");
    unmake(&machine);
    machine = make("core:3 pu:1", NULL, "0"); // a core each, and no mix to choose from
    check_even(&machine, 3, 3, "1@0: 1 | 0@0: 0 | 2@0: 2");
    unmake(&machine);
}

static void test_overcommitted(void **state)
{
    (void)state;
    struct machine machine = make("core:1 pu:1", NULL, NULL);
    check_even(&machine, 8, 1, "*: * | *: * | *: * | *: * | *: * | *: * | *: * | *: *");
    check_even(&machine, 2, 4, "*: * * | *: * *");
    unmake(&machine);
    // Two devices never share a core, so that here none is confined.
    machine = make("core:2 pu:2", NULL, NULL);
    check_even(&machine, 4, 4, "*: * | *: * | *: * | *: *");
    struct groups groups;
    struct groups_params params = {.split = mesh_split_even(2), .n_threads = 2, .quota = 2};
    check(&machine, &params, "0-1@0: 0-1 | 2-3@0: 2-3");
    params.quota = 1; // the machine is larger than what this process may use of it
    check(&machine, &params, "*: * | *: *");
    assert_int_equal(groups_choose(machine.topology, machine.allowed, &params, &groups, NULL), STATUS_OK);
    assert_true(groups.overcommitted);
    groups_free(&groups);
    params.quota = 4;
    assert_int_equal(groups_choose(NULL, machine.allowed, &params, &groups, NULL), STATUS_OK); // nothing is known
    assert_false(groups.overcommitted);
    assert_null(groups.groups[0].cpus);
    assert_int_equal(groups.groups[1].n_threads, 1);
    groups_free(&groups);
    unmake(&machine);
}

static void test_allowed(void **state)
{
    (void)state;
    struct machine machine = make("pack:2 [numa] core:4 pu:2", "6,8-12", NULL);
    check_even(&machine, 2, 4, "6,8-9@0-1: 6 8-9 | 10-12@1: 10-11 12");
    check_nodes(&machine, 2, 4, "6@0: 6 | 8-12@1: 8-9 10-11 12");
    unmake(&machine);
    machine = make("pack:2 [numa] core:4 pu:2", "8-15", NULL);
    check_nodes(&machine, 1, 4, "8-15@1: 8-9 10-11 12-13 14-15");
    unmake(&machine);
}

static void test_nodes(void **state)
{
    (void)state;
    // Two kinds of memory at the same cores are no two devices.
    struct machine machine = make("pack:2 [numa] [numa] core:2 pu:1", NULL, NULL);
    check_nodes(&machine, 2, 4, "0-1@0-1: 0 1 | 2-3@2-3: 2 3");
    unmake(&machine);
    // More nodes than a mesh has devices.
    machine = make("pack:16 [numa] core:1 pu:1", NULL, NULL);
    assert_int_equal(groups_numa_nodes(machine.topology, machine.allowed), 16);
    struct groups_params params = {.split = mesh_split_even(8), .numa = true, .n_threads = 16, .quota = 16};
    check(&machine, &params,
          "0-1@0-1: 0 1 | 2-3@2-3: 2 3 | 4-5@4-5: 4 5 | 6-7@6-7: 6 7 | 8-9@8-9: 8 9 | 10-11@10-11: 10 11 | "
          "12-13@12-13: 12 13 | 14-15@14-15: 14 15");
    unmake(&machine);
    machine = make("core:2 pu:1", NULL, NULL);
    assert_int_equal(groups_numa_nodes(machine.topology, machine.allowed), 1);
    unmake(&machine);
    assert_int_equal(groups_numa_nodes(NULL, NULL), 1);
}

// On many machines: no CPU is two devices', all cores are somebody's where there are threads for them, threads are as
// many as asked for and on CPUs of their own device.
static void check_rules(const struct machine *machine, const struct groups_params *params)
{
    struct groups groups;
    struct error error;
    hwloc_bitmap_t seen = hwloc_bitmap_alloc();
    uint32_t n = params->split.n_devices;
    size_t n_threads = 0, n_cores = (size_t)hwloc_get_nbobjs_by_type(machine->topology, HWLOC_OBJ_CORE);
    if (n_cores == 0)
        n_cores = (size_t)hwloc_get_nbobjs_by_type(machine->topology, HWLOC_OBJ_PU);
    assert_int_equal(groups_choose(machine->topology, machine->allowed, params, &groups, &error), STATUS_OK);
    assert_int_equal(groups.n, n);
    bool confined = groups.groups[0].cpus != NULL;
    assert_true(confined == (!groups.overcommitted && n_cores >= n));
    for (uint32_t d = 0; d < n; d++) {
        const struct group *group = &groups.groups[d];
        n_threads += group->n_threads;
        assert_true(group->n_threads >= 1);
        assert_true((group->cpus != NULL) == confined);
        if (!confined)
            continue;
        assert_false(hwloc_bitmap_iszero(group->cpus));
        assert_false(hwloc_bitmap_intersects(group->cpus, seen));
        hwloc_bitmap_or(seen, seen, group->cpus);
        for (size_t i = 0; i < group->n_threads; i++)
            assert_true(!hwloc_bitmap_iszero(group->thread_cpus[i]) &&
                        hwloc_bitmap_isincluded(group->thread_cpus[i], group->cpus));
    }
    assert_int_equal(n_threads, params->n_threads > n ? params->n_threads : n);
    assert_true(!confined || hwloc_bitmap_isequal(seen, machine->allowed));
    hwloc_bitmap_free(seen);
    groups_free(&groups);
}

static void test_rules(void **state)
{
    (void)state;
    static const char *const machines[] = {"core:1 pu:1",
                                           "core:7 pu:1",
                                           "pack:2 [numa] core:5 pu:2",
                                           "pack:3 [numa] l3:2 core:3 pu:1",
                                           "pu:6",
                                           "pack:2 group:4 [numa] core:1 pu:2"};
    static const uint8_t splits[][MAX_DEVICES + 1] = {{0, 8}, {0, 7, 8}, {0, 0, 8}, {0, 8, 8}, {0, 1, 8, 8, 8}};
    static const uint32_t of[] = {1, 2, 2, 2, 4};
    for (size_t m = 0; m < sizeof(machines) / sizeof(machines[0]); m++) {
        struct machine machine = make(machines[m], NULL, NULL);
        for (size_t n_threads = 1; n_threads < 24; n_threads++) {
            struct groups_params params = {.n_threads = n_threads, .quota = SIZE_MAX};
            for (uint32_t n = 1; n <= MAX_DEVICES; n++) {
                params.split = mesh_split_even(n);
                check_rules(&machine, &params);
            }
            for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
                params.split.n_devices = of[i];
                memcpy(params.split.eighth, splits[i], sizeof(splits[i]));
                check_rules(&machine, &params);
            }
        }
        unmake(&machine);
    }
}

static void test_here(void **state)
{
    (void)state;
    struct groups groups;
    struct error error;
    for (uint32_t n = 1; n <= MAX_DEVICES; n++) {
        struct groups_params params = {.split = mesh_split_even(n), .n_threads = threads_available()};
        assert_int_equal(groups_choose_here(&params, &groups, &error), STATUS_OK);
        assert_int_equal(groups.n, n);
        assert_true(groups.overcommitted || n <= cpus_allowed());
        groups_free(&groups);
    }
    assert_in_range(groups_numa_nodes_here(), 1, 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_packages), cmocka_unit_test(test_odd_numbers_of_cpus),
        cmocka_unit_test(test_four_nodes),   cmocka_unit_test(test_borders),
        cmocka_unit_test(test_kinds),        cmocka_unit_test(test_overcommitted),
        cmocka_unit_test(test_allowed),      cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_rules),        cmocka_unit_test(test_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
