// strftime, in English and in UTC.
#ifndef MOTE_TEXT_JINJA_TIME_H
#define MOTE_TEXT_JINJA_TIME_H

#include "text/jinja_string.h"

bool time_format(struct jinja *jinja, const struct jinja_string *format, int64_t now, struct value *out);

#endif
