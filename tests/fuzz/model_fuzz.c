// Damages a tiny model and runs it. The input is [model][mutation]…, of 4 bytes each: what is done to which of the
// file's keys or tensors, with which of the values below. What comes of it is written as a GGUF file that is sound as
// such (damaged files are gguf_fuzz's) and run as a user would run it. That gives a sentence saying what is wrong, or
// finite logits that are the same token by token and as a batch: never a crash, and never other numbers.
//
// With MOTE_FUZZ_VERBOSE set, says what was done and what came of it.
#include "base/buffer.h"
#include "gguf/gguf.h"
#include "mote.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const model_names[] = {
    "mixtral",        "qwen2moe",          "qwen3moe",         "olmoe",          "granitemoe",
    "mellum",         "gpt-oss",           "glm4moe",          "gpt-oss-mxfp4",  "mistral4",
    "deepseek2",      "deepseek2-groups",  "mellum-bases",     "mistral4-far",   "mistral3",
    "deepseek2-lite", "deepseek2-old",     "deepseek2-blocks", "mixtral-pieces", "qwen2moe-dense",
    "granite4",       "gpt-oss-published",
};

// Tensors and keys that some family has and another may be given. Shapes by letter: e experts, n the model's width, f
// an expert's hidden units, 1.
static const struct {
    const char *name, *shape;
} more_tensors[] = {
    {"blk.0.ffn_gate_exps.scale", "e"},
    {"blk.0.ffn_up_exps.scale", "e"},
    {"blk.0.ffn_down_exps.scale", "e"},
    {"blk.0.ffn_gate_exps.bias", "fe"},
    {"blk.0.ffn_up_exps.bias", "fe"},
    {"blk.0.ffn_down_exps.bias", "ne"},
    {"blk.0.exp_probs_b.bias", "e"},
    {"blk.0.ffn_gate_inp.bias", "e"},
    {"blk.0.ffn_gate_inp_shexp.weight", "n1"},
    {"blk.0.ffn_gate_inp_shexp.weight", "n"},
    {"blk.0.ffn_up_shexp.weight", "nf"},
    {"blk.0.ffn_gate_up_exps.weight", "nfe"},
    {"blk.0.ffn_down.weight", "fn"},
    {"blk.0.ffn_gate.0.weight", "nf"},
    {"blk.0.attn_sinks.weight", "e"},
    {"blk.0.attn_output.bias", "n"},
    {"rope_freqs.weight", "e"},
};

static const char *const more_keys[] = {
    "expert_count",
    "expert_used_count",
    "expert_group_count",
    "expert_group_used_count",
    "expert_gating_func",
    "expert_weights_scale",
    "expert_weights_norm",
    "expert_shared_count",
    "expert_shared_feed_forward_length",
    "expert_feed_forward_length",
    "experts_per_group",
    "leading_dense_block_count",
    "interleave_moe_layer_step",
    "moe_every_n_layers",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.scale",
    "attention.clamp_kqv",
    "attention.temperature_scale",
    "attention.temperature_length",
    "rope.freq_base_swa",
    "rope.dimension_count",
    "rope.scaling.factor",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_log_multiplier",
    "rope.scaling.original_context_length",
    "attention.key_length_mla",
    "attention.value_length_mla",
    "attention.kv_lora_rank",
    "attention.q_lora_rank",
    "nextn_predict_layers",
};

static const double numbers[] = {
    0,   1,   2,     3,    4,     5,     7,     8,       16,      17,           31,           32,           33,
    64,  96,  255,   256,  4096,  65535, 65536, 1 << 20, 1 << 24, 2147483647.0, 2147483648.0, 4294967295.0, -1,
    0.5, 1.5, 1e-30, 1e30, -1e30, 3e38,  -0.5,  1e-45,   NAN,     INFINITY,     -INFINITY,
};

