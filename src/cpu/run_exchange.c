// Where a device of a mesh meets the others. A step of its own: thread 0 gives what this device has and gets where the
// others' lies; then the rows are put together by the row step behind it, in the tree's order, as part of its work. Of
// many bytes between many devices each first adds the rows that are its share, and all gather the sums.
#include "cpu/plan.h"

#include "base/checked.h"

#include <string.h>
#include <time.h>

static uint64_t nanoseconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// ---- making ----

void cpu_exchange_describe(struct plan_exchange *exchange, const struct node *node)
{
    const struct collective *c = node->attributes.collective;
    *exchange = (struct plan_exchange){.node = node};
    for (uint32_t d = 0; d < c->n_devices; d++) {
        struct leaves subtrees[MAX_SUBTREES];
        exchange->row_bytes[d] = collective_row_bytes(c, d);
        uint32_t n = c->kind == COLLECTIVE_SUM ? leaves_subtrees(c->leaves[d], subtrees) : 0;
        for (uint32_t i = 0; i < n; i++)
            exchange->sums[exchange->n_sums++] =
                (struct subtree_sum){.leaves = subtrees[i], .device = d, .offset = i * round_up(c->width, 16)};
    }
}

// Whether n_rows go by way of sums of shares.
static bool is_scattered(const struct plan *plan, const struct plan_exchange *exchange, size_t n_rows)
{
    const struct transport *transport = plan->params.transport;
    const struct collective *c = exchange->node->attributes.collective;
    if (c->kind != COLLECTIVE_SUM || c->n_devices <= 2 || n_rows < c->n_devices || transport->scatter_bytes == 0)
        return false;
    size_t bytes = 0;
    for (uint32_t d = 0; d < c->n_devices; d++)
        bytes += exchange->row_bytes[d] * n_rows;
    return bytes >= transport->scatter_bytes;
}

static size_t result_bytes(const struct collective *c)
{
    return round_up(c->width, 16) * sizeof(float);
}

// Where a device's share of n rows begins.
static struct row_range share(const struct collective *c, uint32_t d, size_t n_rows)
{
    struct row_range range;
    pool_share(n_rows, d, c->n_devices, &range.begin, &range.end);
    return range;
}

size_t cpu_exchange_receive_bytes(const struct plan *plan, const struct plan_exchange *exchange)
{
    const struct transport *transport = plan->params.transport;
    const struct collective *c = exchange->node->attributes.collective;
    uint32_t rank = plan->params.rank;
    size_t n_rows = c->rows == ROWS_LOGITS ? plan->params.n_logits : plan->params.n_rows;
    n_rows *= c->rows == ROWS_PAIRS ? c->per_row : 1;
    if (transport == NULL || !transport->copies || (c->root >= 0 && (uint32_t)c->root != rank))
        return 0;
    if (!is_scattered(plan, exchange, n_rows))
        return exchange_receive_bytes(c->n_devices, rank, exchange->row_bytes, n_rows);
    // The most rows that still go at once, a share of every device's, or the sums of all shares.
    size_t at_once = n_rows, most = (n_rows + c->n_devices - 1) / c->n_devices;
    while (at_once > 1 && is_scattered(plan, exchange, at_once))
        at_once = at_once / 2;
    size_t sums[MAX_DEVICES];
    for (uint32_t d = 0; d < c->n_devices; d++)
        sums[d] = result_bytes(c);
    size_t first = exchange_receive_bytes(c->n_devices, rank, exchange->row_bytes, 2 * at_once);
    size_t second = exchange_receive_bytes(c->n_devices, rank, exchange->row_bytes, most);
    size_t third = exchange_receive_bytes(c->n_devices, rank, sums, most);
    return max_size(first, max_size(second, third));
}

// ---- putting rows together ----

// Where the sums of a row lie, and how to add them.
struct row_sums {
    const struct kernels *kernels;
    const struct plan_exchange *exchange;
    size_t row;       // counted in theirs
    size_t n, stride; // elements, and floats between sums in scratch
};

// The sum over leaves [first, end): where a device sent it, or, added from its halves, in `into`.
static const float *sum_leaves(const struct row_sums *sums, uint32_t first, uint32_t end, float *into, float *scratch)
{
    const struct plan_exchange *exchange = sums->exchange;
    for (uint32_t i = 0; i < exchange->n_sums; i++) {
        const struct subtree_sum *sum = &exchange->sums[i];
        if (sum->leaves.first == first && sum->leaves.end == end) {
            const uint8_t *bytes = exchange->theirs[sum->device] + sums->row * exchange->row_bytes[sum->device];
            return (const float *)(const void *)bytes + sum->offset;
        }
    }
    uint32_t middle = tree_split(first, end);
    const float *left = sum_leaves(sums, first, middle, into, scratch);
    const float *right = sum_leaves(sums, middle, end, scratch, scratch + sums->stride);
    sums->kernels->add(left, right, sums->n, into);
    return into;
}

static void sum_row(const struct worker *worker, const struct plan_exchange *exchange, size_t row, float *y)
{
    const struct collective *c = exchange->node->attributes.collective;
    struct row_sums sums = {.kernels = worker->plan->device->kernels,
                            .exchange = exchange,
                            .row = row,
                            .n = c->width,
                            .stride = round_up(c->width, 16)};
    const float *sum = sum_leaves(&sums, 0, exchange->sums[0].leaves.n, y, (float *)(void *)worker->scratch);
    if (sum != y)
        memcpy(y, sum, c->width * sizeof(float));
}

size_t cpu_exchange_scratch_floats(const struct node *node)
{
    const struct collective *c = node->attributes.collective;
    return c->kind == COLLECTIVE_SUM ? 3 * round_up(c->width, 16) : 0; // as deep as a tree of 8 has right halves
}

