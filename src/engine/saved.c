// Sessions as files: the tokens, and the keys and values of their pages. The form is described in docs/sessions.md.
// What is in a file is that of one device, whatever devices it was made on, so it goes on anywhere with the same bits.
#include "engine/engine.h"
#include "engine/remote.h"

#include "base/checked.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1 };
static const char magic[8] = {'m', 'o', 't', 'e', 'k', 'v', '\r', '\n'};

struct header {
    char magic[8];
    uint32_t format, numerics;
    uint64_t fingerprint, model_bytes; // of the model's file
    uint32_t kv, n_layers, n_kinds, n_tokens;
    uint32_t n_rules, n_adapters;
    uint32_t first_page[MAX_KV_KINDS]; // that is held, of each kind; all behind it are, to the last token's
};

static uint64_t hash(uint64_t sum, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    uint64_t word;
    for (; size >= sizeof(word); at += sizeof(word), size -= sizeof(word)) {
        memcpy(&word, at, sizeof(word));
        sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
        sum ^= sum >> 29;
    }
    for (; size > 0; size--)
        sum = (sum ^ *at++) * 0x100000001b3u;
    return sum;
}

static size_t pages_of(size_t n_tokens)
{
    return (n_tokens + KV_PAGE_POSITIONS - 1) / KV_PAGE_POSITIONS;
}

// Pages that the next token, after n, does not see. A session without one that it does see would take another's for it.
static size_t most_dropped(const struct kv_kind_layout *kind, size_t n_tokens)
{
    size_t window = kind->window;
    return window != 0 && n_tokens + 1 > window ? (n_tokens + 1 - window) / KV_PAGE_POSITIONS : 0;
}

static enum status fill_header(const struct mote_session *session, struct header *header, struct error *error)
{
    const struct mote_engine *engine = session->engine;
    memset(header, 0, sizeof(*header));
    memcpy(header->magic, magic, sizeof(magic));
    header->format = FORMAT;
    header->numerics = (uint32_t)mote_numerics_version();
    header->model_bytes = engine->model->gguf->size;
    header->kv = (uint32_t)engine->kv;
    header->n_layers = (uint32_t)engine->graph.graph.n_kv_layers;
    header->n_kinds = engine->n_kinds;
    header->n_tokens = (uint32_t)session->n_tokens;
    header->n_rules = (uint32_t)engine->n_rules;
    header->n_adapters = (uint32_t)engine->n_adapters;
    for (uint32_t kind = 0; kind < engine->n_kinds; kind++)
        header->first_page[kind] = session->tables[kind].first;
    return gguf_fingerprint(engine->model->gguf, &header->fingerprint, error);
}

// The kind of a layer's pages: kinds come in the order of the layers' windows.
static uint32_t kind_of_layer(const struct mote_engine *engine, size_t layer)
{
    uint32_t kind = 0;
    while (kind + 1 < engine->n_kinds && engine->kinds[kind].window != engine->graph.graph.kv_layers[layer].window)
        kind++;
    return kind;
}

static enum status copy_page(struct mote_engine *engine, const struct kv_page *page, void *bytes, bool write,
                             struct error *error)
{
    enum status status = engine->ranks == NULL ? STATUS_OK : remote_send_kv(engine, page, write, error);
    return status == STATUS_OK ? engine->device->ops->kv_copy(engine->plan, page, bytes, write, error) : status;
}

static size_t largest_layer(const struct mote_engine *engine)
{
    size_t largest = 1;
    for (uint32_t layer = 0; layer < engine->graph.graph.n_kv_layers; layer++)
        largest = max_size(largest, engine->device->ops->kv_layer_bytes(engine->plan, layer));
    return largest;
}

// ---- saving ----

struct output {
    struct file_writer file;
    uint64_t sum;
};

static enum status put(struct output *output, const void *bytes, size_t size, struct error *error)
{
    output->sum = hash(output->sum, bytes, size);
    return file_writer_write(&output->file, bytes, size, error);
}

static enum status put_pages(struct output *output, struct mote_session *session, uint8_t *bytes, struct error *error)
{
    struct mote_engine *engine = session->engine;
    enum status status = STATUS_OK;
    for (uint32_t layer = 0; layer < engine->graph.graph.n_kv_layers; layer++) {
        const struct page_table *table = &session->tables[kind_of_layer(engine, layer)];
        size_t size = engine->device->ops->kv_layer_bytes(engine->plan, layer);
        for (size_t i = table->first; i < pages_of(session->n_tokens) && status == STATUS_OK; i++) {
            size_t left = session->n_tokens - i * KV_PAGE_POSITIONS;
            struct kv_page page = {.layer = layer,
                                   .page = table->ids[i],
                                   .n_positions = left < KV_PAGE_POSITIONS ? (uint32_t)left : KV_PAGE_POSITIONS};
            status = copy_page(engine, &page, bytes, false, error);
            if (status == STATUS_OK)
                status = put(output, bytes, size, error);
        }
    }
    return status;
}

