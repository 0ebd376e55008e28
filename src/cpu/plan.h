// The CPU's plan: steps over preallocated memory. Made by plan.c from a graph, run by run.c.
//
// A step is a list of work items with a fixed split over the threads, and a barrier behind it. Three things keep the
// number of barriers low: row-wise ops are fused into one step with the rounding of the next matmul's source; matmuls
// of one source are one step, and a gated unit (and its Q8 rounding) is done where its two products are made; and with
// a single row, row steps are computed by every thread for itself into private memory, with no barrier at all.
#ifndef MOTE_CPU_PLAN_H
#define MOTE_CPU_PLAN_H

#include "base/arena.h"
#include "cpu/device.h"

enum { NO_INDEX = UINT32_MAX };

// A value of the graph, or a source rounded to some precision (a form), in memory.
struct slot {
    enum rows rows;
    uint32_t per_row;      // PAIRS: how many a row of the batch
    size_t row_bytes;      // of one row, a multiple of 64
    uint32_t first, last;  // steps between which it lives
    bool by_rows;          // made by a row step: private to each thread where there is one row
    bool used;             // false: fused away, has no memory
    uint32_t exchange;     // of what a collective makes: which of the plan's exchanges
    size_t offset;         // in the shared arena: capacity rows
    size_t private_offset; // in each thread's arena: one row
};

// A source of matmuls: a value rounded to a precision (for F16: by these segments), as a whole or head by head.
struct form {
    const struct tensor *value;
    enum precision precision;
    uint32_t n_parts; // 1, or how many heads follow each other in a row, each a source of its own
    struct segments segments;
    struct slot slot;
};

// What adapters make of a product's source: for each term of the op the rows that its second matrix takes, one behind
// the other (one a matrix), each an F32 source row.
struct hidden {
    const struct node *node;    // OP_LORA; or OP_LORA_HIDDEN, or an OP_LORA that takes the value:
    const struct tensor *value; // it has a slot of its own, and no scales behind its rows; NULL: the hidden's slot
    struct slot slot;
};

enum step_kind {
    STEP_ROWS,        // items: rows
    STEP_MATMUL,      // items: panels of outputs
    STEP_HEADS,       // items: rows × units of heads; norms, rotations, joining, storing keys and values
    STEP_ATTENTION,   // items: rows × KV heads (× chunks)
    STEP_EXPERTS,     // items: experts that have rows × tiles of hidden units
    STEP_EXPERTS_SUM, // items: panels of outputs, with all experts inside
    STEP_EXCHANGE,    // no items: meets the other devices of a mesh
    STEP_LORA_ADD,    // items: panels of outputs of a product that is complete
    STEP_LORA,        // items: blocks of rows, or experts that have rows, × panels of the adapters' first matrices
    STEP_KINDS,
};

// One op of a row or head step. form != NO_INDEX: the rounding of `node`'s … of value `input` into that form.
struct micro_op {
    const struct node *node; // NULL: a rounding
    uint32_t form;
};

struct product {
    const struct node *node;
    uint32_t weight;
    const struct node *bias;     // EXPERTS: the add_id behind it, or NULL
    uint32_t hidden;             // of the adapters' terms that are added to it; NO_INDEX: none
    uint32_t shared_hidden;      // EXPERTS_SUM: of the shared expert's
    const struct tensor *result; // of the bias or the adapters, or the node's own
};

enum { MAX_PRODUCTS = 4 };

struct step {
    enum step_kind kind;
    enum rows rows;
    uint32_t per_row;     // ROWS of pairs: how many a row of the batch
    struct micro_op *ops; // ROWS, HEADS
    size_t n_ops, ops_capacity;
    struct product products[MAX_PRODUCTS]; // MATMUL, EXPERTS, EXPERTS_SUM (the experts' and the shared expert's)
    uint32_t n_products;
    uint32_t source;                  // MATMUL, EXPERTS, EXPERTS_SUM: form
    uint32_t shared_source;           // EXPERTS_SUM: form of the shared expert's hidden row; NO_INDEX: there is none
    const struct tensor *route;       // EXPERTS, EXPERTS_SUM, ROWS of pairs
    const struct node *glu;           // MATMUL, EXPERTS: of the products (one, where gate and up are the same)
    uint32_t out_form;                // with glu: the form that is written instead of the value
    const struct node *attention;     // HEADS: whose keys and values are stored (or NULL); ATTENTION
    uint32_t first_hidden, n_hiddens; // LORA, LORA_ADD
    uint32_t exchange;                // EXCHANGE
    uint32_t n_units;                 // HEADS: into how many parts the heads of a row are cut
};

