// The calendar is computed here, so that neither locale nor time zone of the process matters.
#include "text/jinja_time.h"

#include <string.h>

struct moment {
    int64_t year;
    int month; // 1 to 12
    int day;
    int hour, minute, second;
    int weekday; // 0: Sunday
    int yearday; // from 0
    int64_t now;
};

static const char *const days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};

static bool is_leap(int64_t year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

static int month_days(int64_t year, int month)
{
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return lengths[month - 1] + (month == 2 && is_leap(year));
}

static struct moment moment_of(int64_t now)
{
    int64_t day = now / 86400, second = now % 86400;
    if (second < 0) {
        second += 86400;
        day--;
    }
    struct moment moment = {.now = now,
                            .hour = (int)(second / 3600),
                            .minute = (int)(second / 60 % 60),
                            .second = (int)(second % 60),
                            .weekday = (int)(((day + 4) % 7 + 7) % 7)}; // 1970-01-01 was a Thursday
    // Whole cycles of 400 years have 146097 days each.
    int64_t cycles = day / 146097;
    day %= 146097;
    if (day < 0) {
        day += 146097;
        cycles--;
    }
    moment.year = 1970 + cycles * 400;
    while (day >= 365 + is_leap(moment.year)) {
        day -= 365 + is_leap(moment.year);
        moment.year++;
    }
    moment.yearday = (int)day;
    for (moment.month = 1; day >= month_days(moment.year, moment.month); moment.month++)
        day -= month_days(moment.year, moment.month);
    moment.day = (int)day + 1;
    return moment;
}

// ISO 8601: weeks begin on Monday, and week 1 is the one with the year's first Thursday.
static void iso_week(const struct moment *moment, int64_t *year, int *week)
{
    int monday_based = (moment->weekday + 6) % 7;
    int number = (moment->yearday - monday_based + 10) / 7;
    *year = moment->year;
    int first = ((moment->weekday - moment->yearday) % 7 + 7) % 7; // weekday of January 1st
    bool long_year = first == 4 || (first == 3 && is_leap(moment->year));
    if (number < 1) {
        int64_t before = moment->year - 1;
        int first_before = ((first - (365 + is_leap(before))) % 7 + 7) % 7;
        number = first_before == 4 || (first_before == 3 && is_leap(before)) ? 53 : 52;
        *year = before;
    } else if (number == 53 && !long_year) {
        number = 1;
        *year = moment->year + 1;
    }
    *week = number;
}

static bool write_moment(struct jinja_writer *writer, const struct moment *moment, const char *format, size_t size,
                         bool trusted);

// A number, with '-' (no padding) or '_' (spaces) or the directive's own padding.
static bool write_padded(struct jinja_writer *writer, int64_t number, int width, char flag, char padding)
{
    padding = flag == '_' ? ' ' : flag == '0' ? '0' : padding;
    if (flag == '-')
        width = 0;
    return writer_format(writer, padding == ' ' ? "%*lld" : "%0*lld", width, (long long)number);
}

static bool write_name(struct jinja_writer *writer, const char *name, size_t length, char flag)
{
    char text[16];
    size_t size = strlen(name) < length ? strlen(name) : length;
    for (size_t i = 0; i < size; i++)
        text[i] = flag == '^' && name[i] >= 'a' && name[i] <= 'z' ? (char)(name[i] - 32) : name[i];
    return writer_bytes(writer, text, size, false);
}

static bool write_directive(struct jinja_writer *writer, const struct moment *moment, char directive, char flag)
{
    static const struct {
        char directive;
        const char *means;
    } compounds[] = {
        {'c', "%a %b %e %H:%M:%S %Y"}, {'D', "%m/%d/%y"}, {'F', "%Y-%m-%d"}, {'R', "%H:%M"}, {'T', "%H:%M:%S"},
        {'r', "%I:%M:%S %p"},          {'x', "%m/%d/%y"}, {'X', "%H:%M:%S"}};
    for (size_t i = 0; i < sizeof compounds / sizeof compounds[0]; i++)
        if (compounds[i].directive == directive)
            return write_moment(writer, moment, compounds[i].means, strlen(compounds[i].means), false);
    int hour12 = moment->hour % 12 ? moment->hour % 12 : 12, week;
    int64_t iso_year;
    iso_week(moment, &iso_year, &week);
    switch (directive) {
    case 'Y':
        return write_padded(writer, moment->year, 1, flag, '0');
    case 'C':
        return write_padded(writer, moment->year / 100, 2, flag, '0');
    case 'y':
        return write_padded(writer, (moment->year % 100 + 100) % 100, 2, flag, '0');
    case 'm':
        return write_padded(writer, moment->month, 2, flag, '0');
    case 'd':
        return write_padded(writer, moment->day, 2, flag, '0');
    case 'e':
        return write_padded(writer, moment->day, 2, flag, ' ');
    case 'H':
        return write_padded(writer, moment->hour, 2, flag, '0');
    case 'k':
        return write_padded(writer, moment->hour, 2, flag, ' ');
    case 'I':
        return write_padded(writer, hour12, 2, flag, '0');
    case 'l':
        return write_padded(writer, hour12, 2, flag, ' ');
    case 'M':
        return write_padded(writer, moment->minute, 2, flag, '0');
    case 'S':
        return write_padded(writer, moment->second, 2, flag, '0');
    case 'j':
        return write_padded(writer, moment->yearday + 1, 3, flag, '0');
    case 'f': // microseconds
        return writer_text(writer, "000000");
    case 's':
        return write_padded(writer, moment->now, 1, flag, '0');
    case 'u':
        return write_padded(writer, moment->weekday ? moment->weekday : 7, 1, flag, '0');
    case 'w':
        return write_padded(writer, moment->weekday, 1, flag, '0');
    case 'U':
        return write_padded(writer, (moment->yearday + 7 - moment->weekday) / 7, 2, flag, '0');
    case 'W':
        return write_padded(writer, (moment->yearday + 7 - (moment->weekday + 6) % 7) / 7, 2, flag, '0');
    case 'V':
        return write_padded(writer, week, 2, flag, '0');
    case 'G':
        return write_padded(writer, iso_year, 1, flag, '0');
    case 'g':
        return write_padded(writer, (iso_year % 100 + 100) % 100, 2, flag, '0');
    case 'A':
        return write_name(writer, days[moment->weekday], 16, flag);
    case 'a':
        return write_name(writer, days[moment->weekday], 3, flag);
    case 'B':
        return write_name(writer, months[moment->month - 1], 16, flag);
    case 'b':
    case 'h':
        return write_name(writer, months[moment->month - 1], 3, flag);
    case 'p':
        return writer_text(writer, flag == '#' ? (moment->hour < 12 ? "am" : "pm") : moment->hour < 12 ? "AM" : "PM");
    case 'P':
        return writer_text(writer, moment->hour < 12 ? "am" : "pm");
    case 'n':
        return writer_text(writer, "\n");
    case 't':
        return writer_text(writer, "\t");
    case '%':
        return writer_text(writer, "%");
    case 'z': // a time without a zone, as datetime.now() has none
    case 'Z':
        return true;
    default: { // unknown: as it stands
        char text[4] = {'%', flag ? flag : directive, flag ? directive : '\0', '\0'};
        return writer_text(writer, text);
    }
    }
}

static bool write_moment(struct jinja_writer *writer, const struct moment *moment, const char *format, size_t size,
                         bool trusted)
{
    for (size_t at = 0; at < size;) {
        const char *percent = memchr(format + at, '%', size - at);
        size_t end = percent ? (size_t)(percent - format) : size;
        if (!writer_bytes(writer, format + at, end - at, trusted))
            return false;
        at = end + 1;
        if (!percent)
            break;
        char flag = at + 1 < size && strchr("-_0^#", format[at]) && format[at] ? format[at] : '\0';
        at += flag != '\0';
        if (at >= size)
            return writer_text(writer, "%");
        if ((unsigned char)format[at] >= 0x80) { // no directive: the bytes of a character stay together
            if (!writer_text(writer, "%"))
                return false;
            continue;
        }
        if (!write_directive(writer, moment, format[at++], flag))
            return false;
    }
    return true;
}

bool time_format(struct jinja *jinja, const struct jinja_string *format, int64_t now, struct value *out)
{
    struct jinja_writer writer = {.jinja = jinja};
    // Years of at most six digits: what else a clock may say is a mistake.
    int64_t most = (int64_t)1 << 44;
    struct moment moment = moment_of(now > most ? most : now < -most ? -most : now);
    return write_moment(&writer, &moment, format->data, format->size, format->trusted && !format->shadow) &&
           writer_finish_value(&writer, out);
}
