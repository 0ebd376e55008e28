// Opening GGUF files: one, or all the parts of a split one. The metadata is that of the first part; a later part
// must belong to it: same count, its own number, no tensor twice, and no other architecture.
#include "gguf/gguf.h"

#include "gguf/cursor.h"
#include "gguf/parse.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

// Metadata beyond this is an attack or a mistake: the largest vocabularies take some 30 MB.
static const size_t MOST_METADATA = (size_t)1 << 30;

// A name of the form PREFIX-00002-of-00005.gguf.
struct split_name {
    size_t prefix;   // bytes before "-00002-of-…"
    uint32_t number; // from 1
    uint32_t count;
};

static bool read_five_digits(const char *text, uint32_t *value)
{
    *value = 0;
    for (int i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *value = *value * 10 + (uint32_t)(text[i] - '0');
    }
    return true;
}

static bool split_name_parse(const char *path, struct split_name *name)
{
    static const char form[] = "-00000-of-00000.gguf";
    size_t length = strlen(path);
    if (length < sizeof form - 1)
        return false;
    name->prefix = length - (sizeof form - 1);
    const char *end = path + name->prefix;
    return end[0] == '-' && read_five_digits(end + 1, &name->number) && memcmp(end + 6, "-of-", 4) == 0 &&
           read_five_digits(end + 10, &name->count) && strcmp(end + 15, ".gguf") == 0;
}

// Parses an open file and adds its tensors to gguf. *part is the caller's to free.
static enum status parse_file(struct gguf *gguf, const struct file *file, struct gguf_part *part, struct error *error)
{
    *part = (struct gguf_part){0};
    struct cursor cursor;
    enum status status = cursor_open_file(&cursor, file, error);
    if (status == STATUS_OK)
        status = gguf_parse_part(&cursor, &gguf->arena, part, error);
    cursor_close(&cursor);
    if (status != STATUS_OK)
        error_prefix(error, "'%s'", file->path);
    return status;
}

// Joins the tensors of all parts into one table.
static enum status join_tensors(struct gguf *gguf, const struct gguf_part *parts, uint32_t n_parts, struct error *error)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < n_parts; i++)
        total += parts[i].n_tensors;
    if (total > UINT32_MAX)
        return error_set(error, STATUS_INVALID, "it has %llu tensors, too many", (unsigned long long)total);
    gguf->tensors = n_parts == 1 ? parts[0].tensors : arena_alloc_array(&gguf->arena, total, sizeof *gguf->tensors);
    if (!gguf->tensors || !map_reserve(&gguf->tensor_index, total))
        return error_memory(error, "the tensor table");
    for (uint32_t i = 0; i < n_parts; i++) {
        for (size_t j = 0; j < parts[i].n_tensors; j++) {
            struct gguf_tensor *tensor = &gguf->tensors[gguf->n_tensors];
            *tensor = parts[i].tensors[j];
            tensor->part = i;
            bool added;
            if (!map_add(&gguf->tensor_index, tensor->name, strlen(tensor->name), (uint32_t)gguf->n_tensors, &added,
                         NULL))
                return error_memory(error, "the tensor table");
            if (!added)
                return error_set(error, STATUS_INVALID, "tensor '%s' is there twice: duplicate names are not allowed",
                                 tensor->name);
            gguf->n_tensors++;
        }
    }
    return STATUS_OK;
}

// Gives the first part's metadata to gguf.
static void take_values(struct gguf *gguf, struct gguf_part *first)
{
    gguf->version = first->version;
    gguf->alignment = first->alignment;
    gguf->values = first->values;
    gguf->n_values = first->n_values;
    gguf->value_index = first->value_index;
    first->value_index = (struct map){0};
}

static const struct gguf_value *find_in_part(const struct gguf_part *part, const char *key)
{
    uint32_t index;
    return map_find(&part->value_index, key, strlen(key), &index) ? &part->values[index] : NULL;
}

// An integer of any type, within 0 … UINT32_MAX; `missing` where the key is not there or is something else.
static uint32_t part_integer(const struct gguf_part *part, const char *key, uint32_t missing)
{
    const struct gguf_value *value = find_in_part(part, key);
    if (!value || gguf_type_size(value->type) == 0 || value->type == GGUF_F32 || value->type == GGUF_F64)
        return missing;
    return value->u <= UINT32_MAX ? (uint32_t)value->u : missing;
}