static const enum gguf_type types[] = {GGUF_U8,  GGUF_I8,   GGUF_U16,    GGUF_I16, GGUF_U32, GGUF_I32,
                                       GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_U64, GGUF_I64, GGUF_F64};

static const enum dtype dtypes[] = {DTYPE_F32,  DTYPE_F16,  DTYPE_BF16,   DTYPE_Q8_0,  DTYPE_Q4_0,
                                    DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1,   DTYPE_Q2_K,  DTYPE_Q3_K,
                                    DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K,   DTYPE_MXFP4, DTYPE_I32,
                                    DTYPE_F64,  DTYPE_Q8_K, DTYPE_IQ4_NL, DTYPE_I8,    DTYPE_Q8_1};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { MAX_ENTRIES = 512 };

// The file as it will be written.
struct draft {
    struct gguf *base;
    const char *architecture;
    struct gguf_value values[MAX_ENTRIES];
    size_t n_values;
    struct {
        struct gguf_tensor tensor;        // as wanted
        const struct gguf_tensor *source; // whose bytes are repeated; NULL: zeros
        int fill;                         // -1: as they are, else each byte
    } tensors[MAX_ENTRIES];
    size_t n_tensors;
    struct arena arena;
    char log[4096];
};

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void note(struct draft *draft, const char *what, const char *name, double number)
{
    size_t length = strlen(draft->log);
    snprintf(draft->log + length, sizeof(draft->log) - length, " | %s %s %g", what, name, number);
}

// ---- what is done ----

// A number as a value of this type, as far as the type can hold it.
static void set_number(struct gguf_value *value, enum gguf_type type, double number)
{
    value->type = type;
    value->u = 0;
    if (type == GGUF_F32 || type == GGUF_F64) {
        value->f = number;
    } else if (type == GGUF_STRING) {
        value->string = (struct gguf_string){.text = "nonsense", .size = 8};
    } else if (type == GGUF_BOOL) {
        value->u = number != 0;
    } else if (number >= 0 && number < 1e18) {
        value->u = (uint64_t)number;
    } else {
        value->i = -1;
    }
}

static bool is_tokenizers(const struct gguf_value *value)
{
    return strncmp(value->key.text, "tokenizer.", 10) == 0 || strncmp(value->key.text, "general.", 8) == 0;
}

// The i-th key that is about the computation.
static struct gguf_value *key_at(struct draft *draft, uint8_t i)
{
    size_t n = 0;
    for (size_t k = 0; k < draft->n_values; k++)
        n += !is_tokenizers(&draft->values[k]);
    if (n == 0)
        return NULL;
    size_t wanted = i % n;
    for (size_t k = 0; k < draft->n_values; k++) {
        if (!is_tokenizers(&draft->values[k]) && wanted-- == 0)
            return &draft->values[k];
    }
    return NULL;
}

static void set_key(struct draft *draft, uint8_t target, uint8_t number)
{
    struct gguf_value *value = key_at(draft, target);
    double x = numbers[number % COUNT(numbers)];
    if (value == NULL)
        return;
    bool scalar = value->type != GGUF_ARRAY && value->type != GGUF_STRING;
    note(draft, "set", value->key.text, x);
    set_number(value, scalar ? value->type : GGUF_U32, x);
}

static void retype_key(struct draft *draft, uint8_t target, uint8_t type)
{
    struct gguf_value *value = key_at(draft, target);
    if (value == NULL || value->type == GGUF_ARRAY)
        return;
    double x = value->type == GGUF_F32 || value->type == GGUF_F64 ? value->f : (double)value->u;
    note(draft, "retype", value->key.text, types[type % COUNT(types)]);
    set_number(value, types[type % COUNT(types)], value->type == GGUF_STRING ? 1 : x);
}

static void drop_key(struct draft *draft, uint8_t target)
{
    struct gguf_value *value = key_at(draft, target);
    if (value == NULL)
        return;
    note(draft, "drop key", value->key.text, 0);
    *value = draft->values[--draft->n_values];
}

