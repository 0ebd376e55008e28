#include "options.h"

#include "output.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_SIZE = 64, HELP_COLUMN = 26, HELP_WIDTH = 100 };

int usage_error(const struct command *command, const char *format, ...)
{
    char message[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    fputs(command ? "mote " : "mote", stderr);
    fputs(command ? command->name : "", stderr);
    fputs(": ", stderr);
    print_escaped(stderr, message, strlen(message));
    fprintf(stderr, "\nTry 'mote help%s%s'.\n", command ? " " : "", command ? command->name : "");
    return EXIT_USAGE;
}

// ---- names and suggestions

// Steps through a list separated by spaces; returns the length of the name at *cursor, 0 at the end.
static size_t next_name(const char **cursor, const char **name)
{
    while (**cursor == ' ') {
        (*cursor)++;
    }
    *name = *cursor;
    size_t size = strcspn(*cursor, " ");
    *cursor += size;
    return size;
}

static size_t least3(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

// How many insertions, deletions, replacements and swaps of neighbours turn a into b.
static size_t edit_distance(const char *a, size_t size_a, const char *b, size_t size_b)
{
    if (size_a > NAME_MAX_SIZE || size_b > NAME_MAX_SIZE) {
        return SIZE_MAX;
    }
    size_t rows[3][NAME_MAX_SIZE + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= size_b; j++) {
        above[j] = j;
    }
    for (size_t i = 1; i <= size_a; i++) {
        row[0] = i;
        for (size_t j = 1; j <= size_b; j++) {
            row[j] = least3(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && before[j - 2] + 1 < row[j]) {
                row[j] = before[j - 2] + 1;
            }
        }
        size_t *spare = before;
        before = above;
        above = row;
        row = spare;
    }
    return above[size_b];
}

bool nearest_name(const char *typed, const char *names, size_t *distance, char *nearest, size_t size)
{
    bool found = false;
    size_t typed_size = strlen(typed);
    const char *name;
    for (size_t name_size; (name_size = next_name(&names, &name)) > 0;) {
        size_t d = edit_distance(typed, typed_size, name, name_size);
        size_t longer = typed_size > name_size ? typed_size : name_size;
        bool begins =
            typed_size >= (typed[0] == '-' ? 4 : 2) && typed_size < name_size && memcmp(typed, name, typed_size) == 0;
        d = begins ? 1 : d;
        // A third of the letters may be wrong, so that "-x" is not taken for any other letter.
        if (d <= longer / 3 && d < *distance && name_size < size) {
            *distance = d;
            memcpy(nearest, name, name_size);
            nearest[name_size] = '\0';
            found = true;
        }
    }
    return found;
}

struct place { // a line of a table, and where its value goes
    const struct option *option;
    char *value;
};

static bool option_find(const struct option *table, void *values, const char *typed, size_t size, struct place *place)
{
    for (const struct option *option = table; option->kind != OPTION_END; option++) {
        char *value = (char *)values + option->offset;
        if (option->kind == OPTION_TABLE) {
            if (option_find(option->table, value, typed, size, place)) {
                return true;
            }
            continue;
        }
        const char *cursor = option->names, *name;
        for (size_t name_size; (name_size = next_name(&cursor, &name)) > 0;) {
            if (name_size == size && memcmp(name, typed, size) == 0) {
                *place = (struct place){.option = option, .value = value};
                return true;
            }
        }
    }
    return false;
}

static void option_nearest(const struct option *table, const char *typed, size_t *distance, char *nearest, size_t size)
{
    for (const struct option *option = table; option->kind != OPTION_END; option++) {
        if (option->kind == OPTION_TABLE) {
            option_nearest(option->table, typed, distance, nearest, size);
        } else {
            nearest_name(typed, option->names, distance, nearest, size);
        }
    }
}

static int unknown_option(const struct command *command, const char *typed)
{
    char name[NAME_MAX_SIZE + 1], nearest[NAME_MAX_SIZE + 1];
    size_t size = strcspn(typed, "=");
    snprintf(name, sizeof name, "%.*s", size > NAME_MAX_SIZE ? NAME_MAX_SIZE : (int)size, typed);
    size_t distance = SIZE_MAX;
    nearest[0] = '\0';
    option_nearest(command->options, name, &distance, nearest, sizeof nearest);
    nearest_name(name, "-h --help", &distance, nearest, sizeof nearest);
    if (nearest[0] != '\0') {
        return usage_error(command, "unknown option %s: did you mean %s?", name, nearest);
    }
    return usage_error(command, "unknown option %s", name);
}

// ---- values

bool parse_integer(const char *text, size_t size, int64_t *value)
{
    bool negative = size > 0 && text[0] == '-';
    if (size == negative) {
        return false;
    }
    int64_t result = 0;
    for (size_t i = negative; i < size; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        int digit = text[i] - '0';
        if (__builtin_mul_overflow(result, 10, &result) ||
            __builtin_add_overflow(result, negative ? -digit : digit, &result)) {
            return false;
        }
    }
    *value = result;
    return true;
}

bool parse_number(const char *text, double *value)
{
    // strtod also takes "nan", "inf", hexadecimal digits and blanks. It reads a point because the program never leaves
    // the "C" locale (nothing calls setlocale).
    if (text[0] == '\0' || strspn(text, "0123456789+-.eE") != strlen(text)) {
        return false;
    }
    char *end;
    double result = strtod(text, &end);
    if (*end != '\0' || !isfinite(result)) {
        return false;
    }
    *value = result;
    return true;
}

static void describe_allowed(const struct option *option, char *text, size_t size)
{
    switch (option->kind) {
    case OPTION_INTEGER:
        snprintf(text, size, "a whole number from %lld to %lld%s%s", (long long)option->least, (long long)option->most,
                 option->choices ? ", or one of: " : "", option->choices ? option->choices : "");
        return;
    case OPTION_INTEGERS:
        snprintf(text, size, "whole numbers from %lld to %lld, separated by commas", (long long)option->least,
                 (long long)option->most);
        return;
    case OPTION_NUMBER:
        snprintf(text, size, "a number from %g to %g", option->low, option->high);
        return;
    case OPTION_NUMBERS:
        snprintf(text, size, "numbers from %g to %g, separated by commas", option->low, option->high);
        return;
    case OPTION_CHOICE:
        snprintf(text, size, "one of: %s", option->choices);
        return;
    case OPTION_CHOICES:
        snprintf(text, size, "one of: %s; or several, separated by commas, for all or for a KIND=", option->choices);
        return;
    default:
        snprintf(text, size, "%s", option->argument);
    }
}

static bool set_integers(const struct option *option, struct integers *integers, const char *text)
{
    for (const char *item = text;; item++) {
        size_t size = strcspn(item, ",");
        int64_t value;
        if (!parse_integer(item, size, &value) || value < option->least || value > option->most ||
            integers->count == OPTION_LIST_MAX) {
            return false;
        }
        integers->values[integers->count++] = value;
        item += size;
        if (*item == '\0') {
            return true;
        }
    }
}

// The last of these options counts.
static bool set_numbers(const struct option *option, struct numbers *numbers, const char *text)
{
    numbers->count = 0;
    for (const char *item = text;; item++) {
        char one[64];
        size_t size = strcspn(item, ",/");
        double value;
        if (size >= sizeof one || numbers->count == OPTION_LIST_MAX) {
            return false;
        }
        memcpy(one, item, size);
        one[size] = '\0';
        if (!parse_number(one, &value) || value < option->low || value > option->high) {
            return false;
        }
        numbers->values[numbers->count++] = value;
        item += size;
        if (*item == '\0') {
            return true;
        }
    }
}

// Which of the choices it is, counted from 1; 0: none.
static int choice_number(const struct option *option, const char *text, size_t text_size)
{
    const char *cursor = option->choices, *name;
    int number = 1;
    for (size_t size; (size = next_name(&cursor, &name)) > 0; number++) {
        if (size == text_size && memcmp(name, text, size) == 0) {
            return number;
        }
    }
    return 0;
}

static bool is_choice(const struct option *option, const char *text, size_t text_size)
{
    return choice_number(option, text, text_size) != 0;
}

static bool set_integer(const struct option *option, int64_t *integer, const char *text)
{
    int number = option->choices ? choice_number(option, text, strlen(text)) : 0;
    int64_t value = -number;
    if (number == 0 && (!parse_integer(text, strlen(text), &value) || value < option->least || value > option->most)) {
        return false;
    }
    *integer = value;
    return true;
}

// Each item is a choice, or has one behind its '='.
static bool are_choices(const struct option *option, const char *text)
{
    for (const char *item = text;; item++) {
        size_t size = strcspn(item, ","), kind = strcspn(item, "=,");
        size_t begin = item[kind] == '=' ? kind + 1 : 0;
        if ((begin && kind == 0) || !is_choice(option, item + begin, size - begin)) {
            return false;
        }
        item += size;
        if (*item == '\0') {
            return true;
        }
    }
}

// FILE:SCALE is cut in place. What stands behind the last colon and is no number belongs to the file's name.
static bool add_adapter(struct adapters *adapters, char *text)
{
    if (adapters->count == OPTION_LIST_MAX) {
        return false;
    }
    double scale = 1;
    char *colon = strrchr(text, ':');
    if (colon && parse_number(colon + 1, &scale)) {
        *colon = '\0';
    }
    adapters->values[adapters->count++] = (mote_adapter){.path = text, .scale = (float)scale};
    return text[0] != '\0' && isfinite((float)scale);
}

// False where text is not allowed.
static bool set_value(const struct place *place, char *text)
{
    const struct option *option = place->option;
    void *value = place->value;
    switch (option->kind) {
    case OPTION_TEXT:
        *(const char **)value = text;
        return true;
    case OPTION_TEXTS: {
        struct texts *texts = value;
        if (texts->count == OPTION_LIST_MAX) {
            return false;
        }
        texts->values[texts->count++] = text;
        return true;
    }
    case OPTION_ADAPTERS:
        return add_adapter(value, text);
    case OPTION_INTEGER:
        return set_integer(option, value, text);
    case OPTION_INTEGERS:
        return set_integers(option, value, text);
    case OPTION_NUMBER: {
        double number;
        if (!parse_number(text, &number) || number < option->low || number > option->high) {
            return false;
        }
        *(double *)value = number;
        return true;
    }
    case OPTION_NUMBERS:
        return set_numbers(option, value, text);
    case OPTION_CHOICE:
    case OPTION_CHOICES:
        if (!(option->kind == OPTION_CHOICE ? is_choice(option, text, strlen(text)) : are_choices(option, text))) {
            return false;
        }
        *(const char **)value = text;
        return true;
    default:
        return false;
    }
}

static int wrong_value(const struct command *command, const struct option *option, const char *name, int name_size,
                       const char *text)
{
    char allowed[256], nearest[NAME_MAX_SIZE + 1];
    describe_allowed(option, allowed, sizeof allowed);
    size_t distance = SIZE_MAX;
    if (option->kind == OPTION_CHOICE && nearest_name(text, option->choices, &distance, nearest, sizeof nearest)) {
        return usage_error(command, "%.*s cannot be \"%.100s\": give %s; did you mean %s?", name_size, name, text,
                           allowed, nearest);
    }
    return usage_error(command, "%.*s cannot be \"%.100s\": give %s", name_size, name, text, allowed);
}

// ---- parsing

static bool is_help(const char *text)
{
    return strcmp(text, "-h") == 0 || strcmp(text, "--help") == 0;
}

// One option at argv[*index]; steps over its value. Returns EXIT_DONE or EXIT_USAGE.
static int parse_option(const struct command *command, int argc, char **argv, int *index, void *values)
{
    char *typed = argv[*index];
    size_t size = strncmp(typed, "--", 2) == 0 ? strcspn(typed, "=") : strlen(typed);
    char *text = typed[size] == '=' ? typed + size + 1 : NULL;
    struct place place;
    if (!option_find(command->options, values, typed, size, &place)) {
        return unknown_option(command, typed);
    }
    if (place.option->kind == OPTION_FLAG) {
        if (text) {
            return usage_error(command, "%.*s takes no value", (int)size, typed);
        }
        *(bool *)place.value = true;
        return EXIT_DONE;
    }
    if (!text) {
        if (*index + 1 >= argc) {
            char allowed[256];
            describe_allowed(place.option, allowed, sizeof allowed);
            return usage_error(command, "%s needs a value: %s", typed, allowed);
        }
        text = argv[++*index];
    }
    return set_value(&place, text) ? EXIT_DONE : wrong_value(command, place.option, typed, (int)size, text);
}

bool options_parse(const struct command *command, int argc, char **argv, void *values, struct positionals *positionals,
                   int *exit_code)
{
    *positionals = (struct positionals){.values = argv};
    bool only_positionals = false;
    for (int i = 1; i < argc; i++) {
        bool is_option = !only_positionals && argv[i][0] == '-' && argv[i][1] != '\0';
        if (is_option && strcmp(argv[i], "--") == 0) {
            only_positionals = true;
        } else if (is_option && is_help(argv[i])) {
            options_print_help(command, stdout);
            *exit_code = EXIT_DONE;
            return false;
        } else if (is_option) {
            *exit_code = parse_option(command, argc, argv, &i, values);
            if (*exit_code != EXIT_DONE) {
                return false;
            }
        } else if (positionals->count == command->max_positionals) {
            *exit_code = usage_error(command, "unexpected argument \"%.200s\"%s", argv[i],
                                     positionals->count > 0 ? " (a text of several words needs quotes)" : "");
            return false;
        } else {
            // At most as many positionals as arguments were read: nothing unread is overwritten.
            positionals->values[positionals->count++] = argv[i];
        }
    }
    return true;
}

const char *positional_model(struct positionals *positionals, const char *model)
{
    if (model || positionals->count == 0) {
        return model;
    }
    positionals->count--;
    return *positionals->values++;
}

// ---- help

// Prints text from column HELP_COLUMN on, broken at blanks; `column` is where the line stands now.
static void print_wrapped(FILE *out, const char *text, size_t column)
{
    const char *word;
    bool first = true;
    if (column + 2 > HELP_COLUMN) {
        fputc('\n', out);
        column = 0;
    }
    for (size_t size; (size = next_name(&text, &word)) > 0;) {
        if (!first && column + 1 + size > HELP_WIDTH) {
            fputc('\n', out);
            column = 0;
            first = true;
        }
        if (first) {
            fprintf(out, "%*s", (int)(HELP_COLUMN - column), "");
            column = HELP_COLUMN;
        } else {
            fputc(' ', out);
            column++;
        }
        fwrite(word, 1, size, out);
        column += size;
        first = false;
    }
    fputc('\n', out);
}

static void print_options(FILE *out, const struct option *table)
{
    for (const struct option *option = table; option->kind != OPTION_END; option++) {
        if (option->kind == OPTION_TABLE) {
            print_options(out, option->table);
            continue;
        }
        char line[128];
        size_t size = 0;
        const char *cursor = option->names, *name;
        for (size_t name_size; (name_size = next_name(&cursor, &name)) > 0;) {
            size +=
                (size_t)snprintf(line + size, sizeof line - size, "%s%.*s", size ? ", " : "  ", (int)name_size, name);
        }
        if (option->argument) {
            size += (size_t)snprintf(line + size, sizeof line - size, " %s", option->argument);
        }
        fputs(line, out);
        print_wrapped(out, option->help, size);
    }
}

void options_print_help(const struct command *command, FILE *out)
{
    fprintf(out, "Usage: mote %s [OPTIONS]%s%s\n\n%s\n\nOptions:\n", command->name, command->arguments[0] ? " " : "",
            command->arguments, command->details);
    print_options(out, command->options);
    fputs("  -h, --help", out);
    print_wrapped(out, "print this and stop", strlen("  -h, --help"));
}
