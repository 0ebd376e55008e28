// Measures tokenizers: milliseconds to load, megabytes a second to encode and decode, the worst text.
//
// usage: tokenize_bench MODEL.gguf TEXT [MEGABYTES [-o FILE]]
//
// The text that is encoded is made of TEXT's words: drawn at random with a fixed seed, some capitalized, numbered or
// joined out of two halves, so that it is as long as wanted and does not repeat. -o FILE writes it, for other engines.
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 5 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static uint32_t draw(uint64_t *state, size_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % below);
}

struct words {
    struct text_range *ranges;
    size_t count, capacity;
};

static bool find_words(const struct buffer *text, struct words *words)
{
    for (size_t begin = 0; begin < text->size;) {
        const char *space = memchr(text->data + begin, ' ', text->size - begin);
        size_t end = space ? (size_t)(space - text->data) : text->size;
        void *grown = words->ranges;
        if (!array_grow(&grown, &words->capacity, words->count + 1, sizeof *words->ranges))
            return false;
        words->ranges = grown;
        if (end > begin)
            words->ranges[words->count++] = (struct text_range){begin, end};
        begin = end + 1;
    }
    return words->count > 0;
}

static void append_word(struct buffer *out, const struct buffer *text, const struct words *words, uint64_t *state)
{
    struct text_range word = words->ranges[draw(state, words->count)];
    size_t size = word.end - word.begin;
    uint32_t how = draw(state, 100);
    buffer_append_byte(out, ' ');
    size_t first = out->size;
    if (how < 8) { // half of it and half of another
        struct text_range other = words->ranges[draw(state, words->count)];
        buffer_append(out, text->data + word.begin, size / 2);
        buffer_append(out, text->data + other.begin, (other.end - other.begin) / 2);
    } else {
        buffer_append(out, text->data + word.begin, size);
    }
    if (how >= 8 && how < 13 && out->data[first] >= 'a' && out->data[first] <= 'z')
        out->data[first] = (char)(out->data[first] - 'a' + 'A');
    if (how >= 13 && how < 16)
        buffer_append_format(out, "%u", draw(state, 3000));
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void report(const char *what, double *seconds, double bytes)
{
    qsort(seconds, ROUNDS, sizeof *seconds, compare);
    printf("%-28s %8.1f MB/s  (%.1f to %.1f)\n", what, 1e-6 * bytes / seconds[ROUNDS / 2],
           1e-6 * bytes / seconds[ROUNDS - 1], 1e-6 * bytes / seconds[0]);
}

static enum status measure(const struct tokenizer *tokenizer, const char *what, const struct buffer *text,
                           struct error *error)
{
    double encode[ROUNDS], decode[ROUNDS];
    size_t n_ids = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct token_ids ids = {0};
        struct buffer decoded = {0};
        double begin = now();
        enum status status = tokenizer_encode(tokenizer, text->data, text->size, NULL, 0, &ids, error);
        double middle = now();
        if (status == STATUS_OK)
            status = tokenizer_decode(tokenizer, ids.ids, ids.count, false, &decoded, error);
        encode[round] = middle - begin;
        decode[round] = now() - middle;
        n_ids = ids.count;
        token_ids_free(&ids);
        buffer_free(&decoded);
        if (status != STATUS_OK)
            return status;
    }
    printf("%s: %zu bytes, %zu tokens\n", what, text->size, n_ids);
    report("  encode", encode, (double)text->size);
    report("  decode", decode, (double)text->size);
    return STATUS_OK;
}

static enum status load(const char *path, struct tokenizer **tokenizer, struct error *error)
{
    struct gguf *gguf;
    double begin = now();
    enum status status = gguf_open(path, &gguf, error);
    if (status != STATUS_OK)
        return status;
    double middle = now();
    status = tokenizer_create(gguf, NULL, tokenizer, error);
    if (status == STATUS_OK)
        printf("load: %.1f ms for the file's metadata, %.1f ms for the tokenizer of %zu tokens\n",
               1e3 * (middle - begin), 1e3 * (now() - middle), tokenizer_n_tokens(*tokenizer));
    gguf_close(gguf);
    return status;
}

static enum status measure_runs(const struct tokenizer *tokenizer, struct error *error)
{
    static const char *const units[] = {" ", "a", "the", "\n", "中"};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof units / sizeof *units && status == STATUS_OK; i++) {
        struct buffer run = {0};
        char what[32];
        while (!run.failed && run.size < 1000000)
            buffer_append_text(&run, units[i]);
        snprintf(what, sizeof what, "one run of '%s'", *units[i] == '\n' ? "\\n" : units[i]);
        status = run.failed ? error_memory(error, "a text") : measure(tokenizer, what, &run, error);
        buffer_free(&run);
    }
    return status;
}

int main(int argc, char **argv)
{
    bool writes = argc == 6 && strcmp(argv[4], "-o") == 0;
    if ((argc < 3 || argc > 4) && !writes) {
        fprintf(stderr, "usage: tokenize_bench MODEL.gguf TEXT [MEGABYTES [-o FILE]]\n");
        return 2;
    }
    double wanted = 1e6 * (argc > 3 ? strtod(argv[3], NULL) : 10);
    struct error error = {0};
    struct buffer source = {0}, text = {0};
    struct words words = {0};
    struct tokenizer *tokenizer = NULL;
    uint64_t state = 1;
    enum status status = file_read_all(argv[2], (size_t)1 << 30, &source, &error);
    if (status == STATUS_OK && !find_words(&source, &words))
        status = error_set(&error, STATUS_INVALID, "%s has no words", argv[2]);
    while (status == STATUS_OK && !text.failed && (double)text.size < wanted)
        append_word(&text, &source, &words, &state);
    if (status == STATUS_OK)
        status = text.failed ? error_memory(&error, "the text") : load(argv[1], &tokenizer, &error);
    if (status == STATUS_OK)
        status = measure(tokenizer, "words", &text, &error);
    if (status == STATUS_OK)
        status = measure_runs(tokenizer, &error);
    struct file_writer writer;
    if (status == STATUS_OK && writes && (status = file_writer_open(&writer, argv[5], &error)) == STATUS_OK) {
        status = file_writer_write(&writer, text.data, text.size, &error);
        if (status == STATUS_OK)
            status = file_writer_commit(&writer, &error);
        else
            file_writer_abort(&writer);
    }
    if (status != STATUS_OK)
        fprintf(stderr, "tokenize_bench: %s\n", error.message);
    tokenizer_destroy(tokenizer);
    free(words.ranges);
    buffer_free(&source);
    buffer_free(&text);
    return status != STATUS_OK;
}
