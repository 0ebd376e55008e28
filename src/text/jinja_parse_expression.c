// Expressions: from the loosest binding (`a if b else c`) to the tightest. Every nesting passes through parser_enter,
// so that no input exhausts the stack; chains of operators are loops.
#include "text/jinja_number.h"
#include "text/jinja_parser.h"
#include "text/jinja_run.h"

#include <string.h>

static const struct jinja_node *parse_or(struct parser *parser);
static const struct jinja_node *parse_unary(struct parser *parser, bool with_filters);

static const struct jinja_node *constant_node(struct parser *parser, struct value constant)
{
    struct jinja_node *node = parser_node(parser, NODE_CONSTANT);
    if (node)
        node->constant = constant;
    return node;
}

static const struct jinja_node *binary_node(struct parser *parser, enum node_kind kind, const char *operator,
                                            const struct jinja_node * left, const struct jinja_node *right)
{
    struct jinja_node *node = right ? parser_node(parser, kind) : NULL;
    if (!node)
        return NULL;
    memcpy(node->binary.operator, operator, strlen(operator));
    node->binary.left = left;
    node->binary.right = right;
    return node;
}

static bool mark_macros(struct parser *parser, const struct jinja_string *name)
{
    const struct jinja_syntax *syntax = parser->syntax;
    for (struct macro_marks *marks = parser->macro; marks; marks = marks->outer) {
        marks->varargs |= name == syntax->varargs;
        marks->kwargs |= name == syntax->kwargs;
        marks->caller |= name == syntax->caller;
    }
    return true;
}

static const struct jinja_node *parse_name_or_word(struct parser *parser)
{
    static const struct {
        const char *word;
        enum { WORD_TRUE, WORD_FALSE, WORD_NONE } meaning;
    } words[] = {{"true", WORD_TRUE},   {"True", WORD_TRUE}, {"false", WORD_FALSE},
                 {"False", WORD_FALSE}, {"none", WORD_NONE}, {"None", WORD_NONE}};
    const struct token *token = parser->token++;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (token_is_name(token, words[i].word))
            return constant_node(parser, words[i].meaning == WORD_NONE ? value_none()
                                                                       : value_bool(words[i].meaning == WORD_TRUE));
    struct jinja_node *node = parser_node(parser, NODE_NAME);
    struct jinja_string *name = parser_intern(parser, token->data, token->size);
    if (!node || !name || !mark_macros(parser, name) || !symbols_load(parser->jinja, &parser->symbols, name))
        return NULL;
    node->line = token->line;
    node->name = name;
    return node;
}

// Neighbouring literals are one text.
static const struct jinja_node *parse_text(struct parser *parser)
{
    struct value text = parser->token++->literal;
    if (parser->token->kind == TOKEN_TEXT) {
        struct jinja_writer writer = {.jinja = parser->jinja};
        if (!writer_string(&writer, text.string))
            return NULL;
        while (parser->token->kind == TOKEN_TEXT)
            if (!writer_string(&writer, parser->token++->literal.string))
                return NULL;
        if (!writer_finish_value(&writer, &text))
            return NULL;
    }
    return constant_node(parser, text);
}

static const struct jinja_node *parse_list(struct parser *parser)
{
    struct jinja_node *node = parser_node(parser, NODE_LIST);
    parser->token++;
    while (node && !parser_skip(parser, "]")) {
        if (node->items.count && !parser_expect(parser, ","))
            return NULL;
        if (parser_skip(parser, "]"))
            break;
        const struct jinja_node *item = parse_expression(parser, true);
        if (!item || !node_list_add(parser->jinja, &node->items, item))
            return NULL;
    }
    return node;
}

static const struct jinja_node *parse_dict(struct parser *parser)
{
    struct jinja_node *node = parser_node(parser, NODE_DICT);
    parser->token++;
    while (node && !parser_skip(parser, "}")) {
        if (node->items.count && !parser_expect(parser, ","))
            return NULL;
        if (parser_skip(parser, "}"))
            break;
        const struct jinja_node *key = parse_expression(parser, true);
        if (!key || !parser_expect(parser, ":"))
            return NULL;
        const struct jinja_node *value = parse_expression(parser, true);
        if (!value || !node_list_add(parser->jinja, &node->items, key) ||
            !node_list_add(parser->jinja, &node->items, value))
            return NULL;
    }
    return node;
}

