// Ranks: the transport's four calls over the module's messages, limits of waiting.
#include "mesh/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SCATTER_BYTES = 64 * 1024, // see struct transport: measured by nothing but the shape of the two ways
    SEQUENCES = 1 << 14,       // tags are at least 15 bits wide
    MESSAGE = 1024,
};
// Seconds that a rank may be silent: a constant, and what this one itself took since the last call, several times.
static const double silence = 5, times_own = 4, loading_silence = 6;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// ---- calls ----

// Messages of one call: their stop flags are joined.
struct call {
    struct mpi_message sends[MPI_MAX_MESSAGES], receives[MPI_MAX_MESSAGES];
    size_t n_sends, n_receives;
    double limit; // see the module
    bool idle, stop;
};

static void add_send(struct call *call, uint32_t peer, const void *bytes, size_t size)
{
    call->sends[call->n_sends++] = (struct mpi_message){.bytes = (void *)(uintptr_t)bytes, .size = size, .peer = peer};
}

static void add_receive(struct call *call, uint32_t peer, void *bytes, size_t size)
{
    call->receives[call->n_receives++] = (struct mpi_message){.bytes = bytes, .size = size, .peer = peer};
}

// All that are left find out at about the same time. The first of them says it and ends the others, which leave it the
// time to.
static void leave_the_word(const struct ranks *ranks, uint32_t late)
{
    uint32_t place = ranks->module.rank - (late < ranks->module.rank ? 1 : 0);
    if (place != 0)
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
}

static enum status report(struct ranks *ranks, enum mpi_outcome outcome, uint32_t late, double limit, const char *text,
                          struct error *error)
{
    ranks->broken = true;
    leave_the_word(ranks, late);
    if (outcome == MPI_OUTCOME_LATE)
        return error_set(error, STATUS_IO,
                         "rank %u (on %s) has not answered for %.0f s: it died, hangs, or cannot be reached", late,
                         ranks->module.host(late), limit);
    return error_set(error, STATUS_IO, "rank %u (on %s) is lost: %s", late, ranks->module.host(late), text);
}

static enum status run_call(struct ranks *ranks, struct call *call, struct error *error)
{
    uint32_t late = 0;
    char text[MPI_TEXT] = "";
    int tag = (int)(ranks->sequence++ % SEQUENCES) * 2;
    if (ranks->broken)
        return error_set(error, STATUS_IO, "the ranks have lost each other");
    for (size_t i = 0; i < call->n_sends; i++)
        call->sends[i].tag = tag + (call->stop ? 1 : 0);
    enum mpi_outcome outcome = ranks->module.exchange(call->sends, call->n_sends, call->receives, call->n_receives,
                                                      call->limit, call->idle, &late, text);
    ranks->last_call = now();
    if (outcome != MPI_OUTCOME_DONE)
        return report(ranks, outcome, late, call->limit, text, error);
    for (size_t i = 0; i < call->n_receives; i++) {
        call->stop = call->stop || (call->receives[i].tag & 1) != 0;
        if ((call->receives[i].tag & ~1) == tag)
            continue;
        ranks->broken = true;
        return error_set(error, STATUS_IO, "rank %u is at another step than rank %u: this is a bug of mote",
                         call->receives[i].peer, ranks->module.rank);
    }
    return STATUS_OK;
}

static double limit_now(const struct ranks *ranks)
{
    return silence + times_own * (now() - ranks->last_call);
}

// ---- the transport ----

// Where the rows of device s come to lie, and how many bytes they are.
static uint8_t *place(const struct exchange *exchange, uint32_t n, uint32_t rank, uint32_t s, const size_t *bytes)
{
    uint8_t *at = exchange->receive;
    for (uint32_t d = 0; d < n && d < s; d++)
        at += d == rank ? 0 : exchange_align(bytes[d]);
    return at;
}

