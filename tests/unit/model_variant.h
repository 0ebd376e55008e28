// Variants of the tiny models in tests/data/models: a model's file with some keys and tensors changed (its data is
// zeros), and the graph that is built from it.
#ifndef MOTE_TESTS_MODEL_VARIANT_H
#define MOTE_TESTS_MODEL_VARIANT_H

#include "model/model.h"
#include "test_paths.h"

#include <cmocka.h>

#include <string.h>

// One change. Keys without their "ARCHITECTURE."; a key or tensor that is not there is added.
struct edit {
    enum { NO_EDIT, SET_U32, SET_F32, SET_BOOL, SET_STRING, SET_BOOLS, DROP_KEY, DROP, RENAME, SHAPE } kind;
    const char *name;
    double number;
    const char *text; // SET_STRING; SET_BOOLS: "1010"; RENAME: the new name
    uint64_t ne[3];   // SHAPE: 0 beyond the dimensions
    enum dtype dtype; // SHAPE of an added tensor
};

enum { MAX_EDITS = 8, MAX_TENSORS = 512 };

struct variant {
    struct gguf *gguf;
    struct model_graph model;
    enum status status;
    struct error error;
};

static inline void variant_must(enum status status, const struct error *error)
{
    if (status != STATUS_OK)
        fail_msg("%s", error->message);
}

static inline const struct edit *variant_edit_of(const struct edit *edits, const char *name, bool key)
{
    for (; edits->kind != NO_EDIT; edits++) {
        bool of_key = edits->kind <= DROP_KEY;
        if (of_key == key && strcmp(edits->name, name) == 0)
            return edits;
    }
    return NULL;
}

static inline void variant_write_key(struct gguf_writer *writer, const char *key, const struct edit *edit)
{
    struct error error = {0};
    enum status status = STATUS_OK;
    uint8_t bools[64];
    struct gguf_value array = {.key = {key, strlen(key)}, .type = GGUF_ARRAY, .element = GGUF_BOOL, .array = bools};
    switch (edit->kind) {
    case SET_U32:
        status = gguf_writer_add_u32(writer, key, (uint32_t)edit->number, &error);
        break;
    case SET_F32:
        status = gguf_writer_add_f32(writer, key, (float)edit->number, &error);
        break;
    case SET_BOOL:
        status = gguf_writer_add_bool(writer, key, edit->number != 0, &error);
        break;
    case SET_STRING:
        status = gguf_writer_add_string(writer, key, edit->text, &error);
        break;
    case SET_BOOLS:
        for (array.count = 0; edit->text[array.count] != '\0'; array.count++)
            bools[array.count] = edit->text[array.count] == '1';
        status = gguf_writer_add_value(writer, &array, &error);
        break;
    default:
        break; // DROP_KEY
    }
    variant_must(status, &error);
}

static inline void variant_write(const struct gguf *base, const struct edit *edits, const char *path)
{
    struct error error = {0};
    struct gguf_writer *writer = NULL;
    struct gguf_string architecture;
    variant_must(gguf_get_string(base, "general.architecture", true, &architecture, &error), &error);
    variant_must(gguf_writer_create(path, &writer, &error), &error);
    char key[128];
    for (size_t i = 0; i < base->n_values; i++) {
        const char *full = base->values[i].key.text;
        bool own = strncmp(full, architecture.text, architecture.size) == 0 && full[architecture.size] == '.';
        const struct edit *edit = own ? variant_edit_of(edits, full + architecture.size + 1, true) : NULL;
        if (edit == NULL)
            variant_must(gguf_writer_add_value(writer, &base->values[i], &error), &error);
        else
            variant_write_key(writer, full, edit);
    }
    for (const struct edit *edit = edits; edit->kind != NO_EDIT; edit++) {
        snprintf(key, sizeof(key), "%s.%s", architecture.text, edit->name);
        if (edit->kind < DROP_KEY && gguf_find(base, key) == NULL)
            variant_write_key(writer, key, edit);
    }
    uint64_t sizes[MAX_TENSORS] = {0};
    size_t n = 0;
    for (size_t i = 0; i < base->n_tensors; i++) {
        const struct gguf_tensor *tensor = &base->tensors[i];
        const struct edit *edit = variant_edit_of(edits, tensor->name, false);
        const char *name = tensor->name;
        uint64_t ne[4] = {tensor->ne[0], tensor->ne[1], tensor->ne[2], tensor->ne[3]};
        if (edit != NULL && edit->kind == DROP)
            continue;
        if (edit != NULL && edit->kind == RENAME)
            name = edit->text;
        if (edit != NULL && edit->ne[0] != 0) {
            for (int d = 0; d < 3; d++)
                ne[d] = edit->ne[d] == 0 ? 1 : edit->ne[d];
        }
        variant_must(gguf_writer_add_tensor(writer, name, tensor->dtype, tensor->n_dims, ne, &error), &error);
        sizes[n++] = ne[0] * ne[1] * ne[2] * dtype_get(tensor->dtype)->bytes / dtype_get(tensor->dtype)->block;
    }
    for (const struct edit *edit = edits; edit->kind != NO_EDIT; edit++) {
        if (edit->kind != SHAPE || gguf_find_tensor(base, edit->name) != NULL)
            continue;
        uint32_t n_dims = edit->ne[1] == 0 ? 1 : edit->ne[2] == 0 ? 2 : 3;
        uint64_t ne[4] = {edit->ne[0], n_dims > 1 ? edit->ne[1] : 1, n_dims > 2 ? edit->ne[2] : 1, 1};
        variant_must(gguf_writer_add_tensor(writer, edit->name, edit->dtype, n_dims, ne, &error), &error);
        sizes[n++] = ne[0] * ne[1] * ne[2] * dtype_get(edit->dtype)->bytes / dtype_get(edit->dtype)->block;
    }
    for (size_t i = 0; i < n; i++) {
        uint8_t *zeros = calloc(1, (size_t)sizes[i]);
        assert_non_null(zeros);
        variant_must(gguf_writer_write(writer, zeros, (size_t)sizes[i], &error), &error);
        free(zeros);
    }
    variant_must(gguf_writer_finish(writer, &error), &error);
}

// tests/data/models/NAME.gguf with edits (up to one that is all zeros), as a graph. variant_close frees it.
static inline void variant_open(struct variant *variant, const char *name, const struct edit *edits)
{
    char path[512], folder[] = "/tmp/mote-variant-XXXXXX";
    struct gguf *base = NULL;
    memset(variant, 0, sizeof(*variant));
    snprintf(path, sizeof(path), "%s/models/%s.gguf", TEST_DATA, name);
    variant_must(gguf_open(path, &base, &variant->error), &variant->error);
    assert_true(base->n_tensors + MAX_EDITS <= MAX_TENSORS);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/variant.gguf", folder);
    variant_write(base, edits, path);
    gguf_close(base);
    variant_must(gguf_open(path, &variant->gguf, &variant->error), &variant->error);
    unlink(path);
    rmdir(folder);
    variant->status = model_build(variant->gguf, NULL, 0, &variant->model, &variant->error);
}

static inline void variant_close(struct variant *variant)
{
    if (variant->status == STATUS_OK)
        model_graph_free(&variant->model);
    gguf_close(variant->gguf);
}

// The i-th node of an op; NULL: there are fewer.
static inline const struct node *variant_node(const struct variant *variant, enum op op, size_t i)
{
    const struct graph *graph = &variant->model.graph;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        if (graph->nodes[n]->op == op && i-- == 0)
            return graph->nodes[n];
    }
    return NULL;
}

#endif
