// Running a parsed template: scopes, calls, built-in functions. A scope is a level of names; a name that is not in
// any is looked up in the context (the template's variables).
#ifndef MOTE_TEXT_JINJA_RUN_H
#define MOTE_TEXT_JINJA_RUN_H

#include "text/jinja_iterate.h"
#include "text/jinja_syntax.h"

struct binding {
    const struct jinja_string *name;
    struct value value;
};

struct jinja_scope {
    struct jinja_scope *outer;
    struct binding *bindings;
    size_t count;
    size_t capacity;
};

// Arguments of a call, evaluated.
struct arguments {
    struct value *positional;
    size_t count;
    struct binding *named;
    size_t n_named;
};

// A call of a built-in function: its arguments in the order of its parameters, ABSENT where not given.
struct call {
    struct value self; // what a filter or test is applied to, whose method it is
    struct value arguments[6];
    const struct arguments *all; // of a variadic one: as they were given
};

struct jinja_builtin {
    const char *name;
    bool (*function)(struct jinja *jinja, const struct call *call, struct value *result);
    const char *parameters[6];
    uint8_t n_required;
    bool variadic;        // takes any arguments: `all`
    bool positional_only; // as most methods of Python's own types
};

enum flow { FLOW_FAILED, FLOW_NORMAL, FLOW_BREAK, FLOW_CONTINUE };

// jinja_evaluate.c
bool jinja_evaluate(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope, struct value *out);
bool jinja_evaluate_arguments(struct jinja *jinja, const struct call_arguments *nodes, struct jinja_scope *scope,
                              struct arguments *out);
// A filter node applied to subject.
bool jinja_apply_filter(struct jinja *jinja, const struct jinja_node *filter, struct value subject,
                        struct jinja_scope *scope, struct value *out);

// jinja_execute.c
enum flow jinja_execute(struct jinja *jinja, const struct node_list *body, struct jinja_scope *scope);
// Runs body with its output in a string, which is Markup under autoescape.
bool jinja_capture(struct jinja *jinja, const struct node_list *body, struct jinja_scope *scope, enum flow *flow,
                   struct value *out);
bool jinja_assign(struct jinja *jinja, const struct jinja_node *target, struct value value, struct jinja_scope *scope);
bool scope_set(struct jinja *jinja, struct jinja_scope *scope, const struct jinja_string *name, struct value value);
struct jinja_scope *scope_create(struct jinja *jinja, struct jinja_scope *outer);
// Binds the names that begin as undefined.
bool scope_begin(struct jinja *jinja, struct jinja_scope *scope, const struct scope_plan *plan);
bool jinja_call_block(struct jinja *jinja, const struct jinja_node *block, struct jinja_scope *scope,
                      struct value *out);

// jinja_loop.c
enum flow jinja_execute_loop(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope);
bool loop_attribute(struct jinja *jinja, struct jinja_loop *loop, const struct jinja_string *name, struct value *out);
bool loop_call(struct jinja *jinja, struct jinja_loop *loop, const struct arguments *arguments, struct value *out);
bool loop_repr(struct jinja_writer *writer, struct jinja_loop *loop);

// jinja_macro.c
bool macro_create(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope, struct value *out);
bool macro_call(struct jinja *jinja, struct jinja_macro *macro, const struct arguments *arguments, struct value *out);
const struct jinja_string *macro_name(const struct jinja_macro *macro);
bool macro_attribute(struct jinja *jinja, struct jinja_macro *macro, const struct jinja_string *name,
                     struct value *out);

// jinja_call.c
bool jinja_call(struct jinja *jinja, struct value function, const struct arguments *arguments, struct value *out);
bool builtin_call(struct jinja *jinja, const struct jinja_builtin *builtin, struct value self,
                  const struct arguments *arguments, struct value *out);
bool value_is_callable(struct value value);

// jinja_attribute.c
bool value_attribute(struct jinja *jinja, struct value object, struct jinja_string *name, struct value *out); // a.b
bool value_item(struct jinja *jinja, struct value object, struct value key, struct value *out);               // a[b]
bool value_slice(struct jinja *jinja, struct value object, const struct value parts[3], struct value *out);
// What getattr finds (a method, a fact of the object), and nothing else.
bool value_own_attribute(struct jinja *jinja, struct value object, struct jinja_string *name, struct value *out);

// jinja_operators.c
bool operator_binary(struct jinja *jinja, const char *operator, struct value a, struct value b, struct value *out);
bool operator_unary(struct jinja *jinja, const char *operator, struct value a, struct value *out);
bool operator_compare(struct jinja *jinja, enum compare_operator operator, struct value a, struct value b, bool *out);

// Tables by name; NULL: there is none.
const struct jinja_builtin *filter_find(const struct jinja_string *name);
const struct jinja_builtin *test_find(const struct jinja_string *name);
const struct jinja_builtin *methods_find(struct value self, const struct jinja_string *name);
bool method_is_refused(struct value self, const struct jinja_string *name); // it would change the value
bool globals_add(struct jinja *jinja, struct jinja_dict *context);
const struct jinja_builtin *builtin_find(const struct jinja_builtin *table, const struct jinja_string *name);

// Arguments of built-in functions, with what they are when absent. They fail where the type is wrong.
bool argument_bool(const struct call *call, size_t index, bool absent); // any value's truth
bool argument_int(struct jinja *jinja, const struct call *call, size_t index, const char *what, int64_t absent,
                  int64_t *out);
// NULL where absent or None.
bool argument_string(struct jinja *jinja, const struct call *call, size_t index, const char *what,
                     struct jinja_string **out);

#endif