static void add_key(struct draft *draft, uint8_t target, uint8_t number)
{
    char text[128];
    snprintf(text, sizeof(text), "%s.%s", draft->architecture, more_keys[target % COUNT(more_keys)]);
    char *key = arena_copy_text(&draft->arena, text, strlen(text));
    struct gguf_value value = {.key = {key, strlen(text)}};
    double x = numbers[number % COUNT(numbers)];
    set_number(&value, x == floor(x) && x >= 0 && number < 128 ? GGUF_U32 : GGUF_F32, x);
    note(draft, "add key", key, x);
    for (size_t i = 0; i < draft->n_values; i++) {
        if (strcmp(draft->values[i].key.text, key) == 0) {
            set_number(&draft->values[i], value.type, x);
            return;
        }
    }
    require(draft->n_values < MAX_ENTRIES);
    draft->values[draft->n_values++] = value;
}

// An array of bools or of numbers, as long as the number says, or of as many as there are layers.
static void array_key(struct draft *draft, uint8_t target, uint8_t number)
{
    struct gguf_value *value = key_at(draft, target);
    if (value == NULL)
        return;
    size_t n = number % 32;
    uint32_t *elements = arena_alloc_array(&draft->arena, n + 1, sizeof(*elements));
    for (size_t i = 0; i < n; i++)
        elements[i] = number < 128 ? 1 + (uint32_t)i % 2 : (uint32_t)(number - 129) * (uint32_t)i;
    *value =
        (struct gguf_value){.key = value->key, .type = GGUF_ARRAY, .element = GGUF_U32, .count = n, .array = elements};
    note(draft, "array", value->key.text, (double)n);
}

static void retype_tensor(struct draft *draft, uint8_t target, uint8_t dtype)
{
    struct gguf_tensor *tensor = &draft->tensors[target % draft->n_tensors].tensor;
    tensor->dtype = dtypes[dtype % COUNT(dtypes)];
    note(draft, dtype_get(tensor->dtype)->name, tensor->name, 0);
}

static void swap(uint64_t *a, uint64_t *b)
{
    uint64_t c = *a;
    *a = *b;
    *b = c;
}

static void reshape_tensor(struct draft *draft, uint8_t target, uint8_t how)
{
    struct gguf_tensor *tensor = &draft->tensors[target % draft->n_tensors].tensor;
    uint64_t *ne = tensor->ne;
    uint64_t *d = &ne[how / 16 % 3];
    note(draft, "reshape", tensor->name, how);
    switch (how % 16) {
    case 0:
        swap(&ne[0], &ne[1]);
        break;
    case 1:
        swap(&ne[1], &ne[2]);
        break;
    case 2:
        swap(&ne[0], &ne[2]);
        break;
    case 3:
        *d += 1;
        break;
    case 4:
        *d -= *d > 1;
        break;
    case 5:
        *d *= 2;
        break;
    case 6:
        *d = *d > 1 ? *d / 2 : 1;
        break;
    case 7:
        *d = 1;
        break;
    case 8:
        *d = 0;
        break;
    case 9: // flat
        ne[0] *= ne[1] * ne[2];
        ne[1] = ne[2] = 1;
        tensor->n_dims = 1;
        break;
    case 10: // one matrix
        ne[1] *= ne[2];
        ne[2] = 1;
        tensor->n_dims = 2;
        break;
    case 11:
        tensor->n_dims = 4;
        break;
    case 12:
        tensor->n_dims = 4;
        ne[3] = 2;
        break;
    default:
        *d = how;
    }
    if (tensor->n_dims < 3 && ne[2] != 1)
        tensor->n_dims = 3;
    else if (tensor->n_dims < 2 && ne[1] != 1)
        tensor->n_dims = 2;
}

