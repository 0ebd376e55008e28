/*
 * mote: runs mixture-of-experts and dense language models from GGUF files.
 *
 * The whole public interface. Handles are opaque; every function that can fail returns a status and fills an error
 * (which may be NULL). Text is UTF-8 with its size in bytes and may contain NULs. What a function hands out through a
 * `char **` or an `int32_t **` is freed with mote_free. The library never prints, never exits, and takes no lock on
 * your behalf: a model is immutable and may be shared by threads, an engine and its sessions belong to one thread at a
 * time. Compiles as C99 and C++.
 */
#ifndef MOTE_H
#define MOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MOTE_API __attribute__((visibility("default")))
#else
#define MOTE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status and errors ---------------------------------------------------------------------------------------- */

typedef enum mote_status {
    MOTE_OK = 0,
    MOTE_INVALID,     /* bad input: a file, a request, an argument */
    MOTE_IO,          /* the operating system refused to open, read or write */
    MOTE_MEMORY,      /* not enough memory */
    MOTE_UNSUPPORTED, /* well-formed, but asks for something that mote does not do */
    MOTE_FULL,        /* the context has no room for another token */
    MOTE_CANCELLED    /* a callback or mote_engine_cancel asked to stop */
} mote_status;

typedef struct mote_error {
    mote_status status;
    char message[1024]; /* one sentence: what is wrong, where, what to do; empty where status is MOTE_OK */
} mote_error;

/* "0.1.0" */
MOTE_API const char *mote_version(void);
/* Changes whenever the bits of an answer may change. */
MOTE_API int mote_numerics_version(void);
MOTE_API void mote_free(void *memory);

/* ---- models --------------------------------------------------------------------------------------------------- */

typedef struct mote_model mote_model;

typedef enum mote_log_level { MOTE_DEBUG, MOTE_INFO, MOTE_WARNING } mote_log_level;
typedef void (*mote_log_fn)(void *user, mote_log_level level, const char *message);
/* done of total bytes; non-zero: stop (the call returns MOTE_CANCELLED). Called on the caller's thread. */
typedef int (*mote_progress_fn)(void *user, uint64_t done, uint64_t total);

typedef struct mote_model_params {
    size_t size;     /* sizeof(mote_model_params), set by mote_model_params_default */
    const char *pre; /* replaces the file's tokenizer.ggml.pre; NULL: the file's own */
    mote_log_fn log;
    void *log_user;
} mote_model_params;
MOTE_API void mote_model_params_default(mote_model_params *params);

/*
 * Opens a GGUF file (any part of a split one) and checks its structure. No weights are read. Tokenizer and
 * hyperparameters are read when first needed, so that any GGUF file can be inspected. params: NULL for the defaults.
 */
MOTE_API mote_status mote_model_open(const char *path, const mote_model_params *params, mote_model **model,
                                     mote_error *error);
MOTE_API void mote_model_close(mote_model *model); /* NULL is allowed */

typedef enum mote_description {
    MOTE_METADATA, /* {"version", "files", "size", "keys": [{"key", "type", "count", "value"}] } */
    MOTE_TENSORS,  /* [{"name", "dtype", "shape", "size", "offset", "part"}] */
    MOTE_MODEL,    /* {"architecture", "name", "parameters", "hyperparameters": {…}, "tokenizer": {…}} */
    /* For engine params: {"steps": [{"step", "kind", "rows", "kernels", "ops", and of matmuls "weights", "source",
       "bytes"}], "memory": {…}, "settings": {…}} */
    MOTE_PLAN
} mote_description;
struct mote_engine_params;
/* A description as JSON text. params is read for MOTE_PLAN only (NULL: the defaults). */
MOTE_API mote_status mote_model_describe(mote_model *model, mote_description what,
                                         const struct mote_engine_params *params, char **json, mote_error *error);

/* The number of tokens in the vocabulary, and the context the model was trained for; 0 where the file has none. */
MOTE_API size_t mote_model_n_vocab(const mote_model *model);
MOTE_API size_t mote_model_n_context(const mote_model *model);
/* A metadata string by key; NULL where there is none. Belongs to the model. */
MOTE_API const char *mote_model_string(const mote_model *model, const char *key);

