// A device owns memory and runs plans: a group of CPU cores now, a mesh of devices or a GPU later. Nothing above this
// header knows which. The engine gives logical things (rows, page numbers); the device knows where they lie.
#ifndef MOTE_TENSOR_DEVICE_H
#define MOTE_TENSOR_DEVICE_H

#include "base/buffer.h"
#include "base/error.h"
#include "tensor/graph.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    KV_PAGE_POSITIONS = 64, // positions of a page, which is also the chunk in which attention sums
    MAX_KV_KINDS = 4,
    MAX_ROPES = 4,
};

enum kv_dtype {
    KV_DTYPE_F32,
    KV_DTYPE_F16,
    KV_DTYPE_Q8_0,
    KV_DTYPE_COUNT,
};

// Where the bytes of weights come from. Called by several threads at once.
struct weight_reader {
    enum status (*read)(void *user, const struct tensor *weight, uint64_t offset, void *bytes, size_t size,
                        struct error *error);
    // Called on the caller's thread; non-zero: stop. May be NULL.
    int (*progress)(void *user, uint64_t done, uint64_t total);
    void *user;
};

// Layers of the KV cache with the same window share a kind: their pages come and go together.
struct kv_kind_layout {
    uint32_t window;   // 0: all positions are kept
    size_t page_bytes; // one page of all layers of this kind
    uint32_t n_layers;
};

struct plan_params {
    size_t n_rows;   // capacity of a run
    size_t n_logits; // rows of logits held at once
    enum kv_dtype kv;
    const struct weights *adapter_weights; // as pack_adapters made them; NULL where the graph has no adapters
    bool range_off;              // sources are rounded to F16 as they are, and overflow: for tests and benches only
    struct transport *transport; // to the other devices of a mesh, of which this is number `rank`; NULL: it is alone
    uint32_t rank;
    bool observe; // counts what `observed` tells of; the bits of the logits are the same
};

struct plan_memory { // bytes
    size_t weights;  // packed
    size_t work;     // arena and scratch of all threads, without logits
    size_t logits;
};

// What the runs of a plan spent on meeting other devices.
struct plan_stats {
    uint64_t n_exchanges, exchange_bytes, exchange_ns; // bytes that came from others; ns include waiting for them
};

// A page of one layer of the KV cache, as bytes that no device can be told by: all heads of the model.
struct kv_page {
    uint32_t layer, page; // page: its id
    uint32_t n_positions; // that have tokens; when read, the others are zeros
};

// One token of a run.
struct row {
    int32_t token;
    uint32_t position;
    uint32_t session;  // which of run.pages
    uint32_t adapters; // which of run.adapter_scales
};

struct run {
    const struct row *rows;
    size_t n_rows;
    const uint32_t *selected; // rows whose logits are wanted, ascending
    size_t n_selected;
    const uint32_t *const *pages;  // [session * MAX_KV_KINDS + kind]: page ids by page number (position / 64)
    const float *ropes[MAX_ROPES]; // per rotation: [n_rows][n_rot], cosines then sines of each row
    // How much of each adapter a row takes: [row.adapters][n_adapters], 0: nothing. Rows with the same scales should
    // have the same number.
    const float *adapter_scales;
    size_t n_adapters;
    atomic_bool *cancel;                                                // checked between steps; may be NULL
    int (*on_logits)(void *user, size_t selected, const float *logits); // on the caller's thread; non-zero: stop
    void *user;
};

// What the runs of a plan that observes saw.
enum observed {
    OBSERVED_SOURCE, // the source of products with a weight; a row is a token, or a (token, expert) behind the experts
    OBSERVED_KEYS,   // what is stored in the KV cache; a row is one head of a token
    OBSERVED_VALUES,
    OBSERVED_ROUTE, // which experts were chosen
};

struct observation {
    enum observed what;
    const struct tensor *weight; // SOURCE
    uint32_t layer;              // KEYS, VALUES: of the KV cache; ROUTE: of the model
    uint64_t n_rows;
    uint64_t n_over;       // rows whose largest magnitude rounds to infinity in F16 (65520 and more)
    uint64_t n_not_finite; // rows that hold NaN or infinity
    float largest;         // finite magnitude
    uint32_t exponent;     // of the power of two by which `largest` must be divided to fit in F16; 0: it fits
    uint32_t n_expert;     // ROUTE
    const uint64_t *picks; // ROUTE: [n_expert] how often each was chosen; valid during the call
};
typedef void (*observation_fn)(void *user, const struct observation *observation);

struct device;
struct weights; // a model's weights as this device packed them
struct plan;

struct device_ops {
    const char *name;
    void (*destroy)(struct device *device);
    // Reads and packs all weights of a graph.
    enum status (*pack)(struct device *device, const struct graph *graph, const struct weight_reader *reader,
                        struct weights **weights, struct error *error);
    // The same for the weights of its adapters.
    enum status (*pack_adapters)(struct device *device, const struct graph *graph, const struct weight_reader *reader,
                                 struct weights **weights, struct error *error);
    void (*free_weights)(struct weights *weights);
    // Makes a plan. weights NULL: a plan that can be described but not run. The graph must outlive it.
    enum status (*plan)(struct device *device, const struct graph *graph, const struct weights *weights,
                        const struct plan_params *params, struct plan **plan, struct error *error);
    void (*free_plan)(struct plan *plan);
    void (*plan_memory)(const struct plan *plan, struct plan_memory *memory);
    // Kinds of KV layers and their page sizes; returns how many kinds.
    uint32_t (*kv_kinds)(const struct plan *plan, struct kv_kind_layout kinds[MAX_KV_KINDS]);
    // Gives the plan the memory of its pages: n_pages[kind] pages of each kind.
    enum status (*kv_allocate)(struct plan *plan, const size_t *n_pages, struct error *error);
    size_t (*kv_head_bytes)(const struct plan *plan, uint32_t layer);  // of one head of a page
    size_t (*kv_layer_bytes)(const struct plan *plan, uint32_t layer); // of a page, all heads of the model
    // Reads a page into bytes, or writes it from them.
    enum status (*kv_copy)(struct plan *plan, const struct kv_page *page, void *bytes, bool write, struct error *error);
    enum status (*run)(struct plan *plan, const struct run *run, struct error *error);
    // Gives what all runs so far saw, in the order of the plan's steps, then KV layers, then routes. False: the plan
    // does not observe.
    bool (*observed)(const struct plan *plan, observation_fn give, void *user);
    // Of all runs so far; of a mesh, of its first device.
    void (*stats)(const struct plan *plan, struct plan_stats *stats);
    // Of a mesh: placements, collectives and devices, as a JSON object. NULL: it is none.
    bool (*describe_mesh)(const struct plan *plan, struct buffer *json);
    // The steps as a JSON array; of a mesh, its first device's.
    bool (*describe)(const struct plan *plan, struct buffer *json);
};

struct device {
    const struct device_ops *ops;
    const char *isa; // the instruction set of its kernels
};

#endif
