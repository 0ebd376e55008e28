// Error values. Text that comes from files or users passes through here, so this is where it is made
// printable: whatever the arguments were, a message is valid UTF-8 without control characters.
#include "base/error.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

// Copies text (NUL-terminated) to out, control characters and invalid bytes as \xNN; cuts it where it does not fit.
static void copy_printable(char *out, size_t capacity, const char *text, bool cut)
{
    static const char hex[] = "0123456789abcdef";
    size_t size = strlen(text);
    if (cut) // the cut may lie inside a character
        size -= utf8_incomplete_tail(text, size);
    size_t used = 0;
    for (size_t i = 0; i < size;) {
        uint32_t code_point;
        size_t length = utf8_decode(text + i, size - i, &code_point);
        bool control = length && (code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0));
        if (length && !control) {
            if (used + length + 1 > capacity)
                break;
            memcpy(out + used, text + i, length);
            used += length;
            i += length;
            continue;
        }
        if (used + 4 + 1 > capacity)
            break;
        unsigned char byte = (unsigned char)text[i++];
        out[used++] = '\\';
        out[used++] = 'x';
        out[used++] = hex[byte >> 4];
        out[used++] = hex[byte & 15];
    }
    out[used] = '\0';
}

static void set_message(struct error *error, const char *format, va_list arguments)
{
    char text[sizeof error->message]; // apart, since the arguments may point into error
    int length = vsnprintf(text, sizeof text, format, arguments);
    if (length < 0)
        text[0] = '\0';
    copy_printable(error->message, sizeof error->message, text, length >= (int)sizeof text);
}

enum status error_set(struct error *error, enum status status, const char *format, ...)
{
    if (!error)
        return status;
    va_list arguments;
    va_start(arguments, format);
    set_message(error, format, arguments);
    va_end(arguments);
    error->status = status;
    return status;
}

enum status error_prefix(struct error *error, const char *format, ...)
{
    if (!error)
        return STATUS_INVALID;
    char old[sizeof error->message];
    memcpy(old, error->message, sizeof old);
    va_list arguments;
    va_start(arguments, format);
    set_message(error, format, arguments);
    va_end(arguments);
    char prefix[sizeof error->message];
    memcpy(prefix, error->message, sizeof prefix);
    return error_set(error, error->status, "%s: %s", prefix, old);
}

// In English whatever the locale is, like all of our messages.
static const char *system_text(int number)
{
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 32)
    const char *text = strerrordesc_np(number);
    return text ? text : "unknown error";
#else
    return strerror(number);
#endif
}

enum status error_system(struct error *error, int number, const char *format, ...)
{
    enum status status = number == ENOMEM ? STATUS_MEMORY : STATUS_IO;
    if (!error)
        return status;
    va_list arguments;
    va_start(arguments, format);
    set_message(error, format, arguments);
    va_end(arguments);
    char what[sizeof error->message];
    memcpy(what, error->message, sizeof what);
    return error_set(error, status, "%s: %s", what, system_text(number));
}

enum status error_memory(struct error *error, const char *what)
{
    return error_set(error, STATUS_MEMORY, "not enough memory for %s", what);
}
