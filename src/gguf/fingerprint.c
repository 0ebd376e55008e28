// What tells one model file from another without reading its weights: FNV-1a over all that lies before the data of each
// part, and the parts' sizes.
#include "base/file.h"
#include "gguf/gguf.h"

#include <stdlib.h>

enum { PIECE = 1 << 20 };

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
    uint64_t hash = 0xcbf29ce484222325u;
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
