// Finding and loading the MPI module, which nothing links.
#include "mesh/ranks.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

enum { WHY = 512 };

uint32_t ranks_launched(void)
{
    // Open MPI; MPICH and its kin; MPICH again, where the first is missing: of this host.
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);
        long n = value == NULL ? 0 : strtol(value, NULL, 10);
        if (n > 1 && n < INT_MAX)
            return (uint32_t)n;
    }
    return 1;
}

// Cuts a file's name off its path.
static void keep_folder(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash != NULL)
        *slash = '\0';
    else
        strcpy(path, ".");
}

static void *open_beside(const char *folder, char why[WHY])
{
    // In the build's folder of the program and of the library; where they were installed.
    static const char installed[] = "../" MOTE_LIBDIR "/mote";
    static const char *const places[] = {"src/mesh", "../mesh", "mote", "../lib/mote", installed};
    char path[PATH_MAX + 64];
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s/mote-mpi.so", folder, places[i]);
        if (access(path, R_OK) != 0)
            continue;
        void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL); // MPI's own plugins look for its symbols
        if (library == NULL)
            snprintf(why, WHY, "%s", dlerror());
        return library;
    }
    return NULL;
}

// The module is where MOTE_MPI_MODULE says, or beside the program, or beside the library.
static void *open_module(char why[WHY])
{
    char folder[PATH_MAX + 1];
    const char *given = getenv("MOTE_MPI_MODULE");
    if (given != NULL && given[0] != '\0') {
        void *library = dlopen(given, RTLD_NOW | RTLD_GLOBAL);
        if (library == NULL)
            snprintf(why, WHY, "%s", dlerror());
        return library;
    }
    void *library = NULL;
    ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX);
    if (length > 0) {
        folder[length] = '\0';
        keep_folder(folder);
        library = open_beside(folder, why);
    }
    Dl_info own; // of the library that this is in
    if (library == NULL && dladdr(__func__, &own) != 0 && own.dli_fname != NULL && strlen(own.dli_fname) <= PATH_MAX) {
        strcpy(folder, own.dli_fname);
        keep_folder(folder);
        library = open_beside(folder, why);
    }
    if (library == NULL && why[0] == '\0')
        snprintf(why, WHY, "mote-mpi.so is not beside the program");
    return library;
}

enum status ranks_load_module(struct mpi_module *module, struct error *error)
{
    char why[WHY] = "", text[MPI_TEXT] = "";
    void *library = open_module(why);
    mpi_begin_function *begin = NULL;
    if (library != NULL)
        *(void **)(void *)&begin = dlsym(library, "mote_mpi_begin");
    if (begin == NULL)
        return error_set(error, STATUS_UNSUPPORTED,
                         "a launcher started several ranks, but this mote has no MPI module (%s): build it where MPI's "
                         "headers are (Debian: libopenmpi-dev; meson setup -Dmpi=enabled), or run one process with "
                         "--devices N",
                         why[0] != '\0' ? why : "it is damaged");
    if (begin(MPI_MODULE_VERSION, module, text) != 0)
        return error_set(error, STATUS_IO, "MPI cannot be used: %s", text);
    if (module->n_ranks < 2) {
        module->end(0);
        return error_set(error, STATUS_UNSUPPORTED,
                         "the launcher started %u ranks, but they do not find each other: mote's MPI module is built "
                         "for %s; start them with the launcher of that, or build it for the launcher's MPI (meson "
                         "setup -Dmpi=openmpi or -Dmpi=mpich)",
                         ranks_launched(), module->name);
    }
    return STATUS_OK;
}
