// Reading a weight out of the file that its graph was built from: as it lies there, or, where the model wants rows that
// are the file's columns, turned and decoded to F32, or, where the file has a tensor an expert, from one after the
// other. A few hundred bytes at a time: nothing is allocated.
#include "model/model.h"

#include "base/checked.h"

#include <stdio.h>
#include <string.h>

enum { CHUNK = 256 }; // elements; whole blocks of every dtype

// Where a range of rows of a turned matrix lies: rows [first, first + n) of it are these columns of the file's rows.
struct turned {
    const struct gguf *gguf;
    const struct gguf_tensor *tensor;
    const struct dtype_desc *dtype;
    size_t file_row; // the first of the file's rows
    size_t n_rows;   // of them: elements of a turned row
    size_t first, n;
    float *out; // [n][n_rows]
};

// One chunk of columns of the file's row i: the blocks that hold what is wanted, from `column` on.
static enum status read_chunk(const struct turned *t, size_t i, size_t column, struct error *error)
{
    _Alignas(64) uint8_t bytes[CHUNK * sizeof(float)];
    float values[CHUNK];
    size_t left = round_up(t->first + t->n, t->dtype->block) - column, width = left < CHUNK ? left : CHUNK;
    size_t row_bytes = (size_t)t->tensor->ne[0] / t->dtype->block * t->dtype->bytes;
    uint64_t offset = (uint64_t)(t->file_row + i) * row_bytes + column / t->dtype->block * t->dtype->bytes;
    enum status status =
        gguf_read_tensor(t->gguf, t->tensor, offset, bytes, width / t->dtype->block * t->dtype->bytes, error);
    if (status != STATUS_OK)
        return status;
    t->dtype->decode(bytes, values, width);
    for (size_t j = 0; j < width; j++)
        if (column + j >= t->first && column + j < t->first + t->n)
            t->out[(column + j - t->first) * t->n_rows + i] = values[j];
    return STATUS_OK;
}

// offset and size count in the turned weight: whole F32 rows of one of its matrices, or a part of one row.
static enum status read_turned(const struct gguf *gguf, const struct tensor *weight, const struct gguf_tensor *tensor,
                               uint64_t offset, void *bytes, size_t size, struct error *error)
{
    size_t columns = weight->columns_in_file != 0 ? weight->columns_in_file : weight->ne[0];
    size_t row_bytes = columns * sizeof(float), row = (size_t)(offset / row_bytes);
    size_t begin = (size_t)(offset % row_bytes) / sizeof(float);
    struct turned t = {.gguf = gguf,
                       .tensor = tensor,
                       .dtype = dtype_get(tensor->dtype),
                       .file_row = row / weight->rows_in_file * weight->turned_rows + begin,
                       .n_rows = size < row_bytes ? size / sizeof(float) : columns,
                       .first = row % weight->rows_in_file,
                       .n = size < row_bytes ? 1 : size / row_bytes,
                       .out = bytes};
    if (t.dtype->decode == NULL || t.dtype->bytes * (CHUNK / t.dtype->block) > CHUNK * sizeof(float))
        return error_set(error, STATUS_UNSUPPORTED, "tensor '%s' is %s, which mote cannot turn", weight->name,
                         t.dtype->name);
    for (size_t i = 0; i < t.n_rows; i++) {
        size_t column = t.first / t.dtype->block * t.dtype->block;
        for (; column < t.first + t.n; column += CHUNK) {
            enum status status = read_chunk(&t, i, column, error);
            if (status != STATUS_OK)
                return status;
        }
    }
    return STATUS_OK;
}

bool model_piece_name(const char *stack, size_t index, char *name, size_t size)
{
    static const char suffix[] = "_exps.weight";
    size_t length = strlen(stack), end = sizeof(suffix) - 1;
    if (length <= end || strcmp(stack + length - end, suffix) != 0)
        return false;
    int written = snprintf(name, size, "%.*s.%zu.weight", (int)(length - end), stack, index);
    return written > 0 && (size_t)written < size;
}

static enum status read_pieces(const struct gguf *gguf, const struct tensor *weight, uint64_t offset, uint8_t *bytes,
                               size_t size, struct error *error)
{
    const struct dtype_desc *dtype = dtype_get(weight->dtype);
    size_t columns = weight->columns_in_file != 0 ? weight->columns_in_file : weight->ne[0];
    size_t piece_bytes = columns / dtype->block * dtype->bytes * weight->rows_in_file;
    while (size > 0) {
        char name[MAX_NAME];
        size_t begin = (size_t)(offset % piece_bytes), n = piece_bytes - begin < size ? piece_bytes - begin : size;
        const struct gguf_tensor *piece = NULL;
        if (model_piece_name(weight->name, (size_t)(offset / piece_bytes), name, sizeof(name)))
            piece = gguf_find_tensor(gguf, name);
        if (piece == NULL)
            return error_set(error, STATUS_INVALID, "tensor '%s' is missing", weight->name);
        enum status status = gguf_read_tensor(gguf, piece, begin, bytes, n, error);
        if (status != STATUS_OK)
            return status;
        offset += n;
        bytes += n;
        size -= n;
    }
    return STATUS_OK;
}

enum status model_read_weight(const struct gguf *gguf, const struct tensor *weight, uint64_t offset, void *bytes,
                              size_t size, struct error *error)
{
    const struct gguf_tensor *tensor = gguf_find_tensor(gguf, weight->name);
    if (tensor == NULL)
        return read_pieces(gguf, weight, offset, bytes, size, error);
    if (weight->turned_rows != 0)
        return read_turned(gguf, weight, tensor, offset, bytes, size, error);
    return gguf_read_tensor(gguf, tensor, offset, bytes, size, error);
}
