// Running a plan: all threads walk the steps together. Nothing is allocated and nothing is planned here; how many rows
// there are and which pages they use are inputs.
#include "cpu/plan.h"

#include "base/checked.h"
#include "base/fpenv.h"

#include <stdatomic.h>

struct execution {
    struct plan *plan;
    const struct run *run;
    // Whether to go on, decided by thread 0 before a barrier and read by all behind it. Two, used in turn: thread 0
    // writes one again only after a barrier that comes behind everybody's reading it.
    atomic_bool stop[2];
    bool cancelled; // thread 0's
    struct meeting meeting;
    _Atomic uint64_t fault;
};

size_t worker_n_rows(const struct worker *worker, enum rows rows, uint32_t per_row)
{
    size_t n = rows == ROWS_LOGITS ? worker->n_selected : worker->run->n_rows;
    return rows == ROWS_PAIRS ? n * per_row : n;
}

void worker_fault(const struct worker *worker, uint32_t layer, uint32_t what)
{
    uint64_t fault = (uint64_t)layer << 32 | what, seen = atomic_load(worker->fault);
    while (fault < seen && !atomic_compare_exchange_weak(worker->fault, &seen, fault))
        ;
}

static void run_step(const struct worker *worker, const struct step *step)
{
    static void (*const functions[STEP_KINDS])(const struct worker *, const struct step *) = {
        [STEP_ROWS] = cpu_run_rows,         [STEP_MATMUL] = cpu_run_matmul,
        [STEP_HEADS] = cpu_run_heads,       [STEP_ATTENTION] = cpu_run_attention,
        [STEP_EXPERTS] = cpu_run_experts,   [STEP_EXPERTS_SUM] = cpu_run_experts_sum,
        [STEP_LORA] = cpu_run_lora,         [STEP_LORA_ADD] = cpu_run_lora_add,
        [STEP_EXCHANGE] = cpu_run_exchange,
    };
    functions[step->kind](worker, step);
}

// Whether to stop, as thread 0 sees it. Devices of a mesh stop where they meet, all at the same exchange; a device that
// is alone at the next barrier.
static bool stops(struct execution *execution)
{
    const struct run *run = execution->run;
    struct meeting *meeting = &execution->meeting;
    if (atomic_load_explicit(&execution->fault, memory_order_relaxed) != UINT64_MAX ||
        (run->cancel != NULL && atomic_load_explicit(run->cancel, memory_order_relaxed)))
        meeting->wants_stop = true;
    bool stop = execution->plan->params.transport == NULL ? meeting->wants_stop : meeting->stopped;
    execution->cancelled = execution->cancelled || stop;
    return stop;
}

// A barrier at which all threads agree whether to stop.
static bool barrier(struct execution *execution, const struct worker *worker, uint32_t *turn)
{
    atomic_bool *stop = &execution->stop[(*turn)++ & 1];
    if (worker->index == 0)
        atomic_store_explicit(stop, stops(execution), memory_order_relaxed);
    pool_barrier(execution->plan->device->pool);
    return !atomic_load_explicit(stop, memory_order_relaxed);
}

bool cpu_is_of_adapters(const struct plan *plan, const struct step *step)
{
    return step->kind == STEP_LORA ||
           (step->kind == STEP_EXCHANGE && plan->exchanges[step->exchange].node->attributes.collective->adapters);
}

static bool is_left_out(const struct worker *worker, const struct step *step)
{
    return !worker->adapted && cpu_is_of_adapters(worker->plan, step);
}

// Whether the step after this one meets other devices: then all threads must be done with what came of the last
// meeting, which lies in memory that the devices use again.
static bool is_before_exchange(const struct worker *worker, size_t i)
{
    const struct plan *plan = worker->plan;
    do
        i++;
    while (i < plan->n_steps && is_left_out(worker, &plan->steps[i]));
    return i < plan->n_steps && plan->steps[i].kind == STEP_EXCHANGE;
}

static bool run_steps(struct execution *execution, const struct worker *worker, size_t first, size_t end,
                      uint32_t *turn)
{
    for (size_t i = first; i < end; i++) {
        const struct step *step = &execution->plan->steps[i];
        if (is_left_out(worker, step))
            continue;
        run_step(worker, step);
        bool alone = step->kind == STEP_ROWS && worker_n_rows(worker, step->rows, step->per_row) == 1;
        if ((!alone || is_before_exchange(worker, i)) && !barrier(execution, worker, turn))
            return false;
    }
    return true;
}

