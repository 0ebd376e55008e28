// The engine's own structures, behind the opaque handles of include/mote.h.
#ifndef MOTE_ENGINE_ENGINE_H
#define MOTE_ENGINE_ENGINE_H

#include "base/log.h"
#include "gguf/gguf.h"
#include "mesh/mesh.h"
#include "mesh/ranks.h"
#include "model/model.h"
#include "mote.h"
#include "tensor/device.h"
#include "text/tokenizer.h"

#include <pthread.h>
#include <stdatomic.h>

// Parts that are made when first needed are made under the lock; once made they never change.
struct mote_model {
    struct gguf *gguf;
    char *pre;      // replaces tokenizer.ggml.pre; or NULL
    struct log log; // to the user's function, where there is one
    mote_log_fn log_function;
    void *log_user;
    pthread_mutex_t lock;
    struct tokenizer *tokenizer;
    struct weights *weights;         // packed, shared by the model's engines
    struct mesh_split weights_split; // for these devices
    const struct device_ops *weights_owner;
};

// The pages of one kind of KV layer: which are free.
struct page_pool {
    uint32_t *free; // a stack of page ids
    size_t n_free;
    size_t n_pages;
};

// A session's pages of one kind, by page number; only [first, end) are held.
struct page_table {
    uint32_t *ids; // [n_context / 64 rounded up]
    uint32_t first, end;
};

struct mote_session {
    struct mote_engine *engine;
    size_t n_tokens;
    int32_t *tokens; // [n_context], of which n_tokens are there
    struct page_table tables[MAX_KV_KINDS];
    float *scales; // [n_adapters]; NULL where there are none
    bool in_run;   // guards against one session given twice in a run
};

struct mote_engine {
    struct mote_model *model;
    struct device *device;
    struct model_graph graph;
    struct plan *plan;
    size_t n_threads, n_context, n_batch, n_sessions, n_logits, n_devices;
    enum kv_dtype kv;
    struct kv_kind_layout kinds[MAX_KV_KINDS];
    uint32_t n_kinds;
    struct page_pool pools[MAX_KV_KINDS];
    atomic_bool cancel;
    size_t n_adapters;
    struct ranks *ranks;      // NULL: there are none
    struct remote *remote;    // the words of a run, where there are
    bool told;                // the other ranks have it too
    struct adapters adapters; // open until their weights are packed
    struct weights *adapter_weights;
    float *scales;                // [n_adapters], of new sessions
    uint64_t *adapter_prints;     // [n_adapters]: which files they are
    struct precision_rule *rules; // [n_rules]
    size_t n_rules;

    // Of one run, [n_batch] each.
    struct row *rows;
    uint32_t *selected;
    struct origin *origins; // of the selected rows
    float *rope_tables[MAX_ROPES];
    const uint32_t **pages; // [n_batch * MAX_KV_KINDS]
    float *adapter_scales;  // [n_batch * n_adapters]
};

// Which token of which input a selected row is.
struct origin {
    size_t input, index;
};

// model.c
enum status model_tokenizer(struct mote_model *model, const struct tokenizer **tokenizer, struct error *error);

enum { MAX_PRECISION_RULES = 64, MAX_ADAPTERS = 256 };

// engine_create.c: parameters with all defaults filled in.
struct engine_settings {
    size_t asked_threads; // 0: as many as there are
    size_t n_threads, n_context, n_batch, n_sessions, n_logits;
    enum kv_dtype kv;
    struct precision_rule rules[MAX_PRECISION_RULES];
    size_t n_rules;
    const char *isa;
    bool observe;
    bool range_off; // see struct engine_extras
    const mote_adapter *adapters;
    size_t n_adapters;
    struct mesh_split split; // of one device or more
    bool numa;               // these are NUMA nodes
    struct ranks *ranks;     // one device each; NULL: there are none
};
// precision.c
// The rules that mote_engine_params.precision says, into settings->rules. *all_f32: the last rule for all is f32.
enum status precision_parse(const char *text, struct engine_settings *settings, bool *all_f32, struct error *error);
// Each rule must be meant for some product of the graph.
enum status precision_check(const struct engine_settings *settings, const struct graph *graph, struct error *error);

enum status engine_settle(const struct mote_model *model, const mote_engine_params *params,
                          struct engine_settings *settings, struct error *error);
// Device, graph and a plan without weights: what describing and predicting need.
struct engine_draft {
    struct adapters adapters;
    struct device *device;
    struct model_graph graph;
    struct plan *plan;
    mote_memory memory;
    size_t n_pages[MAX_KV_KINDS];
};
enum status engine_draft_create(struct mote_model *model, const struct engine_settings *settings,
                                struct engine_draft *draft, struct error *error);
void engine_draft_free(struct engine_draft *draft);
// What only tests and benches ask for; mote.h and the program cannot.
struct engine_extras {
    bool range_off; // sources are rounded to F16 without a range scale, and overflow
};
// mote_engine_create with them; NULL: none.
enum status engine_create(mote_model *model, const mote_engine_params *params, const struct engine_extras *extras,
                          mote_engine **engine, struct error *error);
// With settings that are settled. params: for what an engine is made with and doesn't keep; NULL: none of that.
enum status engine_create_settled(mote_model *model, const struct engine_settings *settings,
                                  const mote_engine_params *params, mote_engine **engine, struct error *error);

// device.c: what a model runs on: this machine's cores, as one device or as a mesh.
enum status engine_device_create(const struct engine_settings *settings, const struct log *log, struct device **device,
                                 struct error *error);
size_t numa_nodes_available(void); // that have CPUs; at least 1

// Threads of one device: asked for, or this process's share of the host.
size_t engine_threads(size_t asked, const struct ranks *ranks);

// pages.c
// Pages of a kind that one session with a full context needs.
size_t pages_per_session(const struct kv_kind_layout *kind, size_t n_context, size_t n_batch);
enum status pages_create(struct page_pool *pool, size_t n_pages, struct error *error);
// Whether there are pages for all tokens of the inputs, so that a run does not stop half way. STATUS_FULL: no.
enum status pages_check(const struct mote_engine *engine, const mote_input *inputs, size_t n_inputs,
                        struct error *error);
// Gives the session pages up to (not including) position `end`.
enum status pages_extend(struct mote_session *session, size_t end, struct error *error);
// Gives back pages that no later position will see, and those of tokens that did not go through.
void pages_trim(struct mote_session *session);
void pages_release(struct mote_session *session);

// memory.c: bytes that this process could still get; 0: unknown.
uint64_t memory_available(void);

// Errors of the layers below have the public form: the same struct under another name.
static inline struct error *inner_error(mote_error *error)
{
    return (struct error *)(void *)error;
}

#endif
