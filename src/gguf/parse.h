// Parsing one GGUF file: header, metadata and tensor table, all checked. Opening files and joining the parts of a
// split one is gguf_read.c.
#ifndef MOTE_GGUF_PARSE_H
#define MOTE_GGUF_PARSE_H

#include "base/arena.h"
#include "gguf/cursor.h"
#include "gguf/gguf.h"

// What one file holds; values and tensors live in the arena, value_index in memory of its own.
struct gguf_part {
    uint32_t version;
    uint32_t alignment;
    struct gguf_value *values;
    size_t n_values;
    struct map value_index;
    struct gguf_tensor *tensors; // part is left 0
    size_t n_tensors;
};

// The smallest and the most that the format allows; what the writer keeps to and the reader checks.
enum {
    GGUF_DEFAULT_ALIGNMENT = 32,
    GGUF_LEAST_ALIGNMENT = 8,
    GGUF_LONGEST_KEY = 65535,
    GGUF_LONGEST_TENSOR_NAME = 64,
    GGUF_MOST_DIMS = 4,
    GGUF_DEEPEST_ARRAY = 4,      // arrays of arrays, counted with the outermost
    GGUF_MOST_ENTRIES = 1 << 20, // keys, or tensors, of a file: far more than any model has
};

// Frees nothing on failure: gguf_part_free does, and may be called on a part of zeros.
enum status gguf_parse_part(struct cursor *cursor, struct arena *arena, struct gguf_part *part, struct error *error);
void gguf_part_free(struct gguf_part *part);

// The metadata of a part (parse_values.c): reads n key-value pairs.
enum status gguf_parse_values(struct cursor *cursor, struct arena *arena, uint64_t n, struct gguf_part *part,
                              struct error *error);

// Zeros for count elements of size bytes. Sets *pieces, or fails in words that tell a file that asks for too much (the
// arena's limit) from a machine that has too little.
enum status gguf_allocate(struct arena *arena, uint64_t count, size_t size, void **pieces, struct error *error);

// Bytes of an element of a fixed size; 0 for strings and arrays.
size_t gguf_type_size(enum gguf_type type);

// Fills error with what the file is, given that it does not begin as a GGUF file does (identify.c).
// head: its first bytes, head_size of them (all, where the file is shorter than 512).
enum status gguf_identify(const unsigned char *head, size_t head_size, uint64_t file_size, struct error *error);

// Parses a file of one part that lies in memory. Its tensors' data cannot be read.
enum status gguf_open_memory(const void *bytes, size_t size, struct gguf **gguf, struct error *error);

#endif
