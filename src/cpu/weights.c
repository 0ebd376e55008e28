// Reading and packing a model's weights: once, by all threads, a few panels at a time.
#include "cpu/device.h"

#include "base/checked.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { READ_BYTES = 1 << 20 }; // of the file at a time, a thread

static enum status describe_matrix(const struct tensor *tensor, struct packed *packed, struct error *error)
{
    const struct packed_format *format = packed_format_of(tensor->dtype);
    if (format == NULL)
        return error_set(
            error, STATUS_UNSUPPORTED,
            "tensor '%s' is %s, which mote cannot compute with yet (it can with f32, f16, bf16, q8_0, q4_0, "
            "q4_1, q5_0, q5_1, q2_k … q6_k)",
            tensor->name, dtype_get(tensor->dtype)->name);
    packed_describe(packed, format, tensor->ne[1], tensor->ne[0], 0);
    return STATUS_OK;
}

// The attention output is cut between heads: segments are counted in the fewest whole heads that make a multiple of the
// grain, and then written in grains.
static void cut_between_heads(struct packed *packed, uint32_t head)
{
    uint32_t grain = packed->format->grain, unit = head;
    while (unit % grain != 0)
        unit += head;
    segments_make(&packed->segments, packed->k, unit);
    uint32_t n_grains = (uint32_t)((packed->k + grain - 1) / grain);
    for (uint32_t s = 0; s <= MAX_SEGMENTS; s++) {
        uint32_t border = packed->segments.border[s] * (unit / grain);
        packed->segments.border[s] = border < n_grains ? border : n_grains;
    }
    packed->segments.grain = grain;
}

// What a weight takes: a multiple of 64 bytes.
static size_t weight_bytes(const struct tensor *tensor, const struct cpu_weight *item)
{
    if (item->packed.format == NULL)
        return round_up(tensor->ne[0], 16) * sizeof(float);
    return item->packed.n_panels * item->packed.panel_bytes;
}

enum status cpu_weights_describe(const struct graph *graph, struct weights *weights, struct error *error)
{
    weights->items = calloc(graph->n_weights + 1, sizeof(*weights->items));
    if (weights->items == NULL)
        return error_memory(error, "the weights");
    weights->n_items = graph->n_weights;
    for (size_t i = 0; i < graph->n_weights; i++) {
        const struct tensor *tensor = graph->weights[i];
        struct cpu_weight *item = &weights->items[i];
        enum status status = tensor->n_dims == 1 ? STATUS_OK : describe_matrix(tensor, &item->packed, error);
        if (status != STATUS_OK)
            return status;
        weights->bytes += weight_bytes(tensor, item);
    }
    for (size_t n = 0; n < graph->n_nodes; n++) {
        const struct node *node = graph->nodes[n];
        if (node->op == OP_MATMUL && node->attributes.segment_unit != 0)
            cut_between_heads(&weights->items[node->sources[0]->index].packed, node->attributes.segment_unit);
    }
    return STATUS_OK;
}

void cpu_weights_free(struct weights *weights)
{
    if (weights == NULL)
        return;
    free(weights->memory);
    free(weights->items);
    free(weights);
}

// All weights lie in one piece of memory, so that small ones are on huge pages too.
static enum status allocate(const struct graph *graph, struct weights *weights, struct error *error)
{
    weights->memory = cpu_allocate(weights->bytes);
    if (weights->memory == NULL)
        return error_set(error, STATUS_MEMORY, "out of memory: the weights take %zu MiB", weights->bytes >> 20);
    uint8_t *at = weights->memory;
    for (size_t i = 0; i < weights->n_items; i++) {
        struct cpu_weight *item = &weights->items[i];
        if (item->packed.format == NULL)
            item->vector = (float *)(void *)at;
        else
            item->packed.data = at;
        at += weight_bytes(graph->weights[i], item);
    }
    return STATUS_OK;
}

struct packing {
    const struct graph *graph;
    const struct weight_reader *reader;
    struct weights *weights;
    uint64_t total; // bytes of the file
    _Atomic uint64_t done;
    atomic_bool stop;
    struct error *errors; // one a thread
};

static size_t file_row_bytes(const struct tensor *tensor)
{
    const struct dtype_desc *dtype = dtype_get(tensor->dtype);
    return tensor->ne[0] / dtype->block * dtype->bytes;
}

// After each piece; thread 0 is the caller's, so it reports.
static void advance(struct packing *packing, size_t index, size_t bytes)
{
    uint64_t done = atomic_fetch_add(&packing->done, bytes) + bytes;
    const struct weight_reader *reader = packing->reader;
    if (index == 0 && reader->progress != NULL && reader->progress(reader->user, done, packing->total) != 0) {
        error_set(&packing->errors[0], STATUS_CANCELLED, "loading was stopped");
        atomic_store(&packing->stop, true);
    }
}

