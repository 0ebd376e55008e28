// Reading and packing weights, of a model or of its adapters: once, by all threads, a few panels at a time.
#include "cpu/device.h"

#include "base/checked.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { READ_BYTES = 1 << 20 }; // of the file at a time, a thread

// The segments that a weight has of the sum over all columns; unit: see segments_of_product. Written in the format's
// own grains, whosever they are.
static void cut_segments(struct packed *packed, const struct tensor *tensor, uint32_t unit)
{
    struct segments whole;
    size_t first, columns = tensor->columns_in_file != 0 ? tensor->columns_in_file : tensor->ne[0];
    enum dtype dtype = tensor->segments_of != NULL ? tensor->segments_of->dtype : tensor->dtype;
    segments_of_product(&whole, dtype, columns, unit);
    segments_part(&whole, tensor->leaves.n != 0 ? tensor->leaves : leaves_all(whole.n), &packed->segments, &first);
    uint32_t grains = packed->segments.grain / packed->format->grain;
    for (uint32_t s = 0; s <= MAX_SEGMENTS; s++)
        packed->segments.border[s] *= grains;
    packed->segments.grain = packed->format->grain;
}

static enum status describe_matrix(const struct tensor *tensor, struct packed *packed, struct error *error)
{
    const struct packed_format *format = packed_format_of(tensor->dtype);
    if (format == NULL)
        return error_set(
            error, STATUS_UNSUPPORTED,
            "tensor '%s' is %s, which mote cannot compute with yet (it can with f32, f16, bf16, q8_0, q4_0, "
            "q4_1, q5_0, q5_1, q2_k … q6_k, mxfp4)",
            tensor->name, dtype_get(tensor->dtype)->name);
    size_t super_units = format->super_units == 0 ? 1 : format->super_units;
    packed_describe(packed, format, tensor->ne[1], tensor->ne[0], tensor->first_column / format->unit % super_units);
    cut_segments(packed, tensor, tensor->segment_unit);
    return STATUS_OK;
}

// What all matrices or vectors of a weight take: a multiple of 64 bytes.
static size_t weight_bytes(const struct cpu_weight *item)
{
    return item->n * item->bytes;
}

// Which weights: a model's, or its adapters'.
struct weight_list {
    struct tensor *const *tensors;
    size_t n;
    const struct graph *graph; // of a model's: says what they are for; NULL: all are matrices
};

static struct weight_list model_weights(const struct graph *graph)
{
    return (struct weight_list){.tensors = graph->weights, .n = graph->n_weights, .graph = graph};
}

static struct weight_list adapter_weights(const struct graph *graph)
{
    return (struct weight_list){.tensors = graph->adapter_weights, .n = graph->n_adapter_weights};
}

// A bias an expert is a table of vectors, not a matrix, whatever its dtype.
static bool is_bias_table(const struct graph *graph, const struct tensor *tensor)
{
    for (size_t i = 0; i < graph->n_nodes; i++) {
        const struct node *node = graph->nodes[i];
        if ((node->op == OP_ADD_ID || node->op == OP_ADD_ID_SUM) && node->sources[1] == tensor)
            return true;
    }
    return false;
}

static enum status describe_weight(const struct graph *graph, const struct tensor *tensor, struct cpu_weight *item,
                                   struct error *error)
{
    bool vectors = tensor->n_dims == 1 || (graph != NULL && is_bias_table(graph, tensor));
    enum status status = vectors ? STATUS_OK : describe_matrix(tensor, &item->packed, error);
    item->n = vectors ? tensor->ne[1] : tensor->ne[2];
    item->bytes =
        vectors ? round_up(tensor->ne[0], 16) * sizeof(float) : item->packed.n_panels * item->packed.panel_bytes;
    return status;
}