static enum status put_all(struct output *output, struct mote_session *session, const struct header *header,
                           uint8_t *bytes, struct error *error)
{
    const struct mote_engine *engine = session->engine;
    enum status status = put(output, header, sizeof(*header), error);
    // Part by part as they are read: the checksum depends on where parts begin.
    for (size_t i = 0; i < engine->n_rules && status == STATUS_OK; i++)
        status = put(output, &engine->rules[i], sizeof(engine->rules[i]), error);
    for (size_t i = 0; i < engine->n_adapters && status == STATUS_OK; i++) {
        status = put(output, &engine->adapter_prints[i], sizeof(*engine->adapter_prints), error);
        if (status == STATUS_OK)
            status = put(output, &session->scales[i], sizeof(*session->scales), error);
    }
    if (status == STATUS_OK)
        status = put(output, session->tokens, session->n_tokens * sizeof(*session->tokens), error);
    if (status == STATUS_OK)
        status = put_pages(output, session, bytes, error);
    uint64_t sum = output->sum;
    return status == STATUS_OK ? put(output, &sum, sizeof(sum), error) : status;
}

mote_status mote_session_save(mote_session *session, const char *path, mote_error *error)
{
    struct error *inner = inner_error(error);
    struct output output = {0};
    struct header header;
    uint8_t *bytes = malloc(largest_layer(session->engine));
    enum status status = bytes == NULL ? error_memory(inner, "the session") : fill_header(session, &header, inner);
    if (status == STATUS_OK)
        status = file_writer_open(&output.file, path, inner);
    if (status == STATUS_OK) {
        status = put_all(&output, session, &header, bytes, inner);
        if (status == STATUS_OK)
            status = file_writer_commit(&output.file, inner);
        else
            file_writer_abort(&output.file);
    }
    free(bytes);
    return (mote_status)status;
}

// ---- restoring ----

struct input {
    struct file file;
    uint64_t at, sum;
};

static enum status get(struct input *input, void *bytes, size_t size, struct error *error)
{
    if (size > input->file.size - input->at)
        return error_set(error, STATUS_INVALID, "'%s' ends too early: it was cut short", input->file.path);
    enum status status = file_read(&input->file, input->at, bytes, size, error);
    input->at += size;
    if (status == STATUS_OK)
        input->sum = hash(input->sum, bytes, size);
    return status;
}

static enum status differs(const struct input *input, const char *what, struct error *error)
{
    return error_set(error, STATUS_INVALID, "'%s' is a session of another %s: it cannot go on here", input->file.path,
                     what);
}

static enum status check_header(const struct input *input, const struct header *header, const struct header *own,
                                const struct mote_engine *engine, struct error *error)
{
    if (memcmp(header->magic, magic, sizeof(magic)) != 0)
        return error_set(error, STATUS_INVALID, "'%s' is no saved session of mote", input->file.path);
    if (header->format != FORMAT || header->numerics != own->numerics)
        return differs(input, "version of mote (its format or its numerics)", error);
    if (header->fingerprint != own->fingerprint || header->model_bytes != own->model_bytes ||
        header->n_layers != own->n_layers || header->n_kinds != own->n_kinds)
        return differs(input, "model", error);
    if (header->kv != own->kv)
        return differs(input, "dtype of the KV cache (--kv)", error);
    if (header->n_rules != own->n_rules)
        return differs(input, "precision (--precision)", error);
    if (header->n_adapters != own->n_adapters)
        return differs(input, "list of adapters (--lora)", error);
    if (header->n_tokens > engine->n_context)
        return error_set(error, STATUS_FULL,
                         "the session of '%s' has %u tokens, more than the context of %zu: use a "
                         "larger -c",
                         input->file.path, header->n_tokens, engine->n_context);
    for (uint32_t kind = 0; kind < own->n_kinds; kind++) {
        if (header->first_page[kind] > most_dropped(&engine->kinds[kind], header->n_tokens))
            return error_set(error, STATUS_INVALID, "'%s' is damaged: it lacks pages that the next token sees",
                             input->file.path);
    }
    return STATUS_OK;
}

static enum status get_settings(struct input *input, struct mote_session *session, struct error *error)
{
    const struct mote_engine *engine = session->engine;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < engine->n_rules && status == STATUS_OK; i++) {
        struct precision_rule rule;
        status = get(input, &rule, sizeof(rule), error);
        if (status == STATUS_OK && memcmp(&rule, &engine->rules[i], sizeof(rule)) != 0)
            return differs(input, "precision (--precision)", error);
    }
    for (size_t i = 0; i < engine->n_adapters && status == STATUS_OK; i++) {
        uint64_t print;
        float scale;
        status = get(input, &print, sizeof(print), error);
        if (status == STATUS_OK)
            status = get(input, &scale, sizeof(scale), error);
        if (status == STATUS_OK && (print != engine->adapter_prints[i] || scale != session->scales[i]))
            return differs(input, "list of adapters, or with other scales (--lora)", error);
    }
    return status;
}

