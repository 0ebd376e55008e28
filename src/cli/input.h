// What the program reads: texts, token ids, JSON lines, times.
#ifndef MOTE_CLI_INPUT_H
#define MOTE_CLI_INPUT_H

#include "mote.h"
#include "options.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    char *data; // NUL-terminated, and may contain NULs; free() it
    size_t size;
};

// All of a file; "-": standard input. Pipes are read to their end, a directory is an error.
mote_status text_read_file(const char *path, struct text *text, mote_error *error);
mote_status text_copy(const char *data, size_t size, struct text *text, mote_error *error);
// The text of -p, of -f FILE, or of standard input where neither is given. A final newline of a file is dropped where
// `chomp`: an editor put it there.
mote_status text_read_prompt(const char *given, const char *path, bool chomp, struct text *text, mote_error *error);

struct ids {
    int32_t *values; // free() it
    size_t count;
};

// Whole numbers separated by blanks, commas, brackets.
mote_status ids_parse(const struct text *text, struct ids *ids, mote_error *error);
// From a file: as text, or a GGUF file with a tensor `tokens`. "-": standard input.
mote_status ids_read_file(const char *path, struct ids *ids, mote_error *error);
// Each id must be a token of the model's vocabulary.
mote_status ids_check(const struct ids *ids, size_t n_vocab, mote_error *error);
mote_status ids_prepend(struct ids *ids, int32_t id, mote_error *error);
// Puts BOS at the beginning where the model wants it and it is not there yet.
mote_status ids_add_bos(mote_model *model, struct ids *ids, mote_error *error);
mote_status ids_tokenize_ranges(mote_model *model, const char *data, size_t size, const mote_range *special,
                                size_t n_special, struct ids *ids, mote_error *error);
// special: control tokens are recognised anywhere in the text.
mote_status ids_tokenize(mote_model *model, const char *data, size_t size, bool special, struct ids *ids,
                         mote_error *error);

// Calls handle for each non-empty line of standard input, parsed; an answer that it returns is printed as a line.
// A line that is not JSON, and an answer of NULL, give {"error": …}, and *failed is set. Returns the exit code.
// handle fills *error and returns NULL to say what is wrong with a line.
typedef json_t *(*json_line_fn)(void *user, const json_t *line, mote_error *error);
int json_lines_run(json_line_fn handle, void *user);

// "1767323045" (seconds since 1970), "2026-01-02", "2026-01-02T03:04:05" or with a blank; UTC.
bool parse_time(const char *text, int64_t *seconds);

// Whether two paths are one file.
bool is_same_file(const char *a, const char *b);

mote_status set_error(mote_error *error, mote_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
