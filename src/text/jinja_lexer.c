// From source to tokens. Outside tags everything is text up to the next {{, {% or {#; inside, tokens as in Python.
#include "text/jinja_big.h"
#include "text/jinja_number.h"
#include "text/jinja_syntax.h"
#include "text/jinja_unicode.h"

#include "base/utf8.h"

#include <ctype.h>
#include <string.h>

struct lexer {
    struct jinja *jinja;
    const char *text;
    size_t size;
    size_t at;
    size_t counted; // line breaks before this offset are in jinja->line
    struct token_list *tokens;
    struct {
        char *brackets; // open ones
        size_t count;
        size_t capacity;
    } open;
};

static void count_lines(struct lexer *lexer, size_t until)
{
    for (; lexer->counted < until; lexer->counted++)
        lexer->jinja->line += lexer->text[lexer->counted] == '\n';
}

static struct token *add_token(struct lexer *lexer, enum token_kind kind)
{
    void *tokens = lexer->tokens->tokens;
    if (!jinja_grow(lexer->jinja, &tokens, &lexer->tokens->capacity, lexer->tokens->count + 1, sizeof(struct token)))
        return NULL;
    lexer->tokens->tokens = tokens;
    struct token *token = &lexer->tokens->tokens[lexer->tokens->count++];
    *token = (struct token){.kind = kind, .line = lexer->jinja->line};
    return token;
}

static bool looking_at(const struct lexer *lexer, size_t at, const char *text)
{
    size_t size = strlen(text);
    return lexer->size - at >= size && memcmp(lexer->text + at, text, size) == 0;
}

static size_t skip_space(const struct lexer *lexer, size_t at)
{
    size_t length;
    while (at < lexer->size && unicode_is_space(string_decode(lexer->text + at, lexer->size - at, &length)))
        at += length;
    return at;
}

// Text [begin, end) before a tag. sign: what stands in the tag behind its opening; print: the tag is {{.
static bool add_data(struct lexer *lexer, size_t begin, size_t end, char sign, bool print)
{
    const char *text = lexer->text;
    if (sign == '-') {
        struct slice slice = {text + begin, end - begin, NULL, true};
        end = begin + string_strip(slice, NULL, false, true).size;
    } else if (sign != '+' && !print) {
        // lstrip_blocks: white space between the beginning of a line and the tag goes away.
        size_t line = end;
        while (line > begin && text[line - 1] != '\n')
            line--;
        bool starts_line = line == 0 || text[line - 1] == '\n';
        if (starts_line && skip_space(lexer, line) >= end)
            end = line;
    }
    if (begin == end)
        return true;
    struct token *token = add_token(lexer, TOKEN_DATA);
    if (!token)
        return false;
    token->data = text + begin;
    token->size = end - begin;
    return true;
}

// Behind the end of a tag at `at` whose closing is close ("%}"), or 0 where there is none. trim: "%}\n" takes its
// line break too.
static size_t tag_end(const struct lexer *lexer, size_t at, const char *close, bool trim)
{
    bool minus = lexer->text[at] == '-', plus = lexer->text[at] == '+' && trim;
    size_t from = at + (minus || plus);
    if (!looking_at(lexer, from, close))
        return 0;
    from += strlen(close);
    if (minus)
        return skip_space(lexer, from);
    return from + (trim && !plus && from < lexer->size && lexer->text[from] == '\n');
}

// Behind the sign of a tag's opening at `at`.
static size_t after_opening(const struct lexer *lexer, size_t at, char *sign)
{
    at += 2;
    *sign = at < lexer->size && (lexer->text[at] == '-' || lexer->text[at] == '+') ? lexer->text[at] : 0;
    return at + (*sign != 0);
}

// Behind a tag {% word %} whose inside begins at `at`, or 0. trim: as in tag_end.
static size_t word_tag(const struct lexer *lexer, size_t at, const char *word, bool trim)
{
    at = skip_space(lexer, at);
    if (!looking_at(lexer, at, word))
        return 0;
    at = skip_space(lexer, at + strlen(word));
    return at < lexer->size ? tag_end(lexer, at, "%}", trim) : 0;
}

