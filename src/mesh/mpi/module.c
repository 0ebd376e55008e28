// MPI behind module.h. Only point-to-point messages: so that who is silent can be named, and sums are added by mote, in
// its own order.
#include "mesh/mpi/module.h"

#include <mpi.h>

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    PIECE = 1 << 30,    // bytes of one MPI message
    MAX_REQUESTS = 256, // pieces of all messages of an exchange
    MAX_RANKS = 64,     // that hosts are remembered of
    HOST = 64,          // characters of a host's name
    SPINS = 200,        // looks before the CPU is offered to others
    POLL_US = 200,      // between two looks of one who waits without limit
};
static const double patience = 0.005;     // seconds before such a one begins to sleep between looks
static const double alive_interval = 0.5; // seconds

static MPI_Comm messages, signs; // signs of life have a communicator of their own
static int rank, n_ranks;
static char hosts[MAX_RANKS][HOST];
static double heard[MAX_RANKS]; // when each rank last gave a sign
static double last_sign;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void alive(void)
{
    double time = now();
    if (time - last_sign < alive_interval)
        return;
    last_sign = time;
    for (int peer = 0; peer < n_ranks; peer++) {
        MPI_Request request;
        if (peer != rank && MPI_Isend(NULL, 0, MPI_BYTE, peer, 0, signs, &request) == MPI_SUCCESS)
            MPI_Request_free(&request);
    }
}

static void take_signs(void)
{
    int there = 1;
    while (there != 0) {
        MPI_Status status;
        if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, signs, &there, &status) != MPI_SUCCESS || there == 0)
            return;
        int source = status.MPI_SOURCE;
        MPI_Recv(NULL, 0, MPI_BYTE, source, MPI_ANY_TAG, signs, MPI_STATUS_IGNORE);
        heard[source] = now();
    }
}

// The pieces of all messages as requests.
struct pending {
    MPI_Request requests[MAX_REQUESTS];
    struct mpi_message *of[MAX_REQUESTS];
    bool is_receive[MAX_REQUESTS];
    int n;
};

static int start(struct pending *pending, struct mpi_message *message, bool receive)
{
    size_t done = 0;
    do {
        if (pending->n == MAX_REQUESTS)
            return MPI_ERR_COUNT;
        size_t left = message->size - done;
        int size = left < PIECE ? (int)left : PIECE, peer = (int)message->peer, error;
        char *bytes = (char *)message->bytes + done;
        MPI_Request *request = &pending->requests[pending->n];
        if (receive)
            error = MPI_Irecv(bytes, size, MPI_BYTE, peer, MPI_ANY_TAG, messages, request);
        else
            error = MPI_Isend(bytes, size, MPI_BYTE, peer, message->tag, messages, request);
        if (error != MPI_SUCCESS)
            return error;
        pending->of[pending->n] = message;
        pending->is_receive[pending->n++] = receive;
        done += (size_t)size;
    } while (done < message->size);
    return MPI_SUCCESS;
}

// One look at what is pending; *left: how many are not done; *late: with whom it failed.
static int look(struct pending *pending, int *left, uint32_t *late)
{
    *left = 0;
    for (int i = 0; i < pending->n; i++) {
        MPI_Status status;
        int done = 1;
        if (pending->requests[i] == MPI_REQUEST_NULL)
            continue;
        int error = MPI_Test(&pending->requests[i], &done, &status);
        if (error != MPI_SUCCESS) {
            *late = pending->of[i]->peer;
            return error;
        }
        if (done == 0) {
            ++*left;
        } else if (pending->is_receive[i]) {
            pending->of[i]->tag = status.MPI_TAG;
        }
    }
    return MPI_SUCCESS;
}

static bool find_late(const struct pending *pending, double started, double limit, uint32_t *late)
{
    double time = now();
    for (int i = 0; i < pending->n; i++) {
        uint32_t peer = pending->of[i]->peer;
        double since = heard[peer] > started ? heard[peer] : started;
        if (pending->requests[i] != MPI_REQUEST_NULL && time - since > limit) {
            *late = peer;
            return true;
        }
    }
    return false;
}

