// Statements: what stands in {% %}, by a table of tags.
#include "text/jinja_parser.h"

#include <string.h>

static bool parse_body(struct parser *parser, struct node_list *body, const char *const *ends);

static bool expect_end_of_tag(struct parser *parser)
{
    if (parser->token->kind != TOKEN_BLOCK_END)
        return parser_unexpected(parser, "the end of the statement block");
    parser->token++;
    return true;
}

struct jinja_string *parse_name(struct parser *parser)
{
    static const char *const words[] = {"true", "True", "false", "False", "none", "None"};
    const struct token *token = parser->token;
    if (token->kind != TOKEN_NAME) {
        parser_unexpected(parser, "a name");
        return NULL;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (token_is_name(token, words[i])) {
            parser_fail(parser, "can't assign to '%s'", words[i]);
            return NULL;
        }
    }
    parser->token++;
    return parser_intern(parser, token->data, token->size);
}

static const struct jinja_node *parse_one_target(struct parser *parser, bool with_namespace)
{
    if (token_is(parser->token, "(")) {
        if (!parser_enter(parser))
            return NULL;
        parser->token++;
        const struct jinja_node *inner = parse_target(parser, with_namespace);
        parser_leave(parser);
        return inner && parser_expect(parser, ")") ? inner : NULL;
    }
    struct jinja_node *node = parser_node(parser, NODE_NAME);
    struct jinja_string *name = node ? parse_name(parser) : NULL;
    if (!name)
        return NULL;
    node->name = name;
    if (!with_namespace || !parser_skip(parser, "."))
        return node;
    struct jinja_node *target = parser_node(parser, NODE_NAMESPACE_TARGET);
    if (!target)
        return NULL;
    if (parser->token->kind != TOKEN_NAME) {
        parser_unexpected(parser, "a name");
        return NULL;
    }
    target->attribute.object = node;
    target->attribute.name = parser_intern(parser, parser->token->data, parser->token->size);
    parser->token++;
    return target->attribute.name ? target : NULL;
}

const struct jinja_node *parse_target(struct parser *parser, bool with_namespace)
{
    struct jinja_node *tuple = NULL;
    const struct jinja_node *first = parse_one_target(parser, with_namespace);
    while (first && parser_skip(parser, ",")) {
        if (!tuple) {
            tuple = parser_node(parser, NODE_TUPLE);
            if (!tuple || !node_list_add(parser->jinja, &tuple->items, first))
                return NULL;
        }
        if (parser->token->kind == TOKEN_BLOCK_END || token_is(parser->token, ")"))
            break;
        const struct jinja_node *item = parse_one_target(parser, with_namespace);
        if (!item || !node_list_add(parser->jinja, &tuple->items, item))
            return NULL;
    }
    return tuple ? tuple : first;
}

// One branch of an `if` from its test on, up to the tag that ends it.
static bool parse_branch(struct parser *parser, struct branch *branch, bool otherwise)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last_ends[] = {"endif", NULL};
    if (!otherwise && !(branch->test = parse_tuple(parser, false, NULL, false)))
        return false;
    return parser_check_unknown(parser) && expect_end_of_tag(parser) &&
           parse_body(parser, &branch->body, otherwise ? last_ends : ends);
}

static const struct jinja_node *parse_if(struct parser *parser)
{
    struct jinja_node *node = parser_node(parser, NODE_IF);
    size_t capacity = 0;
    bool tolerant = parser->tolerant;
    parser->tolerant = true; // unknown filters in it are found out when they are reached
    symbols_enter_branch(&parser->symbols);
    for (bool more = true; node && more;) {
        void *branches = node->branches.branches;
        if (!jinja_grow(parser->jinja, &branches, &capacity, node->branches.count + 1, sizeof(struct branch)))
            return NULL;
        node->branches.branches = branches;
        struct branch *branch = &node->branches.branches[node->branches.count++];
        *branch = (struct branch){0};
        if (!parse_branch(parser, branch, node->branches.count > 1 && token_is_name(parser->token - 1, "else")))
            return NULL;
        more = !token_is_name(parser->token++, "endif");
    }
    symbols_leave_branch(&parser->symbols);
    parser->tolerant = tolerant;
    return node;
}

static bool assigns_loop(const struct parser *parser, const struct jinja_node *target)
{
    if (target->kind == NODE_NAME)
        return target->name == parser->syntax->loop;
    for (size_t i = 0; target->kind == NODE_TUPLE && i < target->items.count; i++)
        if (assigns_loop(parser, target->items.items[i]))
            return true;
    return false;
}

