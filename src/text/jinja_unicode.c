// Character classes and case by utf8proc's tables, with Python's definitions on top.
#include "text/jinja_unicode.h"

#include "text/jinja_unicode_special.h"

#include <utf8proc.h>

static utf8proc_category_t category(uint32_t code_point)
{
    return utf8proc_category((utf8proc_int32_t)code_point);
}

bool unicode_is_space(uint32_t code_point)
{
    if (code_point < 0x80)
        return code_point == ' ' || (code_point >= 0x09 && code_point <= 0x0d) ||
               (code_point >= 0x1c && code_point <= 0x1f);
    return code_point == 0x85 || code_point == 0xa0 || code_point == 0x1680 ||
           (code_point >= 0x2000 && code_point <= 0x200a) || code_point == 0x2028 || code_point == 0x2029 ||
           code_point == 0x202f || code_point == 0x205f || code_point == 0x3000;
}

bool unicode_is_alpha(uint32_t code_point)
{
    utf8proc_category_t kind = category(code_point);
    return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool unicode_is_decimal(uint32_t code_point)
{
    return category(code_point) == UTF8PROC_CATEGORY_ND;
}

bool unicode_is_digit(uint32_t code_point)
{
    return unicode_is_decimal(code_point) || code_point == 0xb2 || code_point == 0xb3 || code_point == 0xb9 ||
           code_point == 0x2070 || (code_point >= 0x2074 && code_point <= 0x2079) ||
           (code_point >= 0x2080 && code_point <= 0x2089) || (code_point >= 0x2460 && code_point <= 0x2468) ||
           (code_point >= 0x2474 && code_point <= 0x247c) || (code_point >= 0x2488 && code_point <= 0x2490) ||
           (code_point >= 0x2776 && code_point <= 0x277e) || (code_point >= 0x2780 && code_point <= 0x2788) ||
           (code_point >= 0x278a && code_point <= 0x2792);
}

bool unicode_is_numeric(uint32_t code_point)
{
    static const uint32_t ideographs[] = {
        0x3405, 0x3483, 0x382a, 0x3b4d, 0x4e00, 0x4e03, 0x4e07, 0x4e09, 0x4e24, 0x4e5d, 0x4e8c, 0x4e94, 0x4ebf, 0x4edf,
        0x4ee8, 0x4f0d, 0x4f70, 0x5104, 0x5146, 0x516b, 0x516d, 0x5341, 0x5343, 0x534a, 0x56db, 0x767e, 0x842c, 0x96f6};
    utf8proc_category_t kind = category(code_point);
    if (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO)
        return true;
    for (size_t i = 0; i < sizeof ideographs / sizeof ideographs[0]; i++)
        if (ideographs[i] == code_point)
            return true;
    return false;
}

bool unicode_is_upper(uint32_t code_point)
{
    return utf8proc_isupper((utf8proc_int32_t)code_point) && !unicode_is_title(code_point);
}

bool unicode_is_lower(uint32_t code_point)
{
    return utf8proc_islower((utf8proc_int32_t)code_point);
}

bool unicode_is_title(uint32_t code_point)
{
    return category(code_point) == UTF8PROC_CATEGORY_LT;
}

bool unicode_is_cased(uint32_t code_point)
{
    return unicode_is_title(code_point) || unicode_is_upper(code_point) || unicode_is_lower(code_point);
}

bool unicode_is_case_ignorable(uint32_t code_point)
{
    utf8proc_category_t kind = category(code_point);
    return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME || kind == UTF8PROC_CATEGORY_CF ||
           kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_SK || code_point == '\'' || code_point == '.' ||
           code_point == ':' || code_point == 0xb7 || code_point == 0x2019 || code_point == 0x2018 ||
           code_point == 0x2024 || code_point == 0x2027;
}

bool unicode_is_printable(uint32_t code_point)
{
    switch (category(code_point)) {
    case UTF8PROC_CATEGORY_ZS:
        return code_point == ' ';
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
        return false;
    default:
        return true;
    }
}

bool unicode_is_word(uint32_t code_point)
{
    return code_point == '_' || unicode_is_alpha(code_point) || unicode_is_numeric(code_point);
}

bool unicode_is_identifier_start(uint32_t code_point)
{
    return code_point == '_' || unicode_is_alpha(code_point) || category(code_point) == UTF8PROC_CATEGORY_NL;
}

bool unicode_is_identifier_part(uint32_t code_point)
{
    utf8proc_category_t kind = category(code_point);
    return unicode_is_identifier_start(code_point) || kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_MC ||
           kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_PC || code_point == 0xb7 || code_point == 0x387;
}

int unicode_decimal(uint32_t code_point)
{
    if (code_point < 0x80)
        return code_point >= '0' && code_point <= '9' ? (int)(code_point - '0') : -1;
    if (!unicode_is_decimal(code_point))
        return -1;
    // Decimal digits come in runs of ten that begin at a zero; mathematical digits are five such runs in a row.
    if (code_point >= 0x1d7ce && code_point <= 0x1d7ff)
        return (int)((code_point - 0x1d7ce) % 10);
    uint32_t zero = code_point;
    while (code_point - zero < 9 && unicode_is_decimal(zero - 1))
        zero--;
    return (int)(code_point - zero);
}

size_t unicode_map_case(uint32_t code_point, enum unicode_case to, uint32_t out[3])
{
    out[0] = code_point;
    if (to == CASE_SAME)
        return 1;
    if (code_point < 0x80) {
        bool lower = code_point >= 'a' && code_point <= 'z', upper = code_point >= 'A' && code_point <= 'Z';
        out[0] = to == CASE_LOWER || to == CASE_FOLD ? (upper ? code_point + 32 : code_point)
                                                     : (lower ? code_point - 32 : code_point);
        return 1;
    }
    if (to == CASE_FOLD) {
        utf8proc_int32_t folded[8];
        int last = 0;
        utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)code_point, folded, 8, UTF8PROC_CASEFOLD, &last);
        for (utf8proc_ssize_t i = 0; i < n && i < 3; i++)
            out[i] = (uint32_t)folded[i];
        if (n >= 1 && n <= 3)
            return (size_t)n;
        to = CASE_LOWER;
    }
    for (size_t low = 0, high = n_unicode_specials; low < high;) {
        size_t middle = (low + high) / 2;
        const struct unicode_special *special = &unicode_specials[middle];
        if (special->code_point == code_point) {
            size_t n = 0;
            while (n < 3 && special->cases[to][n]) {
                out[n] = special->cases[to][n];
                n++;
            }
            return n;
        }
        if (special->code_point < code_point)
            low = middle + 1;
        else
            high = middle;
    }
    utf8proc_int32_t c = (utf8proc_int32_t)code_point;
    out[0] = (uint32_t)(to == CASE_LOWER   ? utf8proc_tolower(c)
                        : to == CASE_UPPER ? utf8proc_toupper(c)
                                           : utf8proc_totitle(c));
    return 1;
}