static enum status get_pages(struct input *input, struct mote_session *session, size_t n_tokens, uint8_t *bytes,
                             struct error *error)
{
    struct mote_engine *engine = session->engine;
    enum status status = STATUS_OK;
    for (uint32_t layer = 0; layer < engine->graph.graph.n_kv_layers; layer++) {
        const struct page_table *table = &session->tables[kind_of_layer(engine, layer)];
        size_t size = engine->device->ops->kv_layer_bytes(engine->plan, layer);
        for (size_t i = table->first; i < pages_of(n_tokens) && status == STATUS_OK; i++) {
            struct kv_page page = {.layer = layer, .page = table->ids[i], .n_positions = KV_PAGE_POSITIONS};
            status = get(input, bytes, size, error);
            if (status == STATUS_OK)
                status = copy_page(engine, &page, bytes, true, error);
        }
    }
    return status;
}

// Where it fails the session is empty again.
static enum status get_all(struct input *input, struct mote_session *session, uint8_t *bytes, struct error *error)
{
    struct mote_engine *engine = session->engine;
    struct header header, own;
    enum status status = fill_header(session, &own, error);
    if (status == STATUS_OK)
        status = get(input, &header, sizeof(header), error);
    if (status == STATUS_OK)
        status = check_header(input, &header, &own, engine, error);
    if (status == STATUS_OK)
        status = get_settings(input, session, error);
    if (status == STATUS_OK)
        status = get(input, session->tokens, header.n_tokens * sizeof(*session->tokens), error);
    for (uint32_t i = 0; status == STATUS_OK && i < header.n_tokens; i++) {
        if (session->tokens[i] < 0 || (uint32_t)session->tokens[i] >= engine->graph.h.n_vocab)
            return error_set(error, STATUS_INVALID, "'%s' is damaged: token %u is %d", input->file.path, i,
                             session->tokens[i]);
    }
    if (status != STATUS_OK)
        return status;
    for (uint32_t kind = 0; kind < engine->n_kinds; kind++)
        session->tables[kind].first = session->tables[kind].end = header.first_page[kind];
    status = pages_extend(session, header.n_tokens, error);
    if (status == STATUS_OK)
        status = get_pages(input, session, header.n_tokens, bytes, error);
    uint64_t sum = input->sum, wanted = 0;
    if (status == STATUS_OK)
        status = get(input, &wanted, sizeof(wanted), error);
    if (status == STATUS_OK && (wanted != sum || input->at != input->file.size))
        status = error_set(error, STATUS_INVALID, "'%s' is damaged: its checksum is wrong", input->file.path);
    if (status == STATUS_OK)
        session->n_tokens = header.n_tokens;
    return status;
}

mote_status mote_session_restore(mote_session *session, const char *path, mote_error *error)
{
    struct error *inner = inner_error(error);
    struct input input = {0};
    if (session->n_tokens != 0)
        return (mote_status)error_set(inner, STATUS_INVALID,
                                      "the session has %zu tokens: only an empty one can become a saved one",
                                      session->n_tokens);
    uint8_t *bytes = malloc(largest_layer(session->engine));
    enum status status = bytes == NULL ? error_memory(inner, "the session") : file_open(&input.file, path, inner);
    if (status == STATUS_OK) {
        status = get_all(&input, session, bytes, inner);
        if (status != STATUS_OK)
            mote_session_clear(session);
        file_close(&input.file);
    }
    free(bytes);
    return (mote_status)status;
}

// ---- what it has ----

const int32_t *mote_session_tokens(const mote_session *session)
{
    return session->tokens;
}

mote_status mote_session_truncate(mote_session *session, size_t n_tokens, mote_error *error)
{
    const struct mote_engine *engine = session->engine;
    if (n_tokens > session->n_tokens)
        return (mote_status)error_set(inner_error(error), STATUS_INVALID, "the session has %zu tokens, not %zu",
                                      session->n_tokens, n_tokens);
    for (uint32_t kind = 0; kind < engine->n_kinds; kind++) {
        size_t window = engine->kinds[kind].window, held = (size_t)session->tables[kind].first * KV_PAGE_POSITIONS;
        size_t needed = window != 0 && n_tokens + 1 > window ? n_tokens + 1 - window : 0;
        if (needed < held && n_tokens > 0)
            return (mote_status)error_set(
                inner_error(error), STATUS_UNSUPPORTED,
                "the session has no longer what token %zu would see through a window of %zu: clear it", n_tokens,
                window);
    }
    session->n_tokens = n_tokens;
    if (n_tokens == 0)
        pages_release(session);
    else
        pages_trim(session);
    return MOTE_OK;
}
