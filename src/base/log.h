// Messages to whoever embeds the library: the library itself never prints.
#ifndef MOTE_BASE_LOG_H
#define MOTE_BASE_LOG_H

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING };

// A destination for messages: one line each, UTF-8, without a newline. A NULL log, or one without a function, drops
// them.
struct log {
    void (*write)(void *user, enum log_level level, const char *message);
    void *user;
};

void log_message(const struct log *log, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
