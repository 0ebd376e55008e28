// See jinja_symbols.h.
#include "text/jinja_symbols.h"

// How a name begins in a scope.
enum { SYMBOL_LOOKED_UP = 1, SYMBOL_UNDEFINED };

static bool is_known(struct jinja *jinja, const struct symbol_scope *scope, struct jinja_string *name, bool *known)
{
    struct value found;
    if (!dict_get(jinja, scope->states, value_string(name), &found))
        return false;
    *known = found.kind != VALUE_ABSENT;
    return true;
}

// The first mention of a name decides.
static bool mention(struct jinja *jinja, struct symbol_scope *scope, struct jinja_string *name, int64_t state)
{
    bool known;
    return is_known(jinja, scope, name, &known) &&
           (known || dict_set(jinja, scope->states, value_string(name), value_int(state)));
}

bool symbols_open(struct jinja *jinja, struct symbol_table *table, struct scope_plan *plan, bool apart)
{
    struct symbol_scope *scope = jinja_alloc(jinja, 1, sizeof *scope);
    if (!scope || !(scope->states = dict_create(jinja, 0)))
        return false;
    scope->outer = table->scope;
    scope->older = table->newest;
    scope->plan = plan;
    plan->apart = apart;
    table->scope = table->newest = scope;
    return true;
}

void symbols_close(struct symbol_table *table)
{
    table->scope = table->scope->outer;
}

void symbols_enter_branch(struct symbol_table *table)
{
    table->scope->branches++;
}

void symbols_leave_branch(struct symbol_table *table)
{
    table->scope->branches--;
}

bool symbols_load(struct jinja *jinja, struct symbol_table *table, struct jinja_string *name)
{
    return mention(jinja, table->scope, name, SYMBOL_LOOKED_UP);
}

bool symbols_store(struct jinja *jinja, struct symbol_table *table, struct jinja_string *name)
{
    return mention(jinja, table->scope, name, table->scope->branches ? SYMBOL_LOOKED_UP : SYMBOL_UNDEFINED);
}

bool symbols_store_target(struct jinja *jinja, struct symbol_table *table, const struct jinja_node *target,
                          bool parameters)
{
    if (target->kind == NODE_NAMESPACE_TARGET)
        return symbols_load(jinja, table, target->attribute.object->name);
    if (target->kind == NODE_NAME && parameters)
        return dict_set(jinja, table->scope->states, value_string(target->name), value_int(SYMBOL_LOOKED_UP));
    if (target->kind == NODE_NAME)
        return symbols_store(jinja, table, target->name);
    for (size_t i = 0; i < target->items.count; i++) // no deeper than the parser went
        if (!symbols_store_target(jinja, table, target->items.items[i], parameters))
            return false;
    return true;
}

// Whether a scope around this one knows the name.
static bool known_outside(struct jinja *jinja, const struct symbol_scope *scope, struct jinja_string *name, bool *known)
{
    *known = false;
    for (; !*known && !scope->plan->apart && scope->outer; scope = scope->outer) {
        if (!jinja_step(jinja) || !is_known(jinja, scope->outer, name, known))
            return false;
    }
    return true;
}

bool symbols_finish(struct jinja *jinja, struct symbol_table *table)
{
    for (struct symbol_scope *scope = table->newest; scope; scope = scope->older) {
        const struct jinja_dict *states = scope->states;
        struct scope_plan *plan = scope->plan;
        size_t capacity = 0;
        for (size_t i = 0; i < states->count; i++) {
            struct jinja_string *name = states->entries[i].key.string;
            bool known;
            if (states->entries[i].value.integer != SYMBOL_UNDEFINED)
                continue;
            if (!known_outside(jinja, scope, name, &known))
                return false;
            void *names = plan->names;
            if (known)
                continue;
            if (!jinja_grow(jinja, &names, &capacity, plan->count + 1, sizeof name))
                return false;
            plan->names = names;
            plan->names[plan->count++] = name;
        }
    }
    return true;
}
