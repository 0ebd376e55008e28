// Sessions, and running batches of their tokens: logical rows and pages in, logits out.
#include "engine/engine.h"

#include "base/fpenv.h"
#include "engine/remote.h"
#include "tensor/op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

mote_status mote_session_create(mote_engine *engine, mote_session **result, mote_error *error)
{
    struct mote_session *session = calloc(1, sizeof(*session));
    size_t n_pages = (engine->n_context + KV_PAGE_POSITIONS - 1) / KV_PAGE_POSITIONS;
    bool good = session != NULL;
    for (uint32_t kind = 0; good && kind < engine->n_kinds; kind++) {
        session->tables[kind].ids = calloc(n_pages, sizeof(uint32_t));
        good = session->tables[kind].ids != NULL;
    }
    if (good) {
        session->tokens = calloc(engine->n_context, sizeof(*session->tokens));
        good = session->tokens != NULL;
    }
    if (good && engine->n_adapters != 0) {
        session->scales = calloc(engine->n_adapters, sizeof(*session->scales));
        good = session->scales != NULL;
        if (good)
            memcpy(session->scales, engine->scales, engine->n_adapters * sizeof(*session->scales));
    }
    if (!good) {
        mote_session_destroy(session);
        return (mote_status)error_memory(inner_error(error), "the session");
    }
    session->engine = engine;
    *result = session;
    return MOTE_OK;
}

void mote_session_destroy(mote_session *session)
{
    if (session == NULL)
        return;
    if (session->engine != NULL)
        pages_release(session);
    for (uint32_t kind = 0; kind < MAX_KV_KINDS; kind++)
        free(session->tables[kind].ids);
    free(session->scales);
    free(session->tokens);
    free(session);
}

size_t mote_session_n_tokens(const mote_session *session)
{
    return session->n_tokens;
}

void mote_session_clear(mote_session *session)
{
    pages_release(session);
    session->n_tokens = 0;
}

mote_status mote_session_set_adapters(mote_session *session, const float *scales, size_t n_scales, mote_error *error)
{
    struct error *inner = inner_error(error);
    size_t n_adapters = session->engine->n_adapters;
    if (n_scales != n_adapters)
        return (mote_status)error_set(inner, STATUS_INVALID, "%zu scales for the %zu adapters of the engine", n_scales,
                                      n_adapters);
    if (session->n_tokens != 0)
        return (mote_status)error_set(inner, STATUS_INVALID,
                                      "the session has %zu tokens, which went through with the adapters before: clear "
                                      "it first",
                                      session->n_tokens);
    for (size_t i = 0; i < n_scales; i++) {
        if (!isfinite(scales[i]))
            return (mote_status)error_set(inner, STATUS_INVALID, "the scale of adapter %zu is not finite", i + 1);
    }
    if (n_scales != 0)
        memcpy(session->scales, scales, n_scales * sizeof(*scales));
    return MOTE_OK;
}

// ---- checking what is asked ----

static enum status check_input(const struct mote_engine *engine, const mote_input *input, size_t number,
                               struct error *error)
{
    const struct mote_session *session = input->session;
    if (session == NULL || session->engine != engine)
        return error_set(error, STATUS_INVALID, "input %zu has no session of this engine", number);
    if (input->n_tokens > engine->n_context - session->n_tokens)
        return error_set(error, STATUS_FULL,
                         "%zu tokens do not fit: the context of %zu tokens holds %zu already; use a larger -c, or a "
                         "shorter prompt",
                         input->n_tokens, engine->n_context, session->n_tokens);
    for (size_t i = 0; i < input->n_tokens; i++) {
        if (input->tokens[i] < 0 || (uint32_t)input->tokens[i] >= engine->graph.h.n_vocab)
            return error_set(error, STATUS_INVALID, "token %zu is %d, but the vocabulary has %u", i, input->tokens[i],
                             engine->graph.h.n_vocab);
    }
    return STATUS_OK;
}