static void drop_tensor(struct draft *draft, uint8_t target)
{
    size_t i = target % draft->n_tensors;
    note(draft, "drop", draft->tensors[i].tensor.name, 0);
    if (draft->n_tensors > 1)
        draft->tensors[i] = draft->tensors[--draft->n_tensors];
}

static uint64_t number_of(const struct draft *draft, const char *key)
{
    char text[128];
    uint32_t number = 1;
    snprintf(text, sizeof(text), "%s.%s", draft->architecture, key);
    (void)gguf_get_u32(draft->base, text, false, &number, NULL);
    return number == 0 ? 1 : number;
}

// A tensor of the list; value: its dtype, and whether an extent is one too many.
static void add_tensor(struct draft *draft, uint8_t target, uint8_t value)
{
    const char *shape = more_tensors[target % COUNT(more_tensors)].shape;
    struct gguf_tensor tensor = {.name = more_tensors[target % COUNT(more_tensors)].name,
                                 .dtype = dtypes[value % 32 % COUNT(dtypes)],
                                 .n_dims = (uint32_t)strlen(shape),
                                 .ne = {1, 1, 1, 1}};
    for (uint32_t d = 0; d < tensor.n_dims; d++)
        tensor.ne[d] = shape[d] == 'e'   ? number_of(draft, "expert_count")
                       : shape[d] == 'n' ? number_of(draft, "embedding_length")
                       : shape[d] == 'f' ? number_of(draft, "expert_feed_forward_length")
                                         : 1;
    if (shape[0] == 'f' && tensor.ne[0] == 1)
        tensor.ne[0] = number_of(draft, "feed_forward_length");
    if (value / 32 % 4 == 1)
        tensor.ne[0]++;
    if (value / 32 % 4 == 2)
        tensor.ne[tensor.n_dims - 1]++;
    note(draft, "add", tensor.name, value);
    for (size_t i = 0; i < draft->n_tensors; i++) {
        if (strcmp(draft->tensors[i].tensor.name, tensor.name) == 0)
            return;
    }
    require(draft->n_tensors < MAX_ENTRIES);
    draft->tensors[draft->n_tensors].tensor = tensor;
    draft->tensors[draft->n_tensors].source = &draft->base->tensors[0];
    draft->tensors[draft->n_tensors++].fill = -1;
}

static void fill_tensor(struct draft *draft, uint8_t target, uint8_t fill)
{
    draft->tensors[target % draft->n_tensors].fill = fill;
    note(draft, "fill", draft->tensors[target % draft->n_tensors].tensor.name, fill);
}

// A tensor that asks for gigabytes which the file does not have.
static void grow_tensor(struct draft *draft, uint8_t target, uint8_t d)
{
    struct gguf_tensor *tensor = &draft->tensors[target % draft->n_tensors].tensor;
    tensor->ne[d % 3] = (uint64_t)1 << (d / 3 % 64);
    note(draft, "grow", tensor->name, d);
}

static void mutate(struct draft *draft, const uint8_t *m)
{
    uint8_t target = m[1], value = m[2];
    switch (m[0] % 11) {
    case 0:
        set_key(draft, target, value);
        break;
    case 1:
        retype_key(draft, target, value);
        break;
    case 2:
        drop_key(draft, target);
        break;
    case 3:
        add_key(draft, target, value);
        break;
    case 4:
        array_key(draft, target, value);
        break;
    case 5:
        retype_tensor(draft, target, value);
        break;
    case 6:
        reshape_tensor(draft, target, value);
        break;
    case 7:
        drop_tensor(draft, target);
        break;
    case 8:
        add_tensor(draft, target, value);
        break;
    case 9:
        fill_tensor(draft, target, value);
        break;
    default:
        grow_tensor(draft, target, value);
    }
}

// ---- the file ----