static const struct jinja_node *parse_primary(struct parser *parser)
{
    const struct token *token = parser->token;
    switch (token->kind) {
    case TOKEN_NAME:
        return parse_name_or_word(parser);
    case TOKEN_TEXT:
        return parse_text(parser);
    case TOKEN_INTEGER:
    case TOKEN_REAL:
        parser->token++;
        return constant_node(parser, token->literal);
    default:
        break;
    }
    if (token_is(token, "[") || token_is(token, "{") || token_is(token, "(")) {
        if (!parser_enter(parser))
            return NULL;
        const struct jinja_node *node;
        if (token_is(token, "(")) {
            parser->token++;
            node = parse_tuple(parser, true, NULL, true);
            if (node && !parser_expect(parser, ")"))
                return NULL;
        } else {
            node = token_is(token, "[") ? parse_list(parser) : parse_dict(parser);
        }
        parser_leave(parser);
        return node;
    }
    parser_unexpected(parser, "an expression");
    return NULL;
}

static bool add_named(struct parser *parser, struct call_arguments *arguments)
{
    const struct token *token = parser->token;
    parser->token += 2; // the name and =
    struct jinja_string *name = parser_intern(parser, token->data, token->size);
    const struct jinja_node *value = name ? parse_expression(parser, true) : NULL;
    void *named = arguments->named;
    if (!value || !jinja_grow(parser->jinja, &named, &arguments->named_capacity, arguments->n_named + 1,
                              sizeof(struct named_argument)))
        return false;
    for (size_t i = 0; i < arguments->n_named; i++)
        if (arguments->named[i].name == name)
            return parser_fail(parser, "keyword argument repeated: %.*s", (int)token->size, token->data);
    arguments->named = named;
    arguments->named[arguments->n_named++] = (struct named_argument){name, value};
    return true;
}

static bool parse_argument(struct parser *parser, struct call_arguments *arguments)
{
    if (parser_skip(parser, "*")) {
        if (arguments->star || arguments->double_star)
            return parser_fail(parser, "invalid syntax for function call expression");
        arguments->star = parse_expression(parser, true);
        return arguments->star != NULL;
    }
    if (parser_skip(parser, "**")) {
        if (arguments->double_star)
            return parser_fail(parser, "invalid syntax for function call expression");
        arguments->double_star = parse_expression(parser, true);
        return arguments->double_star != NULL;
    }
    if (parser->token->kind == TOKEN_NAME && token_is(parser->token + 1, "=")) {
        if (arguments->double_star)
            return parser_fail(parser, "invalid syntax for function call expression");
        return add_named(parser, arguments);
    }
    if (arguments->star || arguments->double_star || arguments->n_named)
        return parser_fail(parser, "invalid syntax for function call expression");
    const struct jinja_node *value = parse_expression(parser, true);
    return value && node_list_add(parser->jinja, &arguments->positional, value);
}

// ( … ), where the current token is the opening bracket.
static bool parse_arguments(struct parser *parser, struct call_arguments *arguments)
{
    if (!parser_enter(parser) || !parser_expect(parser, "("))
        return false;
    for (bool first = true; !parser_skip(parser, ")"); first = false) {
        if (!first && !parser_expect(parser, ","))
            return false;
        if (!first && parser_skip(parser, ")"))
            break;
        if (!parse_argument(parser, arguments))
            return false;
    }
    parser_leave(parser);
    return true;
}

static const struct jinja_node *parse_call(struct parser *parser, const struct jinja_node *function)
{
    struct jinja_node *node = parser_node(parser, NODE_CALL);
    if (!node || !parse_arguments(parser, &node->call.arguments))
        return NULL;
    node->call.function = function;
    return node;
}

static bool ends_slice_part(const struct token *token)
{
    return token_is(token, "]") || token_is(token, ",") || token_is(token, ":");
}

// One part of a[…]: a key, or a slice (then *slice has its parts).
static const struct jinja_node *parse_subscript(struct parser *parser, const struct jinja_node *object)
{
    const struct jinja_node *parts[3] = {NULL};
    bool slice = false;
    for (size_t i = 0; i < 3; i++) {
        if (!ends_slice_part(parser->token) && !(parts[i] = parse_expression(parser, true)))
            return NULL;
        if (i == 0 && !parts[0] && !token_is(parser->token, ":")) {
            parser_unexpected(parser, "an expression");
            return NULL;
        }
        if (i == 2 || !parser_skip(parser, ":"))
            break;
        slice = true;
    }
    if (!slice)
        return parts[0];
    struct jinja_node *node = parser_node(parser, NODE_SLICE);
    if (!node)
        return NULL;
    node->slice.object = object;
    memcpy(node->slice.parts, parts, sizeof parts);
    return node;
}