// A scope that begins with the loop's target.
static bool open_loop_scope(struct parser *parser, const struct jinja_node *node, struct scope_plan *plan)
{
    return symbols_open(parser->jinja, &parser->symbols, plan, false) &&
           symbols_store_target(parser->jinja, &parser->symbols, node->loop.target, true);
}

static const struct jinja_node *parse_for(struct parser *parser)
{
    static const char *const ends[] = {"endfor", "else", NULL}, *const last_ends[] = {"endfor", NULL};
    struct jinja_node *node = parser_node(parser, NODE_FOR);
    if (!node || !(node->loop.target = parse_target(parser, false)))
        return NULL;
    if (assigns_loop(parser, node->loop.target)) {
        parser_fail(parser, "can't assign to special loop variable in for-loop");
        return NULL;
    }
    if (!parser_skip_name(parser, "in")) {
        parser_unexpected(parser, "'in'");
        return NULL;
    }
    node->loop.iterable = parse_tuple(parser, false, "recursive", false);
    if (!node->loop.iterable || !parser_check_unknown(parser))
        return NULL;
    bool tolerant = parser->tolerant;
    parser->tolerant = false; // a loop has a scope of its own, in which Jinja is strict again
    if (!open_loop_scope(parser, node, &node->loop.test_plan))
        return NULL;
    if (parser_skip_name(parser, "if") && !(node->loop.test = parse_expression(parser, true)))
        return NULL;
    symbols_close(&parser->symbols);
    node->loop.recursive = parser_skip_name(parser, "recursive");
    if (!parser_check_unknown(parser) || !expect_end_of_tag(parser) ||
        !open_loop_scope(parser, node, &node->loop.body_plan))
        return NULL;
    parser->loops++;
    bool done = parse_body(parser, &node->loop.body, ends);
    parser->loops--;
    symbols_close(&parser->symbols);
    if (!done || !symbols_open(parser->jinja, &parser->symbols, &node->loop.otherwise_plan, false))
        return NULL;
    if (token_is_name(parser->token++, "else"))
        if (!expect_end_of_tag(parser) || !parse_body(parser, &node->loop.otherwise, last_ends) || !parser->token++)
            return NULL;
    symbols_close(&parser->symbols);
    parser->tolerant = tolerant;
    return node;
}

// A body with a scope of its own, up to its end tag. filters: what its text passes through (in that scope), or NULL.
// The scope must be open, and is closed.
static bool parse_scoped(struct parser *parser, const struct jinja_node **filters, struct node_list *body,
                         const char *const *ends)
{
    bool tolerant = parser->tolerant;
    if (!parser_check_unknown(parser))
        return false;
    parser->tolerant = false;
    if (filters && !(*filters = parse_filters(parser)))
        return false;
    bool done = parser_check_unknown(parser) && expect_end_of_tag(parser) && parse_body(parser, body, ends);
    parser->tolerant = tolerant;
    parser->token += done;
    symbols_close(&parser->symbols);
    return done;
}

static bool parse_inner(struct parser *parser, const struct jinja_node **filters, struct node_list *body,
                        struct scope_plan *plan, const char *const *ends)
{
    return symbols_open(parser->jinja, &parser->symbols, plan, false) && parse_scoped(parser, filters, body, ends);
}

static const struct jinja_node *parse_set(struct parser *parser)
{
    static const char *const ends[] = {"endset", NULL};
    struct jinja_node *node = parser_node(parser, NODE_SET);
    if (!node || !(node->set.target = parse_target(parser, true)))
        return NULL;
    if (parser->loops && assigns_loop(parser, node->set.target)) {
        parser_fail(parser, "can't assign to special loop variable in for-loop");
        return NULL;
    }
    if (parser_skip(parser, "=")) {
        node->set.value = parse_tuple(parser, true, NULL, false);
        return node->set.value && symbols_store_target(parser->jinja, &parser->symbols, node->set.target, false) ? node
                                                                                                                 : NULL;
    }
    node->kind = NODE_SET_BLOCK;
    bool filtered = parser_skip(parser, "|");
    if (!symbols_store_target(parser->jinja, &parser->symbols, node->set.target, false))
        return NULL;
    return parse_inner(parser, filtered ? &node->set.value : NULL, &node->set.body, &node->set.plan, ends) ? node
                                                                                                           : NULL;
}

