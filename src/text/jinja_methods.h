// Methods of values, in tables by type.
#ifndef MOTE_TEXT_JINJA_METHODS_H
#define MOTE_TEXT_JINJA_METHODS_H

#include "text/jinja_run.h"

extern const struct jinja_builtin string_methods[];

#endif