static enum mpi_outcome explain(int error, char text[MPI_TEXT])
{
    char whole[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (MPI_Error_string(error, whole, &length) != MPI_SUCCESS)
        length = 0;
    snprintf(text, MPI_TEXT, "%.*s", length < MPI_TEXT - 1 ? length : MPI_TEXT - 1, whole);
    return MPI_OUTCOME_FAILED;
}

static void wait_a_little(unsigned *looks, double started, double limit)
{
    if (++*looks < SPINS)
        return;
    if (limit > 0 || now() - started < patience) {
        sched_yield();
        return;
    }
    nanosleep(&(struct timespec){.tv_nsec = POLL_US * 1000L}, NULL);
}

static enum mpi_outcome exchange(struct mpi_message *sends, size_t n_sends, struct mpi_message *receives,
                                 size_t n_receives, double limit, uint32_t *late, char text[MPI_TEXT])
{
    struct pending pending = {.n = 0};
    int error = MPI_SUCCESS, left = 1;
    for (size_t i = 0; i < n_receives && error == MPI_SUCCESS; i++) {
        *late = receives[i].peer;
        error = start(&pending, &receives[i], true);
    }
    for (size_t i = 0; i < n_sends && error == MPI_SUCCESS; i++) {
        *late = sends[i].peer;
        error = start(&pending, &sends[i], false);
    }
    unsigned looks = 0;
    double started = now();
    while (error == MPI_SUCCESS) {
        error = look(&pending, &left, late);
        if (error != MPI_SUCCESS || left == 0)
            break;
        wait_a_little(&looks, started, limit);
        if (looks % SPINS != 0 || limit <= 0)
            continue;
        alive(); // who waits for the same silent rank is not silent itself
        take_signs();
        if (find_late(&pending, started, limit, late))
            return MPI_OUTCOME_LATE;
    }
    return error == MPI_SUCCESS ? MPI_OUTCOME_DONE : explain(error, text);
}

static const char *host(uint32_t of)
{
    return of < MAX_RANKS ? hosts[of] : "";
}

static void end(int exit_code)
{
    take_signs(); // that came late
    if (exit_code == 0)
        MPI_Finalize();
    else
        MPI_Abort(MPI_COMM_WORLD, exit_code);
}

// The first words of what MPI says of itself: "Open MPI v4.1.4", "MPICH Version: 4.0.2".
static void name_library(char name[MPI_NAME])
{
    char whole[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(whole, &length);
    size_t size = strcspn(whole, ",\n");
    size = size < MPI_NAME ? size : MPI_NAME - 1;
    memcpy(name, whole, size);
    name[size] = '\0';
    for (char *c = name; *c != '\0'; c++)
        *c = *c == '\t' ? ' ' : *c;
}

__attribute__((visibility("default"))) int mote_mpi_begin(uint32_t version, struct mpi_module *module,
                                                          char text[MPI_TEXT])
{
    int granted, size = 0;
    char name[MPI_MAX_PROCESSOR_NAME] = "";
    MPI_Comm local;
    if (version != MPI_MODULE_VERSION) {
        snprintf(text, MPI_TEXT, "it is of another version of mote");
        return 1;
    }
    int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &granted);
    if (error != MPI_SUCCESS || granted < MPI_THREAD_SERIALIZED) {
        snprintf(text, MPI_TEXT, "MPI does not let one thread after the other call it");
        return 1;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    if (n_ranks > MAX_RANKS) {
        snprintf(text, MPI_TEXT, "there are %d ranks, more than %d", n_ranks, MAX_RANKS);
        return 1;
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &messages);
    MPI_Comm_dup(MPI_COMM_WORLD, &signs);
    MPI_Comm_set_errhandler(messages, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(signs, MPI_ERRORS_RETURN);
    MPI_Get_processor_name(name, &size);
    char own[HOST] = "";
    memcpy(own, name, (size_t)size < sizeof(own) ? (size_t)size : sizeof(own) - 1);
    MPI_Allgather(own, HOST, MPI_CHAR, hosts, HOST, MPI_CHAR, MPI_COMM_WORLD);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local);
    MPI_Comm_size(local, &size);
    *module = (struct mpi_module){.rank = (uint32_t)rank,
                                  .n_ranks = (uint32_t)n_ranks,
                                  .n_on_host = (uint32_t)size,
                                  .exchange = exchange,
                                  .alive = alive,
                                  .host = host,
                                  .end = end};
    name_library(module->name);
    return 0;
}