static bool same_text(const struct gguf_value *a, const struct gguf_value *b)
{
    return a->type == GGUF_STRING && b->type == GGUF_STRING && a->string.size == b->string.size &&
           memcmp(a->string.text, b->string.text, a->string.size) == 0;
}

// Whether part i (from 0) of n is what its name says, and of the same model as the first one.
static enum status check_part(const struct gguf_part *parts, uint32_t i, uint32_t n, const char *path,
                              struct error *error)
{
    uint32_t count = part_integer(&parts[i], "split.count", UINT32_MAX);
    uint32_t number = part_integer(&parts[i], "split.no", UINT32_MAX);
    if (count == UINT32_MAX || number == UINT32_MAX)
        return error_set(error, STATUS_INVALID,
                         "'%s' is named as part %u of %u, but has no keys split.no and split.count: it is no part of "
                         "a split model; rename it if it is a whole one",
                         path, i + 1, n);
    if (count != n)
        return error_set(error, STATUS_INVALID,
                         "'%s' is named as one of %u parts, but its key split.count is %u: it belongs to another model",
                         path, n, count);
    if (number != i)
        return error_set(error, STATUS_INVALID,
                         "'%s' is named as part %u of %u, but its key split.no is %u (part %u): its name is wrong, or "
                         "it belongs to another model",
                         path, i + 1, n, number, number + 1);
    static const char *const same[] = {"general.architecture", "split.tensors.count"};
    for (size_t k = 0; k < sizeof same / sizeof same[0]; k++) {
        const struct gguf_value *first = find_in_part(&parts[0], same[k]);
        const struct gguf_value *other = find_in_part(&parts[i], same[k]);
        if (first && other && (first->type == GGUF_STRING || other->type == GGUF_STRING) && !same_text(first, other))
            return error_set(error, STATUS_INVALID, "'%s' belongs to another model: its key %s differs from part 1's",
                             path, same[k]);
        if (first && other && first->type != GGUF_STRING && other->type != GGUF_STRING &&
            part_integer(&parts[0], same[k], 0) != part_integer(&parts[i], same[k], 0))
            return error_set(error, STATUS_INVALID, "'%s' belongs to another model: its key %s differs from part 1's",
                             path, same[k]);
    }
    return STATUS_OK;
}

static enum status open_part(struct gguf *gguf, const char *path, const struct split_name *name,
                             struct gguf_part *parts, uint32_t i, struct error *error)
{
    struct buffer part_path = {0};
    buffer_append(&part_path, path, name->prefix);
    buffer_append_format(&part_path, "-%05u-of-%05u.gguf", i + 1, name->count);
    if (part_path.failed)
        return error_memory(error, "a file's name");
    enum status status = file_open(&gguf->parts[i], part_path.data, error);
    if (status == STATUS_OK) {
        gguf->n_parts = i + 1;
        gguf->size += gguf->parts[i].size;
        status = parse_file(gguf, &gguf->parts[i], &parts[i], error);
        if (status == STATUS_OK)
            status = check_part(parts, i, name->count, part_path.data, error);
    } else if (status == STATUS_IO) {
        error_prefix(error, "part %u of %u of a split model is missing (all parts must lie in one folder)", i + 1,
                     name->count);
    }
    buffer_free(&part_path);
    return status;
}

static enum status open_split(struct gguf *gguf, const char *path, const struct split_name *name, struct error *error)
{
    if (name->number < 1 || name->number > name->count)
        return error_set(error, STATUS_INVALID, "'%s' is named as part %u of %u, which cannot be", path, name->number,
                         name->count);
    gguf->parts = calloc(name->count, sizeof *gguf->parts);
    struct gguf_part *parts = calloc(name->count, sizeof *parts);
    enum status status = gguf->parts && parts ? STATUS_OK : error_memory(error, "a split model");
    for (uint32_t i = 0; i < name->count && status == STATUS_OK; i++)
        status = open_part(gguf, path, name, parts, i, error);
    if (status == STATUS_OK) {
        status = join_tensors(gguf, parts, name->count, error);
        uint32_t announced = part_integer(&parts[0], "split.tensors.count", UINT32_MAX);
        if (status == STATUS_OK && announced != UINT32_MAX && announced != gguf->n_tensors)
            status = error_set(error, STATUS_INVALID,
                               "the parts have %zu tensors together, but the key split.tensors.count is %u: a part "
                               "is of another model",
                               gguf->n_tensors, announced);
        if (status != STATUS_OK)
            error_prefix(error, "'%s'", path);
        take_values(gguf, &parts[0]);
    }
    for (uint32_t i = 0; parts && i < name->count; i++)
        gguf_part_free(&parts[i]);
    free(parts);
    return status;
}

