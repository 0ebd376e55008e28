// What the two halves of the parser (statements, expressions) share.
#ifndef MOTE_TEXT_JINJA_PARSER_H
#define MOTE_TEXT_JINJA_PARSER_H

#include "text/jinja_symbols.h"

enum { PARSE_DEPTH = 200 }; // nested brackets, signs, tags: far above what people write, far below what the stack bears

struct macro_marks { // what the macro that is being parsed speaks of; linked to the one around it
    struct macro_marks *outer;
    bool varargs, kwargs, caller;
};

struct parser {
    struct jinja *jinja;
    const struct token *token; // the current one
    struct jinja_dict *names;  // interned
    struct jinja_syntax *syntax;
    struct symbol_table symbols;
    struct macro_marks *macro;
    const struct jinja_node *unknown; // a filter or test that does not exist, seen in the current expression
    uint32_t depth;
    uint32_t loops; // around the current tag, in the same macro
    bool tolerant;  // inside an `if`: an unknown filter is an error only where it is reached
};

bool parser_fail(struct parser *parser, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool parser_enter(struct parser *parser);
static inline void parser_leave(struct parser *parser)
{
    parser->depth--;
}

bool token_is(const struct token *token, const char *operator);
bool token_is_name(const struct token *token, const char *name);
bool parser_skip(struct parser *parser, const char *operator); // the operator, if it is there
bool parser_skip_name(struct parser *parser, const char *name);
bool parser_expect(struct parser *parser, const char *operator);
bool parser_unexpected(struct parser *parser, const char *wanted); // fails
struct jinja_string *parser_intern(struct parser *parser, const char *data, size_t size);
struct jinja_node *parser_node(struct parser *parser, enum node_kind kind);
bool node_list_add(struct jinja *jinja, struct node_list *list, const struct jinja_node *node);

// An expression; conditional: `a if b else c` may be one.
const struct jinja_node *parse_expression(struct parser *parser, bool conditional);
// Expressions with commas between them are a tuple. end: a name that ends it, or NULL; parenthesized: it may be empty.
const struct jinja_node *parse_tuple(struct parser *parser, bool conditional, const char *end, bool parenthesized);
// A name, or several in a tuple; with_namespace: ns.x too.
const struct jinja_node *parse_target(struct parser *parser, bool with_namespace);
// The name of a variable that is assigned.
struct jinja_string *parse_name(struct parser *parser);
// filter|filter …, applied to the text of a block: the innermost has no subject.
const struct jinja_node *parse_filters(struct parser *parser);
// At the end of an expression that stands alone in a tag: fails where it holds a filter or test that does not exist.
bool parser_check_unknown(struct parser *parser);

#endif
