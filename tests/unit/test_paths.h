// Where tests find their files. TEST_DATA (tests/data) and TEST_SOURCE_ROOT come from meson.build.
// Include it before cmocka.h: it brings the headers that cmocka wants.
#ifndef MOTE_TESTS_TEST_PATHS_H
#define MOTE_TESTS_TEST_PATHS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// The path of a file that is not part of the repository: under $MOTE_SHARED, else ../shared beside the sources.
// Where it is absent, says that its test is skipped, and returns false.
static inline bool test_shared_path(char *path, size_t capacity, const char *name)
{
    const char *folder = getenv("MOTE_SHARED");
    if (folder)
        snprintf(path, capacity, "%s/%s", folder, name);
    else
        snprintf(path, capacity, "%s/../shared/%s", TEST_SOURCE_ROOT, name);
    if (access(path, R_OK) == 0)
        return true;
    printf("skipped: %s: it is not part of the repository (MOTE_SHARED names its folder)\n", name);
    return false;
}

#endif
