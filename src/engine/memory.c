// How much memory this process could still get.
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The number in the first line of a file that begins with `prefix`; false where there is none.
static bool read_number(const char *path, const char *prefix, uint64_t *number)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    char line[256];
    bool found = false;
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, prefix, strlen(prefix)) == 0) {
            char *end;
            const char *digits = line + strlen(prefix);
            *number = strtoull(digits, &end, 10);
            found = end != digits;
        }
    }
    fclose(file);
    return found;
}

uint64_t memory_available(void)
{
    uint64_t available = 0, limit, used;
    if (read_number("/proc/meminfo", "MemAvailable:", &available)) {
        available *= 1024;
    } else {
        long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
        available = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
    }
    if (read_number("/sys/fs/cgroup/memory.max", "", &limit) &&
        read_number("/sys/fs/cgroup/memory.current", "", &used)) {
        uint64_t left = limit > used ? limit - used : 0;
        available = left < available ? left : available;
    }
    return available;
}