static const uint8_t *their_row(const struct plan_exchange *exchange, uint32_t d, size_t row)
{
    return exchange->theirs[d] + row * exchange->row_bytes[d];
}

void cpu_apply_collective(const struct worker *worker, const struct node *node, size_t row)
{
    const struct plan_exchange *exchange = &worker->plan->exchanges[worker->plan->slots[node->result->index].exchange];
    const struct collective *c = node->attributes.collective;
    float *y = worker_value(worker, node->result, row);
    if (c->adapters && !worker->adapted) // nothing came
        return;
    if (exchange->scattered) {
        uint32_t d = 0;
        while (row >= exchange->rows[d].end)
            d++;
        const uint8_t *sum = exchange->theirs[d] + (row - exchange->rows[d].begin) * result_bytes(c);
        if (d != worker->plan->params.rank) // its own lie there
            memcpy(y, sum, c->width * sizeof(float));
        return;
    }
    if (c->kind == COLLECTIVE_SUM) {
        sum_row(worker, exchange, row, y);
        return;
    }
    // PICK: rows of the batch.
    size_t token = c->kind == COLLECTIVE_PICK ? (size_t)worker->run->rows[row].token : 0;
    for (uint32_t d = 0; d < c->n_devices; d++) {
        struct row_range range = c->ranges[d];
        if (c->kind == COLLECTIVE_CONCAT && range.begin < range.end)
            memcpy(y + range.begin, their_row(exchange, d, row), (range.end - range.begin) * sizeof(float));
        if (c->kind == COLLECTIVE_PICK && token >= range.begin && token < range.end)
            memcpy(y, their_row(exchange, d, row), c->width * sizeof(float));
    }
}

// ---- the step ----

typedef enum status (*call_function)(struct transport *, uint32_t, struct exchange *, struct error *);

// One call, by thread 0.
static void meet(const struct worker *worker, struct plan_exchange *exchange, struct exchange *call,
                 call_function function)
{
    const struct plan *plan = worker->plan;
    struct meeting *meeting = worker->meeting;
    uint64_t start = nanoseconds_now();
    call->stop = meeting->wants_stop;
    call->root = exchange->node->attributes.collective->root;
    call->receive = plan->receive;
    enum status status = function(plan->params.transport, plan->params.rank, call, &meeting->error);
    meeting->stopped = meeting->stopped || call->stop || status != STATUS_OK;
    memcpy(exchange->theirs, call->theirs, sizeof(exchange->theirs));
    struct plan_stats *stats = plan->stats;
    stats->exchange_ns += nanoseconds_now() - start;
    stats->n_exchanges++;
    for (uint32_t d = 0; d < plan->params.transport->n_devices; d++)
        stats->exchange_bytes +=
            d == plan->params.rank ? 0 : call->row_bytes[d] * (call->rows[d].end - call->rows[d].begin);
}

static const void *own_rows(const struct worker *worker, const struct node *node, size_t row)
{
    const struct tensor *part = node->sources[0];
    return part == NULL ? NULL : worker_row(worker, &worker->plan->slots[part->index], row);
}

// The sums of this device's share of the rows, into where the result's rows lie, and those of the others.
static void run_scattered(const struct worker *worker, struct plan_exchange *exchange, size_t n_rows)
{
    const struct plan *plan = worker->plan;
    const struct node *node = exchange->node;
    const struct collective *c = node->attributes.collective;
    struct row_range own = share(c, plan->params.rank, n_rows);
    struct exchange call = {.mine = own_rows(worker, node, 0)};
    if (worker->index == 0) {
        for (uint32_t d = 0; d < c->n_devices; d++)
            call.rows[d] = exchange->rows[d] = share(c, d, n_rows);
        memcpy(call.row_bytes, exchange->row_bytes, sizeof(call.row_bytes));
        meet(worker, exchange, &call, plan->params.transport->ops->all_to_all);
    }
    pool_barrier(plan->device->pool);
    if (!worker->meeting->stopped) {
        size_t begin, end;
        pool_share(own.end - own.begin, worker->index, worker->n_threads, &begin, &end);
        for (size_t row = begin; row < end; row++)
            sum_row(worker, exchange, row, worker_value(worker, node->result, own.begin + row));
    }
    pool_barrier(plan->device->pool);
    if (worker->index != 0 || worker->meeting->stopped)
        return;
    call.mine = worker_value(worker, node->result, own.begin);
    for (uint32_t d = 0; d < c->n_devices; d++)
        call.row_bytes[d] = result_bytes(c);
    meet(worker, exchange, &call, plan->params.transport->ops->all_gather);
}

void cpu_run_exchange(const struct worker *worker, const struct step *step)
{
    struct plan_exchange *exchange = &worker->plan->exchanges[step->exchange];
    const struct collective *c = exchange->node->attributes.collective;
    size_t n_rows = worker_n_rows(worker, c->rows, c->per_row);
    bool scattered = is_scattered(worker->plan, exchange, n_rows);
    if (worker->index == 0)
        exchange->scattered = scattered;
    if (scattered) {
        run_scattered(worker, exchange, n_rows);
    } else if (worker->index == 0) {
        struct exchange call = {.mine = own_rows(worker, exchange->node, 0)};
        for (uint32_t d = 0; d < c->n_devices; d++)
            call.rows[d] = (struct row_range){0, n_rows};
        memcpy(call.row_bytes, exchange->row_bytes, sizeof(call.row_bytes));
        meet(worker, exchange, &call, worker->plan->params.transport->ops->all_gather);
    }
}