static inline size_t kv_element_bytes(enum kv_dtype kv) // without scales
{
    return kv == KV_DTYPE_F32 ? 4 : kv == KV_DTYPE_F16 ? 2 : 1;
}

// Where one layer's keys and values lie within a page of its kind.
struct kv_place {
    uint32_t kind;
    size_t offset;
    size_t head_bytes;
    size_t k_scale, v, v_scale; // offsets within a head
};

// The sum of one subtree, as a device gives it: floats from `offset` on of each of its rows.
struct subtree_sum {
    struct leaves leaves;
    uint32_t device;
    size_t offset;
};

// One collective (run_exchange.c).
struct plan_exchange {
    const struct node *node;
    size_t row_bytes[MAX_DEVICES];         // that each device gives
    struct subtree_sum sums[MAX_SEGMENTS]; // SUM: of all devices
    uint32_t n_sums;
    // Of the run that goes on:
    bool scattered;                     // each device has added its share of the rows: theirs are whole sums
    struct row_range rows[MAX_DEVICES]; // the shares
    const uint8_t *theirs[MAX_DEVICES];
};

struct plan {
    struct cpu_device *device;
    const struct graph *graph;
    const struct weights *weights;
    struct plan_params params;
    struct step *steps;
    size_t n_steps, steps_capacity;
    size_t max_pairs, max_experts; // of any route
    size_t tail;                   // the first step whose rows are those of the logits
    struct form *forms;
    size_t n_forms, forms_capacity;
    struct hidden *hiddens;
    size_t n_hiddens, hiddens_capacity;
    struct plan_exchange *exchanges;
    size_t n_exchanges, exchanges_capacity;
    struct slot *slots; // by value index
    size_t next_node;   // while the plan is made: the node behind the one that is planned
    struct weights described, described_adapters;

    struct kv_place *kv_places; // by KV layer
    struct kv_kind_layout kinds[MAX_KV_KINDS];
    uint32_t n_kinds;
    uint8_t *pages[MAX_KV_KINDS];

    uint8_t *memory; // the shared arena
    size_t memory_bytes, logits_bytes;
    uint8_t *thread_memory; // of all threads: private rows, then tables of pairs, scratch, and scratch of adapters
    size_t private_bytes, pairs_bytes, scratch_bytes, lora_panel_bytes, lora_bytes, thread_bytes;
    struct observer *observer; // NULL: nothing is observed
    float *partials;           // attention states of single chunks: [MAX_SPLIT_CHUNKS][n_head][v_dim + 2]
    size_t partials_bytes;
    uint8_t *receive; // what comes from other devices, where the transport copies
    size_t receive_bytes;
    struct plan_stats *stats; // of all runs so far; in the plan's own memory
};

enum {
    MAX_SPLIT_CHUNKS = 256,         // chunks whose states are held at once where one row's keys are split over threads
    TOKEN_BLOCK_BYTES = 256 * 1024, // sources that a matmul keeps in cache while it goes over its panels
    ATTEND_ROWS = 4,                // rows of one session that share the values taken out of a page's keys
    GEMM_MIN_ROWS = 4,              // rows from which unpacking a panel pays
    TILE = 32,                      // outputs of a gated unit that are made at a time: a block of Q8
    PART_ROWS = 48,                 // rows whose partial sums are held at a time
};

// Tokens that a matmul over k elements takes at a time.
size_t cpu_token_block(enum precision precision, size_t k);
size_t form_row_bytes(enum precision precision, size_t k);
// Elements of one source of a form.
static inline size_t form_k(const struct form *form)
{
    return form->value->ne[0] / form->n_parts;
}
// Heads of a value that a head op makes.
uint32_t head_op_n_heads(const struct node *node);

// plan.c: the steps; plan_memory.c: where everything lies.
enum status cpu_plan_create(struct device *device, const struct graph *graph, const struct weights *weights,
                            const struct plan_params *params, struct plan **plan, struct error *error);
