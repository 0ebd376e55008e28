// MPI behind module.h. Only point-to-point messages: so that who is silent can be named, and sums are added by mote, in
// its own order.
#include "mesh/mpi/module.h"

#include <mpi.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    PIECE = 1 << 30,     // bytes of one MPI message
    MAX_REQUESTS = 256,  // pieces of all messages of an exchange
    MAX_RANKS = 64,      // that hosts are remembered of
    HOST = 64,           // characters of a host's name
    SPINS = 200,         // looks before the CPU is offered to others
    ABORT_SECONDS = 2,   // that ending the job may take, before this process ends itself
    POLL_US = 200,       // between two looks of an idle one
    LONG_POLL_US = 2000, // that has been so for long
};
// Signs of life: of a rank at its work, of one that waits for another, and of a process whose user thinks.
enum sign { SIGN_WORK, SIGN_WAIT, SIGN_PROCESS, N_SIGNS };

// Seconds.
static const double patience = 0.005,
                    long_patience = 2; // before an idle one sleeps between looks, and before it sleeps long
static const double alive_interval = 0.5, check_interval = 0.1;
static const double most_waits = 60; // that ranks may wait for each other: longer than any message takes
static const double most_gap = 1;    // between two looks; more: this process was stopped, and not the others silent

static MPI_Comm messages, signs; // signs of life have a communicator of their own
static int rank, n_ranks;
static char hosts[MAX_RANKS][HOST];
static double heard[MAX_RANKS][N_SIGNS]; // when each rank last gave a sign
static double last_sign;
// MPI is called by one thread at a time: the rank's, or the heart's.
static pthread_mutex_t calls = PTHREAD_MUTEX_INITIALIZER;
static pthread_t heart;
static pthread_cond_t heart_stops;
static bool has_heart, heart_must_stop;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void give_signs(enum sign sign)
{
    for (int peer = 0; peer < n_ranks; peer++) {
        MPI_Request request;
        if (peer != rank && MPI_Isend(NULL, 0, MPI_BYTE, peer, (int)sign, signs, &request) == MPI_SUCCESS)
            MPI_Request_free(&request);
    }
}

static void give_sign(enum sign sign)
{
    double time = now();
    if (time - last_sign < alive_interval)
        return;
    last_sign = time;
    give_signs(sign);
}

static void alive(void)
{
    pthread_mutex_lock(&calls);
    give_sign(SIGN_WORK);
    pthread_mutex_unlock(&calls);
}

static void take_signs(void)
{
    int there = 1;
    while (there != 0) {
        MPI_Status status;
        if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, signs, &there, &status) != MPI_SUCCESS || there == 0)
            return;
        int source = status.MPI_SOURCE, sign = status.MPI_TAG;
        MPI_Recv(NULL, 0, MPI_BYTE, source, sign, signs, MPI_STATUS_IGNORE);
        heard[source][sign] = now();
    }
}

// The others wait without limit for rank 0, whose user may think for hours. That it is still there, its heart says.
static void *beat(void *user)
{
    (void)user;
    pthread_mutex_lock(&calls);
    while (!heart_must_stop) {
        struct timespec next;
        give_signs(SIGN_PROCESS);
        clock_gettime(CLOCK_MONOTONIC, &next);
        next.tv_sec += 1;
        pthread_cond_timedwait(&heart_stops, &calls, &next);
    }
    pthread_mutex_unlock(&calls);
    return NULL;
}

