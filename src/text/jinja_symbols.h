// Which names a scope binds before it runs. Jinja decides where a name is looked up when it compiles a template: a
// name that a scope sets before it reads it (in the order of the source) is never looked up in the template's
// variables, neither in that scope nor in those inside it, also where the code that sets it has not run yet. So
// such names begin as undefined. What is set in a branch of an `if` does not count.
#ifndef MOTE_TEXT_JINJA_SYMBOLS_H
#define MOTE_TEXT_JINJA_SYMBOLS_H

#include "text/jinja_syntax.h"

struct symbol_scope {
    struct symbol_scope *outer;
    struct symbol_scope *older; // all scopes of the template, newest first
    struct jinja_dict *states;  // of the names that it speaks of
    struct scope_plan *plan;
    uint32_t branches; // around the current place, in this scope: what they set may not be set
};

struct symbol_table {
    struct symbol_scope *scope; // the current one
    struct symbol_scope *newest;
};

// A scope, whose plan is filled by symbols_finish. apart: of a block, which sees no names of the scopes around it.
bool symbols_open(struct jinja *jinja, struct symbol_table *table, struct scope_plan *plan, bool apart);
void symbols_close(struct symbol_table *table);

bool symbols_load(struct jinja *jinja, struct symbol_table *table, struct jinja_string *name);
bool symbols_store(struct jinja *jinja, struct symbol_table *table, struct jinja_string *name);
// All names of a target of an assignment. parameters: the scope begins with them.
bool symbols_store_target(struct jinja *jinja, struct symbol_table *table, const struct jinja_node *target,
                          bool parameters);

// Around the branches of an `if`.
void symbols_enter_branch(struct symbol_table *table);
void symbols_leave_branch(struct symbol_table *table);

bool symbols_finish(struct jinja *jinja, struct symbol_table *table);

#endif
