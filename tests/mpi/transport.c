// The transport between ranks: what arrives, that all agree whether to stop, messages of any size, verdicts, and how
// long a small all-gather takes. A program for a launcher: ranks_test.py starts it. It prints one line, from rank 0.
// usage: mpi_transport [stranger]
#include "mesh/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ROUNDS = 400,
    MOST_ROWS = 5,
    MOST_BYTES = 700,
    BIG = 9 << 20, // bytes: far more than what goes without asking
    TIMED = 2000,
    STOP_ROUND = 137,
};

static uint32_t random_of(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t x = a * 2654435761u ^ b * 40503u ^ c * 2246822519u;
    x ^= x >> 15;
    x *= 2654435769u;
    return x ^ x >> 13;
}

static uint8_t byte_of(uint32_t rank, uint32_t round, size_t at)
{
    return (uint8_t)random_of(rank, round, (uint32_t)at);
}

static bool fail(const char *what, uint32_t rank, uint32_t round)
{
    fprintf(stderr, "rank %u, round %u: %s\n", rank, round, what);
    return false;
}

struct place {
    struct transport *transport;
    uint32_t rank, n;
    uint8_t *mine, *receive; // as long as any round needs
};

// The rows of a round are the same on all ranks: of each device as many bytes as it says, for each device's rows.
static void lay_out(const struct place *place, uint32_t round, struct exchange *exchange, size_t *n_rows)
{
    *exchange = (struct exchange){.mine = place->mine, .root = -1, .receive = place->receive};
    *n_rows = 0;
    for (uint32_t d = 0; d < place->n; d++) {
        bool nothing = random_of(d, round, 1) % 7 == 0;
        exchange->row_bytes[d] = nothing ? 0 : random_of(d, round, 2) % MOST_BYTES + 1;
        exchange->rows[d].begin = *n_rows;
        *n_rows += random_of(d, round, 3) % (MOST_ROWS + 1);
        exchange->rows[d].end = *n_rows;
    }
    if (round % 3 == 0)
        exchange->root = (int)(round % place->n);
}

static bool check(const uint8_t *theirs, uint32_t d, uint32_t round, size_t from, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (theirs[i] != byte_of(d, round, from + i))
            return false;
    }
    return true;
}

static bool gather(const struct place *place, uint32_t round)
{
    struct exchange exchange;
    struct error error;
    size_t n_rows;
    lay_out(place, round, &exchange, &n_rows);
    size_t own = (exchange.rows[place->rank].end - exchange.rows[place->rank].begin) * exchange.row_bytes[place->rank];
    for (size_t i = 0; i < own; i++)
        place->mine[i] = byte_of(place->rank, round, i);
    exchange.stop = round == STOP_ROUND && place->rank == place->n - 1;
    if (place->transport->ops->all_gather(place->transport, place->rank, &exchange, &error) != STATUS_OK)
        return fail(error.message, place->rank, round);
    if (exchange.stop != (round == STOP_ROUND) && exchange.root < 0)
        return fail("the ranks do not agree whether to stop", place->rank, round);
    for (uint32_t d = 0; d < place->n && (exchange.root < 0 || (uint32_t)exchange.root == place->rank); d++) {
        size_t size = (exchange.rows[d].end - exchange.rows[d].begin) * exchange.row_bytes[d];
        if (size > 0 && (exchange.theirs[d] == NULL || !check(exchange.theirs[d], d, round, 0, size)))
            return fail("all_gather gave other bytes", place->rank, round);
    }
    return true;
}

static bool scatter(const struct place *place, uint32_t round)
{
    struct exchange exchange;
    struct error error;
    size_t n_rows;
    lay_out(place, round, &exchange, &n_rows);
    exchange.root = -1;
    for (size_t i = 0; i < n_rows * exchange.row_bytes[place->rank]; i++)
        place->mine[i] = byte_of(place->rank, round, i);
    if (place->transport->ops->all_to_all(place->transport, place->rank, &exchange, &error) != STATUS_OK)
        return fail(error.message, place->rank, round);
    const struct row_range *rows = &exchange.rows[place->rank];
    for (uint32_t d = 0; d < place->n; d++) {
        size_t from = rows->begin * exchange.row_bytes[d], size = (rows->end - rows->begin) * exchange.row_bytes[d];
        if (size > 0 && (exchange.theirs[d] == NULL || !check(exchange.theirs[d], d, round, from, size)))
            return fail("all_to_all gave other bytes", place->rank, round);
    }
    return true;
}

