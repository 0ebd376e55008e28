// From a GGUF file to a graph: hyperparameters, weights and their shapes checked, and the architecture's forward pass.
// An architecture is one file in src/model/arch/ and a line in the table of src/model/model.c.
#ifndef MOTE_MODEL_MODEL_H
#define MOTE_MODEL_MODEL_H

#include "gguf/gguf.h"
#include "model/adapter.h"
#include "model/rope.h"
#include "tensor/device.h"
#include "tensor/graph.h"

// What all transformer architectures have. From the keys ARCHITECTURE.name; see docs/gguf.md.
struct hyperparameters {
    const char *architecture;
    uint32_t n_layer;                 // block_count, without the layers at the end that predict further tokens
    uint32_t n_embd;                  // embedding_length
    uint32_t n_ff;                    // feed_forward_length; 0 where there are only experts
    uint32_t n_head;                  // attention.head_count
    uint32_t n_kv_head;               // attention.head_count_kv; n_head where absent
    uint32_t head_dim;                // attention.key_length; n_embd / n_head where absent
    uint32_t v_dim;                   // attention.value_length; head_dim where absent
    uint32_t n_rot;                   // rope.dimension_count; head_dim where absent
    uint32_t n_vocab;                 // tokens in the vocabulary
    uint32_t n_context;               // context_length: what it was trained for
    float epsilon;                    // attention.layer_norm_rms_epsilon
    uint32_t window;                  // attention.sliding_window; 0 where absent
    uint32_t n_expert, n_expert_used; // expert_count, expert_used_count; 0 where absent
};

// A model as a graph: made by model_build, freed by model_graph_free.
struct model_graph {
    struct hyperparameters h;
    struct graph graph;
    struct rope ropes[MAX_ROPES];
    uint32_t n_ropes;
};

// What an architecture builds with. Errors are kept in graph->error (the first one), so that building reads as a list.
struct builder {
    const struct gguf *gguf;
    struct model_graph *model;
    struct graph *graph; // of model
    const struct hyperparameters *h;
    bool *read; // [gguf->n_values]: keys that something looked at
    bool *used; // [gguf->n_tensors]: tensors that the graph has
};

struct architecture {
    const char *name; // general.architecture
    void (*build)(struct builder *builder);
};

// Builds the forward pass. rules: precisions asked for (read while building only). On failure *model holds nothing.
enum status model_build(const struct gguf *gguf, const struct precision_rule *rules, size_t n_rules,
                        struct model_graph *model, struct error *error);
// The same with adapters behind the products that they change (NULL: none); they must have been opened for this file.
enum status model_build_adapted(const struct gguf *gguf, const struct precision_rule *rules, size_t n_rules,
                                const struct adapters *adapters, struct model_graph *model, struct error *error);
void model_graph_free(struct model_graph *model);
// Bytes of a weight of the graph, as its dtype has them (read_weight.c). Called by several threads at once.
enum status model_read_weight(const struct gguf *gguf, const struct tensor *weight, uint64_t offset, void *bytes,
                              size_t size, struct error *error);
// The tensor of one expert in files that have no stacks: "blk.N.ffn_up.3.weight" for 3 of "blk.N.ffn_up_exps.weight".
enum { MAX_NAME = 96 }; // characters of a tensor's name
bool model_piece_name(const char *stack, size_t index, char *name, size_t size);
// The hyperparameters alone.
enum status model_read_hyperparameters(const struct gguf *gguf, struct hyperparameters *h, struct error *error);

// ---- for architectures: weights (build.c) ----

