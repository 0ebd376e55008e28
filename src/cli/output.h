// What the program prints, and where: the answer on standard output, everything else on standard error; what comes from
// a model or a file reaches a terminal without control characters.
#ifndef MOTE_CLI_OUTPUT_H
#define MOTE_CLI_OUTPUT_H

#include "mote.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// Prints text with control characters (also LF and TAB) and invalid UTF-8 as \n, \t or \xNN.
void print_escaped(FILE *out, const char *text, size_t size);
// Text of a model for a person: on a terminal, control characters other than LF and TAB are escaped; elsewhere the
// bytes are written as they are.
void print_model_text(FILE *out, const char *text, size_t size);

// The length in bytes of the valid UTF-8 character at the beginning of text; 0: it is not valid.
size_t utf8_character(const char *text, size_t size);
// Whether all of text is UTF-8; where not, *bad gets the offset of the first bad byte.
bool utf8_check(const char *text, size_t size, size_t *bad);

// Whether out is a terminal that understands a carriage return, for a person who wants to see progress
// (TERM=dumb, NO_COLOR: no).
bool is_live_terminal(FILE *out);

// "mote: error: MESSAGE" on standard error; returns EXIT_FAILED, or EXIT_INTERRUPTED where the user stopped it.
int fail(const mote_error *error);
int fail_message(const char *format, ...) __attribute__((format(printf, 1, 2)));
void warn_message(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Flushes standard output. Returns exit_code, or EXIT_FAILED (with a message) where it could not all be written.
int finish_output(int exit_code);
// Whether standard output still takes what is written; flushes it.
bool output_ok(void);

// Writes a file of these bytes: aside and renamed, so that it appears whole or not at all (what is no regular file,
// such as a pipe, is written to).
mote_status write_file(const char *path, const char *data, size_t size, mote_error *error);

// One JSON value as a line, UTF-8, ended by LF; drops the reference. False where memory ran out or the value is not
// UTF-8.
bool print_json_line(json_t *value);
// The same with all that is not ASCII escaped: many readers take U+0085 or U+2028 within a line for its end.
bool print_json_ascii(json_t *value);
// The same over several lines, for people.
bool print_json_pretty(json_t *value);

// "98.4 MB", in a static-size text.
struct size_text {
    char text[24];
};
struct size_text format_bytes(double bytes);

#endif
