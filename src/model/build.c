// What architectures build with: weights with checked shapes, keys, embedding and head.
#include "model/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void build_fail(struct builder *builder, enum status status, const char *format, ...)
{
    if (builder->graph->error.status != STATUS_OK)
        return;
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    error_set(&builder->graph->error, status, "%s", message);
}

// What a weight must be: rows [first_row, first_row + ne[1]) of each matrix of a tensor of the file.
struct wanted {
    uint32_t n_dims;
    size_t ne[3];
    size_t first_row, rows_in_file;
    bool required;
};

// A tensor's name from its format.
static void write_name(char name[static MAX_NAME], const char *format, uint32_t layer)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(name, MAX_NAME, format, layer); // the formats are ours, and take at most the layer
#pragma GCC diagnostic pop
}

// The file's tensor of that name, found to have the shape that is wanted.
static const struct gguf_tensor *find_named(struct builder *builder, const char *name, const struct wanted *wanted)
{
    if (builder->graph->error.status != STATUS_OK)
        return NULL;
    const struct gguf_tensor *tensor = gguf_find_tensor(builder->gguf, name);
    if (tensor == NULL) {
        if (wanted->required)
            build_fail(builder, STATUS_INVALID,
                       "tensor '%s' is missing: the file is incomplete, or not of the "
                       "architecture '%s' that it names",
                       name, builder->h->architecture);
        return NULL;
    }
    builder->used[tensor - builder->gguf->tensors] = true;
    if (tensor->ne[0] != wanted->ne[0] || tensor->ne[1] != wanted->rows_in_file || tensor->ne[2] != wanted->ne[2] ||
        tensor->ne[3] != 1) {
        build_fail(builder, STATUS_INVALID,
                   "tensor '%s' has the shape [%llu, %llu, %llu], but the model's keys and its "
                   "vocabulary ask for [%zu, %zu, %zu]",
                   name, (unsigned long long)tensor->ne[0], (unsigned long long)tensor->ne[1],
                   (unsigned long long)tensor->ne[2], wanted->ne[0], wanted->rows_in_file, wanted->ne[2]);
        return NULL;
    }
    return tensor;
}

static const struct gguf_tensor *find_tensor(struct builder *builder, const char *format, uint32_t layer,
                                             const struct wanted *wanted)
{
    char name[MAX_NAME];
    write_name(name, format, layer);
    return find_named(builder, name, wanted);
}

static struct tensor *find_weight(struct builder *builder, const char *format, uint32_t layer,
                                  const struct wanted *wanted)
{
    const struct gguf_tensor *tensor = find_tensor(builder, format, layer, wanted);
    if (tensor == NULL)
        return NULL;
    return graph_weight_part(builder->graph, tensor->name, tensor->dtype, wanted->n_dims, wanted->ne, wanted->first_row,
                             wanted->rows_in_file);
}

struct tensor *build_matrix(struct builder *builder, const char *format, uint32_t layer, size_t k, size_t n)
{
    return build_matrix_part(builder, format, layer, k, n, 0, n);
}

struct tensor *build_matrix_part(struct builder *builder, const char *format, uint32_t layer, size_t k, size_t n,
                                 size_t first_row, size_t rows_in_file)
{
    struct wanted wanted = {2, {k, n, 1}, first_row, rows_in_file, true};
    return find_weight(builder, format, layer, &wanted);
}

struct tensor *build_vector(struct builder *builder, const char *format, uint32_t layer, size_t n)
{
    struct wanted wanted = {1, {n, 1, 1}, 0, 1, true};
    return find_weight(builder, format, layer, &wanted);
}

struct tensor *build_optional_matrix(struct builder *builder, const char *format, uint32_t layer, size_t k, size_t n)
{
    struct wanted wanted = {2, {k, n, 1}, 0, n, false};
    return find_weight(builder, format, layer, &wanted);
}

struct tensor *build_optional_vector(struct builder *builder, const char *format, uint32_t layer, size_t n)
{
    struct wanted wanted = {1, {n, 1, 1}, 0, 1, false};
    return find_weight(builder, format, layer, &wanted);
}