// (a, b=1, …): in the macro's own scope.
static bool parse_signature(struct parser *parser, struct macro_signature *signature)
{
    size_t names_capacity = 0, defaults_capacity = 0;
    if (!parser_expect(parser, "("))
        return false;
    while (!parser_skip(parser, ")")) {
        if (signature->count && !parser_expect(parser, ","))
            return false;
        struct jinja_string *name = parse_name(parser);
        void *names = signature->names, *defaults = signature->defaults;
        size_t needed = signature->count + 1;
        if (!name || !jinja_grow(parser->jinja, &names, &names_capacity, needed, sizeof name) ||
            !jinja_grow(parser->jinja, &defaults, &defaults_capacity, needed, sizeof(struct jinja_node *)))
            return false;
        signature->names = names;
        signature->defaults = defaults;
        for (size_t i = 0; i < signature->count; i++)
            if (signature->names[i] == name)
                return parser_fail(parser, "duplicate argument '%.*s'", (int)(name->size & 0xff), name->data);
        const struct jinja_node *otherwise = NULL;
        if (parser_skip(parser, "=")) {
            if (!(otherwise = parse_expression(parser, true)))
                return false;
        } else if (signature->count && signature->defaults[signature->count - 1]) {
            return parser_fail(parser, "non-default argument follows default argument");
        }
        signature->names[signature->count] = name;
        signature->defaults[signature->count++] = otherwise;
    }
    for (size_t i = 0; i < signature->count; i++) {
        const struct jinja_node parameter = {.kind = NODE_NAME, .name = signature->names[i]};
        if (!symbols_store_target(parser->jinja, &parser->symbols, &parameter, true))
            return false;
    }
    return true;
}

// The body of a macro or call block, in which varargs, kwargs and caller have a meaning.
static bool parse_macro_body(struct parser *parser, struct jinja_node *node, const char *const *ends)
{
    struct macro_marks marks = {.outer = parser->macro};
    uint32_t loops = parser->loops;
    bool tolerant = parser->tolerant;
    if (!parser_check_unknown(parser))
        return false;
    parser->macro = &marks;
    parser->loops = 0;
    parser->tolerant = false;
    bool done = expect_end_of_tag(parser) && parse_body(parser, &node->macro.body, ends);
    parser->macro = marks.outer;
    parser->loops = loops;
    parser->tolerant = tolerant;
    symbols_close(&parser->symbols);
    if (!done)
        return false;
    parser->token++;
    struct macro_signature *signature = &node->macro.signature;
    signature->takes_varargs = marks.varargs;
    signature->takes_kwargs = marks.kwargs;
    signature->takes_caller = marks.caller;
    for (size_t i = 0; i < signature->count; i++) {
        if (signature->names[i] != parser->syntax->caller)
            continue;
        signature->takes_caller = false; // an argument like others
        if (marks.caller && !signature->defaults[i])
            return parser_fail(parser, "the special \"caller\" argument must be omitted or be given a default");
    }
    return true;
}

static const struct jinja_node *parse_macro(struct parser *parser)
{
    static const char *const ends[] = {"endmacro", NULL};
    struct jinja_node *node = parser_node(parser, NODE_MACRO);
    if (!node || !(node->macro.name = parse_name(parser)) ||
        !symbols_store(parser->jinja, &parser->symbols, node->macro.name) ||
        !symbols_open(parser->jinja, &parser->symbols, &node->macro.plan, false) ||
        !parse_signature(parser, &node->macro.signature))
        return NULL;
    return parse_macro_body(parser, node, ends) ? node : NULL;
}

static const struct jinja_node *parse_call_block(struct parser *parser)
{
    static const char *const ends[] = {"endcall", NULL};
    struct jinja_node *node = parser_node(parser, NODE_CALL_BLOCK);
    if (!node || !symbols_open(parser->jinja, &parser->symbols, &node->macro.plan, false) ||
        (token_is(parser->token, "(") && !parse_signature(parser, &node->macro.signature)))
        return NULL;
    struct symbol_scope *inner = parser->symbols.scope;
    symbols_close(&parser->symbols); // what is called belongs to the scope outside
    node->macro.call = parse_expression(parser, true);
    parser->symbols.scope = inner;
    if (!node->macro.call)
        return NULL;
    if (node->macro.call->kind != NODE_CALL) {
        parser_fail(parser, "expected call");
        return NULL;
    }
    return parse_macro_body(parser, node, ends) ? node : NULL;
}

