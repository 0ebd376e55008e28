// The transport between threads: what arrives, that devices may write again what they gave when the transport says so
// (ThreadSanitizer sees it where they may not), that all agree whether to stop, and that nobody waits for who left.
#include "base/threads.h"
#include "mesh/mesh.h"

#include "test_paths.h"

#include <cmocka.h>

#include <stdatomic.h>
#include <string.h>

enum { ROUNDS = 3000, ROWS = 3, MOST_WORDS = 8, BYTES = 40, NEVER = -1 };

struct meeting {
    struct pool *pool;
    struct transport *transport;
    int stop_round; // in which stopper asks to stop
    uint32_t stopper;
    int leave_round; // in which leaver leaves instead
    uint32_t leaver;
    uint32_t mine[MAX_DEVICES][2][ROWS * MAX_DEVICES * MOST_WORDS]; // others read it until all have ended
    _Atomic int wrong;
    int ended[MAX_DEVICES]; // in which round each did
    enum status status[MAX_DEVICES];
    char messages[MAX_DEVICES][64];
};

// What device d gives in a round: words[row], each as long as it says. Device 1 gives nothing every fifth round.
static size_t words_of(uint32_t d, int round)
{
    return d == 1 && round % 5 == 0 ? 0 : 1 + (d + (uint32_t)round) % MOST_WORDS;
}

static uint32_t word_of(uint32_t d, int round, size_t row, size_t word)
{
    return (uint32_t)round * 2654435761u + d * 7919 + (uint32_t)(row * 31 + word);
}

static void expect(struct meeting *meeting, bool good)
{
    if (!good)
        atomic_fetch_add(&meeting->wrong, 1);
}

static void fill_exchange(struct exchange *exchange, uint32_t n, uint32_t rank, int round, uint32_t *mine)
{
    size_t n_words = words_of(rank, round);
    for (size_t row = 0; row < ROWS * MAX_DEVICES; row++)
        for (size_t word = 0; word < n_words; word++)
            mine[row * n_words + word] = word_of(rank, round, row, word);
    *exchange = (struct exchange){.mine = mine, .root = -1};
    for (uint32_t d = 0; d < n; d++) {
        exchange->row_bytes[d] = words_of(d, round) * sizeof(uint32_t);
        exchange->rows[d] = (struct row_range){(size_t)d * ROWS, (size_t)(d + 1) * ROWS};
    }
}

// first: the row of each device's that theirs points to.
static void check_rows(struct meeting *meeting, const struct exchange *exchange, uint32_t d, int round, size_t first)
{
    size_t n_words = words_of(d, round);
    if (n_words == 0) {
        expect(meeting, exchange->theirs[d] == NULL);
        return;
    }
    for (size_t row = 0; row < ROWS; row++)
        for (size_t word = 0; word < n_words; word++) {
            uint32_t is;
            memcpy(&is, exchange->theirs[d] + (row * n_words + word) * sizeof(is), sizeof(is));
            expect(meeting, is == word_of(d, round, first + row, word));
        }
}

static enum status exchange_round(struct meeting *meeting, uint32_t rank, int round, uint32_t *mine, bool *stop,
                                  struct error *error)
{
    struct transport *transport = meeting->transport;
    struct exchange exchange;
    bool gather = round % 4 == 0;
    fill_exchange(&exchange, transport->n_devices, rank, round, mine);
    exchange.stop = *stop;
    enum status status =
        (gather ? transport->ops->all_gather : transport->ops->all_to_all)(transport, rank, &exchange, error);
    for (uint32_t d = 0; status == STATUS_OK && d < transport->n_devices; d++)
        check_rows(meeting, &exchange, d, round, gather ? 0 : (size_t)rank * ROWS);
    *stop = exchange.stop;
    return status;
}

static enum status broadcast_round(struct meeting *meeting, uint32_t rank, int round, struct error *error)
{
    uint8_t bytes[BYTES], expected[BYTES];
    uint32_t root = (uint32_t)round / 4 % meeting->transport->n_devices;
    memset(expected, round & 0xff, BYTES);
    memset(bytes, rank == root ? round & 0xff : ~round & 0xff, BYTES);
    enum status status = meeting->transport->ops->broadcast(meeting->transport, rank, root, bytes, BYTES, error);
    expect(meeting, status != STATUS_OK || memcmp(bytes, expected, BYTES) == 0);
    memset(bytes, 0, BYTES); // they are its own again
    return status;
}

