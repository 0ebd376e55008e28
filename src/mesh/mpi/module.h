// What mote asks of MPI: a shared library of its own (module.c), which is loaded only in processes that a launcher
// started together, so that nothing else links MPI. Plain C types: the module knows nothing of the rest of mote.
#ifndef MOTE_MESH_MPI_MODULE_H
#define MOTE_MESH_MPI_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MPI_MODULE_VERSION = 2,
    MPI_TEXT = 256,
    MPI_NAME = 64,
    MPI_MAX_MESSAGES = 16, // sends and receives of one exchange
};

struct mpi_message {
    void *bytes;
    size_t size;   // bytes; 0 is a message too
    uint32_t peer; // rank
    int tag;       // of a receive: what came
};

enum mpi_outcome {
    MPI_OUTCOME_DONE,
    MPI_OUTCOME_LATE,   // a rank did not answer in time
    MPI_OUTCOME_FAILED, // MPI says why
};

struct mpi_module {
    uint32_t rank, n_ranks;
    uint32_t n_on_host;  // ranks on this host
    char name[MPI_NAME]; // of the MPI that it was built with, and its version
    // All of these messages, at once. limit: seconds that a rank may be silent. idle: only its process may not be
    // silent for so long, it may be a day late itself, and waiting costs no CPU time to speak of. *late: who was
    // silent, or with whom it failed.
    enum mpi_outcome (*exchange)(struct mpi_message *sends, size_t n_sends, struct mpi_message *receives,
                                 size_t n_receives, double limit, bool idle, uint32_t *late, char text[MPI_TEXT]);
    // Tells the others, who may be waiting, that this rank is at work. Cheap enough to be called often.
    void (*alive)(void);
    const char *(*host)(uint32_t rank);
    // Ends it: with 0 in order (all ranks must call it), else at once and for all.
    void (*end)(int exit_code);
};

// The module's only symbol. 0: done; else text says why not.
typedef int mpi_begin_function(uint32_t version, struct mpi_module *module, char text[MPI_TEXT]);
mpi_begin_function mote_mpi_begin;

#endif