static void draft_open(struct draft *draft, const char *name)
{
    char path[512];
    struct error error = {0};
    memset(draft, 0, sizeof(*draft));
    arena_init(&draft->arena, 0);
    snprintf(path, sizeof(path), "%s/models/%s.gguf", TEST_DATA, name);
    struct gguf_string architecture;
    require(gguf_open(path, &draft->base, &error) == STATUS_OK);
    require(gguf_get_string(draft->base, "general.architecture", true, &architecture, &error) == STATUS_OK);
    draft->architecture = architecture.text;
    require(draft->base->n_values <= MAX_ENTRIES && draft->base->n_tensors <= MAX_ENTRIES);
    draft->n_values = draft->base->n_values;
    memcpy(draft->values, draft->base->values, draft->n_values * sizeof(*draft->values));
    for (size_t i = 0; i < draft->base->n_tensors; i++) {
        draft->tensors[i].tensor = draft->base->tensors[i];
        draft->tensors[i].source = &draft->base->tensors[i];
        draft->tensors[i].fill = -1;
    }
    draft->n_tensors = draft->base->n_tensors;
}

// As many bytes as a tensor's data takes; the source's, over and over.
static enum status write_data(struct draft *draft, size_t i, struct gguf_writer *writer, struct error *error)
{
    const struct gguf_tensor *tensor = &draft->tensors[i].tensor, *source = draft->tensors[i].source;
    const struct dtype_desc *dtype = dtype_get(tensor->dtype);
    uint64_t left = tensor->ne[0] * tensor->ne[1] * tensor->ne[2] * tensor->ne[3] / dtype->block * dtype->bytes;
    uint8_t *bytes = malloc(source->size);
    require(bytes != NULL && gguf_read_tensor(draft->base, source, 0, bytes, source->size, error) == STATUS_OK);
    if (draft->tensors[i].fill >= 0)
        memset(bytes, draft->tensors[i].fill, source->size);
    // Floats read as other floats would be garbage of our making: a float is small instead.
    bool plain = dtype->block == 1 && tensor->dtype != source->dtype && draft->tensors[i].fill < 0;
    if (plain)
        memset(bytes, tensor->dtype == DTYPE_F16 ? 0x20 : 0x3c, source->size);
    enum status status = STATUS_OK;
    while (left > 0 && status == STATUS_OK) {
        size_t n = left < source->size ? left : source->size;
        status = gguf_writer_write(writer, bytes, n, error);
        left -= n;
    }
    free(bytes);
    return status;
}

static enum status draft_write(struct draft *draft, const char *path, struct error *error)
{
    struct gguf_writer *writer = NULL;
    uint64_t total = 0;
    enum status status = gguf_writer_create(path, &writer, error);
    for (size_t i = 0; i < draft->n_values && status == STATUS_OK; i++)
        status = gguf_writer_add_value(writer, &draft->values[i], error);
    for (size_t i = 0; i < draft->n_tensors && status == STATUS_OK; i++) {
        const struct gguf_tensor *tensor = &draft->tensors[i].tensor;
        status = gguf_writer_add_tensor(writer, tensor->name, tensor->dtype, tensor->n_dims, tensor->ne, error);
        double size = (double)tensor->ne[0] * (double)tensor->ne[1] * (double)tensor->ne[2] * (double)tensor->ne[3];
        total += size < 1 << 28 ? (uint64_t)size : 1 << 28;
    }
    if (status == STATUS_OK && total > 1 << 25)
        status = error_set(error, STATUS_INVALID, "too large for this test");
    for (size_t i = 0; i < draft->n_tensors && status == STATUS_OK; i++)
        status = write_data(draft, i, writer, error);
    if (status == STATUS_OK)
        return gguf_writer_finish(writer, error);
    gguf_writer_abort(writer);
    return status;
}

// ---- the run ----

enum { N_TOKENS = 11, MAX_VOCAB = 1024 };

struct logits {
    float values[N_TOKENS][MAX_VOCAB];
    size_t n_vocab, n;
};

