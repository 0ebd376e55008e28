// The values of the template language: Python's, as far as a template can see them. Values never change once made
// (the sandbox refuses list.append and the like), except namespaces, cyclers, joiners and iterators; so they are
// shared freely.
#ifndef MOTE_TEXT_JINJA_VALUE_H
#define MOTE_TEXT_JINJA_VALUE_H

#include "text/jinja.h"

enum value_kind {
    VALUE_ABSENT, // an argument that was not given, the end of an iteration; a template never sees it
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT, // what fits in 64 bits, always
    VALUE_BIG, // what does not
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_DICT,
    VALUE_VIEW, // dict.keys(), values(), items()
    VALUE_RANGE,
    VALUE_ITERATOR,
    VALUE_NAMESPACE,
    VALUE_MACRO,
    VALUE_FUNCTION, // a global
    VALUE_METHOD,   // bound to its value
    VALUE_LOOP,
    VALUE_CYCLER,
    VALUE_JOINER,
    VALUE_SELF,  // `self`: the template's blocks
    VALUE_BLOCK, // self.name
    VALUE_KINDS
};

struct jinja_string;
struct jinja_undefined;
struct jinja_big;
struct jinja_list;
struct jinja_dict;
struct jinja_view;
struct jinja_range;
struct jinja_iterator;
struct jinja_namespace;
struct jinja_macro;
struct jinja_builtin;
struct jinja_method;
struct jinja_loop;
struct jinja_cycler;
struct jinja_joiner;
struct jinja_node;

struct value {
    enum value_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double real;
        const struct jinja_big *big;
        struct jinja_string *string;
        const struct jinja_undefined *undefined; // may be NULL: nothing more is known
        const struct jinja_list *list;           // also of tuples
        struct jinja_dict *dict;
        const struct jinja_view *view;
        const struct jinja_range *range;
        struct jinja_iterator *iterator;
        struct jinja_dict *namespace;
        struct jinja_macro *macro;
        const struct jinja_builtin *function;
        const struct jinja_method *method;
        struct jinja_loop *loop;
        struct jinja_cycler *cycler;
        struct jinja_joiner *joiner;
        const struct jinja_node *block;
    };
};

// Why a value is undefined: made into a message only where it is used in a way that fails.
struct jinja_undefined {
    enum {
        UNDEFINED_NAME,      // `name`
        UNDEFINED_ATTRIBUTE, // owner.name
        UNDEFINED_ITEM,      // owner[key]
        UNDEFINED_UNSAFE,    // owner.name is one that the sandbox refuses
        UNDEFINED_TEXT,      // says `text`
    } why;
    const struct jinja_string *name;
    struct value key;
    struct value owner;
    const char *text;
};

struct jinja_list {
    struct value *items;
    size_t count;
    bool group; // a pair (grouper, list) of groupby: has these attributes
};

enum view_kind { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

struct jinja_view {
    const struct jinja_dict *dict;
    enum view_kind kind;
};

struct jinja_range {
    int64_t start;
    int64_t stop;
    int64_t step;
    size_t count;
};

struct jinja_dict_entry {
    struct value key;
    struct value value;
    uint64_t hash;
};

struct jinja_dict { // entries in the order of insertion
    struct jinja_dict_entry *entries;
    size_t count;
    size_t capacity;
    uint32_t *slots; // 0: free, else entry + 1; n_slots is a power of two, or 0 while there are few entries
    size_t n_slots;
};

struct jinja_cycler {
    const struct jinja_list *items;
    size_t position;
};

struct jinja_joiner {
    struct value separator;
    bool used;
};

struct jinja_method {
    struct value self;
    const struct jinja_builtin *builtin;
};

static inline struct value value_none(void)
{
    return (struct value){.kind = VALUE_NONE};
}

static inline struct value value_undefined(void)
{
    return (struct value){.kind = VALUE_UNDEFINED};
}

static inline struct value value_bool(bool boolean)
{
    return (struct value){.kind = VALUE_BOOL, .boolean = boolean};
}

static inline struct value value_int(int64_t integer)
{
    return (struct value){.kind = VALUE_INT, .integer = integer};
}

static inline struct value value_float(double real)
{
    return (struct value){.kind = VALUE_FLOAT, .real = real};
}

static inline struct value value_string(struct jinja_string *string)
{
    return (struct value){.kind = VALUE_STRING, .string = string};
}

static inline struct value value_list(const struct jinja_list *list)
{
    return (struct value){.kind = VALUE_LIST, .list = list};
}

static inline struct value value_tuple(const struct jinja_list *list)
{
    return (struct value){.kind = VALUE_TUPLE, .list = list};
}

static inline struct value value_dict(struct jinja_dict *dict)
{
    return (struct value){.kind = VALUE_DICT, .dict = dict};
}

static inline bool value_is_list(struct value value)
{
    return value.kind == VALUE_LIST || value.kind == VALUE_TUPLE;
}

// Makes an undefined value that knows why, at *out. Always returns whether memory sufficed.
bool value_undefined_name(struct jinja *jinja, const struct jinja_string *name, struct value *out);
bool value_undefined_attribute(struct jinja *jinja, struct value owner, struct value key, bool item, bool unsafe,
                               struct value *out);
bool value_undefined_text(struct jinja *jinja, const char *text, struct value *out);

// Fails with the message of an undefined value. Always false.
bool value_fail_undefined(struct jinja *jinja, struct value value);

// Python's name of the type: "str", "NoneType" …
const char *value_type_name(struct value value);

bool value_truth(struct value value);

// a == b and a < b as Python has them; < of types that have no order fails.
bool value_equal(struct jinja *jinja, struct value a, struct value b, bool *equal);
bool value_less(struct jinja *jinja, struct value a, struct value b, bool *less);

// The same object (`is sameas`): by identity where there is one.
bool value_same(struct value a, struct value b);

// Fails where the value is not hashable (a list, a dict).
bool value_hash(struct jinja *jinja, struct value value, uint64_t *hash);

// len(value). Fails where it has none.
bool value_length(struct jinja *jinja, struct value value, size_t *length);

// element in container
bool value_contains(struct jinja *jinja, struct value container, struct value element, bool *contained);

// A list with room for count items, to be filled before it is shown to anyone.
struct jinja_list *list_create(struct jinja *jinja, size_t count);

// A list that is being collected.
struct list_builder {
    struct value *items;
    size_t count;
    size_t capacity;
};
bool list_builder_add(struct jinja *jinja, struct list_builder *builder, struct value item);
struct jinja_list *list_builder_finish(struct jinja *jinja, struct list_builder *builder);

// A tuple of two.
bool value_pair(struct jinja *jinja, struct value a, struct value b, struct value *out);

struct jinja_dict *dict_create(struct jinja *jinja, size_t capacity);
bool dict_set(struct jinja *jinja, struct jinja_dict *dict, struct value key, struct value value);
// *found is ABSENT where there is no such key. Fails where the key is not hashable.
bool dict_get(struct jinja *jinja, const struct jinja_dict *dict, struct value key, struct value *found);
bool dict_set_name(struct jinja *jinja, struct jinja_dict *dict, const char *name, struct value value);

#endif
