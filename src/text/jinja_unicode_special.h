// Characters that change their number with their case.
#ifndef MOTE_TEXT_JINJA_UNICODE_SPECIAL_H
#define MOTE_TEXT_JINJA_UNICODE_SPECIAL_H

#include <stddef.h>
#include <stdint.h>

struct unicode_special {
    uint32_t code_point;
    uint32_t cases[3][3]; // by enum unicode_case; zeros behind the last
};

extern const struct unicode_special unicode_specials[];
extern const size_t n_unicode_specials;

#endif
