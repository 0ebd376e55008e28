// Values as text: str() and repr() of Python.
#ifndef MOTE_TEXT_JINJA_REPR_H
#define MOTE_TEXT_JINJA_REPR_H

#include "text/jinja_string.h"

bool value_repr(struct jinja_writer *writer, struct value value);
bool value_write(struct jinja_writer *writer, struct value value); // str

// str(value) as a string, the value's own where it is one (also a Markup).
bool value_to_string(struct jinja *jinja, struct value value, struct jinja_string **string);

// repr of text: quotes chosen, unprintable characters escaped; ascii: all others too.
bool repr_text(struct jinja_writer *writer, struct slice slice, bool ascii);

#endif
