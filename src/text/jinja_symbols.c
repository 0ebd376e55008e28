// See jinja_symbols.h.
#include "text/jinja_symbols.h"

// The state of a name is a small integer: how it began, and whether it was set since.
enum { SYMBOL_LOOKED_UP = 1, SYMBOL_UNDEFINED = 2, SYMBOL_STORED = 4 };

static bool own_state(struct jinja *jinja, const struct symbol_layer *layer, struct jinja_string *name, int64_t *state)
{
    struct value found;
    *state = 0;
    if (!layer->states)
        return true;
    if (!dict_get(jinja, layer->states, value_string(name), &found))
        return false;
    *state = found.kind == VALUE_ABSENT ? 0 : found.integer;
    return true;
}

// In this layer or those below: 0: nothing is known.
static bool state_of(struct jinja *jinja, const struct symbol_layer *layer, struct jinja_string *name, int64_t *state)
{
    *state = 0;
    for (; layer && *state == 0; layer = layer->below)
        if (!own_state(jinja, layer, name, state))
            return false;
    return true;
}

static bool set_state(struct jinja *jinja, struct symbol_layer *layer, struct jinja_string *name, int64_t state)
{
    if (!layer->states && !(layer->states = dict_create(jinja, 0)))
        return false;
    return dict_set(jinja, layer->states, value_string(name), value_int(state));
}

bool symbols_open(struct jinja *jinja, struct symbol_table *table, struct scope_plan *plan, bool apart)
{
    struct symbol_scope *scope = jinja_alloc(jinja, 1, sizeof *scope);
    struct symbol_layer *layer = jinja_alloc(jinja, 1, sizeof *layer);
    if (!scope || !layer)
        return false;
    scope->outer = table->scope;
    scope->older = table->newest;
    scope->layer = layer;
    scope->plan = plan;
    plan->apart = apart;
    table->scope = table->newest = scope;
    return true;
}

void symbols_close(struct symbol_table *table)
{
    table->scope = table->scope->outer;
}

bool symbols_load(struct jinja *jinja, struct symbol_table *table, struct jinja_string *name)
{
    int64_t state;
    struct symbol_layer *layer = table->scope->layer;
    return state_of(jinja, layer, name, &state) && (state != 0 || set_state(jinja, layer, name, SYMBOL_LOOKED_UP));
}

bool symbols_store(struct jinja *jinja, struct symbol_table *table, struct jinja_string *name)
{
    int64_t state;
    struct symbol_layer *layer = table->scope->layer;
    if (!state_of(jinja, layer, name, &state))
        return false;
    return set_state(jinja, layer, name, (state ? state : SYMBOL_UNDEFINED) | SYMBOL_STORED);
}

bool symbols_store_target(struct jinja *jinja, struct symbol_table *table, const struct jinja_node *target,
                          bool parameters)
{
    if (target->kind == NODE_NAMESPACE_TARGET)
        return symbols_load(jinja, table, target->attribute.object->name);
    if (target->kind == NODE_NAME && parameters)
        return set_state(jinja, table->scope->layer, target->name, SYMBOL_LOOKED_UP | SYMBOL_STORED);
    if (target->kind == NODE_NAME)
        return symbols_store(jinja, table, target->name);
    for (size_t i = 0; i < target->items.count; i++) // no deeper than the parser went
        if (!symbols_store_target(jinja, table, target->items.items[i], parameters))
            return false;
    return true;
}

void symbols_enter(struct symbol_table *table, struct symbol_layer *branch)
{
    branch->below = table->scope->layer;
    table->scope->layer = branch;
}

void symbols_leave(struct symbol_table *table)
{
    table->scope->layer = table->scope->layer->below;
}

static bool merge_name(struct jinja *jinja, struct symbol_layer *base, struct symbol_branches *branches,
                       struct jinja_string *name)
{
    int64_t known, state, last = 0;
    int n_stored = 0;
    if (!state_of(jinja, base, name, &known))
        return false;
    for (size_t i = 0; i < 3; i++) {
        if (!own_state(jinja, &branches->layers[i], name, &state))
            return false;
        n_stored += (state & SYMBOL_STORED) != 0;
        last = state ? state : last;
    }
    if (known & SYMBOL_STORED)
        return true;
    if (n_stored == 3) // in every branch: as in the last one
        return set_state(jinja, base, name, last);
    return set_state(jinja, base, name, SYMBOL_LOOKED_UP | (n_stored ? SYMBOL_STORED : 0));
}

bool symbols_merge(struct jinja *jinja, struct symbol_table *table, struct symbol_branches *branches)
{
    for (size_t i = 0; i < 3; i++) {
        const struct jinja_dict *states = branches->layers[i].states;
        for (size_t k = 0; states && k < states->count; k++)
            if (!merge_name(jinja, table->scope->layer, branches, states->entries[k].key.string))
                return false;
    }
    return true;
}

// Whether a scope around this one knows the name.
static bool known_outside(struct jinja *jinja, const struct symbol_scope *scope, struct jinja_string *name, bool *known)
{
    *known = false;
    for (; !*known && !scope->plan->apart && scope->outer; scope = scope->outer) {
        int64_t state;
        if (!jinja_work(jinja, 0) || !state_of(jinja, scope->outer->layer, name, &state))
            return false;
        *known = state != 0;
    }
    return true;
}

bool symbols_finish(struct jinja *jinja, struct symbol_table *table)
{
    for (struct symbol_scope *scope = table->newest; scope; scope = scope->older) {
        const struct jinja_dict *states = scope->layer->states;
        struct scope_plan *plan = scope->plan;
        size_t capacity = 0;
        for (size_t i = 0; states && i < states->count; i++) {
            struct jinja_string *name = states->entries[i].key.string;
            bool known;
            if (!(states->entries[i].value.integer & SYMBOL_UNDEFINED))
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