void cpu_plan_free(struct plan *plan);
enum status cpu_plan_place(struct plan *plan, struct error *error);
void cpu_plan_memory(const struct plan *plan, struct plan_memory *memory);
enum status cpu_plan_place_kv(struct plan *plan, struct error *error);
uint32_t cpu_plan_kv_kinds(const struct plan *plan, struct kv_kind_layout kinds[MAX_KV_KINDS]);
enum status cpu_plan_kv_allocate(struct plan *plan, const size_t *n_pages, struct error *error);
bool cpu_plan_describe(const struct plan *plan, struct buffer *json);
void cpu_plan_stats(const struct plan *plan, struct plan_stats *stats);

// kv.c
size_t cpu_kv_head_bytes(const struct plan *plan, uint32_t layer);
size_t cpu_kv_layer_bytes(const struct plan *plan, uint32_t layer);
enum status cpu_kv_copy(struct plan *plan, const struct kv_page *page, void *bytes, bool write, struct error *error);

// run.c
enum status cpu_plan_run(struct plan *plan, const struct run *run, struct error *error);

// The (token, expert) pairs of a route, sorted by expert and then by row. Every thread sorts for itself, once a layer,
// into memory of its own: that is cheaper than a barrier.
struct pairs {
    const struct tensor *route; // whose pairs these are; NULL: none yet
    uint32_t n_active;
    uint32_t *start;  // [n_expert + 1]: the pairs of expert e are [start[e], start[e + 1])
    uint32_t *active; // [n_expert]: experts that have pairs, ascending
    uint32_t *row;    // of each pair
    float *weight;    // of each pair
};

// What went wrong in the threads of a run, smallest layer first: (layer << 32 | what), UINT64_MAX: nothing.
enum { FAULT_ROUTER = 0, FAULT_ABSENT = 1 }; // FAULT_ABSENT + expert

// How a run ends on all devices of a mesh: what thread 0 wants is said at the next exchange, what all agreed on is
// done.
struct meeting {
    bool wants_stop, stopped;
    struct error error;
};

// What a thread knows while it runs a plan.
struct worker {
    const struct plan *plan;
    const struct run *run;
    size_t index, n_threads;
    uint8_t *private_memory;
    struct pairs *pairs;
    _Atomic uint64_t *fault;
    struct meeting *meeting; // thread 0 writes
    uint8_t *scratch, *lora_scratch;
    bool adapted;             // whether any row has an adapter
    const uint32_t *selected; // the window of selected rows that the tail works on
    size_t n_selected;
};

void worker_fault(const struct worker *worker, uint32_t layer, uint32_t what);

// The row of a slot as this worker sees it.
size_t worker_n_rows(const struct worker *worker, enum rows rows, uint32_t per_row);
static inline uint8_t *worker_row(const struct worker *worker, const struct slot *slot, size_t row)
{
    if (slot->by_rows && worker_n_rows(worker, slot->rows, slot->per_row) == 1)
        return worker->private_memory + slot->private_offset;
    return worker->plan->memory + slot->offset + row * slot->row_bytes;
}
static inline float *worker_value(const struct worker *worker, const struct tensor *tensor, size_t row)
{
    return (float *)(void *)worker_row(worker, &worker->plan->slots[tensor->index], row);
}

// The memory of one KV head in a page of a row's session.
uint8_t *cpu_kv_head(const struct worker *worker, uint32_t layer, uint32_t session, uint32_t page, uint32_t head);

// A source of elementwise work: a value's row, or a weight's only vector.
static inline const float *worker_operand(const struct worker *worker, const struct tensor *tensor, size_t row)
{
    if (tensor->rows == ROWS_NONE)
        return cpu_weight_vector(&worker->plan->weights->items[tensor->index], 0);
    return worker_value(worker, tensor, row);
}

// ---- products and gated units (run_matmul.c), shared by dense and expert steps ----

// Source rows that lie `stride` bytes apart.
struct source_rows {
    const uint8_t *rows;
    size_t stride;
    size_t n;
    enum precision precision;
};

// One panel of a weight: unpacked into the worker's scratch where there are rows enough for that to pay.
struct panel {
    const struct worker *worker;
    const struct packed *weight;
    size_t index;
    enum precision precision;
    bool unpacked;
};
struct panel cpu_panel(const struct worker *worker, const struct packed *weight, size_t index, enum precision precision,
                       size_t n_rows);
