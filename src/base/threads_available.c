// How many threads are worth starting: CPUs we may run on, one per physical core, within the cgroup's quota.
#include "base/affinity.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/threads.h"

#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Physical cores of which this thread may use a CPU; 0 where that cannot be found out.
static size_t count_cores(void)
{
#ifdef __linux__
    // Without a file system of the kernel's (a chroot) hwloc would print that, and find nothing.
    if (access("/sys/devices/system/cpu/cpu0/topology", F_OK) != 0)
        return 0;
#endif
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0)
        return 0;
    size_t cores = 0;
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    // Cores only, and not by executing CPUID on each CPU in turn, which moves this thread around.
    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    if (allowed && hwloc_topology_load(topology) == 0 &&
        hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_THREAD) == 0) {
        hwloc_obj_t core = NULL;
        while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != NULL)
            cores += hwloc_bitmap_intersects(core->cpuset, allowed) != 0;
    }
    hwloc_bitmap_free(allowed);
    hwloc_topology_destroy(topology);
    return cores;
}

size_t cpus_allowed(void)
{
    struct affinity *affinity = affinity_create(NULL);
    size_t count = affinity ? affinity_count(affinity) : 0;
    free(affinity);
    if (count)
        return count;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (size_t)online : 1;
}

// The content of a small file, NUL-terminated; data is NULL where it cannot be read.
static struct buffer read_small(const char *path)
{
    struct buffer text = {0};
    if (file_read_all(path, 1 << 16, &text, NULL) != STATUS_OK)
        buffer_free(&text);
    return text;
}

// The quota of one cgroup directory in whole CPUs; SIZE_MAX where there is none. Rounded down, but not to 0: threads
// beyond the quota would only stop each other at barriers.
static size_t read_quota(const char *directory)
{
    struct buffer path = {0}, quota = {0}, period = {0};
    long long numerator = 0, denominator = 0;
    if (buffer_append_format(&path, "%s/cpu.max", directory)) // version 2: "max 100000" or "150000 100000"
        quota = read_small(path.data);
    if (quota.data) {
        char *rest;
        numerator = strtoll(quota.data, &rest, 10);
        denominator = strtoll(rest, NULL, 10);
    } else {
        path.size = 0;
        if (buffer_append_format(&path, "%s/cpu.cfs_quota_us", directory)) // version 1: -1 for none
            quota = read_small(path.data);
        path.size = 0;
        if (quota.data && buffer_append_format(&path, "%s/cpu.cfs_period_us", directory))
            period = read_small(path.data);
        if (quota.data && period.data) {
            numerator = strtoll(quota.data, NULL, 10);
            denominator = strtoll(period.data, NULL, 10);
        }
    }
    buffer_free(&path);
    buffer_free(&quota);
    buffer_free(&period);
    if (numerator <= 0 || denominator <= 0)
        return SIZE_MAX;
    return numerator < denominator ? 1 : (size_t)(numerator / denominator);
}

// The smallest quota of the cgroup `mount` + group and all above it.
static size_t smallest_quota(const char *mount, const char *group, size_t group_size)
{
    size_t smallest = SIZE_MAX;
    struct buffer path = {0};
    if (buffer_append_text(&path, mount) && buffer_append(&path, group, group_size)) {
        size_t mount_size = strlen(mount);
        while (path.size > mount_size && path.data[path.size - 1] == '/')
            path.data[--path.size] = '\0';
        for (;;) {
            size_t quota = read_quota(path.data);
            if (quota < smallest)
                smallest = quota;
            if (path.size <= mount_size)
                break;
            while (path.size > mount_size && path.data[path.size - 1] != '/')
                path.size--;
            if (path.size > mount_size)
                path.size--;
            path.data[path.size] = '\0';
        }
    }
    buffer_free(&path);
    return smallest;
}

// Whether the comma-separated list holds "cpu".
static bool lists_cpu(const char *list, size_t size)
{
    for (size_t i = 0; i < size;) {
        size_t length = 0;
        while (i + length < size && list[i + length] != ',')
            length++;
        if (length == 3 && memcmp(list + i, "cpu", 3) == 0)
            return true;
        i += length + 1;
    }
    return false;
}

// The lines of /proc/self/cgroup are ID:CONTROLLERS:PATH; version 2 has no controllers there.
size_t cpus_quota(void)
{
    size_t smallest = SIZE_MAX;
    struct buffer groups = read_small("/proc/self/cgroup");
    for (const char *line = groups.data; line && *line;) {
        size_t length = strcspn(line, "\n");
        const char *controllers = memchr(line, ':', length);
        const char *group =
            controllers ? memchr(controllers + 1, ':', length - (size_t)(controllers + 1 - line)) : NULL;
        if (group) {
            controllers++;
            size_t size = (size_t)(group - controllers);
            size_t group_size = length - (size_t)(group + 1 - line);
            size_t quota = SIZE_MAX;
            if (size == 0)
                quota = smallest_quota("/sys/fs/cgroup", group + 1, group_size);
            else if (lists_cpu(controllers, size))
                quota = smallest_quota("/sys/fs/cgroup/cpu", group + 1, group_size);
            if (quota < smallest)
                smallest = quota;
        }
        line += length;
        line += *line == '\n';
    }
    buffer_free(&groups);
    return smallest;
}

size_t threads_available(void)
{
    size_t n = count_cores();
    if (n == 0)
        n = cpus_allowed();
    size_t quota = cpus_quota();
    return n < quota ? n : quota;
}