static enum status describe_all(const struct weight_list *list, struct weights *weights, struct error *error)
{
    weights->items = calloc(list->n + 1, sizeof(*weights->items));
    if (weights->items == NULL)
        return error_memory(error, "the weights");
    weights->n_items = list->n;
    for (size_t i = 0; i < list->n; i++) {
        struct cpu_weight *item = &weights->items[i];
        enum status status = describe_weight(list->graph, list->tensors[i], item, error);
        if (status != STATUS_OK)
            return status;
        weights->bytes += weight_bytes(item);
    }
    for (size_t n = 0; list->graph != NULL && n < list->graph->n_nodes; n++) {
        const struct node *node = list->graph->nodes[n];
        const struct tensor *tensor = node->sources[0];
        if (node->op == OP_MATMUL && node->attributes.segment_unit != 0)
            cut_segments(&weights->items[tensor->index].packed, tensor, node->attributes.segment_unit);
    }
    return STATUS_OK;
}

enum status cpu_weights_describe(const struct graph *graph, struct weights *weights, struct error *error)
{
    struct weight_list list = model_weights(graph);
    return describe_all(&list, weights, error);
}

enum status cpu_adapters_describe(const struct graph *graph, struct weights *weights, struct error *error)
{
    struct weight_list list = adapter_weights(graph);
    return describe_all(&list, weights, error);
}

void cpu_weights_free(struct weights *weights)
{
    if (weights == NULL)
        return;
    free(weights->memory);
    free(weights->items);
    free(weights);
}

static size_t mebibytes(size_t bytes)
{
    return (bytes >> 20) + (bytes % (1 << 20) != 0);
}

static enum status out_of_memory(const struct weight_list *list, const struct weights *weights, struct error *error)
{
    size_t largest = 0;
    for (size_t i = 1; i < list->n; i++)
        if (weight_bytes(&weights->items[i]) > weight_bytes(&weights->items[largest]))
            largest = i;
    return error_set(error, STATUS_MEMORY,
                     "out of memory: %s take %zu MiB on this device, of which '%s' is the most (%zu MiB); give it a "
                     "smaller share (--devices, --split), or use a smaller model",
                     list->graph == NULL ? "the adapters' weights" : "the weights", mebibytes(weights->bytes),
                     list->n == 0 ? "" : list->tensors[largest]->name,
                     mebibytes(weight_bytes(&weights->items[largest])));
}

// All weights lie in one piece of memory, so that small ones are on huge pages too.
static enum status allocate(const struct weight_list *list, struct weights *weights, struct error *error)
{
    weights->memory = cpu_allocate(weights->bytes);
    if (weights->memory == NULL)
        return out_of_memory(list, weights, error);
    uint8_t *at = weights->memory;
    for (size_t i = 0; i < weights->n_items; i++) {
        struct cpu_weight *item = &weights->items[i];
        if (item->packed.format == NULL)
            item->vector = (float *)(void *)at;
        else
            item->packed.data = at;
        at += weight_bytes(item);
    }
    return STATUS_OK;
}

struct packing {
    const struct weight_list *list;
    const struct weight_reader *reader;
    struct weights *weights;
    uint64_t total; // bytes of the file
    _Atomic uint64_t done;
    atomic_bool stop;
    struct error *errors; // one a thread
};

static size_t elements_bytes(const struct tensor *tensor, size_t n)
{
    const struct dtype_desc *dtype = dtype_get(tensor->dtype);
    return n / dtype->block * dtype->bytes;
}

// Of a row in the file, and of the blocks that hold a weight's columns of it.
static size_t whole_row_bytes(const struct tensor *tensor)
{
    return elements_bytes(tensor, tensor->columns_in_file != 0 ? tensor->columns_in_file : tensor->ne[0]);
}

static size_t file_row_begin(const struct tensor *tensor)
{
    return elements_bytes(tensor, tensor->first_column);
}