typedef struct mote_tensor_info {
    char dtype[16];
    uint32_t n_dims;
    uint64_t shape[4]; /* shape[0] is contiguous; 1 beyond n_dims */
    uint64_t n_elements;
    uint64_t bytes;
} mote_tensor_info;
MOTE_API mote_status mote_tensor_find(const mote_model *model, const char *name, mote_tensor_info *info,
                                      mote_error *error);
/* Elements [first, first + count) in F32; first and count are whole rows (multiples of shape[0]). */
MOTE_API mote_status mote_tensor_read_f32(const mote_model *model, const char *name, uint64_t first, uint64_t count,
                                          float *values, mote_error *error);
/* All elements of a tensor of dtype i32. */
MOTE_API mote_status mote_tensor_read_i32(const mote_model *model, const char *name, int32_t *values, uint64_t count,
                                          mote_error *error);

/* ---- text ----------------------------------------------------------------------------------------------------- */

typedef struct mote_range { /* bytes [begin, end) of a text */
    size_t begin, end;
} mote_range;

/*
 * Text to ids. Control tokens are recognised only where they lie wholly within a `special` range (ascending; NULL and
 * 0: nowhere). Neither BOS nor EOS is added: see mote_token_bos and mote_adds_bos.
 */
MOTE_API mote_status mote_tokenize(mote_model *model, const char *text, size_t size, const mote_range *special,
                                   size_t n_special, int32_t **ids, size_t *n_ids, mote_error *error);
/* Ids to bytes (which need not be valid UTF-8). special: write control tokens too. */
MOTE_API mote_status mote_detokenize(mote_model *model, const int32_t *ids, size_t n_ids, bool special, char **text,
                                     size_t *size, mote_error *error);
/* The piece of an id as the file stores it; belongs to the model. */
MOTE_API mote_status mote_token_piece(mote_model *model, int32_t id, const char **piece, size_t *size,
                                      mote_error *error);
/* -1: the model has none. */
MOTE_API mote_status mote_token_specials(mote_model *model, int32_t *bos, int32_t *eos, bool *adds_bos, bool *adds_eos,
                                         mote_error *error);
MOTE_API bool mote_token_is_end(mote_model *model, int32_t id); /* ends a generation */
MOTE_API bool mote_token_is_control(mote_model *model, int32_t id);

/* Streaming: text of one id after another, never half a character. */
typedef struct mote_decoder mote_decoder;
MOTE_API mote_status mote_decoder_create(mote_model *model, bool special, mote_decoder **decoder, mote_error *error);
MOTE_API void mote_decoder_destroy(mote_decoder *decoder);
/* *text belongs to the decoder and is valid until the next call. */
MOTE_API mote_status mote_decoder_add(mote_decoder *decoder, int32_t id, const char **text, size_t *size,
                                      mote_error *error);
MOTE_API mote_status mote_decoder_finish(mote_decoder *decoder, const char **text, size_t *size, mote_error *error);

typedef struct mote_rendered {
    char *text;
    size_t size;
    mote_range *trusted; /* what the template itself wrote: special tokens may be recognised there */
    size_t n_trusted;
} mote_rendered;
/*
 * Renders a chat template. source NULL: the model's own (tokenizer.chat_template; MOTE_UNSUPPORTED where it has none).
 * model may be NULL where source is given. input: a JSON object of the template's variables; where a model is given,
 * bos_token and eos_token are added to it unless they are there. now: seconds since 1970.
 */
MOTE_API mote_status mote_template_render(mote_model *model, const char *source, size_t source_size, const char *input,
                                          size_t input_size, int64_t now, mote_rendered *rendered, mote_error *error);
MOTE_API void mote_rendered_free(mote_rendered *rendered);

/* ---- engines and sessions ------------------------------------------------------------------------------------- */

typedef enum mote_kv { MOTE_KV_DEFAULT, MOTE_KV_F32, MOTE_KV_F16, MOTE_KV_Q8_0 } mote_kv;