// A stack whose matrices are tensors of their own; NULL where the file has no such.
static struct tensor *find_pieces(struct builder *builder, const char *stack, size_t k, size_t n, size_t count)
{
    const struct gguf_tensor *first = NULL, *piece = NULL;
    const struct wanted wanted = {2, {k, n, 1}, 0, n, true};
    const size_t ne[] = {k, n, count};
    char name[MAX_NAME];
    if (!model_piece_name(stack, 0, name, sizeof(name)) || gguf_find_tensor(builder->gguf, name) == NULL)
        return NULL;
    for (size_t i = 0; i < count && builder->graph->error.status == STATUS_OK; i++) {
        model_piece_name(stack, i, name, sizeof(name));
        piece = find_named(builder, name, &wanted);
        first = i == 0 ? piece : first;
        if (piece != NULL && piece->dtype != first->dtype)
            build_fail(builder, STATUS_UNSUPPORTED,
                       "tensor '%s' is %s, but '%s' is %s: experts of a layer must be of one dtype; convert the model "
                       "again, or take a newer file",
                       name, dtype_get(piece->dtype)->name, first->name, dtype_get(first->dtype)->name);
    }
    if (builder->graph->error.status != STATUS_OK)
        return NULL;
    return graph_weight_part(builder->graph, stack, first->dtype, 3, ne, 0, n);
}

struct tensor *build_stack(struct builder *builder, const char *format, uint32_t layer, size_t k, size_t n,
                           size_t count)
{
    char name[MAX_NAME];
    if (builder->graph->error.status == STATUS_OK && !build_has_tensor(builder, format, layer)) {
        write_name(name, format, layer);
        struct tensor *weight = find_pieces(builder, name, k, n, count);
        if (weight != NULL)
            return weight;
    }
    return build_stack_part(builder, format, layer, k, n, count, 0, n);
}

struct tensor *build_stack_part(struct builder *builder, const char *format, uint32_t layer, size_t k, size_t n,
                                size_t count, size_t first_row, size_t rows_in_file)
{
    struct wanted wanted = {3, {k, n, count}, first_row, rows_in_file, true};
    return find_weight(builder, format, layer, &wanted);
}

struct tensor *build_flat_stack_part(struct builder *builder, const char *format, uint32_t layer, size_t k, size_t n,
                                     size_t count, size_t first_row, size_t rows_in_file)
{
    struct wanted wanted = {2, {k, rows_in_file * count, 1}, 0, rows_in_file * count, true};
    const struct gguf_tensor *tensor = find_tensor(builder, format, layer, &wanted);
    const size_t ne[] = {k, n, count};
    if (tensor == NULL)
        return NULL;
    return graph_weight_part(builder->graph, tensor->name, tensor->dtype, 3, ne, first_row, rows_in_file);
}

struct tensor *build_turned_stack(struct builder *builder, const char *format, uint32_t layer, size_t k, size_t n,
                                  size_t count, size_t rows_in_file)
{
    struct wanted wanted = {2, {n, rows_in_file * count, 1}, 0, rows_in_file * count, true};
    const struct gguf_tensor *tensor = find_tensor(builder, format, layer, &wanted);
    const size_t ne[] = {k, n, count};
    if (tensor == NULL)
        return NULL;
    struct tensor *weight = graph_weight_part(builder->graph, tensor->name, DTYPE_F32, 3, ne, 0, n);
    if (weight != NULL)
        weight->turned_rows = rows_in_file;
    return weight;
}

bool build_has_tensor(const struct builder *builder, const char *format, uint32_t layer)
{
    char name[MAX_NAME];
    write_name(name, format, layer);
    return gguf_find_tensor(builder->gguf, name) != NULL;
}

static void full_key(const struct builder *builder, const char *key, char *text, size_t size)
{
    snprintf(text, size, "%s.%s", builder->h->architecture, key);
}

const struct gguf_value *build_find_key(struct builder *builder, const char *key)
{
    char text[128];
    full_key(builder, key, text, sizeof(text));
    const struct gguf_value *value = gguf_find(builder->gguf, text);
    if (value != NULL)
        builder->read[value - builder->gguf->values] = true;
    return value;
}

void build_skip_keys(struct builder *builder, const char *beginning)
{
    char text[128];
    full_key(builder, beginning, text, sizeof(text));
    for (size_t i = 0; i < builder->gguf->n_values; i++)
        if (strncmp(builder->gguf->values[i].key.text, text, strlen(text)) == 0)
            builder->read[i] = true;
}

