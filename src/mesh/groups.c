// Cores in order, cut at borders. See groups.h for the rules.
#include "mesh/groups.h"

#include "base/affinity.h"
#include "base/threads.h"

#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct core {
    hwloc_obj_t object;
    int speed;      // of its kind: the higher the faster
    uint32_t group; // MAX_DEVICES: none
};

struct choice {
    hwloc_topology_t topology;
    hwloc_const_bitmap_t allowed;
    const struct groups_params *params;
    struct core *cores; // fastest first, then in hwloc's order
    size_t n_cores;
};

// ---- cores ----

static int speed_of(hwloc_topology_t topology, hwloc_const_bitmap_t cpus)
{
    int speed = -1, kind = hwloc_cpukinds_get_by_cpuset(topology, cpus, 0);
    if (kind < 0 || hwloc_cpukinds_get_info(topology, (unsigned)kind, NULL, &speed, NULL, NULL, 0) != 0)
        return -1;
    return speed;
}

static int compare_cores(const void *a, const void *b)
{
    const struct core *x = a, *y = b;
    if (x->speed != y->speed)
        return x->speed > y->speed ? -1 : 1;
    return x->object->logical_index < y->object->logical_index ? -1 : 1;
}

static enum status list_cores(struct choice *choice, struct error *error)
{
    if (choice->topology == NULL)
        return STATUS_OK;
    hwloc_obj_type_t type = HWLOC_OBJ_CORE;
    int n = hwloc_get_nbobjs_by_type(choice->topology, type);
    if (n <= 0) {
        type = HWLOC_OBJ_PU;
        n = hwloc_get_nbobjs_by_type(choice->topology, type);
    }
    if (n <= 0)
        return STATUS_OK;
    choice->cores = calloc((size_t)n, sizeof(*choice->cores));
    if (choice->cores == NULL)
        return error_memory(error, "the devices' CPUs");
    for (int i = 0; i < n; i++) {
        hwloc_obj_t object = hwloc_get_obj_by_type(choice->topology, type, (unsigned)i);
        if (hwloc_bitmap_intersects(object->cpuset, choice->allowed))
            choice->cores[choice->n_cores++] = (struct core){
                .object = object, .speed = speed_of(choice->topology, object->cpuset), .group = MAX_DEVICES};
    }
    qsort(choice->cores, choice->n_cores, sizeof(*choice->cores), compare_cores);
    return STATUS_OK;
}

// Cores behind the first one that are of its kind, itself included.
static size_t count_kind(const struct core *cores, size_t n)
{
    size_t count = 0;
    while (count < n && cores[count].speed == cores[0].speed)
        count++;
    return count;
}

// Slow cores are left out where there are enough fast ones.
static void drop_slow(struct choice *choice)
{
    size_t needed = choice->params->n_threads, n = 0;
    if (needed < choice->params->split.n_devices)
        needed = choice->params->split.n_devices;
    while (n < choice->n_cores && n < needed)
        n += count_kind(choice->cores + n, choice->n_cores - n);
    choice->n_cores = n;
}

// ---- borders ----

// Makes every part of [0, n) at least 1 long; n is at least the number of parts.
static void widen(size_t *border, uint32_t n_parts, size_t n)
{
    border[0] = 0;
    for (uint32_t d = 1; d < n_parts; d++)
        border[d] = border[d] > border[d - 1] ? border[d] : border[d - 1] + 1;
    border[n_parts] = n;
    for (uint32_t d = n_parts - 1; d > 0; d--)
        border[d] = border[d] < border[d + 1] ? border[d] : border[d + 1] - 1;
}

// How far down the tree the two cores at a border meet: at 0 the machine parts there.
static int depth_of_border(const struct choice *choice, const struct core *cores, size_t border)
{
    return hwloc_get_common_ancestor_obj(choice->topology, cores[border - 1].object, cores[border].object)->depth;
}