/*
 * An adapter (LoRA) in a GGUF file of its own. An engine has all adapters that any of its sessions may want; which of
 * them a session has, and how much of each, is the session's: sessions with different ones run in one batch.
 */
typedef struct mote_adapter {
    const char *path;
    float scale; /* of new sessions: 1 is as it was trained, 0 off */
} mote_adapter;

typedef struct mote_engine_params {
    size_t size;
    size_t n_threads;  /* of all devices together; 0: as many as this process may use */
    size_t n_context;  /* positions of a session; 0: min(trained, 8192) */
    size_t n_batch;    /* rows that go through the model together; 0: 512 */
    size_t n_sessions; /* sessions with a full context that there is memory for; 0: 1 */
    size_t n_logits;   /* rows of logits held at once; 0: 16 */
    /*
     * What the sources of products are rounded to: rules separated by commas, of which later ones win. NULL, "" or
     * "default": what the weights ask for (F16 weights F16, block formats Q8, BF16 and F32 weights F32). "f32", "bf16",
     * "f16", "q8": that for all; f32 keeps the KV cache in F32 as well, unless kv says otherwise. KIND=PRECISION: that
     * for tensors whose names (without "blk.N.") begin with these words: "attn=f32,ffn_down=bf16".
     */
    const char *precision;
    mote_kv kv;
    const char *isa;           /* "c", "avx2", "avx512", "neon"; NULL: the best that this CPU has */
    bool observe;              /* count what mote_engine_observed tells of; costs some speed and no bit of an answer */
    bool force;                /* go on where the predicted memory is more than there is */
    mote_progress_fn progress; /* of reading and packing weights */
    void *progress_user;
    /* Read while the engine is made and not kept. One that is not for this model is refused, with the first tensor that
       does not fit. */
    const mote_adapter *adapters;
    size_t n_adapters;
    /*
     * Devices that share every layer (docs/mesh.md), with the bits of one: groups of this machine's cores, to which
     * their threads are confined. The calling thread is too while it runs, and has its own CPUs again then; threads
     * that functions of the caller's start meanwhile inherit its confinement.
     */
    size_t n_devices;         /* at most 8; 0: 1 */
    bool numa;                /* one device a NUMA node instead */
    const double *split;      /* [n_split]: each device's share, of any scale, rounded to eighths */
    struct mote_ranks *ranks; /* one device a rank instead; NULL: this process is alone */
    size_t n_split;           /* 0: even. Where n_devices is 0 it is the number of devices too */
} mote_engine_params;
MOTE_API void mote_engine_params_default(mote_engine_params *params);

/*
 * Processes that a launcher started together (mpirun -n 4 …), on one machine or several. *ranks is NULL where this
 * process is alone. Rank 0 is used as if it were alone, with engines whose params have `ranks`; every other one calls
 * mote_ranks_serve, which does what rank 0's engines need until rank 0 leaves. MOTE_UNSUPPORTED: this build has no MPI.
 * Where the ranks cannot work together, only rank 0's error has a message; *ranks is still to be left.
 */
typedef struct mote_ranks mote_ranks;
MOTE_API mote_status mote_ranks_join(mote_ranks **ranks, mote_error *error);
MOTE_API size_t mote_ranks_rank(const mote_ranks *ranks);
MOTE_API size_t mote_ranks_count(const mote_ranks *ranks);
MOTE_API mote_status mote_ranks_serve(mote_ranks *ranks, const mote_model_params *params, mote_error *error);
/* The last call of a rank. not good: ends all ranks at once. NULL is allowed. */
MOTE_API void mote_ranks_leave(mote_ranks *ranks, bool good);

typedef struct mote_memory { /* bytes */
    uint64_t weights, kv, work, logits, total;
    uint64_t available;      /* what the machine has free now */
    uint64_t n_context_fits; /* the largest context that fits; 0: none */
} mote_memory;
/* What an engine would take. */
MOTE_API mote_status mote_engine_predict(mote_model *model, const mote_engine_params *params, mote_memory *memory,
                                         mote_error *error);

typedef struct mote_engine mote_engine;
/* Reads and packs the weights (once a model: further engines share them) and makes the plan. */
MOTE_API mote_status mote_engine_create(mote_model *model, const mote_engine_params *params, mote_engine **engine,
                                        mote_error *error);
