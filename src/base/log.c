// Hands formatted lines to the embedder's function.
#include "base/log.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>

void log_message(const struct log *log, enum log_level level, const char *format, ...)
{
    if (!log || !log->write)
        return;
    char text[1024], message[2048];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    utf8_printable(message, sizeof message, text, length >= (int)sizeof text); // one line whatever the arguments were
    log->write(log->user, level, message);
}