// Where to cut n cores of a kind nearest to `eighths` of 8 of them. Where that is about between two cores' borders, at
// that which parts more.
static size_t cut(const struct choice *choice, const struct core *cores, size_t n, size_t eighths)
{
    size_t down = n * eighths / 8, up = down + 1, rest = n * eighths % 8;
    if (rest >= 2 && rest <= 6 && down > 0 && up < n) {
        int below = depth_of_border(choice, cores, down), above = depth_of_border(choice, cores, up);
        if (below != above)
            return below < above ? down : up;
    }
    return rest < 4 ? down : up;
}

static void assign(struct core *cores, const size_t *border, uint32_t n_groups)
{
    for (uint32_t d = 0; d < n_groups; d++)
        for (size_t i = border[d]; i < border[d + 1]; i++)
            cores[i].group = d;
}

static bool each_has_a_core(const struct choice *choice)
{
    bool has[MAX_DEVICES + 1] = {false}, all = true;
    for (size_t i = 0; i < choice->n_cores; i++)
        has[choice->cores[i].group] = true;
    for (uint32_t d = 0; d < choice->params->split.n_devices; d++)
        all = all && has[d];
    return all;
}

// Each kind by itself. What rounding gave a device too much or too little of one kind is made good in the next.
static void assign_kinds(struct choice *choice)
{
    const struct mesh_split *split = &choice->params->split;
    size_t given[MAX_DEVICES + 1] = {0}; // cores of the kinds before, up to each border
    for (size_t first = 0, n; first < choice->n_cores; first += n) {
        struct core *cores = choice->cores + first;
        size_t border[MAX_DEVICES + 1] = {0};
        n = count_kind(cores, choice->n_cores - first);
        for (uint32_t d = 1; d <= split->n_devices; d++) {
            size_t all = ((first + n) * split->eighth[d] + 4) / 8, more = all > given[d] ? all - given[d] : 0;
            border[d] = first == 0 ? cut(choice, cores, n, split->eighth[d]) : more;
            border[d] = border[d] < n ? border[d] : n;
            border[d] = border[d] > border[d - 1] ? border[d] : border[d - 1];
        }
        border[split->n_devices] = n;
        if (n == choice->n_cores) // of one kind
            widen(border, split->n_devices, n);
        assign(cores, border, split->n_devices);
        for (uint32_t d = 0; d <= split->n_devices; d++)
            given[d] += border[d];
    }
}

static void assign_all_alike(struct choice *choice)
{
    const struct mesh_split *split = &choice->params->split;
    size_t border[MAX_DEVICES + 1] = {0};
    for (uint32_t d = 1; d <= split->n_devices; d++)
        border[d] = (choice->n_cores * split->eighth[d] + 4) / 8;
    widen(border, split->n_devices, choice->n_cores);
    assign(choice->cores, border, split->n_devices);
}

// ---- NUMA nodes ----

// The next node behind `node` whose CPUs are not those of a node before, and which has some that are allowed. (Fast and
// slow memory of the same CPUs are two nodes.)
static hwloc_obj_t next_node(hwloc_topology_t topology, hwloc_const_bitmap_t allowed, hwloc_obj_t node)
{
    while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        bool known = !hwloc_bitmap_intersects(node->cpuset, allowed);
        hwloc_obj_t other = NULL;
        while (!known && (other = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, other)) != node)
            known = hwloc_bitmap_intersects(node->cpuset, other->cpuset);
        if (!known)
            return node;
    }
    return NULL;
}

size_t groups_numa_nodes(hwloc_topology_t topology, const struct hwloc_bitmap_s *allowed)
{
    size_t n = 0;
    for (hwloc_obj_t node = NULL; topology != NULL && (node = next_node(topology, allowed, node)) != NULL;)
        n++;
    return n == 0 ? 1 : n;
}

static void assign_nodes(struct choice *choice)
{
    size_t n_nodes = groups_numa_nodes(choice->topology, choice->allowed), index = 0;
    uint32_t n = choice->params->split.n_devices;
    for (hwloc_obj_t node = NULL; (node = next_node(choice->topology, choice->allowed, node)) != NULL; index++)
        for (size_t i = 0; i < choice->n_cores; i++)
            if (hwloc_bitmap_intersects(node->cpuset, choice->cores[i].object->cpuset))
                choice->cores[i].group = (uint32_t)(index * n / n_nodes);
}