// What each device gives to each other one: from `mine` + offset[d], sizes[d] bytes; and gets: received[s] bytes.
static enum status exchange_rows(struct ranks *ranks, struct exchange *exchange, const size_t *offsets,
                                 const size_t *sizes, const size_t *received, struct error *error)
{
    uint32_t rank = ranks->module.rank, n = ranks->module.n_ranks;
    struct call call = {.limit = limit_now(ranks), .stop = exchange->stop};
    for (uint32_t d = 0; d < n; d++) {
        if (d == rank)
            continue;
        add_send(&call, d, sizes[d] == 0 ? NULL : (const uint8_t *)exchange->mine + offsets[d], sizes[d]);
        uint8_t *at = received[d] == 0 ? NULL : place(exchange, n, rank, d, received);
        add_receive(&call, d, at, received[d]);
        exchange->theirs[d] = at;
    }
    enum status status = run_call(ranks, &call, error);
    exchange->stop = call.stop;
    return status;
}

static enum status all_gather(struct transport *transport, uint32_t rank, struct exchange *exchange,
                              struct error *error)
{
    struct ranks *ranks = (struct ranks *)transport;
    size_t offsets[MAX_DEVICES] = {0}, sizes[MAX_DEVICES], received[MAX_DEVICES];
    for (uint32_t d = 0; d < transport->n_devices; d++) {
        bool gives_to = exchange->root < 0 || (uint32_t)exchange->root == d;
        bool gets = exchange->root < 0 || (uint32_t)exchange->root == rank;
        sizes[d] = gives_to ? (exchange->rows[rank].end - exchange->rows[rank].begin) * exchange->row_bytes[rank] : 0;
        received[d] = gets ? (exchange->rows[d].end - exchange->rows[d].begin) * exchange->row_bytes[d] : 0;
    }
    enum status status = exchange_rows(ranks, exchange, offsets, sizes, received, error);
    exchange->theirs[rank] = exchange->mine;
    return status;
}

static enum status all_to_all(struct transport *transport, uint32_t rank, struct exchange *exchange,
                              struct error *error)
{
    struct ranks *ranks = (struct ranks *)transport;
    size_t offsets[MAX_DEVICES], sizes[MAX_DEVICES], received[MAX_DEVICES];
    size_t own = exchange->rows[rank].end - exchange->rows[rank].begin;
    for (uint32_t d = 0; d < transport->n_devices; d++) {
        offsets[d] = exchange->rows[d].begin * exchange->row_bytes[rank];
        sizes[d] = (exchange->rows[d].end - exchange->rows[d].begin) * exchange->row_bytes[rank];
        received[d] = own * exchange->row_bytes[d];
    }
    enum status status = exchange_rows(ranks, exchange, offsets, sizes, received, error);
    exchange->theirs[rank] = exchange->mine == NULL ? NULL : (const uint8_t *)exchange->mine + offsets[rank];
    return status;
}

static enum status tell(struct ranks *ranks, uint32_t root, void *bytes, size_t size, double limit, bool idle,
                        struct error *error)
{
    struct call call = {.limit = limit, .idle = idle};
    if (ranks->module.rank != root)
        add_receive(&call, root, bytes, size);
    for (uint32_t d = 0; d < ranks->module.n_ranks && ranks->module.rank == root; d++) {
        if (d != root)
            add_send(&call, d, bytes, size);
    }
    return run_call(ranks, &call, error);
}

static enum status broadcast(struct transport *transport, uint32_t rank, uint32_t root, void *bytes, size_t size,
                             struct error *error)
{
    struct ranks *ranks = (struct ranks *)transport;
    (void)rank;
    return tell(ranks, root, bytes, size, limit_now(ranks), false, error);
}

static enum status barrier(struct transport *transport, uint32_t rank, bool *stop, struct error *error)
{
    struct ranks *ranks = (struct ranks *)transport;
    struct call call = {.limit = limit_now(ranks), .stop = *stop};
    for (uint32_t d = 0; d < transport->n_devices; d++) {
        if (d == rank)
            continue;
        add_send(&call, d, NULL, 0);
        add_receive(&call, d, NULL, 0);
    }
    enum status status = run_call(ranks, &call, error);
    *stop = call.stop;
    return status;
}

static void destroy(struct transport *transport)
{
    (void)transport;
}