static void start_heart(void)
{
    pthread_condattr_t attributes;
    sigset_t all, before;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&heart_stops, &attributes);
    pthread_condattr_destroy(&attributes);
    sigfillset(&all); // signals are for the program's threads
    pthread_sigmask(SIG_SETMASK, &all, &before);
    has_heart = pthread_create(&heart, NULL, beat, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void stop_heart(void)
{
    if (!has_heart)
        return;
    pthread_mutex_lock(&calls);
    heart_must_stop = true;
    pthread_cond_signal(&heart_stops);
    pthread_mutex_unlock(&calls);
    pthread_join(heart, NULL);
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

// A wait: when it began, when it last looked for its messages, and when for signs.
struct wait {
    double started, looked, checked, limit;
    bool idle; // for rank 0's user
    unsigned looks;
};

static double later(double a, double b)
{
    return a > b ? a : b;
}

// When a rank for which this one waits was last known to be well.
static double last_known(const struct wait *wait, uint32_t peer)
{
    const double *of = heard[peer];
    double work = later(wait->started, of[SIGN_WORK]), latest = wait->started + most_waits;
    if (wait->idle)
        return later(work, later(of[SIGN_WAIT], of[SIGN_PROCESS]));
    return later(work, of[SIGN_WAIT] < latest ? of[SIGN_WAIT] : latest);
}

static bool find_late(const struct pending *pending, const struct wait *wait, uint32_t *late)
{
    for (int i = 0; i < pending->n; i++) {
        uint32_t peer = pending->of[i]->peer;
        if (pending->requests[i] != MPI_REQUEST_NULL && wait->looked - last_known(wait, peer) > wait->limit) {
            *late = peer;
            return true;
        }
    }
    return false;
}

// Who was stopped itself (or its machine was) knows nothing of the others' silence.
static void note_time(struct wait *wait)
{
    double time = now(), gap = time - wait->looked;
    wait->looked = time;
    if (gap > most_gap)
        wait->started = time;
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

static void wait_a_little(const struct wait *wait)
{
    double waited = wait->looked - wait->started;
    if (wait->looks < SPINS)
        return;
    if (!wait->idle || waited < patience)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = (waited < long_patience ? POLL_US : LONG_POLL_US) * 1000L}, NULL);
}

static int start_all(struct pending *pending, struct mpi_message *some, size_t n, bool receive, uint32_t *late)
{
    int error = MPI_SUCCESS;
    for (size_t i = 0; i < n && error == MPI_SUCCESS; i++) {
        *late = some[i].peer;
        error = start(pending, &some[i], receive);
    }
    return error;
}

// Signs are given and taken now and then.
static bool is_late(const struct pending *pending, struct wait *wait, uint32_t *late)
{
    if (wait->looks < SPINS)
        return false;
    note_time(wait);
    if (wait->looked - wait->checked < check_interval)
        return false;
    wait->checked = wait->looked;
    if (!wait->idle)
        give_sign(SIGN_WAIT); // who waits for the same silent rank is not silent itself
    take_signs();
    return find_late(pending, wait, late);
}

static enum mpi_outcome exchange(struct mpi_message *sends, size_t n_sends, struct mpi_message *receives,
                                 size_t n_receives, double limit, bool idle, uint32_t *late, char text[MPI_TEXT])
{
    struct pending pending = {.n = 0};
    struct wait wait = {.started = now(), .limit = limit, .idle = idle};
    int left = 1;
    wait.looked = wait.checked = wait.started;
    pthread_mutex_lock(&calls);
    int error = start_all(&pending, receives, n_receives, true, late);
    if (error == MPI_SUCCESS)
        error = start_all(&pending, sends, n_sends, false, late);
    bool too_late = false;
    while (error == MPI_SUCCESS && !too_late) {
        error = look(&pending, &left, late);
        if (error != MPI_SUCCESS || left == 0)
            break;
        wait.looks++;
        pthread_mutex_unlock(&calls);
        wait_a_little(&wait);
        pthread_mutex_lock(&calls);
        too_late = is_late(&pending, &wait, late);
    }
    pthread_mutex_unlock(&calls);
    if (too_late)
        return MPI_OUTCOME_LATE;
    return error == MPI_SUCCESS ? MPI_OUTCOME_DONE : explain(error, text);
}

static const char *host(uint32_t of)
{
    return of < MAX_RANKS ? hosts[of] : "";
}

static void end(int exit_code)
{
    stop_heart();
    take_signs(); // that came late
    if (exit_code == 0) {
        MPI_Finalize();
        return;
    }
    // Where a host cannot be reached any more, a launcher may never confirm that it ended the job.
    signal(SIGALRM, SIG_DFL);
    alarm(ABORT_SECONDS);
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
    if (rank == 0 && n_ranks > 1)
        start_heart();
    return 0;
}