// ---- groups ----

static size_t count_cores(const struct choice *choice, uint32_t group)
{
    size_t n = 0;
    for (size_t i = 0; i < choice->n_cores; i++)
        n += choice->cores[i].group == group;
    return n;
}

// In proportion to cores; by shares of the work where these are not dealt out.
static void deal_threads(const struct choice *choice, bool by_cores, struct groups *groups)
{
    const struct mesh_split *split = &choice->params->split;
    size_t border[MAX_DEVICES + 1] = {0}, total = choice->params->n_threads, cores = 0;
    size_t whole = by_cores && choice->n_cores != 0 ? choice->n_cores : 8;
    total = total > groups->n ? total : groups->n;
    for (uint32_t d = 0; d < groups->n; d++) {
        cores += by_cores ? count_cores(choice, d) : 0;
        border[d + 1] = (2 * total * (by_cores ? cores : split->eighth[d + 1]) + whole) / (2 * whole);
    }
    widen(border, groups->n, total);
    for (uint32_t d = 0; d < groups->n; d++)
        groups->groups[d].n_threads = border[d + 1] - border[d];
}

// The allowed CPUs of one core, or of all the group's; false: out of memory.
static bool add_cpus(const struct choice *choice, hwloc_bitmap_t cpus, const struct core *core)
{
    hwloc_bitmap_t own = hwloc_bitmap_alloc();
    bool good = own != NULL && hwloc_bitmap_and(own, core->object->cpuset, choice->allowed) == 0 &&
                hwloc_bitmap_or(cpus, cpus, own) == 0;
    hwloc_bitmap_free(own);
    return good;
}

// The CPUs of the group's index-th core; NULL: out of memory.
static hwloc_bitmap_t core_cpus(const struct choice *choice, uint32_t group, size_t index)
{
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    size_t i = 0;
    while (choice->cores[i].group != group || index-- > 0)
        i++;
    if (cpus != NULL && add_cpus(choice, cpus, &choice->cores[i]))
        return cpus;
    hwloc_bitmap_free(cpus);
    return NULL;
}

static bool confine_group(const struct choice *choice, uint32_t d, struct group *group)
{
    size_t n_cores = count_cores(choice, d), seen = 0;
    bool mixed = false;
    int speed = 0;
    group->cpus = hwloc_bitmap_alloc();
    group->nodes = hwloc_bitmap_alloc();
    group->thread_cpus = calloc(group->n_threads, sizeof(*group->thread_cpus));
    bool good = group->cpus != NULL && group->nodes != NULL && group->thread_cpus != NULL;
    for (size_t i = 0; i < choice->n_cores && good; i++) {
        if (choice->cores[i].group != d)
            continue;
        mixed = mixed || (seen != 0 && choice->cores[i].speed != speed);
        speed = choice->cores[i].speed;
        seen++;
        good = add_cpus(choice, group->cpus, &choice->cores[i]);
    }
    if (good)
        hwloc_cpuset_to_nodeset(choice->topology, group->cpus, group->nodes);
    // Of a mix the fastest cores are meant, which are first.
    bool own_core = group->n_threads == n_cores || (mixed && group->n_threads < n_cores);
    for (size_t i = 0; i < group->n_threads && good; i++) {
        group->thread_cpus[i] = own_core ? core_cpus(choice, d, i) : hwloc_bitmap_dup(group->cpus);
        good = group->thread_cpus[i] != NULL;
    }
    return good;
}

static bool assign_cores(struct choice *choice)
{
    if (choice->n_cores < choice->params->split.n_devices)
        return false;
    if (choice->params->numa) {
        assign_nodes(choice);
        return each_has_a_core(choice);
    }
    drop_slow(choice);
    assign_kinds(choice);
    if (!each_has_a_core(choice))
        assign_all_alike(choice);
    return true;
}