static const struct jinja_node *parse_brackets(struct parser *parser, const struct jinja_node *object)
{
    struct jinja_node *node = parser_node(parser, NODE_ITEM), *tuple = NULL;
    if (!node || !parser_enter(parser))
        return NULL;
    parser->token++;
    if (token_is(parser->token, "]")) // a[]: the key is an empty tuple
        tuple = parser_node(parser, NODE_TUPLE);
    const struct jinja_node *key = tuple ? tuple : parse_subscript(parser, object);
    while (key && !parser_skip(parser, "]")) { // a[b, c] has a tuple as its key
        if (!tuple) {
            tuple = parser_node(parser, NODE_TUPLE);
            if (key->kind == NODE_SLICE && !(key = constant_node(parser, value_none())))
                return NULL;
            if (!tuple || !node_list_add(parser->jinja, &tuple->items, key))
                return NULL;
        }
        if (!parser_expect(parser, ","))
            return NULL;
        key = parse_subscript(parser, object);
        if (key && key->kind == NODE_SLICE) // nothing has such an item
            key = constant_node(parser, value_none());
        if (key && !node_list_add(parser->jinja, &tuple->items, key))
            return NULL;
    }
    parser_leave(parser);
    if (!key || (!tuple && key->kind == NODE_SLICE && key->slice.object == object))
        return key;
    node->item.object = object;
    node->item.key = tuple ? tuple : key;
    return node;
}

static const struct jinja_node *parse_dot(struct parser *parser, const struct jinja_node *object)
{
    const struct token *token = ++parser->token;
    struct jinja_node *node = parser_node(parser, token->kind == TOKEN_INTEGER ? NODE_ITEM : NODE_ATTRIBUTE);
    if (!node)
        return NULL;
    if (token->kind != TOKEN_NAME && token->kind != TOKEN_INTEGER) {
        parser_unexpected(parser, "a name or number");
        return NULL;
    }
    parser->token++;
    if (token->kind == TOKEN_INTEGER) {
        node->item.object = object;
        node->item.key = constant_node(parser, token->literal);
        return node->item.key ? node : NULL;
    }
    node->attribute.object = object;
    node->attribute.name = parser_intern(parser, token->data, token->size);
    return node->attribute.name ? node : NULL;
}

static const struct jinja_node *parse_postfix(struct parser *parser, const struct jinja_node *node)
{
    while (node) {
        if (token_is(parser->token, "."))
            node = parse_dot(parser, node);
        else if (token_is(parser->token, "["))
            node = parse_brackets(parser, node);
        else if (token_is(parser->token, "("))
            node = parse_call(parser, node);
        else
            break;
    }
    return node;
}

// The name of a filter or test: a.b.c is one name.
static struct jinja_string *parse_dotted_name(struct parser *parser)
{
    struct jinja_writer writer = {.jinja = parser->jinja};
    do {
        if (parser->token->kind != TOKEN_NAME) {
            parser_unexpected(parser, "a name");
            return NULL;
        }
        if ((writer.size && !writer_text(&writer, ".")) ||
            !writer_bytes(&writer, parser->token->data, parser->token->size, true))
            return NULL;
        parser->token++;
    } while (parser_skip(parser, "."));
    return parser_intern(parser, writer.data, writer.size);
}

static const struct jinja_node *parse_filter(struct parser *parser, const struct jinja_node *subject)
{
    struct jinja_node *node = parser_node(parser, NODE_FILTER);
    struct jinja_string *name = node ? parse_dotted_name(parser) : NULL;
    if (!name || (token_is(parser->token, "(") && !parse_arguments(parser, &node->filter.arguments)))
        return NULL;
    node->filter.subject = subject;
    node->filter.name = name;
    node->filter.builtin = filter_find(name);
    if (!node->filter.builtin && !parser->unknown)
        parser->unknown = node;
    return node;
}