MOTE_API void mote_engine_destroy(mote_engine *engine); /* after its sessions; NULL is allowed */
/* Makes the run that is going on return MOTE_CANCELLED soon. From any thread or signal handler. */
MOTE_API void mote_engine_cancel(mote_engine *engine);
MOTE_API const char *mote_engine_isa(const mote_engine *engine);
MOTE_API size_t mote_engine_n_threads(const mote_engine *engine);
MOTE_API size_t mote_engine_n_context(const mote_engine *engine);
MOTE_API mote_kv mote_engine_kv(const mote_engine *engine); /* the dtype of its KV cache */
MOTE_API size_t mote_engine_n_adapters(const mote_engine *engine);
MOTE_API size_t mote_engine_n_devices(const mote_engine *engine);

typedef struct mote_stats {    /* of all runs so far, as the first device saw them */
    uint64_t collectives;      /* meetings with the other devices */
    uint64_t collective_bytes; /* that came from them */
    double collective_seconds; /* with waiting for them */
} mote_stats;
MOTE_API void mote_engine_stats(const mote_engine *engine, mote_stats *stats);

typedef struct mote_cost {
    double int8_ops, f32_ops; /* multiplications and additions counted apart (two a product) */
    double bytes;             /* weights and KV read */
} mote_cost;
/* What a run of n_rows new tokens of one session costs after n_past. */
MOTE_API void mote_engine_cost(const mote_engine *engine, size_t n_rows, size_t n_past, mote_cost *cost);

typedef struct mote_session mote_session;
MOTE_API mote_status mote_session_create(mote_engine *engine, mote_session **session, mote_error *error);
MOTE_API void mote_session_destroy(mote_session *session); /* NULL is allowed */
MOTE_API size_t mote_session_n_tokens(const mote_session *session);
MOTE_API const int32_t *mote_session_tokens(const mote_session *session); /* [n_tokens]; the session's own */
/*
 * Writes the tokens and what the KV cache has of them; the file appears whole or not at all. An empty session of an
 * engine with the same model, precisions, KV dtype, adapters and scales becomes that session again, and goes on with
 * the same bits, whatever devices either engine runs on (docs/sessions.md). MOTE_INVALID: the file is damaged or of
 * another engine; the session is then empty.
 */
MOTE_API mote_status mote_session_save(mote_session *session, const char *path, mote_error *error);
MOTE_API mote_status mote_session_restore(mote_session *session, const char *path, mote_error *error);
/* Keeps the first n_tokens. MOTE_UNSUPPORTED where layers with a window have dropped what the next token would see. */
MOTE_API mote_status mote_session_truncate(mote_session *session, size_t n_tokens, mote_error *error);
/* Forgets all tokens. */
MOTE_API void mote_session_clear(mote_session *session);
/*
 * How much of each of the engine's adapters this session has, in the engine's order: scales[n_adapters], finite; 0:
 * off. MOTE_INVALID where the session has tokens (they went through with the scales before: clear it first).
 */
MOTE_API mote_status mote_session_set_adapters(mote_session *session, const float *scales, size_t n_scales,
                                               mote_error *error);

/* Of which tokens logits are wanted. */
typedef enum mote_want { MOTE_WANT_NONE, MOTE_WANT_LAST, MOTE_WANT_ALL } mote_want;

typedef struct mote_input { /* tokens that follow what the session has */
    mote_session *session;
    const int32_t *tokens;
    size_t n_tokens;
    mote_want want;
} mote_input;

/* Logits [n_vocab] after token `index` of input `input`, index ascending; valid during the call. Non-zero: stop. */
typedef int (*mote_logits_fn)(void *user, size_t input, size_t index, const float *logits);
/*
 * Runs all tokens of all inputs (each session at most once), n_batch at a time. Where it fails, sessions keep what went
 * through wholly. MOTE_FULL: a session has no room (nothing was run). Non-finite logits are an error that says so.
 */