// A device writes what it gave in a round again in the round after the next, as a plan does.
static void run_device(void *user, size_t index, size_t n_threads)
{
    struct meeting *meeting = user;
    struct transport *transport = meeting->transport;
    uint32_t rank = (uint32_t)index;
    struct error error = {0};
    (void)n_threads;
    for (int round = 0; round < ROUNDS; round++) {
        meeting->ended[rank] = round;
        if (round == meeting->leave_round && rank == meeting->leaver) {
            transport->ops->leave(transport, rank);
            break;
        }
        bool stop = round == meeting->stop_round && rank == meeting->stopper;
        if (round % 4 == 1)
            meeting->status[rank] = broadcast_round(meeting, rank, round, &error);
        else if (round % 4 == 2)
            meeting->status[rank] = transport->ops->barrier(transport, rank, &stop, &error);
        else
            meeting->status[rank] = exchange_round(meeting, rank, round, meeting->mine[rank][round & 1], &stop, &error);
        if (meeting->status[rank] != STATUS_OK) {
            transport->ops->leave(transport, rank);
            snprintf(meeting->messages[rank], sizeof(meeting->messages[rank]), "%.63s", error.message);
        }
        if (meeting->status[rank] != STATUS_OK || stop)
            break;
    }
}

static void setup(struct meeting *meeting, uint32_t n)
{
    struct error error;
    bool overcommitted = n > cpus_allowed();
    *meeting = (struct meeting){.stop_round = NEVER, .leave_round = NEVER};
    assert_int_equal(pool_create(&(struct pool_params){.n_threads = n}, &meeting->pool, &error), STATUS_OK);
    assert_int_equal(transport_threads_create(n, overcommitted, &meeting->transport, &error), STATUS_OK);
    assert_int_equal(meeting->transport->n_devices, n);
    assert_false(meeting->transport->copies);
}

static void teardown(struct meeting *meeting)
{
    meeting->transport->ops->destroy(meeting->transport);
    pool_destroy(meeting->pool);
}

static void check_run(struct meeting *meeting, int last_round)
{
    pool_run(meeting->pool, run_device, meeting);
    assert_int_equal(atomic_load(&meeting->wrong), 0);
    for (uint32_t d = 0; d < meeting->transport->n_devices; d++) {
        assert_int_equal(meeting->status[d], STATUS_OK);
        assert_int_equal(meeting->ended[d], last_round);
    }
}

static void test_rounds(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= MAX_DEVICES; n++) {
        struct meeting meeting;
        setup(&meeting, n);
        for (int run = 0; run < 2; run++) // the second begins where the first left off
            check_run(&meeting, ROUNDS - 1);
        teardown(&meeting);
    }
}

// Wherever and whoever asks, all end in the same round, and the next run is as good as the first.
static void test_stop(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= MAX_DEVICES; n++) {
        struct meeting meeting;
        setup(&meeting, n);
        for (meeting.stopper = 0; meeting.stopper < n; meeting.stopper++)
            for (int round = 0; round < 8; round++)
                if (round % 4 != 1) { // a broadcast has no stop
                    meeting.stop_round = round + 100;
                    check_run(&meeting, round + 100);
                }
        teardown(&meeting);
    }
}

static void test_leave(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= MAX_DEVICES; n++) {
        struct meeting meeting;
        setup(&meeting, n);
        for (uint32_t leaver = 0; leaver < n; leaver++)
            for (int round = 0; round < 8; round++) {
                meeting.leaver = leaver;
                meeting.leave_round = round;
                pool_run(meeting.pool, run_device, &meeting);
                assert_int_equal(atomic_load(&meeting.wrong), 0);
                for (uint32_t d = 0; d < n; d++) {
                    assert_int_equal(meeting.ended[d], round);
                    if (d == leaver)
                        continue;
                    assert_int_equal(meeting.status[d], STATUS_CANCELLED);
                    assert_memory_equal(meeting.messages[d], "device ", 7);
                }
                meeting.transport->ops->rejoin(meeting.transport);
                memset(meeting.status, 0, sizeof(meeting.status));
                meeting.leave_round = NEVER;
                meeting.stop_round = 10;
                check_run(&meeting, 10);
                meeting.stop_round = NEVER;
            }
        teardown(&meeting);
    }
}

static void test_create(void **state)
{
    (void)state;
    struct transport *transport;
    struct error error;
    assert_int_equal(transport_threads_create(0, false, &transport, &error), STATUS_INVALID);
    assert_int_equal(transport_threads_create(MAX_DEVICES + 1, false, &transport, &error), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_leave),
        cmocka_unit_test(test_create),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