static bool tell(const struct place *place, uint32_t round, size_t size)
{
    struct error error;
    uint32_t root = round % place->n;
    for (size_t i = 0; i < size && place->rank == root; i++)
        place->mine[i] = byte_of(root, round, i);
    if (place->transport->ops->broadcast(place->transport, place->rank, root, place->mine, size, &error) != STATUS_OK)
        return fail(error.message, place->rank, round);
    return check(place->mine, root, round, 0, size) || fail("broadcast gave other bytes", place->rank, round);
}

static bool meet(const struct place *place, uint32_t round)
{
    struct error error;
    bool wants = random_of(place->rank, round, 4) % 11 == 0, anyone = false;
    for (uint32_t d = 0; d < place->n; d++)
        anyone = anyone || random_of(d, round, 4) % 11 == 0;
    if (place->transport->ops->barrier(place->transport, place->rank, &wants, &error) != STATUS_OK)
        return fail(error.message, place->rank, round);
    return wants == anyone || fail("the barrier disagrees", place->rank, round);
}

// The first rank that failed is everyone's answer.
static bool agree(struct ranks *ranks, const struct place *place)
{
    struct error error = {0};
    uint32_t worst = place->n - 1;
    if (ranks_agree(ranks, STATUS_OK, &error) != STATUS_OK)
        return fail("all were well", place->rank, 0);
    enum status mine = place->rank == worst ? error_set(&error, STATUS_MEMORY, "no room for a chair") : STATUS_OK;
    char who[32];
    snprintf(who, sizeof(who), "rank %u", worst);
    if (ranks_agree(ranks, mine, &error) != STATUS_MEMORY || strncmp(error.message, who, strlen(who)) != 0 ||
        strstr(error.message, "no room for a chair") == NULL)
        return fail(error.message, place->rank, 0);
    return true;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// Microseconds of an all-gather of what a token has in a layer of a small model.
static double time_small(const struct place *place)
{
    struct error error;
    double began = now();
    for (uint32_t round = 0; round < TIMED; round++) {
        struct exchange exchange = {.mine = place->mine, .root = -1, .receive = place->receive};
        for (uint32_t d = 0; d < place->n; d++) {
            exchange.row_bytes[d] = 2304;
            exchange.rows[d] = (struct row_range){0, 1};
        }
        if (place->transport->ops->all_gather(place->transport, place->rank, &exchange, &error) != STATUS_OK)
            return -1;
    }
    return (now() - began) / TIMED * 1e6;
}

static bool run(struct ranks *ranks, double *microseconds)
{
    struct place place = {.transport = &ranks->transport, .rank = ranks->module.rank, .n = ranks->module.n_ranks};
    place.mine = aligned_alloc(64, BIG);
    place.receive = aligned_alloc(64, BIG);
    bool good = place.mine != NULL && place.receive != NULL;
    for (uint32_t round = 0; good && round < ROUNDS; round++)
        good = gather(&place, round) && scatter(&place, round) && tell(&place, round, round * 7) && meet(&place, round);
    good = good && tell(&place, 0, BIG) && tell(&place, 1, BIG) && agree(ranks, &place);
    *microseconds = good ? time_small(&place) : 0;
    free(place.mine);
    free(place.receive);
    return good;
}

// As rank 0: one of another version, whom the others must refuse.
static int be_stranger(struct ranks *ranks)
{
    struct error error = {0};
    struct ranks_hello hello = {.version = "9.9.9", .numerics = 99, .protocol = 99};
    enum status status = ranks_greet(ranks, &hello, &error);
    fprintf(stderr, "%s\n", error.message);
    ranks_leave(ranks, status == STATUS_OK);
    return status == STATUS_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct ranks *ranks = NULL;
    struct error error;
    double microseconds;
    if (ranks_launched() < 2 || ranks_join(&ranks, &error) != STATUS_OK) {
        fprintf(stderr, "no ranks: %s\n", ranks_launched() < 2 ? "no launcher" : error.message);
        return 1;
    }
    if (argc > 1 && strcmp(argv[1], "stranger") == 0)
        return be_stranger(ranks);
    bool good = run(ranks, &microseconds);
    if (good && ranks->module.rank == 0)
        printf("%u ranks, %s: good, %.1f us a small all-gather\n", ranks->module.n_ranks, ranks->module.name,
               microseconds);
    ranks_leave(ranks, good);
    return good ? 0 : 1;
}
