// Between JSON and values: the template's input, and the filter tojson as transformers defines it.
#ifndef MOTE_TEXT_JINJA_JSON_H
#define MOTE_TEXT_JINJA_JSON_H

#include "text/jinja_string.h"

#include <jansson.h>

// The value shares its texts with json, which must outlive it. They are not trusted, unless `trusted`.
bool json_to_value(struct jinja *jinja, const json_t *json, bool trusted, struct value *out);

struct json_layout {
    bool ascii;                                                // all other characters escaped
    bool sorted;                                               // by key
    const struct jinja_string *indent;                         // one level; NULL: all on one line
    const struct jinja_string *item_separator, *key_separator; // NULL: ", " (at a line's end: ",") and ": "
};

bool json_write(struct jinja_writer *writer, struct value value, const struct json_layout *layout);

#endif