static enum status pack_vector(struct packing *packing, size_t i, uint8_t *bytes, struct error *error)
{
    const struct tensor *tensor = packing->graph->weights[i];
    const struct dtype_desc *dtype = dtype_get(tensor->dtype);
    float *vector = packing->weights->items[i].vector;
    size_t size = file_row_bytes(tensor);
    if (dtype->decode == NULL)
        return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' is %s, which mote cannot read yet", tensor->name,
                         dtype->name);
    enum status status = packing->reader->read(packing->reader->user, tensor, 0, bytes, size, error);
    if (status != STATUS_OK)
        return status;
    dtype->decode(bytes, vector, tensor->ne[0]);
    for (size_t j = tensor->ne[0]; j < round_up(tensor->ne[0], 16); j++)
        vector[j] = 0.0f;
    return STATUS_OK;
}

// Panels of one weight that are read at a time.
static size_t panels_at_once(const struct tensor *tensor)
{
    size_t panels = READ_BYTES / (file_row_bytes(tensor) * PANEL_ROWS);
    return panels == 0 ? 1 : panels;
}

static enum status pack_panels(struct packing *packing, size_t i, size_t first, size_t n, uint8_t *bytes,
                               struct error *error)
{
    const struct tensor *tensor = packing->graph->weights[i];
    const struct packed *packed = &packing->weights->items[i].packed;
    size_t row_bytes = file_row_bytes(tensor), begin = first * PANEL_ROWS, end = begin + n * PANEL_ROWS;
    if (end > packed->n_rows)
        end = packed->n_rows;
    enum status status = packing->reader->read(packing->reader->user, tensor, begin * row_bytes, bytes,
                                               (end - begin) * row_bytes, error);
    if (status != STATUS_OK)
        return status;
    for (size_t row = begin; row < end; row += PANEL_ROWS) {
        size_t rows = end - row < PANEL_ROWS ? end - row : PANEL_ROWS;
        packed_pack_panel(packed, row / PANEL_ROWS, bytes + (row - begin) * row_bytes, row_bytes, rows);
    }
    return STATUS_OK;
}

static enum status pack_share(struct packing *packing, size_t index, size_t n_threads, uint8_t *bytes,
                              struct error *error)
{
    size_t piece = 0; // pieces of all weights in order; each thread takes every n_threads-th
    for (size_t i = 0; i < packing->weights->n_items; i++) {
        const struct tensor *tensor = packing->graph->weights[i];
        const struct packed *packed = &packing->weights->items[i].packed;
        size_t n_panels = packed->format == NULL ? 1 : packed->n_panels;
        size_t at_once = packed->format == NULL ? 1 : panels_at_once(tensor);
        for (size_t first = 0; first < n_panels; first += at_once, piece++) {
            if (piece % n_threads != index)
                continue;
            if (atomic_load(&packing->stop))
                return STATUS_OK;
            size_t n = n_panels - first < at_once ? n_panels - first : at_once;
            enum status status = packed->format == NULL ? pack_vector(packing, i, bytes, error)
                                                        : pack_panels(packing, i, first, n, bytes, error);
            if (status != STATUS_OK)
                return status;
            advance(packing, index,
                    packed->format == NULL ? file_row_bytes(tensor) : n * PANEL_ROWS * file_row_bytes(tensor));
        }
    }
    return STATUS_OK;
}

static void pack_thread(void *user, size_t index, size_t n_threads)
{
    struct packing *packing = user;
    struct error *error = &packing->errors[index];
    size_t size = READ_BYTES;
    for (size_t i = 0; i < packing->weights->n_items; i++) {
        const struct tensor *tensor = packing->graph->weights[i];
        size_t needed = file_row_bytes(tensor) * (tensor->n_dims == 1 ? 1 : PANEL_ROWS);
        size = needed > size ? needed : size;
    }
    uint8_t *bytes = malloc(size);
    if (bytes == NULL)
        error_memory(error, "reading the weights");
    else
        pack_share(packing, index, n_threads, bytes, error);
    if (error->status != STATUS_OK)
        atomic_store(&packing->stop, true);
    free(bytes);
}

enum status cpu_weights_pack(struct device *device, const struct graph *graph, const struct weight_reader *reader,
                             struct weights **result, struct error *error)
{
    struct cpu_device *cpu = (struct cpu_device *)device;
    struct weights *weights = calloc(1, sizeof(*weights));
    struct error *errors = calloc(cpu->n_threads, sizeof(*errors));
    if (weights == NULL || errors == NULL) {
        free(weights);
        free(errors);
        return error_memory(error, "the weights");
    }
    struct packing packing = {.graph = graph, .reader = reader, .weights = weights, .errors = errors};
    for (size_t i = 0; i < graph->n_weights; i++)
        packing.total += file_row_bytes(graph->weights[i]) * graph->weights[i]->ne[1];
    enum status status = cpu_weights_describe(graph, weights, error);
    if (status == STATUS_OK)
        status = allocate(graph, weights, error);
    if (status == STATUS_OK) {
        pool_run(cpu->pool, pack_thread, &packing);
        for (size_t i = 0; i < cpu->n_threads && status == STATUS_OK; i++) {
            status = errors[i].status;
            if (status != STATUS_OK && error != NULL)
                *error = errors[i];
        }
    }
    if (status == STATUS_OK && reader->progress != NULL)
        reader->progress(reader->user, packing.total, packing.total);
    free(errors);
    if (status != STATUS_OK) {
        cpu_weights_free(weights);
        return status;
    }
    *result = weights;
    return STATUS_OK;
}
