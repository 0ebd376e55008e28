// What tells one model file from another without reading its weights: FNV-1a over all that lies before the data of each
// part, and the parts' sizes.
#include "base/file.h"
#include "gguf/gguf.h"

#include <stdlib.h>

enum {
    PIECE = 1 << 20,
    SAMPLES = 64,      // tensors of which a sample is taken, and
    SAMPLE_BYTES = 64, // of each: files may lie far away
};
static const uint64_t fnv_start = 0xcbf29ce484222325u;

static uint64_t add(uint64_t hash, const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t header_bytes(const struct gguf *gguf, uint32_t part)
{
    uint64_t bytes = gguf->parts[part].size;
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        const struct gguf_tensor *tensor = &gguf->tensors[i];
        if (tensor->part == part && tensor->size > 0 && tensor->offset < bytes)
            bytes = tensor->offset;
    }
    return bytes;
}

enum status gguf_fingerprint(const struct gguf *gguf, uint64_t *fingerprint, struct error *error)
{
    uint8_t *piece = malloc(PIECE);
    uint64_t hash = fnv_start;
    enum status status = piece == NULL ? error_memory(error, "the model's fingerprint") : STATUS_OK;
    for (uint32_t part = 0; part < gguf->n_parts && status == STATUS_OK; part++) {
        uint64_t size = gguf->parts[part].size, left = header_bytes(gguf, part);
        hash = add(hash, (const uint8_t *)&size, sizeof(size));
        for (uint64_t at = 0; left > 0 && status == STATUS_OK; at += PIECE) {
            size_t n = left < PIECE ? (size_t)left : PIECE;
            status = file_read(&gguf->parts[part], at, piece, n, error);
            if (status == STATUS_OK)
                hash = add(hash, piece, n);
            left -= n;
        }
    }
    free(piece);
    *fingerprint = hash;
    return status;
}

enum status gguf_sample_weights(const struct gguf *gguf, uint64_t *hash, struct error *error)
{
    size_t n = gguf->n_tensors < SAMPLES ? gguf->n_tensors : SAMPLES;
    enum status status = STATUS_OK;
    *hash = fnv_start;
    for (size_t i = 0; i < n && status == STATUS_OK; i++) {
        const struct gguf_tensor *tensor = &gguf->tensors[i * gguf->n_tensors / n];
        uint8_t bytes[SAMPLE_BYTES];
        size_t size = tensor->size < sizeof(bytes) ? (size_t)tensor->size : sizeof(bytes);
        // From the middle: tensors may begin with zeros.
        uint64_t at = tensor->offset + (tensor->size - size) / 2;
        status = file_read(&gguf->parts[tensor->part], at, bytes, size, error);
        if (status == STATUS_OK)
            *hash = add(*hash, bytes, size);
    }
    return status;
}