// y[t * y_stride + 0 … 15] for the source's rows; part_stride: see struct kernels.
void cpu_panel_product(const struct panel *panel, const struct source_rows *source, float *y, size_t y_stride,
                       size_t part_stride);
// What an unpacked panel takes of the scratch.
size_t cpu_panel_scratch(enum precision precision, size_t k);

// What a row of a product holds: the sum of the tree over the weight's segments; or, of a partial sum, those of the
// subtrees of the whole tree that the weight's segments make up (attributes.leaves), each a vector of its own.
struct product_sums {
    uint32_t n;
    struct leaves of[MAX_SUBTREES]; // counted in the weight's segments
    size_t stride;                  // floats from one vector to the next
};
struct product_sums cpu_product_sums(const struct node *node, const struct packed *weight);
// parts [the weight's segments][16] → y[sum * stride + 0 … 15]
void cpu_add_sums(const struct kernels *kernels, const struct product_sums *sums, const float *parts, float *y);
// Whether a product's panels are made by segments first, PART_ROWS rows at a time: a single subtree has the shape of
// the tree over its own segments, which is what the kernels add up.
static inline bool is_made_of_parts(const struct node *node)
{
    return node->op == OP_MATMUL && node->result->n_parts > 1;
}

// How a step cuts its outputs: TILE at a time, or, where a form is written that has a scale a segment, a segment.
size_t step_n_tiles(const struct plan *plan, const struct step *step);
void step_tile(const struct plan *plan, const struct step *step, size_t tile, size_t *begin, size_t *end);
size_t step_tile_width(const struct plan *plan, const struct step *step); // the widest, a multiple of 16

// Outputs [begin, begin + n) of a gated unit (or of a plain product) of one row, to where the step writes them.
struct tile_row {
    size_t begin, n;
    float *gate, *up; // gate is overwritten
    float *rounded;   // scratch: a source row of n values in F32
};
// activation(gate) · up, n elements
void cpu_glu(const struct kernels *kernels, const struct attributes *attributes, const float *gate, const float *up,
             size_t n, float *y);
void cpu_finish_tile(const struct worker *worker, const struct step *step, const struct tile_row *tile, size_t row);

// run_experts.c: the pairs of a route, sorted when they are asked for first.
const struct pairs *worker_pairs(const struct worker *worker, const struct tensor *route);
// What the unpacked panels of an EXPERTS_SUM step take of the scratch.
size_t cpu_experts_sum_panel(const struct plan *plan, const struct step *step);
size_t cpu_pairs_bytes(size_t n_pairs, size_t n_expert);
void cpu_pairs_place(struct pairs *pairs, uint8_t *memory, size_t n_pairs, size_t n_expert);

// The tiles [begin, end) of one expert.
struct expert_share {
    uint32_t expert;
    size_t begin, end;
};
// Which tiles of which experts are this worker's: a contiguous piece of all (expert, tile) items in order, as long as
// the others' by the cost of its rows. Calls `function` for each of its experts.
void cpu_share_tiles(const struct worker *worker, const struct pairs *pairs, size_t n_tiles,
                     void (*function)(const struct worker *, const struct step *, const struct expert_share *),
                     const struct step *step);

// ---- adapters ----

// plan_lora.c. Before a product of x (by this route) is planned: a step that makes what the adapters need of x.
enum status cpu_plan_hiddens(struct plan *plan, const struct tensor *x, const struct tensor *route,
                             struct error *error);
// Joins the terms to the product that the current step makes.
enum status cpu_plan_lora(struct plan *plan, const struct node *node, struct error *error);
// A hidden value by a step of its own, and the step that adds the terms made of one to a product that is complete.
enum status cpu_plan_lora_hidden(struct plan *plan, const struct node *node, struct error *error);
enum status cpu_plan_lora_add(struct plan *plan, const struct node *node, struct error *error);
size_t cpu_lora_hidden_bytes(const struct node *node);
void cpu_lora_measure(struct plan *plan);
// plan.c
enum status cpu_plan_measure_pairs(struct plan *plan, const struct routing *routing, struct error *error);
struct step *cpu_plan_add_step(struct plan *plan, enum step_kind kind, enum rows rows);
void cpu_plan_use_value(struct plan *plan, const struct tensor *tensor);
void cpu_plan_use_slot(const struct plan *plan, struct slot *slot);
void cpu_plan_make_value(struct plan *plan, const struct tensor *tensor, bool by_rows);

