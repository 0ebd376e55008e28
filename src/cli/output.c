#include "output.h"

#include "options.h"
#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

size_t utf8_character(const char *text, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)text;
    if (size == 0 || bytes[0] < 0x80) {
        return size > 0;
    }
    size_t length = bytes[0] >= 0xf0 ? 4 : bytes[0] >= 0xe0 ? 3 : 2;
    if (bytes[0] < 0xc2 || bytes[0] > 0xf4 || length > size) {
        return 0;
    }
    // The second byte's range excludes overlong forms, surrogates and what is above U+10FFFF.
    unsigned char least = bytes[0] == 0xe0 ? 0xa0 : bytes[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char most = bytes[0] == 0xed ? 0x9f : bytes[0] == 0xf4 ? 0x8f : 0xbf;
    if (bytes[1] < least || bytes[1] > most) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return length;
}

bool utf8_check(const char *text, size_t size, size_t *bad)
{
    for (size_t i = 0, length; i < size; i += length) {
        length = utf8_character(text + i, size - i);
        if (length == 0) {
            *bad = i;
            return false;
        }
    }
    return true;
}

// C0, DEL, and the C1 controls U+0080 to U+009F, which some terminals obey too.
static bool is_control(const char *text, size_t length)
{
    const unsigned char *bytes = (const unsigned char *)text;
    return (length == 1 && (bytes[0] < 0x20 || bytes[0] == 0x7f)) ||
           (length == 2 && bytes[0] == 0xc2 && bytes[1] < 0xa0);
}

static void print_bytes_escaped(FILE *out, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        fprintf(out, "\\x%02x", (unsigned char)text[i]);
    }
}

// kept: control characters that are printed as they are.
static void print_visible(FILE *out, const char *text, size_t size, const char *kept)
{
    for (size_t i = 0, length; i < size; i += length) {
        length = utf8_character(text + i, size - i);
        bool keep = length == 1 && text[i] != '\0' && strchr(kept, text[i]);
        if (length == 0) {
            length = 1;
            print_bytes_escaped(out, text + i, 1);
        } else if (keep || !is_control(text + i, length)) {
            fwrite(text + i, 1, length, out);
        } else if (text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
            fputs(text[i] == '\n' ? "\\n" : text[i] == '\t' ? "\\t" : "\\r", out);
        } else {
            print_bytes_escaped(out, text + i, length);
        }
    }
}

void print_escaped(FILE *out, const char *text, size_t size)
{
    print_visible(out, text, size, "");
}

void print_model_text(FILE *out, const char *text, size_t size)
{
    if (isatty(fileno(out))) {
        print_visible(out, text, size, "\n\t");
    } else {
        fwrite(text, 1, size, out);
    }
}

bool is_live_terminal(FILE *out)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    return isatty(fileno(out)) && !(term && strcmp(term, "dumb") == 0) && !(no_color && no_color[0]);
}

static void print_message(const char *kind, const char *message)
{
    fflush(stdout); // what came before stands before it where both go to one place
    fprintf(stderr, "mote: %s: ", kind);
    print_escaped(stderr, message, strlen(message));
    fputc('\n', stderr);
}

int fail(const mote_error *error)
{
    if (signals_caught()) {
        return signals_exit_code();
    }
    print_message("error", error->message[0] ? error->message : "failed for an unknown reason");
    return EXIT_FAILED;
}

int fail_message(const char *format, ...)
{
    mote_error error = {.status = MOTE_INVALID};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error.message, sizeof error.message, format, arguments);
    va_end(arguments);
    return fail(&error);
}

void warn_message(const char *format, ...)
{
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    print_message("warning", message);
}

bool output_ok(void)
{
    return fflush(stdout) == 0 && !ferror(stdout);
}

int finish_output(int exit_code)
{
    errno = 0;
    if (output_ok()) {
        return exit_code;
    }
    // A reader that has seen enough is no error worth words.
    if (errno != EPIPE && exit_code != EXIT_FAILED) {
        fprintf(stderr, "mote: error: cannot write to standard output%s%s\n", errno ? ": " : "",
                errno ? strerror(errno) : "");
    }
    return EXIT_FAILED;
}

static bool write_all(int descriptor, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t put = write(descriptor, data, size);
        if (put < 0 && errno != EINTR) {
            return false;
        }
        data += put > 0 ? put : 0;
        size -= put > 0 ? (size_t)put : 0;
    }
    return true;
}

static mote_status cannot_write(const char *path, mote_error *error)
{
    *error = (mote_error){.status = MOTE_IO};
    snprintf(error->message, sizeof error->message, "cannot write '%s': %s", path, strerror(errno));
    return error->status;
}

mote_status write_file(const char *path, const char *data, size_t size, mote_error *error)
{
    struct stat info;
    char aside[4096];
    bool direct = stat(path, &info) == 0 && !S_ISREG(info.st_mode);
    int length = direct ? snprintf(aside, sizeof aside, "%s", path)
                        : snprintf(aside, sizeof aside, "%s.%ld.tmp", path, (long)getpid());
    errno = ENAMETOOLONG;
    int descriptor = length < 0 || (size_t)length >= sizeof aside
                         ? -1
                         : open(aside, O_WRONLY | O_CLOEXEC | (direct ? 0 : O_CREAT | O_EXCL), 0666);
    if (descriptor < 0) {
        return cannot_write(path, error);
    }
    bool written = write_all(descriptor, data, size);
    written = close(descriptor) == 0 && written && (direct || rename(aside, path) == 0);
    mote_status status = written ? MOTE_OK : cannot_write(path, error);
    if (!written && !direct) {
        unlink(aside);
    }
    return status;
}

static bool print_json(json_t *value, size_t flags)
{
    bool ok = value && json_dumpf(value, stdout, flags | JSON_ENCODE_ANY) == 0;
    json_decref(value);
    return fputc('\n', stdout) != EOF && ok;
}

bool print_json_ascii(json_t *value)
{
    return print_json(value, JSON_ENSURE_ASCII);
}

bool print_json_line(json_t *value)
{
    return print_json(value, 0);
}

bool print_json_pretty(json_t *value)
{
    return print_json(value, JSON_INDENT(2));
}

struct size_text format_bytes(double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    size_t unit = 0;
    while (bytes >= 999.5 && unit + 1 < sizeof units / sizeof units[0]) {
        bytes /= 1000;
        unit++;
    }
    struct size_text result;
    snprintf(result.text, sizeof result.text, unit && bytes < 99.95 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return result;
}