// By thread 0. Of a mesh the first device has the logits.
static void give_logits(struct execution *execution, const struct worker *worker, size_t first)
{
    const struct run *run = execution->run;
    for (size_t i = 0; i < worker->n_selected && run->on_logits != NULL && !execution->meeting.wants_stop; i++) {
        const float *logits = worker_value(worker, execution->plan->graph->output, i);
        if (run->on_logits(run->user, first + i, logits) != 0)
            execution->meeting.wants_stop = execution->cancelled = true;
    }
}

// Between two windows of rows: nobody writes over what he gave before all are here.
static void meet_between_windows(struct execution *execution)
{
    struct transport *transport = execution->plan->params.transport;
    struct meeting *meeting = &execution->meeting;
    if (transport == NULL)
        return;
    bool stop = meeting->wants_stop;
    enum status status = transport->ops->barrier(transport, execution->plan->params.rank, &stop, &meeting->error);
    meeting->stopped = meeting->stopped || stop || status != STATUS_OK;
}

static void run_thread(void *user, size_t index, size_t n_threads)
{
    struct execution *execution = user;
    const struct plan *plan = execution->plan;
    const struct run *run = execution->run;
    uint8_t *memory = plan->thread_memory + index * plan->thread_bytes;
    uint8_t *tables = memory + round_up(plan->private_bytes, 4096);
    struct pairs pairs = {0};
    cpu_pairs_place(&pairs, tables, plan->max_pairs, plan->max_experts);
    struct worker worker = {.plan = plan,
                            .run = run,
                            .index = index,
                            .n_threads = n_threads,
                            .private_memory = memory,
                            .pairs = &pairs,
                            .fault = &execution->fault,
                            .meeting = &execution->meeting,
                            .scratch = tables + round_up(plan->pairs_bytes, 4096),
                            .adapted = cpu_run_is_adapted(run)};
    worker.lora_scratch = worker.scratch + round_up(plan->scratch_bytes, 4096);
    uint32_t turn = 0;
    if (!run_steps(execution, &worker, 0, plan->tail, &turn))
        return;
    for (size_t first = 0; first < run->n_selected; first += plan->params.n_logits) {
        size_t left = run->n_selected - first;
        worker.selected = run->selected + first;
        worker.n_selected = left < plan->params.n_logits ? left : plan->params.n_logits;
        if (!run_steps(execution, &worker, plan->tail, plan->n_steps, &turn))
            return;
        if (index == 0) {
            give_logits(execution, &worker, first);
            if (left > worker.n_selected)
                meet_between_windows(execution);
        }
        if (!barrier(execution, &worker, &turn))
            return;
    }
}

static enum status report_fault(uint32_t layer, uint32_t what, struct error *error)
{
    if (what >= FAULT_ABSENT)
        return error_set(error, STATUS_INVALID,
                         "layer %u needs expert %u, which is not in memory (its slot is -1 or beyond the last)", layer,
                         what - FAULT_ABSENT);
    return error_set(error, STATUS_INVALID,
                     "the router of layer %u gives NaN: the model's weights hold NaN or infinity, or numbers too large "
                     "(mote doctor says where)",
                     layer);
}

enum status cpu_plan_run(struct plan *plan, const struct run *run, struct error *error)
{
    struct fpenv saved = fpenv_enter();
    struct execution execution = {.plan = plan, .run = run, .fault = UINT64_MAX};
    pool_run(plan->device->pool, run_thread, &execution);
    fpenv_leave(saved);
    uint64_t fault = atomic_load(&execution.fault);
    if (fault != UINT64_MAX)
        return report_fault((uint32_t)(fault >> 32), (uint32_t)fault, error);
    if (execution.meeting.error.status != STATUS_OK) {
        if (error != NULL)
            *error = execution.meeting.error;
        return execution.meeting.error.status;
    }
    if (execution.cancelled)
        return error_set(error, STATUS_CANCELLED, "the run was stopped");
    return STATUS_OK;
}
