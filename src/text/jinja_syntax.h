// A template as a tree: tokens, nodes and the parser. Nodes, names and literals lie in the rendering's arena.
#ifndef MOTE_TEXT_JINJA_SYNTAX_H
#define MOTE_TEXT_JINJA_SYNTAX_H

#include "text/jinja_string.h"

enum token_kind {
    TOKEN_END, // of the template
    TOKEN_DATA,
    TOKEN_PRINT_BEGIN, // {{
    TOKEN_PRINT_END,
    TOKEN_BLOCK_BEGIN, // {%
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_TEXT,
    TOKEN_INTEGER,
    TOKEN_REAL,
    TOKEN_OPERATOR,
};

struct token {
    enum token_kind kind;
    uint32_t line;
    char operator[3]; // of OPERATOR: "+", "//" …
    const char *data; // of NAME: its bytes; of DATA too
    size_t size;
    struct value literal; // of TEXT, INTEGER, REAL
};

struct token_list {
    struct token *tokens; // the last one is END
    size_t count;
    size_t capacity;
};

// Line breaks become \n, and one at the end is dropped; then text and tags, with white space removed as
// trim_blocks, lstrip_blocks and the signs at tags ask.
bool jinja_tokenize(struct jinja *jinja, const char *source, size_t size, struct token_list *tokens);

enum node_kind {
    // Expressions
    NODE_CONSTANT,
    NODE_NAME,
    NODE_LIST,
    NODE_TUPLE,
    NODE_DICT,
    NODE_ATTRIBUTE, // a.b
    NODE_ITEM,      // a[b]
    NODE_SLICE,     // a[b:c:d]
    NODE_CALL,
    NODE_FILTER,
    NODE_TEST,
    NODE_UNARY,
    NODE_BINARY,
    NODE_COMPARE,
    NODE_CONCAT, // a ~ b ~ c
    NODE_AND,
    NODE_OR,
    NODE_NOT,
    NODE_CONDITIONAL, // a if b else c
    // Targets of an assignment (besides NAME and TUPLE)
    NODE_NAMESPACE_TARGET, // ns.x
    // Statements
    NODE_DATA,
    NODE_PRINT,
    NODE_IF,
    NODE_FOR,
    NODE_SET,
    NODE_SET_BLOCK,
    NODE_MACRO,
    NODE_CALL_BLOCK,
    NODE_FILTER_BLOCK,
    NODE_WITH,
    NODE_BLOCK,
    NODE_AUTOESCAPE,
    NODE_GENERATION,
    NODE_BREAK,
    NODE_CONTINUE,
    NODE_NEEDS_LOADER, // include, import, extends: there is nothing to load from
    NODE_KINDS
};

enum compare_operator {
    COMPARE_EQ,
    COMPARE_NE,
    COMPARE_LT,
    COMPARE_LE,
    COMPARE_GT,
    COMPARE_GE,
    COMPARE_IN,
    COMPARE_NOT_IN
};

struct node_list {
    const struct jinja_node **items;
    size_t count;
    size_t capacity;
};

struct named_argument {
    const struct jinja_string *name;
    const struct jinja_node *value;
};

struct call_arguments {
    struct node_list positional;
    struct named_argument *named;
    size_t n_named;
    size_t named_capacity;
    const struct jinja_node *star;        // *args, or NULL
    const struct jinja_node *double_star; // **kwargs, or NULL
};

struct comparison {
    enum compare_operator operator;
    const struct jinja_node *right;
};

// Names that begin as undefined in a scope (jinja_symbols.h).
struct scope_plan {
    struct jinja_string **names;
    size_t count;
    bool apart;
};

struct branch {
    const struct jinja_node *test; // NULL: else
    struct node_list body;
};

struct macro_signature {
    struct jinja_string **names;
    const struct jinja_node **defaults; // NULL: none; one for each name
    size_t count;
    bool takes_varargs; // the body speaks of varargs, kwargs, caller
    bool takes_kwargs;
    bool takes_caller;
};

struct jinja_node {
    enum node_kind kind;
    uint32_t line;
    union {
        struct value constant;
        struct jinja_string *name; // interned: equal names are one pointer
        struct node_list items;    // LIST, TUPLE, CONCAT; DICT: keys and values in turn; PRINT
        struct {
            const struct jinja_node *object;
            struct jinja_string *name;
        } attribute; // also NAMESPACE_TARGET
        struct {
            const struct jinja_node *object;
            const struct jinja_node *key;
        } item;
        struct {
            const struct jinja_node *object;
            const struct jinja_node *parts[3]; // NULL: left out
        } slice;
        struct {
            const struct jinja_node *function;
            struct call_arguments arguments;
        } call;
        struct {
            const struct jinja_node *subject;    // NULL: the text of a filter block
            const struct jinja_builtin *builtin; // NULL: there is no such filter or test
            struct jinja_string *name;
            struct call_arguments arguments;
        } filter; // also TEST
        struct {
            char operator[3];
            const struct jinja_node *left; // of BINARY; AND, OR
            const struct jinja_node *right;
        } binary; // UNARY and NOT have `right` alone
        struct {
            const struct jinja_node *left;
            struct comparison *comparisons;
            size_t count;
        } compare;
        struct {
            const struct jinja_node *test;
            const struct jinja_node *yes;
            const struct jinja_node *no; // NULL: undefined
        } conditional;
        struct slice data;
        struct {
            struct branch *branches;
            size_t count;
        } branches; // IF
        struct {
            const struct jinja_node *target;
            const struct jinja_node *iterable;
            const struct jinja_node *test; // NULL: none
            struct node_list body;
            struct node_list otherwise;
            bool recursive;
            struct scope_plan test_plan;
            struct scope_plan body_plan;
            struct scope_plan otherwise_plan;
        } loop;
        struct {
            const struct jinja_node *target;
            const struct jinja_node *value; // of SET_BLOCK: the filter, or NULL
            struct node_list body;          // of SET_BLOCK
            struct scope_plan plan;
        } set;
        struct {
            struct jinja_string *name; // NULL: of a call block
            struct macro_signature signature;
            struct node_list body;
            const struct jinja_node *call; // of a call block
            struct scope_plan plan;
        } macro;
        struct {
            const struct jinja_node *filter;
            struct node_list body;
            struct scope_plan plan;
        } filter_block;
        struct {
            struct node_list targets;
            struct node_list values;
            struct node_list body;
            struct scope_plan plan;
        } with;
        struct {
            struct jinja_string *name;
            struct node_list body;
            struct scope_plan plan;
            bool scoped;
            bool required;
        } block;
        struct {
            const struct jinja_node *value; // NULL: of GENERATION
            struct node_list body;
            struct scope_plan plan;
        } autoescape; // also GENERATION
    };
};

struct jinja_syntax {
    struct node_list body;
    struct node_list blocks;
    struct scope_plan plan; // of the template's top level
    // Names that the evaluator itself binds, interned like the template's.
    struct jinja_string *loop, *caller, *varargs, *kwargs, *self;
};

bool jinja_parse(struct jinja *jinja, const char *source, size_t size, struct jinja_syntax *syntax);

#endif
