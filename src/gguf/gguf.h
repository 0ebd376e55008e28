// GGUF files: reading (versions 2 and 3, little-endian, split files) and writing. Everything read is checked
// before use: counts and lengths against the file's size in 64 bits, names for duplicates, offsets for
// alignment, overlap and the file's end. A file that has passed gguf_open is consistent.
#ifndef MOTE_GGUF_GGUF_H
#define MOTE_GGUF_GGUF_H

#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "base/map.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gguf_type { // the numbers are the format's
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12,
};

struct gguf_string {
    const char *text; // NUL-terminated; may contain NULs
    size_t size;
};

struct gguf_value {
    struct gguf_string key;
    enum gguf_type type;
    enum gguf_type element; // of an array
    uint64_t count;         // of an array
    union {
        uint64_t u; // U8 … U64, BOOL
        int64_t i;  // I8 … I64
        double f;   // F32, F64
        struct gguf_string string;
        const void *array;                 // elements as in the file, aligned
        const struct gguf_string *strings; // an array of strings
        const struct gguf_value *arrays;   // an array of arrays (key empty)
    };
};

struct gguf_tensor {
    const char *name;
    enum dtype dtype;
    uint32_t n_dims;
    uint64_t ne[4]; // extents, 1 beyond n_dims; ne[0] is contiguous
    uint64_t n_elements;
    uint64_t size;   // bytes
    uint64_t offset; // bytes from the beginning of its file
    uint32_t part;   // which file of a split one
};

struct gguf {
    struct arena arena;
    struct file *parts;
    uint32_t n_parts;
    uint32_t version;
    uint32_t alignment;
    struct gguf_value *values; // of the first part
    size_t n_values;
    struct gguf_tensor *tensors; // of all parts, in the order of the files
    size_t n_tensors;
    struct map value_index;
    struct map tensor_index;
    uint64_t size; // bytes of all files together
};

// Opens path. Where it is named NAME-00002-of-00005.gguf (or has split.count > 1), all its parts are opened.
// A file that is no GGUF at all (Git LFS pointer, HTML page, safetensors, ZIP, PyTorch …) gets an error that says what
// it is.
enum status gguf_open(const char *path, struct gguf **gguf, struct error *error);
void gguf_close(struct gguf *gguf); // NULL is allowed

const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key);          // NULL: not there
const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf, const char *name); // NULL: not there

// Scalars and strings by key. Where the key is missing: STATUS_OK and *value unchanged if !required, else an error.
// A value of another kind (a string, a negative or too large integer for u32, NaN or inf for f32) is an error that
// names key, type and value. u32 takes every integer type; f32 takes F32 and F64 (rounded); bool takes BOOL only.
enum status gguf_get_u32(const struct gguf *gguf, const char *key, bool required, uint32_t *value, struct error *error);
enum status gguf_get_f32(const struct gguf *gguf, const char *key, bool required, float *value, struct error *error);
enum status gguf_get_bool(const struct gguf *gguf, const char *key, bool required, bool *value, struct error *error);
enum status gguf_get_string(const struct gguf *gguf, const char *key, bool required, struct gguf_string *value,
                            struct error *error);
// An array of exactly `element`.
enum status gguf_get_array(const struct gguf *gguf, const char *key, enum gguf_type element, bool required,
                           const struct gguf_value **value, struct error *error);
// An array of any integer type, or of bools: read it with gguf_array_integer.
enum status gguf_get_integer_array(const struct gguf *gguf, const char *key, bool required,
                                   const struct gguf_value **value, struct error *error);
// The i-th element of an integer or bool array as i64 (i < count).
int64_t gguf_array_integer(const struct gguf_value *array, uint64_t i);
// 0, false, an empty array, or an array of these. A string is not.
bool gguf_value_is_zero(const struct gguf_value *value);
const char *gguf_type_name(enum gguf_type type);

// A number that stands for a file: of its metadata, the table of its tensors, and the sizes of all its parts.
enum status gguf_fingerprint(const struct gguf *gguf, uint64_t *fingerprint, struct error *error);
// The same of a few bytes of up to 64 tensors.
enum status gguf_sample_weights(const struct gguf *gguf, uint64_t *hash, struct error *error);

// Reads `size` bytes of a tensor's data from `offset` on. Several threads may.
enum status gguf_read_tensor(const struct gguf *gguf, const struct gguf_tensor *tensor, uint64_t offset, void *bytes,
                             size_t size, struct error *error);

// Writing. All keys and tensors are announced first; then the data comes in the order of the tensors, in pieces.
struct gguf_writer;
enum status gguf_writer_create(const char *path, struct gguf_writer **writer, struct error *error);
enum status gguf_writer_add_string(struct gguf_writer *writer, const char *key, const char *text, struct error *error);
enum status gguf_writer_add_u32(struct gguf_writer *writer, const char *key, uint32_t value, struct error *error);
enum status gguf_writer_add_f32(struct gguf_writer *writer, const char *key, float value, struct error *error);
enum status gguf_writer_add_bool(struct gguf_writer *writer, const char *key, bool value, struct error *error);
enum status gguf_writer_add_value(struct gguf_writer *writer, const struct gguf_value *value, struct error *error);
enum status gguf_writer_add_tensor(struct gguf_writer *writer, const char *name, enum dtype dtype, uint32_t n_dims,
                                   const uint64_t *ne, struct error *error);
// Appends to the data of the tensor that is current: the first one, then the next whenever one is full (padding is
// written by itself). The first call writes the header: nothing may be added after it.
enum status gguf_writer_write(struct gguf_writer *writer, const void *bytes, size_t size, struct error *error);
// Checks that all data came, renames the file into place, frees the writer.
enum status gguf_writer_finish(struct gguf_writer *writer, struct error *error);
void gguf_writer_abort(struct gguf_writer *writer); // frees the writer, leaves no file; NULL is allowed

#endif