static const struct jinja_node *parse_filter_block(struct parser *parser)
{
    static const char *const ends[] = {"endfilter", NULL};
    struct jinja_node *node = parser_node(parser, NODE_FILTER_BLOCK);
    return node && parse_inner(parser, &node->filter_block.filter, &node->filter_block.body, &node->filter_block.plan,
                               ends)
               ? node
               : NULL;
}

static const struct jinja_node *parse_with(struct parser *parser)
{
    static const char *const ends[] = {"endwith", NULL};
    struct jinja_node *node = parser_node(parser, NODE_WITH);
    while (node && parser->token->kind != TOKEN_BLOCK_END) {
        if (node->with.targets.count && !parser_expect(parser, ","))
            return NULL;
        const struct jinja_node *target = parse_one_target(parser, false), *value = NULL;
        if (target && parser_expect(parser, "="))
            value = parse_expression(parser, true);
        if (!value || !node_list_add(parser->jinja, &node->with.targets, target) ||
            !node_list_add(parser->jinja, &node->with.values, value))
            return NULL;
    }
    if (!node || !symbols_open(parser->jinja, &parser->symbols, &node->with.plan, false))
        return NULL;
    for (size_t i = 0; i < node->with.targets.count; i++)
        if (!symbols_store_target(parser->jinja, &parser->symbols, node->with.targets.items[i], true))
            return NULL;
    return parse_scoped(parser, NULL, &node->with.body, ends) ? node : NULL;
}

static const struct jinja_node *parse_block(struct parser *parser)
{
    static const char *const ends[] = {"endblock", NULL};
    struct jinja_node *node = parser_node(parser, NODE_BLOCK);
    const struct token *named = parser->token;
    if (!node || !(node->block.name = parse_name(parser)))
        return NULL;
    for (size_t i = 0; i < parser->syntax->blocks.count; i++) {
        if (parser->syntax->blocks.items[i]->block.name == node->block.name) {
            parser_fail(parser, "block '%.*s' defined twice", (int)(named->size & 0xff), named->data);
            return NULL;
        }
    }
    node->block.scoped = parser_skip_name(parser, "scoped");
    node->block.required = parser_skip_name(parser, "required");
    uint32_t loops = parser->loops;
    parser->loops = 0;
    if (!node_list_add(parser->jinja, &parser->syntax->blocks, node) ||
        !symbols_open(parser->jinja, &parser->symbols, &node->block.plan, true) ||
        !parse_scoped(parser, NULL, &node->block.body, ends))
        return NULL;
    parser->loops = loops;
    if (parser->token->kind == TOKEN_NAME && parser->token->size == named->size &&
        memcmp(parser->token->data, named->data, named->size) == 0)
        parser->token++;
    return node;
}

static const struct jinja_node *parse_autoescape(struct parser *parser)
{
    static const char *const ends[] = {"endautoescape", NULL};
    struct jinja_node *node = parser_node(parser, NODE_AUTOESCAPE);
    if (!node || !(node->autoescape.value = parse_expression(parser, true)))
        return NULL;
    return parse_inner(parser, NULL, &node->autoescape.body, &node->autoescape.plan, ends) ? node : NULL;
}

static const struct jinja_node *parse_generation(struct parser *parser)
{
    static const char *const ends[] = {"endgeneration", NULL};
    struct jinja_node *node = parser_node(parser, NODE_GENERATION);
    uint32_t loops = parser->loops;
    parser->loops = 0; // it is a call block, which no break leaves
    bool done = node && parse_inner(parser, NULL, &node->autoescape.body, &node->autoescape.plan, ends);
    parser->loops = loops;
    return done ? node : NULL;
}

static const struct jinja_node *parse_break(struct parser *parser)
{
    bool leaves = token_is_name(parser->token - 1, "break");
    if (parser->loops == 0) {
        parser_fail(parser, "'%s' outside loop", leaves ? "break" : "continue");
        return NULL;
    }
    return parser_node(parser, leaves ? NODE_BREAK : NODE_CONTINUE);
}

static const struct jinja_node *parse_print(struct parser *parser)
{
    struct jinja_node *node = parser_node(parser, NODE_PRINT);
    while (node && parser->token->kind != TOKEN_BLOCK_END) {
        if (node->items.count && !parser_expect(parser, ","))
            return NULL;
        const struct jinja_node *item = parse_expression(parser, true);
        if (!item || !node_list_add(parser->jinja, &node->items, item))
            return NULL;
    }
    return node;
}

