// What Python's str can do, for the methods of strings and for the filters alike. Every result keeps track of which
// bytes the template wrote.
#ifndef MOTE_TEXT_JINJA_TEXT_H
#define MOTE_TEXT_JINJA_TEXT_H

#include "text/jinja_string.h"

enum text_case { TEXT_LOWER, TEXT_UPPER, TEXT_TITLE, TEXT_CAPITALIZE, TEXT_SWAP, TEXT_FOLD };

bool text_write_case(struct jinja_writer *writer, struct slice text, enum text_case to);
bool text_change_case(struct jinja *jinja, const struct jinja_string *string, enum text_case to, struct value *out);

// count < 0: all.
bool text_replace(struct jinja *jinja, struct jinja_string *string, struct jinja_string *old,
                  struct jinja_string *replacement, int64_t count, struct value *out);

// Pieces between separators (NULL: runs of white space), at most `most` splits (< 0: any number), from the right or
// left.
bool text_split(struct jinja *jinja, struct jinja_string *string, const struct jinja_string *separator, int64_t most,
                bool from_right, struct value *out);

// Without leading and trailing characters (NULL: white space).
bool text_strip(struct jinja *jinja, const struct jinja_string *string, const struct jinja_string *characters,
                bool left, bool right, struct value *out);

bool text_split_lines(struct jinja *jinja, const struct jinja_string *string, bool keep_ends, struct value *out);

// In a field of width characters: before of the missing ones go in front.
bool text_pad(struct jinja *jinja, struct jinja_string *string, int64_t width, const struct jinja_string *fill,
              char align, struct value *out);

bool text_has_case(const struct jinja_string *string, bool upper); // isupper, islower

#endif