static int keep(void *user, size_t input, size_t index, const float *logits)
{
    struct logits *kept = user;
    (void)input;
    (void)index;
    for (size_t i = 0; i < kept->n_vocab; i++)
        require(isfinite(logits[i]));
    memcpy(kept->values[kept->n++], logits, kept->n_vocab * sizeof(float));
    return 0;
}

// The tokens in runs of `at_once`.
static mote_status run(mote_engine *engine, size_t at_once, struct logits *logits, mote_error *error)
{
    static const int32_t tokens[N_TOKENS] = {72, 101, 108, 108, 111, 32, 44, 10, 1, 2, 255};
    mote_session *session = NULL;
    mote_status status = mote_session_create(engine, &session, error);
    logits->n = 0;
    for (size_t i = 0; i < N_TOKENS && status == MOTE_OK; i += at_once) {
        size_t n = N_TOKENS - i < at_once ? N_TOKENS - i : at_once;
        mote_input input = {.session = session, .tokens = tokens + i, .n_tokens = n, .want = MOTE_WANT_ALL};
        status = mote_engine_run(engine, &input, 1, keep, logits, error);
    }
    mote_session_destroy(session);
    return status;
}

static mote_status run_model(mote_model *model, uint8_t options, double *sum, mote_error *error)
{
    mote_engine_params params;
    mote_engine_params_default(&params);
    params.n_threads = 2;
    params.n_context = N_TOKENS;
    params.n_batch = 7;
    params.n_logits = 3;
    params.precision = options & 1 ? "f32" : NULL;
    mote_engine *engine = NULL;
    static struct logits alone, together;
    alone.n_vocab = together.n_vocab = mote_model_n_vocab(model);
    require(alone.n_vocab <= MAX_VOCAB);
    mote_status status = mote_engine_create(model, &params, &engine, error);
    if (status == MOTE_OK)
        status = run(engine, 1, &alone, error);
    if (status == MOTE_OK)
        status = run(engine, N_TOKENS, &together, error);
    mote_engine_destroy(engine);
    if (status != MOTE_OK)
        return status;
    for (size_t i = 0; i < N_TOKENS; i++) {
        require(memcmp(alone.values[i], together.values[i], alone.n_vocab * sizeof(float)) == 0);
        for (size_t j = 0; j < alone.n_vocab; j++)
            *sum += (double)fabsf(alone.values[i][j]);
    }
    return MOTE_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct draft draft;
    struct error written = {0};
    mote_error error = {0};
    char path[64];
    if (size < 1)
        return 0;
    snprintf(path, sizeof(path), "/tmp/mote-model-fuzz-%ld.gguf", (long)getpid());
    draft_open(&draft, model_names[data[0] % COUNT(model_names)]);
    for (size_t i = 1; i + 4 <= size && i < 1 + 4 * 8; i += 4)
        mutate(&draft, data + i);
    bool verbose = getenv("MOTE_FUZZ_VERBOSE") != NULL;
    if (verbose) {
        printf("%s%s: ", model_names[data[0] % COUNT(model_names)], draft.log);
        fflush(stdout);
    }
    if (draft_write(&draft, path, &written) != STATUS_OK) {
        if (verbose)
            printf("NOT WRITTEN %s\n", written.message);
    } else {
        mote_model *model = NULL;
        double sum = 0;
        mote_status status = mote_model_open(path, NULL, &model, &error);
        if (status == MOTE_OK)
            status = run_model(model, size > 4 ? data[4] : 0, &sum, &error);
        mote_model_close(model);
        require((status == MOTE_OK) == (error.message[0] == '\0'));
        if (verbose && status == MOTE_OK)
            printf("RUNS %.9g\n", sum);
        else if (verbose)
            printf("ERROR %d %s\n", (int)status, error.message);
    }
    unlink(path);
    gguf_close(draft.base);
    arena_free(&draft.arena);
    return 0;
}
