// Formatting as Python does it: '%5.2f' % x, '{:>8}'.format(x).
#ifndef MOTE_TEXT_JINJA_FORMAT_H
#define MOTE_TEXT_JINJA_FORMAT_H

#include "text/jinja_run.h"

// How one value is laid out; both syntaxes are read into this.
struct format_spec {
    uint32_t fill; // code point
    char align;    // < > ^ =, or 0: as the type has it
    bool zeros;    // a 0 before the width said align and fill
    char sign;     // + - or space; 0: only where negative
    bool alternate;
    char grouping; // , or _ between digits, or 0
    int64_t width;
    int64_t precision; // −1: none
    char type;         // 0: none given
};

// format(value, spec)
bool format_value(struct jinja_writer *writer, struct value value, const struct format_spec *spec);

// Text in a field of spec->width.
bool format_padded(struct jinja_writer *writer, struct slice text, const struct format_spec *spec);

bool format_percent(struct jinja *jinja, struct jinja_string *format, struct value arguments, struct value *out);
bool format_braces(struct jinja *jinja, struct jinja_string *format, const struct arguments *arguments,
                   struct value *out);

#endif