static size_t file_row_bytes(const struct tensor *tensor)
{
    size_t block = dtype_get(tensor->dtype)->block, end = tensor->first_column + tensor->ne[0];
    return elements_bytes(tensor, (end + block - 1) / block * block) - file_row_begin(tensor);
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

// n elements that lie `skip` behind the begin of whole blocks.
static void decode_part(const struct dtype_desc *dtype, const uint8_t *bytes, size_t skip, size_t n, float *vector)
{
    enum { CHUNK = 256 }; // whole blocks of every dtype
    float values[CHUNK];
    for (size_t begin = 0; begin < skip + n; begin += CHUNK) {
        size_t width = skip + n - begin < CHUNK ? skip + n - begin : CHUNK;
        dtype->decode(bytes + begin / dtype->block * dtype->bytes, values, round_up(width, dtype->block));
        for (size_t i = begin < skip ? skip - begin : 0; i < width; i++)
            vector[begin + i - skip] = values[i];
    }
}

// All vectors of a weight: they are few and short.
static enum status pack_vectors(struct packing *packing, size_t i, uint8_t *bytes, struct error *error)
{
    const struct tensor *tensor = packing->list->tensors[i];
    const struct dtype_desc *dtype = dtype_get(tensor->dtype);
    const struct cpu_weight *item = &packing->weights->items[i];
    size_t size = file_row_bytes(tensor);
    if (dtype->decode == NULL)
        return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' is %s, which mote cannot read yet", tensor->name,
                         dtype->name);
    for (size_t v = 0; v < item->n; v++) {
        float *vector = item->vector + v * (item->bytes / sizeof(float));
        size_t offset = (tensor->first_row + v) * whole_row_bytes(tensor) + file_row_begin(tensor);
        enum status status = packing->reader->read(packing->reader->user, tensor, offset, bytes, size, error);
        if (status != STATUS_OK)
            return status;
        decode_part(dtype, bytes, tensor->first_column % dtype->block, tensor->ne[0], vector);
        for (size_t j = tensor->ne[0]; j < round_up(tensor->ne[0], 16); j++)
            vector[j] = 0.0f;
    }
    return STATUS_OK;
}

// Panels of one matrix that are read at a time.
static size_t panels_at_once(const struct tensor *tensor)
{
    size_t panels = READ_BYTES / (file_row_bytes(tensor) * PANEL_ROWS);
    return panels == 0 ? 1 : panels;
}

// Panels of one matrix of a weight.
struct piece {
    size_t weight, matrix, first, n;
};

static enum status pack_panels(struct packing *packing, const struct piece *piece, uint8_t *bytes, struct error *error)
{
    const struct tensor *tensor = packing->list->tensors[piece->weight];
    struct packed packed = cpu_weight_matrix(&packing->weights->items[piece->weight], piece->matrix);
    size_t row_bytes = file_row_bytes(tensor), begin = piece->first * PANEL_ROWS, end = begin + piece->n * PANEL_ROWS;
    if (end > packed.n_rows)
        end = packed.n_rows;
    size_t file_row = (tensor->first_matrix + piece->matrix) * tensor->rows_in_file + tensor->first_row + begin;
    size_t whole_bytes = whole_row_bytes(tensor);
    enum status status = STATUS_OK;
    if (whole_bytes == row_bytes)
        status = packing->reader->read(packing->reader->user, tensor, file_row * row_bytes, bytes,
                                       (end - begin) * row_bytes, error);
    for (size_t row = begin; row < end && whole_bytes != row_bytes && status == STATUS_OK; row++)
        status = packing->reader->read(packing->reader->user, tensor,
                                       (file_row + row - begin) * whole_bytes + file_row_begin(tensor),
                                       bytes + (row - begin) * row_bytes, row_bytes, error);
    if (status != STATUS_OK)
        return status;
    for (size_t row = begin; row < end; row += PANEL_ROWS) {
        size_t rows = end - row < PANEL_ROWS ? end - row : PANEL_ROWS;
        packed_pack_panel(&packed, row / PANEL_ROWS, bytes + (row - begin) * row_bytes, row_bytes, rows);
    }
    return STATUS_OK;
}

