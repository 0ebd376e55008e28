// Processes that a launcher started together (mpirun -n 4 mote run …), on one machine or several: one device of a mesh
// each. Rank 0 talks to the user; the others do what it says (engine/remote.c). Every wait but that for rank 0's next
// command has a limit, so that a rank that died or hangs ends the others with its name.
#ifndef MOTE_MESH_RANKS_H
#define MOTE_MESH_RANKS_H

#include "mesh/mpi/module.h"
#include "tensor/transport.h"

struct ranks {
    struct transport transport; // between them; its destroy does nothing, as the ranks outlive meshes
    struct mpi_module module;
    uint32_t sequence; // of calls, the same on all ranks
    double last_call;  // when the last one returned: what a rank computes in between, another may need too
    bool broken;       // a call failed: they can only be ended
};

// How many processes a launcher started together with this one, which its environment says; 1: none.
uint32_t ranks_launched(void);
// Finds the module and begins with it. STATUS_UNSUPPORTED where there is none, or it is of another MPI than the
// launcher.
enum status ranks_load_module(struct mpi_module *module, struct error *error);
// Loads the module and meets the other ranks. STATUS_UNSUPPORTED where there is no module.
enum status ranks_join(struct ranks **ranks, struct error *error);
// What all must have in common before they say anything else. Its form never changes.
struct ranks_hello {
    char version[32];
    int32_t numerics, protocol;
    uint64_t layout; // of the messages that follow
};
// The first call: STATUS_INVALID on all ranks where one has not what rank 0 has.
enum status ranks_greet(struct ranks *ranks, const struct ranks_hello *mine, struct error *error);
// Ends them: in order where all is well and `good`, else at once.
void ranks_leave(struct ranks *ranks, bool good);

// Whether all are well: each gives its status, and all get the first failure in the order of ranks, with its rank. Work
// before it may take long, of ranks that say meanwhile that they are alive.
enum status ranks_agree(struct ranks *ranks, enum status mine, struct error *error);
void ranks_alive(struct ranks *ranks);
// Bytes of rank 0 to all. waits: the receivers wait for it without limit.
enum status ranks_tell(struct ranks *ranks, void *bytes, size_t size, bool waits, struct error *error);

#endif