// As in Jinja, what is opened by the very last characters need not be closed; nor a comment.
static bool lex_raw(struct lexer *lexer, size_t begin)
{
    for (size_t at = begin; at < lexer->size; at++) {
        if (!looking_at(lexer, at, "{%"))
            continue;
        char sign;
        size_t end = word_tag(lexer, after_opening(lexer, at, &sign), "endraw", true);
        if (end == 0)
            continue;
        if (!add_data(lexer, begin, at, sign, false))
            return false;
        lexer->at = end;
        return true;
    }
    lexer->at = lexer->size;
    return begin == lexer->size || jinja_fail(lexer->jinja, "missing end of raw directive");
}

static bool lex_comment(struct lexer *lexer, size_t begin)
{
    for (size_t at = begin; at < lexer->size; at++) {
        size_t end = tag_end(lexer, at, "#}", true);
        if (end) {
            lexer->at = end;
            return true;
        }
    }
    lexer->at = lexer->size;
    return begin == lexer->size || jinja_fail(lexer->jinja, "missing end of comment tag");
}

// Behind digits with single underscores between them at `at`; first_underscore: one may stand before the first.
static size_t digits_end(const struct lexer *lexer, size_t at, unsigned base, bool first_underscore)
{
    size_t end = at;
    for (bool may_underscore = first_underscore; at < lexer->size; at++) {
        char c = lexer->text[at];
        if (c == '_' && may_underscore) {
            may_underscore = false;
            continue;
        }
        unsigned value = isdigit((unsigned char)c)   ? (unsigned)(c - '0')
                         : isalpha((unsigned char)c) ? (unsigned)((c | 32) - 'a' + 10)
                                                     : 99;
        if (value >= base)
            break;
        end = at + 1;
        may_underscore = true;
    }
    return end;
}

// Behind a number with a fraction or an exponent, or 0.
static size_t real_end(const struct lexer *lexer, size_t at)
{
    if (at > 0 && lexer->text[at - 1] == '.')
        return 0;
    size_t whole = digits_end(lexer, at, 10, false), end = whole;
    if (end < lexer->size && lexer->text[end] == '.') {
        size_t fraction = digits_end(lexer, end + 1, 10, false);
        end = fraction > end + 1 ? fraction : end;
    }
    if (end < lexer->size && (lexer->text[end] | 32) == 'e') {
        size_t from = end + 1;
        from += from < lexer->size && (lexer->text[from] == '-' || lexer->text[from] == '+');
        size_t exponent = digits_end(lexer, from, 10, false);
        end = exponent > from ? exponent : end;
    }
    return end > whole ? end : 0;
}

static bool lex_number(struct lexer *lexer)
{
    size_t begin = lexer->at, end = real_end(lexer, begin);
    bool real = end != 0;
    if (!real) {
        static const char prefixes[] = {'b', 2, 'o', 8, 'x', 16};
        const char *text = lexer->text + begin;
        for (size_t i = 0; i < sizeof prefixes && text[0] == '0' && begin + 1 < lexer->size; i += 2) {
            if ((text[1] | 32) != prefixes[i])
                continue;
            size_t behind = digits_end(lexer, begin + 2, (unsigned char)prefixes[i + 1], true);
            end = behind > begin + 2 ? behind : 0;
        }
        if (end == 0)
            end = text[0] == '0' ? digits_end(lexer, begin, 1, false) : digits_end(lexer, begin, 10, false);
    }
    struct token *token = add_token(lexer, real ? TOKEN_REAL : TOKEN_INTEGER);
    struct jinja_string *number = string_create(lexer->jinja, lexer->text + begin, end - begin, true);
    if (!token || !number)
        return false;
    bool valid;
    lexer->at = end;
    if (real) {
        token->literal = value_float(0);
        return number_parse_float(lexer->jinja, number, &token->literal.real, &valid);
    }
    return number_parse_int(lexer->jinja, number, 0, &token->literal, &valid);
}

static bool lex_name(struct lexer *lexer)
{
    size_t begin = lexer->at, at = begin, length;
    bool valid = unicode_is_identifier_start(string_decode(lexer->text + begin, lexer->size - begin, &length));
    for (; at < lexer->size; at += length) {
        uint32_t c = string_decode(lexer->text + at, lexer->size - at, &length);
        if (!unicode_is_word(c))
            break;
        valid = valid && unicode_is_identifier_part(c);
    }
    if (!valid)
        return jinja_fail(lexer->jinja, "invalid character in identifier");
    struct token *token = add_token(lexer, TOKEN_NAME);
    if (!token)
        return false;
    token->data = lexer->text + begin;
    token->size = at - begin;
    lexer->at = at;
    return true;
}

