// Hands formatted lines to the embedder's function.
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void log_message(const struct log *log, enum log_level level, const char *format, ...)
{
    if (!log || !log->write)
        return;
    char message[2048];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (length >= 0)
        log->write(log->user, level, message);
}
