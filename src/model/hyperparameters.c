// Hyperparameters: read and checked against each other before anything is built on them.
#include "model/model.h"

#include <stdio.h>
#include <string.h>

struct reader {
    const struct gguf *gguf;
    const char *architecture;
    struct error *error;
    enum status status;
};

static const char *full_key(const struct reader *reader, const char *key, char *text, size_t size)
{
    snprintf(text, size, "%s.%s", reader->architecture, key);
    return text;
}

static void read_u32(struct reader *reader, const char *key, bool required, uint32_t *value)
{
    char text[128];
    if (reader->status == STATUS_OK)
        reader->status =
            gguf_get_u32(reader->gguf, full_key(reader, key, text, sizeof(text)), required, value, reader->error);
}

// A number that files may give for each layer: those must be the same.
static void read_layers_u32(struct reader *reader, const char *key, bool required, uint32_t n_layer, uint32_t *value)
{
    char text[128];
    const struct gguf_value *found = gguf_find(reader->gguf, full_key(reader, key, text, sizeof(text)));
    if (found == NULL || found->type != GGUF_ARRAY) {
        read_u32(reader, key, required, value);
        return;
    }
    if (reader->status == STATUS_OK)
        reader->status = gguf_get_integer_array(reader->gguf, text, true, &found, reader->error);
    if (reader->status == STATUS_OK && found->count < n_layer)
        reader->status = error_set(reader->error, STATUS_INVALID, "%s has %llu elements, but there are %u layers", text,
                                   (unsigned long long)found->count, n_layer);
    if (reader->status != STATUS_OK)
        return;
    int64_t first = gguf_array_integer(found, 0);
    for (uint32_t layer = 0; layer < n_layer && reader->status == STATUS_OK; layer++) {
        int64_t other = gguf_array_integer(found, layer);
        if (other < 0 || other > UINT32_MAX)
            reader->status =
                error_set(reader->error, STATUS_INVALID, "%s says %lld for layer %u", text, (long long)other, layer);
        else if (other != first)
            reader->status =
                error_set(reader->error, STATUS_UNSUPPORTED,
                          "%s says %lld for layer 0 and %lld for layer %u: this version does not do layers "
                          "that differ in it",
                          text, (long long)first, (long long)other, layer);
    }
    *value = (uint32_t)first;
}

static void check(struct reader *reader, bool good, const char *key, uint32_t value, const char *wanted)
{
    if (reader->status == STATUS_OK && !good)
        reader->status = error_set(reader->error, STATUS_INVALID, "%s.%s is %u, but it must %s", reader->architecture,
                                   key, value, wanted);
}

static void read_attention(struct reader *reader, struct hyperparameters *h)
{
    read_layers_u32(reader, "attention.head_count", true, h->n_layer, &h->n_head);
    check(reader, h->n_head > 0 && h->n_head <= 65536, "attention.head_count", h->n_head, "be between 1 and 65536");
    h->n_kv_head = h->n_head;
    read_layers_u32(reader, "attention.head_count_kv", false, h->n_layer, &h->n_kv_head);
    check(reader, h->n_kv_head > 0 && h->n_head % (h->n_kv_head | (h->n_kv_head == 0)) == 0, "attention.head_count_kv",
          h->n_kv_head, "divide attention.head_count");
    if (reader->status != STATUS_OK)
        return;
    read_u32(reader, "attention.key_length", false, &h->head_dim);
    if (h->head_dim == 0) {
        check(reader, h->n_embd % h->n_head == 0, "attention.head_count", h->n_head, "divide embedding_length");
        h->head_dim = h->n_embd / h->n_head;
    }
    check(reader, h->head_dim > 0 && h->head_dim <= 4096, "attention.key_length", h->head_dim, "be between 1 and 4096");
    h->v_dim = h->head_dim;
    read_u32(reader, "attention.value_length", false, &h->v_dim);
    check(reader, h->v_dim > 0 && h->v_dim <= 4096, "attention.value_length", h->v_dim, "be between 1 and 4096");
    h->n_rot = h->head_dim;
    read_u32(reader, "rope.dimension_count", false, &h->n_rot);
    check(reader, h->n_rot > 0 && h->n_rot <= h->head_dim && h->n_rot % 2 == 0, "rope.dimension_count", h->n_rot,
          "be even and at most the length of a head");
    read_u32(reader, "attention.sliding_window", false, &h->window);
}

enum status model_read_hyperparameters(const struct gguf *gguf, struct hyperparameters *h, struct error *error)
{
    struct gguf_string name;
    enum status status = gguf_get_string(gguf, "general.architecture", true, &name, error);
    if (status != STATUS_OK)
        return status;
    *h = (struct hyperparameters){.architecture = name.text};
    if (name.size > 64)
        return error_set(error, STATUS_INVALID, "general.architecture is %zu bytes long", name.size);
    struct reader reader = {.gguf = gguf, .architecture = name.text, .error = error};
    read_u32(&reader, "block_count", true, &h->n_layer);
    check(&reader, h->n_layer > 0, "block_count", h->n_layer, "be at least 1");
    uint32_t n_next = 0; // layers that predict the tokens after the next one: not used
    read_u32(&reader, "nextn_predict_layers", false, &n_next);
    check(&reader, n_next == 0 || n_next < h->n_layer, "nextn_predict_layers", n_next,
          "be below block_count, which counts these layers too");
    h->n_layer -= n_next;
    read_u32(&reader, "embedding_length", true, &h->n_embd);
    check(&reader, h->n_embd > 0 && h->n_embd <= 1u << 20, "embedding_length", h->n_embd, "be between 1 and 1048576");
    uint32_t n_ff_expert = 0; // where there are only experts, feed_forward_length may be missing or 0
    read_u32(&reader, "expert_feed_forward_length", false, &n_ff_expert);
    read_layers_u32(&reader, "feed_forward_length", n_ff_expert == 0, h->n_layer, &h->n_ff);
    check(&reader, (h->n_ff > 0 || n_ff_expert > 0) && h->n_ff <= 1u << 24, "feed_forward_length", h->n_ff,
          "be between 1 and 16777216");
    read_u32(&reader, "expert_count", false, &h->n_expert);
    read_u32(&reader, "expert_used_count", false, &h->n_expert_used);
    read_u32(&reader, "context_length", true, &h->n_context);
    check(&reader, h->n_context > 0, "context_length", h->n_context, "be at least 1");
    read_attention(&reader, h);
    if (reader.status != STATUS_OK)
        return reader.status;

    char key[128];
    status = gguf_get_f32(gguf, full_key(&reader, "attention.layer_norm_rms_epsilon", key, sizeof(key)), true,
                          &h->epsilon, error);
    if (status != STATUS_OK)
        return status;
    if (!(h->epsilon >= 0 && h->epsilon < 1))
        return error_set(error, STATUS_INVALID, "%s is %g, but it must be between 0 and 1", key, (double)h->epsilon);
    const struct gguf_value *tokens = NULL;
    status = gguf_get_array(gguf, "tokenizer.ggml.tokens", GGUF_STRING, true, &tokens, error);
    if (status != STATUS_OK)
        return status;
    if (tokens->count == 0 || tokens->count > INT32_MAX)
        return error_set(error, STATUS_INVALID, "tokenizer.ggml.tokens has %llu tokens",
                         (unsigned long long)tokens->count);
    h->n_vocab = (uint32_t)tokens->count;
    return STATUS_OK;
}