static bool begins_test_argument(const struct token *token)
{
    if (token->kind == TOKEN_NAME)
        return !token_is_name(token, "else") && !token_is_name(token, "or") && !token_is_name(token, "and");
    return token->kind == TOKEN_TEXT || token->kind == TOKEN_INTEGER || token->kind == TOKEN_REAL ||
           token_is(token, "(") || token_is(token, "[") || token_is(token, "{");
}

static const struct jinja_node *parse_test(struct parser *parser, const struct jinja_node *subject)
{
    parser->token++;
    bool negated = parser_skip_name(parser, "not");
    struct jinja_node *node = parser_node(parser, NODE_TEST);
    struct jinja_string *name = node ? parse_dotted_name(parser) : NULL;
    if (!name)
        return NULL;
    if (token_is(parser->token, "(")) {
        if (!parse_arguments(parser, &node->filter.arguments))
            return NULL;
    } else if (begins_test_argument(parser->token)) {
        if (token_is_name(parser->token, "is")) {
            parser_fail(parser, "you cannot chain multiple tests with is");
            return NULL;
        }
        const struct jinja_node *argument = parse_postfix(parser, parse_primary(parser));
        if (!argument || !node_list_add(parser->jinja, &node->filter.arguments.positional, argument))
            return NULL;
    }
    node->filter.subject = subject;
    node->filter.name = name;
    node->filter.builtin = test_find(name);
    if (!node->filter.builtin && !parser->unknown)
        parser->unknown = node;
    return negated ? binary_node(parser, NODE_NOT, "", NULL, node) : node;
}

const struct jinja_node *parse_filters(struct parser *parser)
{
    const struct jinja_node *node = NULL;
    do
        node = parse_filter(parser, node);
    while (node && parser_skip(parser, "|"));
    return node;
}

// Filters, tests and calls behind an operand.
static const struct jinja_node *parse_filters_and_tests(struct parser *parser, const struct jinja_node *node)
{
    while (node) {
        if (parser_skip(parser, "|"))
            node = parse_filter(parser, node);
        else if (token_is_name(parser->token, "is"))
            node = parse_test(parser, node);
        else if (token_is(parser->token, "("))
            node = parse_call(parser, node);
        else
            break;
    }
    return node;
}

static const struct jinja_node *parse_unary(struct parser *parser, bool with_filters)
{
    const struct jinja_node *node;
    const struct token *token = parser->token;
    if (token_is(token, "-") || token_is(token, "+")) {
        if (!parser_enter(parser))
            return NULL;
        parser->token++;
        node = binary_node(parser, NODE_UNARY, token->operator, NULL, parse_unary(parser, false));
        parser_leave(parser);
    } else {
        node = parse_primary(parser);
    }
    node = parse_postfix(parser, node);
    return with_filters ? parse_filters_and_tests(parser, node) : node;
}

enum { LEVEL_SUM, LEVEL_CONCAT, LEVEL_PRODUCT, LEVEL_POWER, LEVELS };
static const char operators[LEVELS][4][3] = {{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}};

static bool operator_of(const struct token *token, int level)
{
    for (size_t i = 0; i < 4 && operators[level][i][0]; i++)
        if (token_is(token, operators[level][i]))
            return true;
    return false;
}

// All binary operators associate to the left, also **.
static const struct jinja_node *parse_binary(struct parser *parser, int level)
{
    if (level == LEVELS)
        return parse_unary(parser, true);
    const struct jinja_node *left = parse_binary(parser, level + 1);
    if (level == LEVEL_CONCAT && left && token_is(parser->token, "~")) {
        struct jinja_node *node = parser_node(parser, NODE_CONCAT);
        do {
            if (!node || !left || !node_list_add(parser->jinja, &node->items, left))
                return NULL;
            if (!parser_skip(parser, "~"))
                return node;
            left = parse_binary(parser, level + 1);
        } while (true);
    }
    while (left && operator_of(parser->token, level)) {
        const char *operator= parser->token++->operator;
        left = binary_node(parser, NODE_BINARY, operator, left, parse_binary(parser, level + 1));
    }
    return left;
}