static enum status check_inputs(const struct mote_engine *engine, const mote_input *inputs, size_t n_inputs,
                                struct error *error)
{
    enum status status = STATUS_OK;
    size_t marked = 0;
    for (; marked < n_inputs && status == STATUS_OK; marked++) {
        status = check_input(engine, &inputs[marked], marked, error);
        if (status != STATUS_OK)
            break;
        if (inputs[marked].session->in_run) {
            status = error_set(error, STATUS_INVALID, "input %zu has the session of an input before it", marked);
            break;
        }
        inputs[marked].session->in_run = true;
    }
    for (size_t i = 0; i < marked; i++)
        inputs[i].session->in_run = false;
    return status == STATUS_OK ? pages_check(engine, inputs, n_inputs, error) : status;
}

// ---- one batch ----

// Where the run stands in its inputs, and what the logits go to.
struct progress {
    struct mote_engine *engine;
    const mote_input *inputs;
    size_t n_inputs;
    size_t input, index; // the next token
    size_t begin;        // the first token of that input in this batch
    mote_logits_fn logits;
    void *user;
    size_t n_rows, n_selected, n_scales;
    struct error *error;
    enum status status;
};

static int give_logits(void *user, size_t selected, const float *logits)
{
    struct progress *progress = user;
    const struct origin *origin = &progress->engine->origins[selected];
    uint32_t n_vocab = progress->engine->graph.h.n_vocab;
    for (uint32_t i = 0; i < n_vocab; i++) {
        if (!isfinite(logits[i])) {
            progress->status =
                error_set(progress->error, STATUS_INVALID,
                          "the logits after token %zu of input %zu are not finite (logit %u is %s): the "
                          "model's weights hold NaN or infinity, or numbers too large (mote doctor says where)",
                          origin->index, origin->input, i, isnan(logits[i]) ? "NaN" : "infinite");
            return 1;
        }
    }
    return progress->logits == NULL ? 0 : progress->logits(progress->user, origin->input, origin->index, logits);
}

// Which scales the rows of a session take: those before it where they are the same, so that its rows go through the
// adapters together with theirs.
static uint32_t place_scales(struct progress *progress, const struct mote_session *session)
{
    struct mote_engine *engine = progress->engine;
    size_t n = engine->n_adapters, size = n * sizeof(float);
    if (n == 0)
        return 0;
    float *last = engine->adapter_scales + (progress->n_scales == 0 ? 0 : progress->n_scales - 1) * n;
    if (progress->n_scales == 0 || memcmp(last, session->scales, size) != 0)
        memcpy(engine->adapter_scales + progress->n_scales++ * n, session->scales, size);
    return (uint32_t)progress->n_scales - 1;
}

static void add_row(struct progress *progress, const mote_input *input, uint32_t slot, uint32_t adapters)
{
    struct mote_engine *engine = progress->engine;
    size_t row = progress->n_rows++;
    size_t position = input->session->n_tokens + progress->index - progress->begin;
    engine->rows[row] = (struct row){
        .token = input->tokens[progress->index], .position = (uint32_t)position, .session = slot, .adapters = adapters};
    for (uint32_t i = 0; i < engine->graph.n_ropes; i++)
        rope_fill(&engine->graph.ropes[i], (uint32_t)position,
                  engine->rope_tables[i] + row * engine->graph.ropes[i].n_rot);
    bool last = progress->index + 1 == input->n_tokens;
    if (input->want == MOTE_WANT_ALL || (input->want == MOTE_WANT_LAST && last)) {
        engine->selected[progress->n_selected] = (uint32_t)row;
        engine->origins[progress->n_selected++] = (struct origin){.input = progress->input, .index = progress->index};
    }
}

// Takes up to n_batch tokens from the inputs; [first input, progress->input] have rows.
static enum status fill_batch(struct progress *progress)
{
    struct mote_engine *engine = progress->engine;
    progress->n_rows = progress->n_selected = progress->n_scales = 0;
    uint32_t slot = 0; // of inputs that have rows
    while (progress->input < progress->n_inputs && progress->n_rows < engine->n_batch) {
        const mote_input *input = &progress->inputs[progress->input];
        size_t room = engine->n_batch - progress->n_rows;
        size_t n = input->n_tokens - progress->index;
        n = n < room ? n : room;
        progress->begin = progress->index;
        if (n > 0) {
            enum status status = pages_extend(input->session, input->session->n_tokens + n, progress->error);
            if (status != STATUS_OK)
                return status;
            for (uint32_t kind = 0; kind < engine->n_kinds; kind++)
                engine->pages[slot * MAX_KV_KINDS + kind] = input->session->tables[kind].ids;
        }
        uint32_t adapters = n > 0 ? place_scales(progress, input->session) : 0;
        for (size_t i = 0; i < n; i++, progress->index++)
            add_row(progress, input, slot, adapters);
        slot += n > 0;
        if (progress->index < input->n_tokens)
            break; // the batch is full
        progress->input++;
        progress->index = 0;
    }
    return STATUS_OK;
}