enum status groups_choose(hwloc_topology_t topology, const struct hwloc_bitmap_s *allowed,
                          const struct groups_params *params, struct groups *groups, struct error *error)
{
    struct choice choice = {.topology = topology, .allowed = allowed, .params = params};
    int n_cpus = hwloc_bitmap_weight(allowed);
    size_t at_once = n_cpus > 0 && (size_t)n_cpus < params->quota ? (size_t)n_cpus : params->quota;
    *groups = (struct groups){.n = params->split.n_devices};
    groups->overcommitted = params->n_threads > at_once || groups->n > at_once;
    enum status status = list_cores(&choice, error);
    if (status == STATUS_OK) {
        bool by_cores = assign_cores(&choice);
        deal_threads(&choice, by_cores, groups);
        for (uint32_t d = 0; d < groups->n && by_cores && !groups->overcommitted && status == STATUS_OK; d++)
            if (!confine_group(&choice, d, &groups->groups[d]))
                status = error_memory(error, "the devices' CPUs");
    }
    free(choice.cores);
    if (status != STATUS_OK)
        groups_free(groups);
    return status;
}

void groups_free(struct groups *groups)
{
    for (uint32_t d = 0; d < groups->n; d++) {
        struct group *group = &groups->groups[d];
        for (size_t i = 0; group->thread_cpus != NULL && i < group->n_threads; i++)
            hwloc_bitmap_free((hwloc_bitmap_t)(uintptr_t)group->thread_cpus[i]);
        free(group->thread_cpus);
        hwloc_bitmap_free(group->cpus);
        hwloc_bitmap_free(group->nodes);
    }
    *groups = (struct groups){0};
}

void group_describe(const struct group *group, char *text, size_t size)
{
    char cpus[160], nodes[64];
    if (group->cpus == NULL) {
        snprintf(text, size, "any CPU");
        return;
    }
    hwloc_bitmap_list_snprintf(cpus, sizeof(cpus), group->cpus);
    hwloc_bitmap_list_snprintf(nodes, sizeof(nodes), group->nodes);
    snprintf(text, size, "CPUs %s of NUMA node %s", cpus, nodes);
}

// ---- this machine ----

struct machine {
    hwloc_topology_t topology; // NULL: unknown
    hwloc_bitmap_t allowed;
};

static void look(struct machine *machine)
{
    *machine = (struct machine){.allowed = hwloc_bitmap_alloc()};
    struct affinity *own = affinity_create(NULL);
    bool known = machine->allowed != NULL && own != NULL && affinity_read(own, machine->allowed);
    free(own);
#ifdef __linux__
    // Without a file system of the kernel's (a chroot) hwloc would print that, and find nothing.
    known = known && access("/sys/devices/system/cpu/cpu0/topology", F_OK) == 0;
#endif
    if (!known || hwloc_topology_init(&machine->topology) != 0) {
        machine->topology = NULL;
        return;
    }
    // Not by executing CPUID on each CPU in turn, which moves this thread around.
    hwloc_topology_set_components(machine->topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    if (hwloc_topology_load(machine->topology) != 0) {
        hwloc_topology_destroy(machine->topology);
        machine->topology = NULL;
    }
}

static void look_away(struct machine *machine)
{
    if (machine->topology != NULL)
        hwloc_topology_destroy(machine->topology);
    hwloc_bitmap_free(machine->allowed);
}

enum status groups_choose_here(const struct groups_params *params, struct groups *groups, struct error *error)
{
    struct machine machine;
    struct groups_params here = *params;
    size_t n_cpus = cpus_allowed(), quota = cpus_quota();
    here.quota = quota < n_cpus ? quota : n_cpus;
    look(&machine);
    enum status status = machine.allowed == NULL
                             ? error_memory(error, "the devices' CPUs")
                             : groups_choose(machine.topology, machine.allowed, &here, groups, error);
    look_away(&machine);
    return status;
}

size_t groups_numa_nodes_here(void)
{
    struct machine machine;
    look(&machine);
    size_t n = machine.topology == NULL ? 1 : groups_numa_nodes(machine.topology, machine.allowed);
    look_away(&machine);
    return n;
}