// include, import, from, extends: there is nothing that they could load, which is an error where they are reached.
static const struct jinja_node *parse_loader(struct parser *parser)
{
    struct jinja_node *node = parser_node(parser, NODE_NEEDS_LOADER);
    if (!node || !parse_expression(parser, true))
        return NULL;
    while (parser->token->kind == TOKEN_NAME || token_is(parser->token, ","))
        parser->token++;
    return node;
}

static const struct jinja_node *parse_tag(struct parser *parser)
{
    static const struct {
        const char *name;
        const struct jinja_node *(*parse)(struct parser *parser);
    } tags[] = {
        {"if", parse_if},
        {"for", parse_for},
        {"set", parse_set},
        {"macro", parse_macro},
        {"call", parse_call_block},
        {"filter", parse_filter_block},
        {"with", parse_with},
        {"block", parse_block},
        {"autoescape", parse_autoescape},
        {"generation", parse_generation},
        {"break", parse_break},
        {"continue", parse_break},
        {"print", parse_print},
        {"include", parse_loader},
        {"import", parse_loader},
        {"from", parse_loader},
        {"extends", parse_loader},
    };
    const struct token *token = parser->token;
    if (token->kind != TOKEN_NAME) {
        parser_unexpected(parser, "the name of a tag");
        return NULL;
    }
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        if (!token_is_name(token, tags[i].name))
            continue;
        parser->token++;
        const struct jinja_node *node = tags[i].parse(parser);
        return node && parser_check_unknown(parser) && expect_end_of_tag(parser) ? node : NULL;
    }
    parser_fail(parser, "unknown tag '%.*s'", (int)(token->size & 0xff), token->data);
    return NULL;
}

static const struct jinja_node *parse_piece(struct parser *parser)
{
    const struct token *token = parser->token++;
    if (token->kind == TOKEN_DATA) {
        struct jinja_node *node = parser_node(parser, NODE_DATA);
        if (node)
            node->data = (struct slice){token->data, token->size, NULL, true};
        return node;
    }
    if (token->kind == TOKEN_BLOCK_BEGIN)
        return parse_tag(parser);
    struct jinja_node *node = parser_node(parser, NODE_PRINT); // {{
    const struct jinja_node *item = node ? parse_tuple(parser, true, NULL, false) : NULL;
    if (!item || !node_list_add(parser->jinja, &node->items, item) || !parser_check_unknown(parser))
        return NULL;
    if (parser->token->kind != TOKEN_PRINT_END) {
        parser_unexpected(parser, "the end of the print statement");
        return NULL;
    }
    parser->token++;
    return node;
}

// Everything up to a tag that begins with one of `ends` (then that is the current token), or to the end of the
// template where ends is NULL.
static bool parse_body(struct parser *parser, struct node_list *body, const char *const *ends)
{
    if (!parser_enter(parser))
        return false;
    uint32_t opened = ends ? parser->token[-1].line : parser->token->line;
    while (parser->token->kind != TOKEN_END) {
        for (size_t i = 0; parser->token->kind == TOKEN_BLOCK_BEGIN && ends && ends[i]; i++) {
            if (token_is_name(parser->token + 1, ends[i])) {
                parser->token++;
                parser_leave(parser);
                return true;
            }
        }
        const struct jinja_node *node = parse_piece(parser);
        if (!node || !node_list_add(parser->jinja, body, node))
            return false;
    }
    parser_leave(parser);
    if (!ends)
        return true;
    return parser_fail(parser, "unexpected end of template: the block opened at line %u lacks its '%s'", opened,
                       ends[0][0] == 'e' && ends[0][1] == 'l' ? "endif" : ends[0]);
}

bool jinja_parse(struct jinja *jinja, const char *source, size_t size, struct jinja_syntax *syntax)
{
    struct token_list tokens = {0};
    struct parser parser = {.jinja = jinja, .syntax = syntax};
    parser.names = dict_create(jinja, 0);
    if (!parser.names || !jinja_tokenize(jinja, source, size, &tokens))
        return false;
    parser.token = tokens.tokens;
    const struct {
        struct jinja_string **string;
        const char *name;
    } own[] = {{&syntax->loop, "loop"},
               {&syntax->caller, "caller"},
               {&syntax->varargs, "varargs"},
               {&syntax->kwargs, "kwargs"},
               {&syntax->self, "self"}};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (!(*own[i].string = parser_intern(&parser, own[i].name, strlen(own[i].name))))
            return false;
    return symbols_open(jinja, &parser.symbols, &syntax->plan, false) && parse_body(&parser, &syntax->body, NULL) &&
           symbols_finish(jinja, &parser.symbols);
}