static bool compare_operator_of(struct parser *parser, enum compare_operator *operator)
{
    static const char *const symbols[] = {[COMPARE_EQ] = "==", [COMPARE_NE] = "!=", [COMPARE_LT] = "<",
                                          [COMPARE_LE] = "<=", [COMPARE_GT] = ">",  [COMPARE_GE] = ">="};
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        if (parser_skip(parser, symbols[i])) {
            *operator=(enum compare_operator) i;
            return true;
        }
    }
    bool negated = token_is_name(parser->token, "not") && token_is_name(parser->token + 1, "in");
    if (!negated && !token_is_name(parser->token, "in"))
        return false;
    parser->token += negated ? 2 : 1;
    *operator= negated ? COMPARE_NOT_IN : COMPARE_IN;
    return true;
}

static const struct jinja_node *parse_compare(struct parser *parser)
{
    const struct jinja_node *left = parse_binary(parser, LEVEL_SUM);
    struct jinja_node *node = NULL;
    size_t capacity = 0;
    enum compare_operator operator;
    while (left && compare_operator_of(parser, &operator)) {
        const struct jinja_node *right = parse_binary(parser, LEVEL_SUM);
        if (!node)
            node = parser_node(parser, NODE_COMPARE);
        if (!right || !node)
            return NULL;
        void *comparisons = node->compare.comparisons;
        if (!jinja_grow(parser->jinja, &comparisons, &capacity, node->compare.count + 1, sizeof(struct comparison)))
            return NULL;
        node->compare.left = left;
        node->compare.comparisons = comparisons;
        node->compare.comparisons[node->compare.count++] = (struct comparison){operator, right };
    }
    return node ? node : left;
}

static const struct jinja_node *parse_not(struct parser *parser)
{
    if (!token_is_name(parser->token, "not"))
        return parse_compare(parser);
    if (!parser_enter(parser))
        return NULL;
    parser->token++;
    const struct jinja_node *node = binary_node(parser, NODE_NOT, "", NULL, parse_not(parser));
    parser_leave(parser);
    return node;
}

static const struct jinja_node *parse_and(struct parser *parser)
{
    const struct jinja_node *left = parse_not(parser);
    while (left && parser_skip_name(parser, "and"))
        left = binary_node(parser, NODE_AND, "", left, parse_not(parser));
    return left;
}

static const struct jinja_node *parse_or(struct parser *parser)
{
    const struct jinja_node *left = parse_and(parser);
    while (left && parser_skip_name(parser, "or"))
        left = binary_node(parser, NODE_OR, "", left, parse_and(parser));
    return left;
}

static const struct jinja_node *parse_conditional(struct parser *parser)
{
    const struct jinja_node *unknown = parser->unknown;
    const struct jinja_node *left = parse_or(parser);
    while (left && parser_skip_name(parser, "if")) {
        struct jinja_node *node = parser_node(parser, NODE_CONDITIONAL);
        const struct jinja_node *test = node ? parse_or(parser) : NULL;
        if (!test)
            return NULL;
        node->conditional.test = test;
        node->conditional.yes = left;
        if (parser_skip_name(parser, "else") && !(node->conditional.no = parse_expression(parser, true)))
            return NULL;
        left = node;
        parser->unknown = unknown; // what stands in a conditional may never be reached
    }
    return left;
}

const struct jinja_node *parse_expression(struct parser *parser, bool conditional)
{
    if (!parser_enter(parser))
        return NULL;
    const struct jinja_node *node = conditional ? parse_conditional(parser) : parse_or(parser);
    parser_leave(parser);
    return node;
}

static bool ends_tuple(const struct parser *parser, const char *end)
{
    const struct token *token = parser->token;
    return token->kind == TOKEN_PRINT_END || token->kind == TOKEN_BLOCK_END || token_is(token, ")") ||
           (end && token_is_name(token, end));
}

const struct jinja_node *parse_tuple(struct parser *parser, bool conditional, const char *end, bool parenthesized)
{
    struct jinja_node *tuple = parser_node(parser, NODE_TUPLE);
    const struct jinja_node *item = NULL;
    bool comma = false;
    while (tuple && !ends_tuple(parser, end)) {
        item = parse_expression(parser, conditional);
        if (!item || !node_list_add(parser->jinja, &tuple->items, item))
            return NULL;
        if (!parser_skip(parser, ","))
            break;
        comma = true;
    }
    if (!tuple || comma)
        return tuple;
    if (!item && !parenthesized) {
        parser_unexpected(parser, "an expression");
        return NULL;
    }
    return item ? item : tuple;
}