// Reads up to `most` digits of base 8 or 16 at *at.
static size_t read_escape(const char *text, size_t size, size_t *at, size_t most, unsigned base, uint32_t *value)
{
    size_t n = 0;
    *value = 0;
    for (; n < most && *at < size && isxdigit((unsigned char)text[*at]); n++, ++*at) {
        char c = text[*at];
        uint32_t digit = isdigit((unsigned char)c) ? (uint32_t)(c - '0') : (uint32_t)((c | 32) - 'a' + 10);
        if (digit >= base)
            break;
        *value = *value * base + digit;
    }
    return n;
}

static bool write_escape(struct jinja_writer *writer, const char *text, size_t size, size_t *at)
{
    static const char simple[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    static const struct {
        char letter;
        size_t digits;
    } hexadecimal[] = {{'x', 2}, {'u', 4}, {'U', 8}};
    char c = text[*at];
    for (size_t i = 0; i + 1 < sizeof simple; i += 2) {
        if (simple[i] == c) {
            ++*at;
            return writer_bytes(writer, &simple[i + 1], 1, true);
        }
    }
    uint32_t value;
    for (size_t i = 0; i < 3; i++) {
        if (hexadecimal[i].letter != c)
            continue;
        ++*at;
        size_t n = read_escape(text, size, at, hexadecimal[i].digits, 16, &value);
        bool surrogate = value >= 0xd800 && value < 0xe000;
        if (n != hexadecimal[i].digits || surrogate || value > 0x10ffff)
            return jinja_fail(writer->jinja, "a \\%c escape is not a character", c);
        return writer_code_point(writer, value, true);
    }
    if (c == '\n') { // a line that goes on
        ++*at;
        return true;
    }
    if (c == 'N')
        return jinja_fail(writer->jinja, "\\N{…} escapes are not supported");
    if (read_escape(text, size, at, 3, 8, &value))
        return writer_code_point(writer, value, true);
    if ((unsigned char)c < 0x80) {
        ++*at;
        return writer_bytes(writer, text + *at - 2, 2, true);
    }
    // Jinja replaces the character by an escape first, whose backslash is then escaped by the one before.
    size_t length;
    uint32_t code_point = string_decode(text + *at, size - *at, &length);
    *at += length;
    return writer_format(writer,
                         code_point < 0x100     ? "\\x%02x"
                         : code_point < 0x10000 ? "\\u%04x"
                                                : "\\U%08x",
                         (unsigned)code_point);
}

static bool lex_text(struct lexer *lexer)
{
    char quote = lexer->text[lexer->at];
    size_t begin = lexer->at + 1, end = begin;
    bool escapes = false;
    while (end < lexer->size && lexer->text[end] != quote) {
        escapes |= lexer->text[end] == '\\';
        end += lexer->text[end] == '\\' ? 2 : 1;
    }
    if (end >= lexer->size)
        return jinja_fail(lexer->jinja, "unexpected char %s: the text that it begins does not end",
                          quote == '"' ? "'\"'" : "\"'\"");
    struct token *token = add_token(lexer, TOKEN_TEXT);
    if (!token)
        return false;
    lexer->at = end + 1;
    const char *text = lexer->text + begin;
    size_t size = end - begin, at = 0;
    if (!escapes)
        return value_from_slice(lexer->jinja, (struct slice){text, size, NULL, true}, false, &token->literal);
    struct jinja_writer writer = {.jinja = lexer->jinja};
    while (at < size) {
        const char *backslash = memchr(text + at, '\\', size - at);
        size_t plain = backslash ? (size_t)(backslash - text) : size;
        if (!writer_bytes(&writer, text + at, plain - at, true))
            return false;
        at = plain + 1;
        if (backslash && !write_escape(&writer, text, size, &at))
            return false;
    }
    return writer_finish_value(&writer, &token->literal);
}

static bool lex_operator(struct lexer *lexer)
{
    static const char doubles[][3] = {"//", "**", "==", "!=", ">=", "<="};
    static const char singles[] = "+-/*%~[](){}><=.:|,;";
    static const char pairs[] = "()[]{}";
    char c = lexer->text[lexer->at];
    size_t length = strchr(singles, c) && c ? 1 : 0;
    for (size_t i = 0; i < sizeof doubles / sizeof doubles[0]; i++)
        if (looking_at(lexer, lexer->at, doubles[i]))
            length = 2;
    if (length == 0)
        return jinja_fail(lexer->jinja, "unexpected char '%c' in a tag", isprint((unsigned char)c) ? c : '?');
    const char *bracket = length == 1 ? strchr(pairs, c) : NULL;
    if (bracket && (bracket - pairs) % 2 == 0) {
        void *brackets = lexer->open.brackets;
        if (!jinja_grow(lexer->jinja, &brackets, &lexer->open.capacity, lexer->open.count + 1, 1))
            return false;
        lexer->open.brackets = brackets;
        lexer->open.brackets[lexer->open.count++] = bracket[1];
    } else if (bracket) {
        if (lexer->open.count == 0)
            return jinja_fail(lexer->jinja, "unexpected '%c'", c);
        char expected = lexer->open.brackets[--lexer->open.count];
        if (expected != c)
            return jinja_fail(lexer->jinja, "unexpected '%c', expected '%c'", c, expected);
    }
    struct token *token = add_token(lexer, TOKEN_OPERATOR);
    if (!token)
        return false;
    memcpy(token->operator, lexer->text + lexer->at, length);
    lexer->at += length;
    return true;
}

// The inside of {{ }} or {% %}, up to and with its end.
static bool lex_tag(struct lexer *lexer, bool print)
{
    lexer->open.count = 0;
    for (;;) {
        lexer->at = skip_space(lexer, lexer->at);
        count_lines(lexer, lexer->at);
        if (lexer->at >= lexer->size)
            return true; // the parser sees that the tag does not end
        size_t end = lexer->open.count ? 0 : tag_end(lexer, lexer->at, print ? "}}" : "%}", !print);
        if (end) {
            lexer->at = end;
            return add_token(lexer, print ? TOKEN_PRINT_END : TOKEN_BLOCK_END) != NULL;
        }
        size_t length;
        char c = lexer->text[lexer->at];
        uint32_t code_point = string_decode(lexer->text + lexer->at, lexer->size - lexer->at, &length);
        bool done = isdigit((unsigned char)c)     ? lex_number(lexer)
                    : unicode_is_word(code_point) ? lex_name(lexer)
                    : c == '\'' || c == '"'       ? lex_text(lexer)
                                                  : lex_operator(lexer);
        if (!done)
            return false;
    }
}

static bool lex(struct lexer *lexer)
{
    while (lexer->at < lexer->size) {
        size_t begin = lexer->at, tag = begin;
        count_lines(lexer, begin);
        while (tag < lexer->size && !looking_at(lexer, tag, "{{") && !looking_at(lexer, tag, "{%") &&
               !looking_at(lexer, tag, "{#"))
            tag++;
        if (tag == lexer->size)
            return add_data(lexer, begin, tag, '+', false);
        char sign, kind = lexer->text[tag + 1];
        size_t inside = after_opening(lexer, tag, &sign);
        if (!add_data(lexer, begin, tag, sign, kind == '{'))
            return false;
        count_lines(lexer, inside);
        lexer->at = inside;
        size_t raw = kind == '%' ? word_tag(lexer, inside, "raw", false) : 0;
        bool done;
        if (raw)
            done = lex_raw(lexer, raw);
        else if (kind == '#')
            done = lex_comment(lexer, inside);
        else
            done = add_token(lexer, kind == '{' ? TOKEN_PRINT_BEGIN : TOKEN_BLOCK_BEGIN) && lex_tag(lexer, kind == '{');
        if (!done)
            return false;
    }
    return true;
}

bool jinja_tokenize(struct jinja *jinja, const char *source, size_t size, struct token_list *tokens)
{
    size_t bad;
    jinja->line = 1;
    if (!utf8_valid(source, size, &bad))
        return jinja_fail(jinja, "the template is not valid UTF-8 at byte %zu", bad);
    char *text = jinja_alloc(jinja, size + 1, 1);
    if (!text)
        return false;
    struct lexer lexer = {.jinja = jinja, .text = text, .tokens = tokens};
    for (size_t i = 0; i < size; i++) {
        bool carriage_return = source[i] == '\r';
        if (carriage_return && i + 1 < size && source[i + 1] == '\n')
            i++;
        text[lexer.size++] = carriage_return ? '\n' : source[i];
    }
    if (lexer.size && text[lexer.size - 1] == '\n')
        lexer.size--;
    if (!lex(&lexer))
        return false;
    count_lines(&lexer, lexer.size);
    return add_token(&lexer, TOKEN_END) != NULL;
}
