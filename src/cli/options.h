// What a command takes: one table a command, from which parsing, the help text and the suggestion for a mistyped flag
// come. A value lands in the command's own struct, at the offset that its line in the table says.
#ifndef MOTE_CLI_OPTIONS_H
#define MOTE_CLI_OPTIONS_H

#include "mote.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum exit_code { // of the program
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_INTERRUPTED = 130,
};

enum option_kind {
    OPTION_END = 0,  // the last line of a table
    OPTION_FLAG,     // bool
    OPTION_TEXT,     // const char *
    OPTION_TEXTS,    // struct texts; may be given several times
    OPTION_ADAPTERS, // struct adapters: FILE or FILE:SCALE; may be given several times
    OPTION_INTEGER,  // int64_t in [least, most]; the words of choices, where it has some, are -1, -2, …
    OPTION_INTEGERS, // struct integers, each in [least, most], separated by commas; may be given several times
    OPTION_NUMBER,   // double in [low, high]
    OPTION_NUMBERS,  // struct numbers, each in [low, high], separated by commas (or slashes)
    OPTION_CHOICE,   // const char *: one of choices
    OPTION_CHOICES,  // const char *: choices, or KIND=choice, separated by commas
    OPTION_TABLE,    // all of `table`, whose values are a struct at offset
};

enum { OPTION_LIST_MAX = 64 };

struct texts {
    const char *values[OPTION_LIST_MAX];
    size_t count;
};

struct adapters {
    mote_adapter values[OPTION_LIST_MAX];
    size_t count;
};

struct integers {
    int64_t values[OPTION_LIST_MAX];
    size_t count;
};

struct numbers {
    double values[OPTION_LIST_MAX];
    size_t count;
};

struct option {
    enum option_kind kind;
    const char *names;    // separated by spaces: "-t --threads"
    const char *argument; // what the help calls its value: "N"
    const char *help;
    size_t offset; // in the command's values
    int64_t least, most;
    double low, high;
    const char *choices; // separated by spaces
    const struct option *table;
};

// The fields that every line of a table has: {OPTION(TEXT, "-f --file", "FILE", "a text", struct values, file)}.
#define OPTION(kind_, names_, argument_, help_, type, member)                                                          \
    .kind = OPTION_##kind_, .names = (names_), .argument = (argument_), .help = (help_),                               \
    .offset = offsetof(type, member)

struct command {
    const char *name;
    const char *summary;   // one line, for the list of commands
    const char *arguments; // what follows the options in the usage line
    const char *details;   // what the help says below the usage
    const struct option *options;
    size_t max_positionals;
    int (*main)(int argc, char **argv); // argv[0] is the command's name; returns the exit code
};

struct positionals { // arguments that are not options, in order
    char **values;
    size_t count;
};

// Reads argv[1..argc) into *values, moving positional arguments to the front of argv. Returns true to go on; else the
// command ends with *exit_code (the help was printed, or what is wrong was said on standard error).
bool options_parse(const struct command *command, int argc, char **argv, void *values, struct positionals *positionals,
                   int *exit_code);

// The first positional argument as the model, unless -m gave it already; NULL: none is left.
const char *positional_model(struct positionals *positionals, const char *model);

void options_print_help(const struct command *command, FILE *out);

// Says what is wrong with how the command was called; returns EXIT_USAGE. command NULL: the program itself.
int usage_error(const struct command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

// The name among `names` (separated by spaces) that `typed` was probably meant to be: copied to nearest, which has room
// for size bytes; false: none is near. Several lists may be tried in turn with one *distance, which begins at SIZE_MAX.
bool nearest_name(const char *typed, const char *names, size_t *distance, char *nearest, size_t size);

// A whole decimal number and nothing else; false also where it does not fit.
bool parse_integer(const char *text, size_t size, int64_t *value);
// A finite decimal number with a point, whatever the locale.
bool parse_number(const char *text, double *value);

#endif
