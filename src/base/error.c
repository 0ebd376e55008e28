// Error values. Text that comes from files or users passes through here, so this is where it is made
// printable: whatever the arguments were, a message is valid UTF-8 without control characters.
#include "base/error.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static void set_message(struct error *error, const char *format, va_list arguments)
{
    char text[sizeof error->message]; // apart, since the arguments may point into error
    int length = vsnprintf(text, sizeof text, format, arguments);
    if (length < 0)
        text[0] = '\0';
    utf8_printable(error->message, sizeof error->message, text, length >= (int)sizeof text);
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

// "FIRST: SECOND". Where that is too long, FIRST (a path, a key) loses its beginning: SECOND says what is wrong.
static enum status join(struct error *error, enum status status, const char *first, const char *second)
{
    enum { SHORTEST = 16 }; // less of FIRST helps nobody
    size_t room = sizeof error->message - 1;
    size_t rest = strlen(second) + 2;
    size_t length = strlen(first);
    if (length + rest <= room)
        return error_set(error, status, "%s: %s", first, second);
    if (rest + SHORTEST > room)
        return error_set(error, status, "%s", second);
    size_t kept = room - rest - 3;
    const char *tail = first + length - kept;
    while (((unsigned char)*tail & 0xc0) == 0x80) // not into a character
        tail++;
    return error_set(error, status, "...%s: %s", tail, second);
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
    return join(error, error->status, prefix, old);
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
    return join(error, status, what, system_text(number));
}

enum status error_memory(struct error *error, const char *what)
{
    return error_set(error, STATUS_MEMORY, "not enough memory for %s", what);
}
