// What the two halves of the parser share: the current token, names, nodes, and how a template is refused.
#include "text/jinja_parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool parser_fail(struct parser *parser, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    parser->jinja->line = parser->token->line;
    return jinja_fail(parser->jinja, "%s", text);
}

bool parser_enter(struct parser *parser)
{
    if (parser->depth >= PARSE_DEPTH)
        return parser_fail(parser, "nested more than %d deep", PARSE_DEPTH);
    parser->depth++;
    return true;
}

bool token_is(const struct token *token, const char *operator)
{
    return token->kind == TOKEN_OPERATOR && strcmp(token->operator, operator) == 0;
}

bool token_is_name(const struct token *token, const char *name)
{
    return token->kind == TOKEN_NAME && token->size == strlen(name) && memcmp(token->data, name, token->size) == 0;
}

bool parser_skip(struct parser *parser, const char *operator)
{
    bool there = token_is(parser->token, operator);
    parser->token += there;
    return there;
}

bool parser_skip_name(struct parser *parser, const char *name)
{
    bool there = token_is_name(parser->token, name);
    parser->token += there;
    return there;
}

bool parser_unexpected(struct parser *parser, const char *wanted)
{
    static const char *const shown[] = {
        [TOKEN_END] = "the end of the template",
        [TOKEN_DATA] = "text",
        [TOKEN_PRINT_BEGIN] = "{{",
        [TOKEN_PRINT_END] = "the end of the print statement",
        [TOKEN_BLOCK_BEGIN] = "{%",
        [TOKEN_BLOCK_END] = "the end of the statement block",
        [TOKEN_TEXT] = "a text",
        [TOKEN_INTEGER] = "an integer",
        [TOKEN_REAL] = "a number",
    };
    const struct token *token = parser->token;
    if (token->kind == TOKEN_NAME)
        return parser_fail(parser, "expected %s, got '%.*s'", wanted, (int)(token->size & 0xff), token->data);
    if (token->kind == TOKEN_OPERATOR)
        return parser_fail(parser, "expected %s, got '%s'", wanted, token->operator);
    return parser_fail(parser, "expected %s, got %s", wanted, shown[token->kind]);
}

bool parser_expect(struct parser *parser, const char *operator)
{
    char wanted[8];
    snprintf(wanted, sizeof wanted, "'%s'", operator);
    return parser_skip(parser, operator) || parser_unexpected(parser, wanted);
}

struct jinja_string *parser_intern(struct parser *parser, const char *data, size_t size)
{
    struct jinja_string *name = string_create(parser->jinja, data, size, true);
    struct value found;
    if (!name || !dict_get(parser->jinja, parser->names, value_string(name), &found))
        return NULL;
    if (found.kind != VALUE_ABSENT)
        return found.string;
    return dict_set(parser->jinja, parser->names, value_string(name), value_string(name)) ? name : NULL;
}

struct jinja_node *parser_node(struct parser *parser, enum node_kind kind)
{
    struct jinja_node *node = jinja_alloc(parser->jinja, 1, sizeof *node);
    if (!node)
        return NULL;
    node->kind = kind;
    node->line = parser->token->line;
    return node;
}

bool node_list_add(struct jinja *jinja, struct node_list *list, const struct jinja_node *node)
{
    void *items = list->items;
    if (!jinja_grow(jinja, &items, &list->capacity, list->count + 1, sizeof node))
        return false;
    list->items = items;
    list->items[list->count++] = node;
    return true;
}

bool parser_check_unknown(struct parser *parser)
{
    const struct jinja_node *unknown = parser->unknown;
    parser->unknown = NULL;
    if (!unknown || parser->tolerant)
        return true;
    return parser_fail(parser, "no %s named '%.*s'", unknown->kind == NODE_FILTER ? "filter" : "test",
                       (int)(unknown->filter.name->size & 0xff), unknown->filter.name->data);
}