// Whether a step is left out where no row of a run has an adapter.
bool cpu_is_of_adapters(const struct plan *plan, const struct step *step);

// run_lora.c
bool cpu_run_is_adapted(const struct run *run);
// y[t * y_stride + 0 … 15] += the terms of rows [first_row, first_row + n), for a panel of one of the product's
// matrices.
struct lora_panel {
    uint32_t hidden;
    size_t matrix, panel;
};
void cpu_lora_add(const struct worker *worker, const struct lora_panel *panel, size_t first_row, size_t n, float *y,
                  size_t y_stride);
// The terms of all pairs of the batch, summed by row into sums [n_rows][16], which begin as zeros; then y += sums.
void cpu_lora_add_sum(const struct worker *worker, uint32_t hidden, size_t panel, const struct tensor *y, float *sums);
// An embedding with its terms.
void cpu_lora_lookup(const struct worker *worker, const struct node *node, size_t row);
size_t cpu_lora_lookup_floats(const struct node *node); // of scratch

// observe.c: what is seen of rows where plan_params.observe is set (observer is not NULL).
enum status cpu_observer_create(struct plan *plan, struct error *error);
void cpu_observer_free(struct observer *observer);
void cpu_observe_source(const struct worker *worker, const struct form *form, const float *x, size_t k);
void cpu_observe_kv(const struct worker *worker, uint32_t layer, bool value, const float *x, size_t n);
void cpu_observe_route(const struct worker *worker, const struct node *node, const float *ids);
bool cpu_plan_observed(const struct plan *plan, observation_fn give, void *user);

// Each runs this worker's share of a step.
void cpu_run_rows(const struct worker *worker, const struct step *step);
void cpu_run_matmul(const struct worker *worker, const struct step *step);
void cpu_run_heads(const struct worker *worker, const struct step *step);
void cpu_run_attention(const struct worker *worker, const struct step *step);
void cpu_run_experts(const struct worker *worker, const struct step *step);
void cpu_run_experts_sum(const struct worker *worker, const struct step *step);
void cpu_run_lora(const struct worker *worker, const struct step *step);
void cpu_run_lora_add(const struct worker *worker, const struct step *step);
void cpu_run_exchange(const struct worker *worker, const struct step *step);

// run_exchange.c
void cpu_exchange_describe(struct plan_exchange *exchange, const struct node *node);
size_t cpu_exchange_receive_bytes(const struct plan *plan, const struct plan_exchange *exchange);
size_t cpu_exchange_scratch_floats(const struct node *node);
// A row of what a collective makes.
void cpu_apply_collective(const struct worker *worker, const struct node *node, size_t row);

// The query heads [first, end) of this device that share a KV head of it: of a part of the heads the first and the last
// KV head may be without some of theirs.
static inline uint32_t attention_group(const struct attributes *a)
{
    uint32_t group = a->group != 0 ? a->group : a->n_head / a->n_kv_head;
    return group > 1 ? group : 1; // never 0
}
static inline void attention_heads(const struct attributes *a, uint32_t kv_head, uint32_t *first, uint32_t *end)
{
    uint32_t group = attention_group(a), begin = kv_head * group, stop = begin + group - a->first_in_group;
    *first = begin > a->first_in_group ? begin - a->first_in_group : 0;
    *end = stop < a->n_head ? stop : a->n_head;
}

// What OP_POSITION_SCALE multiplies a row at this position by.
float cpu_temperature(const struct attributes *attributes, uint32_t position);

// Values that are the beginning of the keys (attributes.v_in_k), transposed out of a page as the kernels want them
// (latent.c). memory: cpu_latent_bytes, aligned to 64; fills chunk->v and chunk->v_scale for the positions that are
// seen.
size_t cpu_latent_bytes(enum kv_dtype kv, size_t v_dim);
void cpu_latent_values(enum kv_dtype kv, struct attention_chunk *chunk, size_t v_dim, void *memory);

#endif