float build_f32(struct builder *builder, const char *key, float missing)
{
    const struct gguf_value *found = build_find_key(builder, key);
    float value = missing;
    struct error error = {0};
    if (found != NULL && gguf_get_f32(builder->gguf, found->key.text, false, &value, &error) != STATUS_OK)
        build_fail(builder, error.status, "%s", error.message);
    return value;
}

uint32_t build_u32(struct builder *builder, const char *key, uint32_t missing)
{
    const struct gguf_value *found = build_find_key(builder, key);
    uint32_t value = missing;
    struct error error = {0};
    if (found != NULL && gguf_get_u32(builder->gguf, found->key.text, false, &value, &error) != STATUS_OK)
        build_fail(builder, error.status, "%s", error.message);
    return value;
}

bool build_bool(struct builder *builder, const char *key, bool missing)
{
    const struct gguf_value *found = build_find_key(builder, key);
    bool value = missing;
    struct error error = {0};
    if (found != NULL && gguf_get_bool(builder->gguf, found->key.text, false, &value, &error) != STATUS_OK)
        build_fail(builder, error.status, "%s", error.message);
    return value;
}

void build_refuse(struct builder *builder, const char *key, const char *what)
{
    const struct gguf_value *value = build_find_key(builder, key);
    if (value != NULL && !gguf_value_is_zero(value))
        build_fail(builder, STATUS_UNSUPPORTED,
                   "%s asks for %s, which this version does not do for the architecture '%s'", value->key.text, what,
                   builder->h->architecture);
}

// ---- rotations ----

// Llama 3's divisors of the frequencies, in the tensor rope_freqs.weight. NULL where there are none.
static float *read_rope_factors(struct builder *builder)
{
    const struct gguf_tensor *tensor = gguf_find_tensor(builder->gguf, "rope_freqs.weight");
    uint32_t n = builder->h->n_rot / 2;
    if (tensor == NULL)
        return NULL;
    builder->used[tensor - builder->gguf->tensors] = true;
    if (tensor->dtype != DTYPE_F32 || tensor->n_elements != n) {
        build_fail(builder, STATUS_INVALID,
                   "tensor 'rope_freqs.weight' is %s with %llu elements, but f32 with %u are "
                   "needed",
                   dtype_get(tensor->dtype)->name, (unsigned long long)tensor->n_elements, n);
        return NULL;
    }
    float *factors = arena_alloc_array(&builder->graph->arena, n, sizeof(*factors));
    struct error error = {0};
    if (factors == NULL)
        build_fail(builder, STATUS_MEMORY, "out of memory for the model");
    else if (gguf_read_tensor(builder->gguf, tensor, 0, factors, n * sizeof(*factors), &error) != STATUS_OK)
        build_fail(builder, error.status, "%s", error.message);
    for (uint32_t i = 0; factors != NULL && i < n; i++) {
        if (!(factors[i] > 0)) // also NaN
            build_fail(builder, STATUS_INVALID, "tensor 'rope_freqs.weight': factor %u is %g, but must be positive", i,
                       (double)factors[i]);
    }
    return factors;
}

