#include "input.h"

#include "output.h"
#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

mote_status set_error(mote_error *error, mote_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return error->status = status;
}

static mote_status out_of_memory(mote_error *error)
{
    return set_error(error, MOTE_MEMORY, "out of memory");
}

// ---- texts

mote_status text_copy(const char *data, size_t size, struct text *text, mote_error *error)
{
    text->data = malloc(size + 1);
    if (!text->data) {
        return out_of_memory(error);
    }
    memcpy(text->data, data, size);
    text->data[size] = '\0';
    text->size = size;
    return MOTE_OK;
}

enum { TEXT_MAX = 1 << 30 }; // bytes: beyond it is no text, but a device that never ends

static mote_status read_all(int descriptor, const char *path, struct text *text, mote_error *error)
{
    size_t capacity = 0, size = 0;
    char *data = NULL;
    for (;;) {
        if (size > TEXT_MAX) {
            free(data);
            return set_error(error, MOTE_INVALID, "%s holds more than 1 GiB: is it a text?", path);
        }
        if (size + 1 >= capacity) {
            capacity = capacity ? 2 * capacity : 65536;
            char *grown = realloc(data, capacity);
            if (!grown) {
                free(data);
                return out_of_memory(error);
            }
            data = grown;
        }
        ssize_t n = read(descriptor, data + size, capacity - size - 1);
        if (n == 0) {
            break;
        }
        if (n < 0 && (errno != EINTR || signals_caught())) {
            free(data);
            return errno == EINTR ? set_error(error, MOTE_CANCELLED, "interrupted")
                                  : set_error(error, MOTE_IO, "cannot read %s: %s", path, strerror(errno));
        }
        size += n > 0 ? (size_t)n : 0;
    }
    data[size] = '\0';
    *text = (struct text){.data = data, .size = size};
    return MOTE_OK;
}

mote_status text_read_file(const char *path, struct text *text, mote_error *error)
{
    *text = (struct text){0};
    if (strcmp(path, "-") == 0) {
        if (isatty(STDIN_FILENO)) {
            fputs("(reading from the terminal; Ctrl-D on a line of its own ends the text)\n", stderr);
        }
        return read_all(STDIN_FILENO, "standard input", text, error);
    }
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        return set_error(error, MOTE_IO, "cannot open %s: %s", path, strerror(errno));
    }
    mote_status status = read_all(descriptor, path, text, error);
    close(descriptor);
    return status;
}

mote_status text_read_prompt(const char *given, const char *path, bool chomp, struct text *text, mote_error *error)
{
    if (given) {
        return text_copy(given, strlen(given), text, error);
    }
    mote_status status = text_read_file(path ? path : "-", text, error);
    if (status == MOTE_OK && chomp && text->size > 0 && text->data[text->size - 1] == '\n') {
        text->data[--text->size] = '\0';
    }
    return status;
}

// ---- ids

static bool ids_append(struct ids *ids, size_t *capacity, int32_t id)
{
    if (ids->count == *capacity) {
        *capacity = *capacity ? 2 * *capacity : 256;
        int32_t *grown = realloc(ids->values, *capacity * sizeof *grown);
        if (!grown) {
            return false;
        }
        ids->values = grown;
    }
    ids->values[ids->count++] = id;
    return true;
}

mote_status ids_parse(const struct text *text, struct ids *ids, mote_error *error)
{
    static const char separators[] = " \t\r\n,[]";
    *ids = (struct ids){0};
    size_t capacity = 0;
    for (size_t i = 0; i < text->size;) {
        if (text->data[i] != '\0' && strchr(separators, text->data[i])) {
            i++;
            continue;
        }
        size_t size = strcspn(text->data + i, separators);
        int64_t value;
        if (!parse_integer(text->data + i, size, &value) || value < 0 || value > INT32_MAX) {
            free(ids->values);
            *ids = (struct ids){0};
            return set_error(error, MOTE_INVALID,
                             "\"%.*s\" at byte %zu of the ids is no token id: give whole numbers separated by blanks "
                             "or commas",
                             size > 40 ? 40 : (int)size, text->data + i, i);
        }
        if (!ids_append(ids, &capacity, (int32_t)value)) {
            free(ids->values);
            *ids = (struct ids){0};
            return out_of_memory(error);
        }
        i += size;
    }
    return MOTE_OK;
}