// One piece of a weight, and what of the file it was.
static enum status pack_piece(struct packing *packing, const struct piece *piece, uint8_t *bytes, size_t *done,
                              struct error *error)
{
    const struct cpu_weight *item = &packing->weights->items[piece->weight];
    size_t row_bytes = file_row_bytes(packing->list->tensors[piece->weight]);
    if (item->packed.format == NULL) {
        *done = row_bytes * item->n;
        return pack_vectors(packing, piece->weight, bytes, error);
    }
    size_t rows = piece->n * PANEL_ROWS, left = item->packed.n_rows - piece->first * PANEL_ROWS;
    *done = (rows < left ? rows : left) * row_bytes;
    return pack_panels(packing, piece, bytes, error);
}

// The piece behind this one, in order of weights, matrices and panels; false: there is none.
static bool next_piece(const struct packing *packing, struct piece *piece)
{
    const struct weights *weights = packing->weights;
    piece->first += piece->n;
    while (piece->weight < weights->n_items) {
        const struct cpu_weight *item = &weights->items[piece->weight];
        bool vectors = item->packed.format == NULL;
        size_t n_matrices = vectors ? 1 : item->n, n_panels = vectors ? 1 : item->packed.n_panels;
        if (piece->first >= n_panels) {
            piece->first = 0;
            piece->matrix++;
        }
        if (piece->matrix < n_matrices) {
            size_t at_once = vectors ? 1 : panels_at_once(packing->list->tensors[piece->weight]);
            piece->n = n_panels - piece->first < at_once ? n_panels - piece->first : at_once;
            return true;
        }
        piece->weight++;
        piece->matrix = piece->first = 0;
    }
    return false;
}

// Each thread takes every n_threads-th piece.
static enum status pack_share(struct packing *packing, size_t index, size_t n_threads, uint8_t *bytes,
                              struct error *error)
{
    struct piece piece = {0};
    for (size_t number = 0; next_piece(packing, &piece); number++) {
        if (number % n_threads != index)
            continue;
        if (atomic_load(&packing->stop))
            return STATUS_OK;
        size_t done = 0;
        enum status status = pack_piece(packing, &piece, bytes, &done, error);
        if (status != STATUS_OK)
            return status;
        advance(packing, index, done);
    }
    return STATUS_OK;
}

static void pack_thread(void *user, size_t index, size_t n_threads)
{
    struct packing *packing = user;
    struct error *error = &packing->errors[index];
    size_t size = READ_BYTES;
    for (size_t i = 0; i < packing->weights->n_items; i++) {
        const struct tensor *tensor = packing->list->tensors[i];
        size_t needed = file_row_bytes(tensor) * PANEL_ROWS;
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

static enum status pack_all(struct device *device, const struct weight_list *list, const struct weight_reader *reader,
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
    struct packing packing = {.list = list, .reader = reader, .weights = weights, .errors = errors};
    for (size_t i = 0; i < list->n; i++) {
        const struct tensor *tensor = list->tensors[i];
        packing.total += file_row_bytes(tensor) * tensor->ne[1] * tensor->ne[2];
    }
    enum status status = describe_all(list, weights, error);
    if (status == STATUS_OK)
        status = allocate(list, weights, error);
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

enum status cpu_weights_pack(struct device *device, const struct graph *graph, const struct weight_reader *reader,
                             struct weights **result, struct error *error)
{
    struct weight_list list = model_weights(graph);
    return pack_all(device, &list, reader, result, error);
}

enum status cpu_adapters_pack(struct device *device, const struct graph *graph, const struct weight_reader *reader,
                              struct weights **result, struct error *error)
{
    struct weight_list list = adapter_weights(graph);
    return pack_all(device, &list, reader, result, error);
}
