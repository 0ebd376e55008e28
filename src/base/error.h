// Status codes and error values: every function that can fail for a reason outside our control returns a
// status and fills an error with what was wrong, where, and what to do. An error is a value on the caller's
// stack; it owns no memory.
#ifndef MOTE_BASE_ERROR_H
#define MOTE_BASE_ERROR_H

#include <stdarg.h>

// The numbers are those of mote_status in include/mote.h (checked where the two meet).
enum status {
    STATUS_OK = 0,
    STATUS_INVALID,     // bad input: a file, a request, an argument
    STATUS_IO,          // the operating system refused to open, read or write
    STATUS_MEMORY,      // not enough memory
    STATUS_UNSUPPORTED, // well-formed, but asks for something that mote does not do
    STATUS_FULL,        // the context has no room for another token
    STATUS_CANCELLED,   // a callback or mote_session_cancel asked to stop
};

struct error {
    enum status status;
    char message[1024]; // one sentence, UTF-8, no final newline; empty where status is STATUS_OK
};

// Fills *error (which may be NULL) and returns status, so that a caller can `return error_set(…)`.
// Control characters and invalid UTF-8 in the text (from file names, keys) are written as \xNN.
enum status error_set(struct error *error, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Puts "PREFIX: " in front of the message: where the error happened, as it passes outwards.
// Returns error's status (STATUS_INVALID where error is NULL, so pass on a status you hold instead).
enum status error_prefix(struct error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

// What the operating system refused: "TEXT: DESCRIPTION of number (an errno)". STATUS_MEMORY for ENOMEM, else
// STATUS_IO.
enum status error_system(struct error *error, int number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// The usual sentence for a failed allocation of `what`.
enum status error_memory(struct error *error, const char *what);

#endif