static const struct transport_ops ops = {
    .name = "mpi",
    .all_gather = all_gather,
    .all_to_all = all_to_all,
    .broadcast = broadcast,
    .barrier = barrier,
    .destroy = destroy,
};

// ---- beyond the transport ----

enum status ranks_tell(struct ranks *ranks, void *bytes, size_t size, bool waits, struct error *error)
{
    bool idle = waits && ranks->module.rank != 0;
    // What rank 0 did meanwhile says nothing of the others, who do nothing but wait for it.
    double limit = waits ? silence : limit_now(ranks);
    return tell(ranks, 0, bytes, size, limit, idle, error);
}

struct verdict {
    int32_t status;
    char message[MESSAGE];
};

enum status ranks_agree(struct ranks *ranks, enum status mine, struct error *error)
{
    struct verdict verdicts[MAX_DEVICES] = {{0}};
    uint32_t rank = ranks->module.rank, n = ranks->module.n_ranks;
    struct call call = {.limit = loading_silence};
    verdicts[rank].status = (int32_t)mine;
    if (mine != STATUS_OK && error != NULL)
        snprintf(verdicts[rank].message, MESSAGE, "%s", error->message);
    for (uint32_t d = 0; d < n; d++) {
        if (d == rank)
            continue;
        add_send(&call, d, &verdicts[rank], sizeof(verdicts[rank]));
        add_receive(&call, d, &verdicts[d], sizeof(verdicts[d]));
    }
    enum status status = run_call(ranks, &call, error);
    for (uint32_t d = 0; d < n && status == STATUS_OK; d++) {
        if (verdicts[d].status == STATUS_OK)
            continue;
        verdicts[d].message[MESSAGE - 1] = '\0';
        if (d == rank) {
            error_prefix(error, "rank %u", rank);
            return mine;
        }
        return error_set(error, (enum status)verdicts[d].status, "rank %u (on %s): %s", d, ranks->module.host(d),
                         verdicts[d].message);
    }
    return status;
}

void ranks_alive(struct ranks *ranks)
{
    ranks->module.alive();
}

// ---- joining ----

static enum status check_hello(const struct ranks_hello *mine, const struct ranks_hello *first, struct error *error)
{
    if (memcmp(mine, first, sizeof(*mine)) == 0)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID,
                     "this is mote %.31s (numerics %d, protocol %d), but rank 0 has mote %.31s (numerics %d, protocol "
                     "%d%s): all ranks need the same",
                     mine->version, mine->numerics, mine->protocol, first->version, first->numerics, first->protocol,
                     mine->layout == first->layout ? "" : ", another build");
}

enum status ranks_greet(struct ranks *ranks, const struct ranks_hello *mine, struct error *error)
{
    struct ranks_hello first = *mine;
    enum status status = ranks_tell(ranks, &first, sizeof(first), false, error);
    return status == STATUS_OK ? ranks_agree(ranks, check_hello(mine, &first, error), error) : status;
}

enum status ranks_join(struct ranks **result, struct error *error)
{
    struct ranks *ranks = calloc(1, sizeof(*ranks));
    if (ranks == NULL)
        return error_memory(error, "the ranks");
    enum status status = ranks_load_module(&ranks->module, error);
    if (status != STATUS_OK) {
        free(ranks);
        return status;
    }
    ranks->transport = (struct transport){
        .ops = &ops, .n_devices = ranks->module.n_ranks, .copies = true, .scatter_bytes = SCATTER_BYTES};
    ranks->last_call = now();
    *result = ranks;
    if (ranks->module.n_ranks > MAX_DEVICES)
        return error_set(error, STATUS_INVALID, "%u ranks: a mesh has at most %d devices", ranks->module.n_ranks,
                         MAX_DEVICES);
    return STATUS_OK;
}

void ranks_leave(struct ranks *ranks, bool good)
{
    if (ranks == NULL)
        return;
    good = good && !ranks->broken;
    if (!good) // launchers lose what was written just before a job is ended
        nanosleep(&(struct timespec){.tv_nsec = 200 * 1000 * 1000}, NULL);
    ranks->module.end(good ? 0 : 1);
    free(ranks);
}