// The first error while building; later ones are dropped.
void build_fail(struct builder *builder, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// A matrix [k inputs, n outputs] or a vector [n], by name: "blk.%u.attn_q.weight" with the layer. A missing tensor or
// another shape is an error; the optional forms give NULL where it is missing.
struct tensor *build_matrix(struct builder *builder, const char *format, uint32_t layer, size_t k, size_t n);
struct tensor *build_vector(struct builder *builder, const char *format, uint32_t layer, size_t n);
struct tensor *build_optional_matrix(struct builder *builder, const char *format, uint32_t layer, size_t k, size_t n);
struct tensor *build_optional_vector(struct builder *builder, const char *format, uint32_t layer, size_t n);
// A part of the rows of a matrix in the file: [first_row, first_row + n) of rows_in_file (fused projections).
struct tensor *build_matrix_part(struct builder *builder, const char *format, uint32_t layer, size_t k, size_t n,
                                 size_t first_row, size_t rows_in_file);
// A stack of `count` matrices [k, n] (experts, heads), or a part of the rows of each. Experts may also be tensors of
// their own (files of before April 2024), of one dtype.
struct tensor *build_stack(struct builder *builder, const char *format, uint32_t layer, size_t k, size_t n,
                           size_t count);
struct tensor *build_stack_part(struct builder *builder, const char *format, uint32_t layer, size_t k, size_t n,
                                size_t count, size_t first_row, size_t rows_in_file);
// The same where the file has these matrices in one, each below the one before it: [k, rows_in_file · count].
struct tensor *build_flat_stack_part(struct builder *builder, const char *format, uint32_t layer, size_t k, size_t n,
                                     size_t count, size_t first_row, size_t rows_in_file);
// Matrices [k, n] that are the first k of each rows_in_file rows of such a matrix [n, rows_in_file · count], turned:
// decoded to F32 while they are read.
struct tensor *build_turned_stack(struct builder *builder, const char *format, uint32_t layer, size_t k, size_t n,
                                  size_t count, size_t rows_in_file);
bool build_has_tensor(const struct builder *builder, const char *format, uint32_t layer);
// Keys of this architecture: "rope.freq_base" is read as "llama.rope.freq_base". The default where the key is missing.
float build_f32(struct builder *builder, const char *key, float missing);
uint32_t build_u32(struct builder *builder, const char *key, uint32_t missing);
bool build_bool(struct builder *builder, const char *key, bool missing);
// The value of a key of any type, NULL where it is missing.
const struct gguf_value *build_find_key(struct builder *builder, const char *key);
// Keys that begin so ask for nothing in this model: they are not refused.
void build_skip_keys(struct builder *builder, const char *beginning);
// Fails where the key is there and not zero: it asks for something that the architecture's file does not do.
void build_refuse(struct builder *builder, const char *key, const char *what);
// Fails where the file has a tensor that the graph does not, or a key that changes a model and that nothing looked at
// (unread.c): what a model asks for is done or refused, never left out in silence. model_build calls it at the end.
void build_check_unread(struct builder *builder);

// ---- for architectures: parts ----

// The embedding of the tokens and, at the other end, the selected rows through norm and output head (the embedding
// where it is tied): sets graph->output.
struct tensor *build_embedding(struct builder *builder);
void build_head(struct builder *builder, struct tensor *x);

enum rope_use {
    ROPE_UNSCALED,
    ROPE_SCALED,           // by the keys rope.scaling.*
    ROPE_SCALED_UNROUNDED, // likewise; YaRN's range of pairs is not rounded
};
// A rotation from base; its index.
uint32_t build_rope(struct builder *builder, float base, enum rope_use use);

enum head_norms {
    HEAD_NORMS_NONE,
    HEAD_NORMS_EACH, // blk.N.attn_{q,k}_norm.weight [head_dim], over each head
    HEAD_NORMS_ROW,  // [n_head · head_dim], [n_kv_head · head_dim]: over all heads together
};

// Queries are multiplied by 1 + scale · ln(1 + ⌊position / length⌋): flatter or sharper attention far away.
struct temperature {
    float scale; // 0: none
    uint32_t length;
};
// From attention.temperature_scale and _length, or, without the latter, rope.scaling.original_context_length.
struct temperature build_temperature(struct builder *builder);

struct attention_options {
    uint32_t rope;
    bool neox;    // halves are rotated, not neighbours
    bool no_rope; // nothing is rotated
    enum head_norms head_norms;
    bool norms_after_rope; // else before
    bool sinks;            // blk.N.attn_sinks.weight [n_head]: scores without values
    uint32_t window;       // 0: all positions
    float scale;           // of the scores; 0: 1/sqrt(head_dim)
    float clamp;           // q, k and v lie within ±this before the rotation; 0: no bounds
    struct temperature temperature;
};
// x [n_embd, rows], normed → q, k, v (with biases where the file has them) → attention → output projection. Where the
// file has attn_qkv, its rows are q, k and v.
struct tensor *build_attention(struct builder *builder, uint32_t layer, struct tensor *x,
                               const struct attention_options *options);

// Multi-head latent attention (mla.c), from the keys attention.{kv,q}_lora_rank, {key,value}_length_mla and others.
struct mla_options {
    uint32_t rope;
    uint32_t n_q_latent; // the queries' latent; 0: they come from x at once
    uint32_t n_latent;   // the latent that is key and value
    uint32_t n_nope;     // elements of a head's query that are not rotated; h->n_rot others are
    uint32_t v_dim;      // of a head
    float score_scale;
    struct temperature temperature;
};
void build_mla_options(struct builder *builder, struct mla_options *options);
// As build_attention.
struct tensor *build_mla(struct builder *builder, uint32_t layer, struct tensor *x, const struct mla_options *options);

// Whether a layer sees only the last attention.sliding_window positions: as attention.sliding_window_pattern says (a
// bool a layer, or a number n: all but every n-th layer, 0: all), or, where that key is missing, as period says.
bool build_layer_has_window(struct builder *builder, uint32_t layer, uint32_t period);
// down(activation(gate x) · up x), with biases where the file has them
struct tensor *build_mlp(struct builder *builder, uint32_t layer, struct tensor *x, enum activation activation);

// A mixture of experts (moe.c; docs/moe.md). Tensors that may be there or not are found by name: selection bias
// (exp_probs_b), biases, per-expert scales, gate and up merged (ffn_gate_up_exps), shared experts (…_shexp) and their
// gate.
struct moe_options {
    struct routing routing;
    enum activation activation;
    float limit, alpha;   // of SILU_CLAMPED
    uint32_t n_ff;        // hidden units of an expert
    uint32_t n_ff_shared; // of the shared expert; 0: none
    bool weights_before;  // the weights multiply what goes into the experts, not what comes out
    // Which layers have experts, where a key says so (by_key); else those that have a router.
    bool by_key;
    uint32_t n_dense;             // leading_dense_block_count
    uint32_t period, period_rest; // of layers: those whose number is period_rest modulo period; 0: none
};
// Routing and sizes from the keys expert_* of the file, checked; what a family fixes (gating, normalize …) is set
// before by the architecture and replaced where the file says otherwise.
void build_moe_options(struct builder *builder, struct moe_options *options);
// Whether the file says that it has experts; a router without the key is an error.
bool build_has_experts(struct builder *builder);
// x [n_embd, rows], normed → [n_embd, rows]
struct tensor *build_moe(struct builder *builder, uint32_t layer, struct tensor *x, const struct moe_options *options);
bool build_layer_has_experts(const struct builder *builder, uint32_t layer, const struct moe_options *options);

// A decoder of pre-norm layers, from the embedding to the logits: attention and feed-forward block or experts, both
// added to the residual.
struct decoder_options {
    struct attention_options attention; // of the layers that see all positions
    uint32_t window_rope;               // the rotation of layers with a window
    bool window_unscaled;               // rope.scaling.* is not for them
    bool yarn_unrounded;                // see enum rope_use
    uint32_t window_period;             // see build_layer_has_window
    const struct mla_options *mla;      // NULL: attention; else latent attention in its place
    const struct moe_options *moe;      // NULL: no layer has experts
    const char *ffn_norm;               // a tensor's name; NULL: "blk.%u.ffn_norm.weight"
    float embedding_scale;              // of the embedding; 0: 1
    float residual_scale;               // of what each block adds; 0: 1
    float logit_scale;                  // of the logits; 0: 1
};
// Rotations and the scale of the scores from the keys rope.freq_base, rope.freq_base_swa, rope.scaling.* and
// attention.scale; window_unscaled and yarn_unrounded are set before.
void build_decoder_options(struct builder *builder, struct decoder_options *options);
void build_decoder(struct builder *builder, const struct decoder_options *options);

extern const struct architecture arch_bailingmoe;
extern const struct architecture arch_deepseek2;
extern const struct architecture arch_gemma3;
extern const struct architecture arch_glm4moe;
extern const struct architecture arch_gpt_oss;
extern const struct architecture arch_granite;
extern const struct architecture arch_granitemoe;
extern const struct architecture arch_llama;
extern const struct architecture arch_mellum;
extern const struct architecture arch_mistral3;
extern const struct architecture arch_mistral4;
extern const struct architecture arch_olmoe;
extern const struct architecture arch_qwen2;
extern const struct architecture arch_qwen2moe;
extern const struct architecture arch_qwen3;
extern const struct architecture arch_qwen3moe;

#endif