static void read_scaling(struct builder *builder, struct rope_scaling *scaling)
{
    char key[128];
    full_key(builder, "rope.scaling.type", key, sizeof(key));
    struct gguf_string type = {.text = "none", .size = 4};
    struct error error = {0};
    if (gguf_get_string(builder->gguf, key, false, &type, &error) != STATUS_OK)
        build_fail(builder, error.status, "%s", error.message);
    float factor = build_f32(builder, "rope.scaling.factor", build_f32(builder, "rope.scale_linear", 1));
    scaling->factor = (double)factor;
    if (!(factor > 0)) {
        build_fail(builder, STATUS_INVALID, "%s.rope.scaling.factor is %g, but it must be positive",
                   builder->h->architecture, (double)factor);
        scaling->factor = 1;
    }
    if (strcmp(type.text, "yarn") == 0) {
        uint32_t context = build_u32(builder, "rope.scaling.original_context_length", 0);
        scaling->type = ROPE_SCALING_YARN;
        scaling->original_context = context == 0 ? builder->h->n_context : context;
        scaling->beta_fast = (double)build_f32(builder, "rope.scaling.yarn_beta_fast", 0);
        scaling->beta_slow = (double)build_f32(builder, "rope.scaling.yarn_beta_slow", 0);
        if (scaling->beta_fast == 0) // 0 is the default, as the models' definitions have it
            scaling->beta_fast = 32;
        if (scaling->beta_slow == 0)
            scaling->beta_slow = 1;
        scaling->ext_factor = (double)build_f32(builder, "rope.scaling.yarn_ext_factor", 1);
        scaling->attn_factor = (double)build_f32(builder, "rope.scaling.attn_factor", 1);
        // Hugging Face's attention_factor, which replaces the paper's magnitude. Where yarn_log_multiplier is present
        // and not 0, the magnitude is in the scale of the scores instead.
        float otherwise = build_f32(builder, "rope.scaling.yarn_log_multiplier", 0) != 0 ? 1.0f : 0.0f;
        scaling->attention_factor = (double)build_f32(builder, "rope.scaling.yarn_attn_factor", otherwise);
        if (!(scaling->beta_fast > 0 && scaling->beta_slow > 0))
            build_fail(builder, STATUS_INVALID, "%s.rope.scaling.yarn_beta_fast and _slow must be positive",
                       builder->h->architecture);
        if (scaling->attention_factor < 0) // 0: the paper's
            build_fail(builder, STATUS_INVALID, "%s.rope.scaling.yarn_attn_factor is %g, but it must not be negative",
                       builder->h->architecture, scaling->attention_factor);
    } else if (strcmp(type.text, "linear") == 0 ||
               (strcmp(type.text, "none") == 0 && gguf_find(builder->gguf, key) == NULL && factor != 1)) {
        scaling->type = ROPE_SCALING_LINEAR; // a factor without a type is linear: older files
    } else if (strcmp(type.text, "none") != 0 && strcmp(type.text, "llama3") != 0) {
        build_fail(builder, STATUS_UNSUPPORTED, "%s is '%s': mote knows none, linear, yarn and llama3", key, type.text);
    } else if (strcmp(type.text, "llama3") == 0 && gguf_find_tensor(builder->gguf, "rope_freqs.weight") == NULL) {
        build_fail(builder, STATUS_INVALID,
                   "%s is 'llama3', but the tensor 'rope_freqs.weight' with its factors is missing: convert the model "
                   "again",
                   key);
    }
}

uint32_t build_rope(struct builder *builder, float base, enum rope_use use)
{
    if (builder->graph->error.status != STATUS_OK)
        return 0;
    if (!(base > 1)) {
        build_fail(builder, STATUS_INVALID, "%s.rope.freq_base is %g, but it must be above 1", builder->h->architecture,
                   (double)base);
        return 0;
    }
    struct rope_scaling scaling = {.type = ROPE_SCALING_NONE};
    if (use != ROPE_UNSCALED) {
        scaling.unrounded = use == ROPE_SCALED_UNROUNDED;
        read_scaling(builder, &scaling);
        scaling.factors = read_rope_factors(builder);
    }
    uint32_t n_rot = builder->h->n_rot;
    double *frequencies = arena_alloc_array(&builder->graph->arena, n_rot / 2, sizeof(*frequencies));
    if (frequencies == NULL) {
        build_fail(builder, STATUS_MEMORY, "out of memory for the model");
        return 0;
    }
    rope_init(&builder->model->ropes[builder->model->n_ropes], n_rot, (double)base, &scaling, frequencies);
    return builder->model->n_ropes++;
}

// ---- both ends ----

struct tensor *build_embedding(struct builder *builder)
{
    const struct hyperparameters *h = builder->h;
    return graph_embed(builder->graph, build_matrix(builder, "token_embd.weight", 0, h->n_embd, h->n_vocab));
}

void build_head(struct builder *builder, struct tensor *x)
{
    const struct hyperparameters *h = builder->h;
    struct graph *graph = builder->graph;
    struct tensor *norm = build_vector(builder, "output_norm.weight", 0, h->n_embd);
    struct tensor *output = build_optional_matrix(builder, "output.weight", 0, h->n_embd, h->n_vocab);
    if (output == NULL) // tied
        output = build_matrix(builder, "token_embd.weight", 0, h->n_embd, h->n_vocab);
    x = graph_select_rows(graph, x);
    x = graph_rms_norm(graph, x, norm, h->epsilon, 0);
    graph->output = graph_matmul(graph, output, x, 0); // [n_vocab, logit rows]
}