MOTE_API mote_status mote_engine_run(mote_engine *engine, const mote_input *inputs, size_t n_inputs,
                                     mote_logits_fn logits, void *user, mote_error *error);

/*
 * What all runs so far saw, of an engine made with `observe`, as JSON text. "sources": what goes into the products with
 * a weight, [{"tensor", "kind", "layer" (null: of none), "dtype", "default" (what its source is rounded to unless
 * asked otherwise), "rows" (tokens, or (token, expert) pairs behind experts), "over" (rows whose largest magnitude is
 * 65520 or more, which rounds to infinity in F16), "not_finite" (rows with NaN or infinity), "largest" (finite
 * magnitude), "exponent" (the e of the 2^-e that makes it fit in F16; 0: it fits)}]; "keys", "values": the same of what
 * the KV cache stores, without a tensor, a row being one head of a token; "routers": [{"layer", "picks": how often each
 * expert was chosen}]. MOTE_INVALID: the engine does not observe.
 */
MOTE_API mote_status mote_engine_observed(const mote_engine *engine, char **json, mote_error *error);

/* ---- sampling ------------------------------------------------------------------------------------------------- */

typedef struct mote_sampling {
    size_t size;
    float temperature; /* 0: greedy */
    int32_t top_k;     /* 0: all */
    float top_p;       /* 1: all */
    float min_p;       /* 0: all */
    uint64_t seed;
} mote_sampling;
/* 0.8, 40, 0.95, 0.05, with general.sampling.* of the model (may be NULL) before them; the seed is 0. */
MOTE_API void mote_sampling_default(const mote_model *model, mote_sampling *sampling);

typedef struct mote_sampler mote_sampler; /* memory for the candidates; no state that an answer depends on */
MOTE_API mote_status mote_sampler_create(const mote_sampling *sampling, size_t n_vocab, mote_sampler **sampler,
                                         mote_error *error);
MOTE_API void mote_sampler_destroy(mote_sampler *sampler);
/* Never samples this id (for --ignore-eos: every end-of-generation id). */
MOTE_API mote_status mote_sampler_ban(mote_sampler *sampler, int32_t id, mote_error *error);
/* The token at `position` (of the session): a function of logits, parameters, seed and position alone. */
MOTE_API mote_status mote_sampler_sample(mote_sampler *sampler, const float *logits, uint64_t position, int32_t *id,
                                         mote_error *error);

/* ---- the machine ---------------------------------------------------------------------------------------------- */

typedef struct mote_machine {
    double int8_ops;   /* a second: integer dot products in registers, all threads */
    double f32_ops;    /* a second: F32 fused multiply-adds, two operations each */
    double read_bytes; /* a second: streaming reads of a buffer far larger than the caches */
    char cpu[64];
} mote_machine;
/* Measures this machine's limits with n_threads threads (0: all) and the kernels of isa (NULL: the best); about 1 s. */
MOTE_API mote_status mote_machine_measure(size_t n_threads, const char *isa, mote_machine *machine, mote_error *error);
/* "c avx2 avx512": the instruction sets that this CPU and build have, best last. */
MOTE_API const char *mote_machine_isas(void);

/* ---- writing GGUF --------------------------------------------------------------------------------------------- */

typedef struct mote_writer mote_writer;
MOTE_API mote_status mote_writer_create(const char *path, mote_writer **writer, mote_error *error);
MOTE_API mote_status mote_writer_add_string(mote_writer *writer, const char *key, const char *text, mote_error *error);
/* dtype: "f32" or "i32". Data follows in the order of the tensors. */
MOTE_API mote_status mote_writer_add_tensor(mote_writer *writer, const char *name, const char *dtype, uint32_t n_dims,
                                            const uint64_t *shape, mote_error *error);
MOTE_API mote_status mote_writer_write(mote_writer *writer, const void *bytes, size_t size, mote_error *error);
/* Renames the file into place (it appears whole or not at all) and frees the writer, whatever happens. */
MOTE_API mote_status mote_writer_finish(mote_writer *writer, mote_error *error);
MOTE_API void mote_writer_abort(mote_writer *writer); /* NULL is allowed */

#ifdef __cplusplus
}
#endif

#endif
