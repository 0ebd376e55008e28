// Pages of the KV cache: which session holds which. The memory is the device's; here are only numbers.
#include "engine/engine.h"

#include <stdlib.h>

enum { POSITIONS = KV_PAGE_POSITIONS };

size_t pages_per_session(const struct kv_kind_layout *kind, size_t n_context, size_t n_batch)
{
    size_t all = (n_context + POSITIONS - 1) / POSITIONS;
    if (kind->window == 0)
        return all;
    // A batch's first row sees a window before it, and both ends may lie within a page.
    size_t held = (kind->window + n_batch + POSITIONS - 1) / POSITIONS + 1;
    return held < all ? held : all;
}

enum status pages_create(struct page_pool *pool, size_t n_pages, struct error *error)
{
    if (n_pages >= UINT32_MAX)
        return error_set(error, STATUS_INVALID, "a KV cache of %zu pages is too large: use a smaller -c", n_pages);
    pool->free = malloc((n_pages + 1) * sizeof(*pool->free));
    if (pool->free == NULL)
        return error_memory(error, "the KV cache");
    pool->n_pages = pool->n_free = n_pages;
    for (size_t i = 0; i < n_pages; i++)
        pool->free[i] = (uint32_t)(n_pages - 1 - i); // low ids first
    return STATUS_OK;
}

static uint32_t pages_of(size_t n_positions)
{
    return (uint32_t)((n_positions + POSITIONS - 1) / POSITIONS);
}

static enum status full(const struct mote_engine *engine, struct error *error)
{
    return error_set(error, STATUS_FULL, "the KV cache has no page left: it was made for %zu sessions of %zu tokens",
                     engine->n_sessions, engine->n_context);
}

// Pages of a kind that a session takes while it goes through n more tokens.
static size_t pages_wanted(const struct mote_session *session, uint32_t kind, size_t n)
{
    const struct mote_engine *engine = session->engine;
    const struct page_table *table = &session->tables[kind];
    size_t end = pages_of(session->n_tokens + n), wanted = end > table->end ? end - table->end : 0;
    size_t most =
        pages_per_session(&engine->kinds[kind], engine->n_context, engine->n_batch) - (table->end - table->first);
    return wanted < most ? wanted : most;
}

enum status pages_check(const struct mote_engine *engine, const mote_input *inputs, size_t n_inputs,
                        struct error *error)
{
    for (uint32_t kind = 0; kind < engine->n_kinds; kind++) {
        size_t wanted = 0;
        for (size_t i = 0; i < n_inputs; i++)
            wanted += pages_wanted(inputs[i].session, kind, inputs[i].n_tokens);
        if (wanted > engine->pools[kind].n_free)
            return full(engine, error);
    }
    return STATUS_OK;
}

enum status pages_extend(struct mote_session *session, size_t end, struct error *error)
{
    struct mote_engine *engine = session->engine;
    for (uint32_t kind = 0; kind < engine->n_kinds; kind++) {
        struct page_table *table = &session->tables[kind];
        struct page_pool *pool = &engine->pools[kind];
        while (table->end < pages_of(end)) {
            if (pool->n_free == 0)
                return full(engine, error);
            table->ids[table->end++] = pool->free[--pool->n_free];
        }
    }
    return STATUS_OK;
}

static void drop_until(struct page_pool *pool, struct page_table *table, uint32_t page)
{
    for (; table->first < page && table->first < table->end; table->first++)
        pool->free[pool->n_free++] = table->ids[table->first];
}

void pages_trim(struct mote_session *session)
{
    struct mote_engine *engine = session->engine;
    for (uint32_t kind = 0; kind < engine->n_kinds; kind++) {
        struct page_table *table = &session->tables[kind];
        struct page_pool *pool = &engine->pools[kind];
        size_t window = engine->kinds[kind].window;
        if (window != 0 && session->n_tokens + 1 > window) // the next position sees its window, itself included
            drop_until(pool, table, (uint32_t)((session->n_tokens + 1 - window) / POSITIONS));
        while (table->end > table->first && table->end > pages_of(session->n_tokens))
            pool->free[pool->n_free++] = table->ids[--table->end];
    }
}

void pages_release(struct mote_session *session)
{
    for (uint32_t kind = 0; kind < session->engine->n_kinds; kind++) {
        struct page_table *table = &session->tables[kind];
        drop_until(&session->engine->pools[kind], table, table->end);
        table->first = table->end = 0;
    }
}