// The tokens that went through become the sessions' own.
static void commit(struct progress *progress, size_t first_input, size_t first_index)
{
    for (size_t i = first_input; i <= progress->input && i < progress->n_inputs; i++) {
        struct mote_session *session = progress->inputs[i].session;
        size_t begin = i == first_input ? first_index : 0;
        size_t end = i < progress->input ? progress->inputs[i].n_tokens : progress->index;
        if (end > begin)
            memcpy(session->tokens + session->n_tokens, progress->inputs[i].tokens + begin,
                   (end - begin) * sizeof(*session->tokens));
        session->n_tokens += end - begin;
        pages_trim(session);
    }
}

static enum status run_batch(struct progress *progress)
{
    struct mote_engine *engine = progress->engine;
    struct run run = {.rows = engine->rows,
                      .n_rows = progress->n_rows,
                      .selected = engine->selected,
                      .n_selected = progress->n_selected,
                      .pages = engine->pages,
                      .adapter_scales = engine->adapter_scales,
                      .n_adapters = engine->n_adapters,
                      .cancel = &engine->cancel,
                      .on_logits = give_logits,
                      .user = progress};
    for (uint32_t i = 0; i < engine->graph.n_ropes; i++)
        run.ropes[i] = engine->rope_tables[i];
    struct error error = {0};
    enum status status = engine->ranks == NULL ? STATUS_OK : remote_send_run(engine, &run, &error);
    if (status == STATUS_OK)
        status = engine->device->ops->run(engine->plan, &run, &error);
    if (progress->status != STATUS_OK) // the logits were bad, and that stopped the run
        return progress->status;
    if (status != STATUS_OK && progress->error != NULL)
        *progress->error = error;
    return status;
}

static enum status run_inputs(struct progress *progress)
{
    enum status status = STATUS_OK;
    while (status == STATUS_OK && progress->input < progress->n_inputs) {
        size_t first_input = progress->input, first_index = progress->index;
        status = fill_batch(progress);
        if (status == STATUS_OK && progress->n_rows > 0)
            status = run_batch(progress);
        if (status == STATUS_OK)
            commit(progress, first_input, first_index);
    }
    for (size_t i = 0; i < progress->n_inputs && status != STATUS_OK; i++)
        pages_trim(progress->inputs[i].session);
    return status;
}

mote_status mote_engine_run(mote_engine *engine, const mote_input *inputs, size_t n_inputs, mote_logits_fn logits,
                            void *user, mote_error *error)
{
    struct error *inner = inner_error(error);
    enum status status = check_inputs(engine, inputs, n_inputs, inner);
    if (status != STATUS_OK)
        return (mote_status)status;
    struct progress progress = {
        .engine = engine, .inputs = inputs, .n_inputs = n_inputs, .logits = logits, .user = user, .error = inner};
    atomic_store(&engine->cancel, false);
    struct fpenv saved = fpenv_enter(); // angles, too, do not depend on the caller's rounding
    status = run_inputs(&progress);
    fpenv_leave(saved);
    return (mote_status)status;
}

void mote_engine_cost(const mote_engine *engine, size_t n_rows, size_t n_past, mote_cost *cost)
{
    *cost = (mote_cost){0};
    for (size_t i = 0; i < engine->graph.graph.n_nodes; i++) {
        const struct node *node = engine->graph.graph.nodes[i];
        struct op_cost one = {0};
        op_get(node->op)->cost(node, node->result->rows == ROWS_LOGITS ? 1 : n_rows, n_past, &one);
        cost->int8_ops += one.int8_ops;
        cost->f32_ops += one.f32_ops;
        cost->bytes += one.bytes;
    }
}
