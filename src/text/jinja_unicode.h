// What Python's str knows about characters: white space, classes and case, as Unicode has them.
#ifndef MOTE_TEXT_JINJA_UNICODE_H
#define MOTE_TEXT_JINJA_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum unicode_case { CASE_LOWER, CASE_UPPER, CASE_TITLE, CASE_FOLD, CASE_SAME };

bool unicode_is_space(uint32_t code_point);
bool unicode_is_alpha(uint32_t code_point);
bool unicode_is_decimal(uint32_t code_point);
bool unicode_is_digit(uint32_t code_point);   // decimal digits, also raised or circled ones
bool unicode_is_numeric(uint32_t code_point); // also fractions and the like
bool unicode_is_upper(uint32_t code_point);
bool unicode_is_lower(uint32_t code_point);
bool unicode_is_title(uint32_t code_point);
bool unicode_is_cased(uint32_t code_point);
bool unicode_is_case_ignorable(uint32_t code_point);
bool unicode_is_printable(uint32_t code_point); // repr shows it as it is
bool unicode_is_word(uint32_t code_point);      // \w of Python's re
bool unicode_is_identifier_start(uint32_t code_point);
bool unicode_is_identifier_part(uint32_t code_point);

// The decimal value of a digit, or −1.
int unicode_decimal(uint32_t code_point);

// The code points that one becomes: 1 to 3 of them. Returns how many.
size_t unicode_map_case(uint32_t code_point, enum unicode_case to, uint32_t out[3]);

#endif