static mote_status ids_read_gguf(const char *path, struct ids *ids, mote_error *error)
{
    mote_model *file = NULL;
    mote_tensor_info info;
    mote_status status = mote_model_open(path, NULL, &file, error);
    if (status == MOTE_OK) {
        status = mote_tensor_find(file, "tokens", &info, error);
    }
    if (status == MOTE_OK && (strcmp(info.dtype, "i32") != 0 || info.n_elements > SIZE_MAX / sizeof(int32_t))) {
        status =
            set_error(error, MOTE_INVALID, "%s: the tensor tokens is of dtype %s: it must be i32", path, info.dtype);
    }
    if (status == MOTE_OK) {
        ids->count = (size_t)info.n_elements;
        ids->values = malloc((ids->count ? ids->count : 1) * sizeof *ids->values);
        status =
            ids->values ? mote_tensor_read_i32(file, "tokens", ids->values, ids->count, error) : out_of_memory(error);
    }
    mote_model_close(file);
    return status;
}

static bool begins_as_gguf(const char *path)
{
    char magic[4] = {0};
    struct stat about;
    // Only a regular file: a pipe could not be read twice.
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode)) {
        return false;
    }
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        return false;
    }
    ssize_t n = read(descriptor, magic, sizeof magic);
    close(descriptor);
    return n == (ssize_t)sizeof magic && memcmp(magic, "GGUF", sizeof magic) == 0;
}

mote_status ids_read_file(const char *path, struct ids *ids, mote_error *error)
{
    *ids = (struct ids){0};
    if (strcmp(path, "-") != 0 && begins_as_gguf(path)) {
        return ids_read_gguf(path, ids, error);
    }
    struct text text;
    mote_status status = text_read_file(path, &text, error);
    if (status == MOTE_OK) {
        status = ids_parse(&text, ids, error);
        free(text.data);
    }
    return status;
}

mote_status ids_check(const struct ids *ids, size_t n_vocab, mote_error *error)
{
    for (size_t i = 0; i < ids->count; i++) {
        if (ids->values[i] < 0 || (size_t)ids->values[i] >= n_vocab) {
            return set_error(error, MOTE_INVALID, "token %zu is %d, which the vocabulary of %zu tokens does not have",
                             i, ids->values[i], n_vocab);
        }
    }
    return MOTE_OK;
}

mote_status ids_prepend(struct ids *ids, int32_t id, mote_error *error)
{
    int32_t *grown = realloc(ids->values, (ids->count + 1) * sizeof *grown);
    if (!grown) {
        return out_of_memory(error);
    }
    memmove(grown + 1, grown, ids->count * sizeof *grown);
    grown[0] = id;
    ids->values = grown;
    ids->count++;
    return MOTE_OK;
}

mote_status ids_add_bos(mote_model *model, struct ids *ids, mote_error *error)
{
    int32_t bos, eos;
    bool adds_bos, adds_eos;
    mote_status status = mote_token_specials(model, &bos, &eos, &adds_bos, &adds_eos, error);
    if (status != MOTE_OK || !adds_bos || bos < 0 || (ids->count > 0 && ids->values[0] == bos)) {
        return status;
    }
    return ids_prepend(ids, bos, error);
}

mote_status ids_tokenize_ranges(mote_model *model, const char *data, size_t size, const mote_range *special,
                                size_t n_special, struct ids *ids, mote_error *error)
{
    *ids = (struct ids){0};
    int32_t *values = NULL;
    size_t count = 0;
    mote_status status = mote_tokenize(model, data, size, special, n_special, &values, &count, error);
    if (status == MOTE_OK) {
        // A copy, so that ids are ours to grow and free wherever they came from.
        ids->values = malloc((count ? count : 1) * sizeof *ids->values);
        if (ids->values && count > 0) {
            memcpy(ids->values, values, count * sizeof *values);
        }
        ids->count = ids->values ? count : 0;
        status = ids->values ? MOTE_OK : out_of_memory(error);
    }
    mote_free(values);
    return status;
}