static enum status open_single(struct gguf *gguf, const char *path, struct error *error)
{
    gguf->parts = calloc(1, sizeof *gguf->parts);
    if (!gguf->parts)
        return error_memory(error, "a model file");
    enum status status = file_open(&gguf->parts[0], path, error);
    if (status != STATUS_OK)
        return status;
    gguf->n_parts = 1;
    gguf->size = gguf->parts[0].size;
    struct gguf_part part;
    status = parse_file(gguf, &gguf->parts[0], &part, error);
    if (status == STATUS_OK) {
        uint32_t count = part_integer(&part, "split.count", 0);
        if (count > 1)
            status = error_set(error, STATUS_INVALID,
                               "it is part %u of %u of a split model, but is not named so: the others cannot be found; "
                               "rename the parts to NAME-00001-of-%05u.gguf and so on",
                               part_integer(&part, "split.no", 0) + 1, count, count);
        else
            status = join_tensors(gguf, &part, 1, error);
        if (status != STATUS_OK)
            error_prefix(error, "'%s'", path);
    }
    take_values(gguf, &part);
    gguf_part_free(&part);
    return status;
}

static struct gguf *create(void)
{
    struct gguf *gguf = calloc(1, sizeof *gguf);
    if (gguf)
        arena_init(&gguf->arena, MOST_METADATA);
    return gguf;
}

enum status gguf_open(const char *path, struct gguf **result, struct error *error)
{
    *result = NULL;
    struct gguf *gguf = create();
    if (!gguf)
        return error_memory(error, "a model file");
    struct split_name name;
    bool split = split_name_parse(path, &name) && name.count > 1;
    enum status status = split ? open_split(gguf, path, &name, error) : open_single(gguf, path, error);
    if (status != STATUS_OK) {
        gguf_close(gguf);
        return status;
    }
    *result = gguf;
    return STATUS_OK;
}

enum status gguf_open_memory(const void *bytes, size_t size, struct gguf **result, struct error *error)
{
    *result = NULL;
    struct gguf *gguf = create();
    if (!gguf)
        return error_memory(error, "a model file");
    struct cursor cursor;
    cursor_open_memory(&cursor, bytes, size);
    struct gguf_part part;
    enum status status = gguf_parse_part(&cursor, &gguf->arena, &part, error);
    cursor_close(&cursor);
    if (status == STATUS_OK)
        status = join_tensors(gguf, &part, 1, error);
    take_values(gguf, &part);
    gguf_part_free(&part);
    gguf->size = size;
    if (status != STATUS_OK) {
        gguf_close(gguf);
        return status;
    }
    *result = gguf;
    return STATUS_OK;
}

void gguf_close(struct gguf *gguf)
{
    if (!gguf)
        return;
    for (uint32_t i = 0; i < gguf->n_parts; i++)
        file_close(&gguf->parts[i]);
    free(gguf->parts);
    map_free(&gguf->value_index);
    map_free(&gguf->tensor_index);
    arena_free(&gguf->arena);
    free(gguf);
}

enum status gguf_read_tensor(const struct gguf *gguf, const struct gguf_tensor *tensor, uint64_t offset, void *bytes,
                             size_t size, struct error *error)
{
    uint64_t end;
    if (!checked_add(offset, size, &end) || end > tensor->size || tensor->part >= gguf->n_parts)
        return error_set(error, STATUS_INVALID, "tensor '%s': bytes %llu to %llu were asked for, of %llu", tensor->name,
                         (unsigned long long)offset, (unsigned long long)offset + size,
                         (unsigned long long)tensor->size);
    enum status status = file_read(&gguf->parts[tensor->part], tensor->offset + offset, bytes, size, error);
    if (status != STATUS_OK)
        error_prefix(error, "tensor '%s'", tensor->name);
    return status;
}