mote_status ids_tokenize(mote_model *model, const char *data, size_t size, bool special, struct ids *ids,
                         mote_error *error)
{
    mote_range all = {.begin = 0, .end = size};
    return ids_tokenize_ranges(model, data, size, &all, special ? 1 : 0, ids, error);
}

// ---- JSON lines

static json_t *error_line(const char *message)
{
    return json_pack("{s:s}", "error", message);
}

static json_t *answer_line(json_line_fn handle, void *user, const char *data, size_t size, bool *failed)
{
    json_error_t problem;
    json_t *line = json_loadb(data, size, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &problem);
    mote_error error = {0};
    json_t *answer = NULL;
    if (json_is_object(line)) {
        answer = handle(user, line, &error);
    } else if (line) {
        set_error(&error, MOTE_INVALID, "the line is no JSON object");
    } else {
        set_error(&error, MOTE_INVALID, "the line is no valid JSON: %s (column %d)", problem.text, problem.column);
    }
    json_decref(line);
    if (!answer) {
        *failed = true;
        answer = error_line(error.message);
    }
    return answer;
}

int json_lines_run(json_line_fn handle, void *user)
{
    char *data = NULL;
    size_t capacity = 0;
    bool failed = false;
    ssize_t size;
    while (!signals_caught() && (size = getline(&data, &capacity, stdin)) >= 0) {
        while (size > 0 && (data[size - 1] == '\n' || data[size - 1] == '\r')) {
            size--;
        }
        if (size == 0) {
            continue;
        }
        // Each answer is flushed, so that a program may wait for it before it sends the next line.
        bool printed = print_json_ascii(answer_line(handle, user, data, (size_t)size, &failed));
        if (!output_ok()) {
            free(data);
            return EXIT_FAILED;
        }
        if (!printed) {
            free(data);
            return fail_message("an answer could not be written as JSON: out of memory");
        }
    }
    int number = errno;
    free(data);
    if (signals_caught()) {
        return signals_exit_code();
    }
    if (!feof(stdin)) { // also where there was no memory for a line
        return fail_message("cannot read standard input: %s", strerror(number));
    }
    return failed ? EXIT_FAILED : EXIT_DONE;
}

// ---- times and files

// Days from 1970-01-01 to a date of the Gregorian calendar (years are counted from March, so that a leap day is the
// last).
static int64_t days_since_1970(int64_t year, int64_t month, int64_t day)
{
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t year_of_era = year - era * 400;
    int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

bool parse_time(const char *text, int64_t *seconds)
{
    static const char date_form[] = "dddd-dd-dd", full_form[] = "dddd-dd-ddTdd:dd:dd";
    size_t size = strlen(text);
    if (parse_integer(text, size, seconds)) {
        return *seconds >= -62135596800 && *seconds <= 253402300799; // the years 1 to 9999
    }
    if (size == sizeof full_form && text[size - 1] == 'Z') {
        size--;
    }
    if (size != sizeof date_form - 1 && size != sizeof full_form - 1) {
        return false;
    }
    for (size_t i = 0; i < size; i++) {
        bool digit = text[i] >= '0' && text[i] <= '9';
        bool fits = full_form[i] == 'd' ? digit : text[i] == full_form[i] || (full_form[i] == 'T' && text[i] == ' ');
        if (!fits) {
            return false;
        }
    }
    int64_t year, month, day, hour = 0, minute = 0, second = 0;
    parse_integer(text, 4, &year);
    parse_integer(text + 5, 2, &month);
    parse_integer(text + 8, 2, &day);
    if (size == sizeof full_form - 1) {
        parse_integer(text + 11, 2, &hour);
        parse_integer(text + 14, 2, &minute);
        parse_integer(text + 17, 2, &second);
    }
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (year < 1 || month < 1 || month > 12 || day < 1 || day > days[month - 1] + (month == 2 && leap) || hour > 23 ||
        minute > 59 || second > 59) {
        return false;
    }
    *seconds = days_since_1970(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
    return true;
}

bool is_same_file(const char *a, const char *b)
{
    struct stat about_a, about_b;
    return stat(a, &about_a) == 0 && stat(b, &about_b) == 0 && about_a.st_dev == about_b.st_dev &&
           about_a.st_ino == about_b.st_ino;
}
