// map, select and their kin: generators that apply a filter or a test to every element.
#include "text/jinja_filters.h"

struct apply_state {
    const struct jinja_builtin *builtin; // a filter or test; NULL: none
    struct arguments arguments;          // of it
    struct attribute_path path;
    bool keeps; // of select: what holds
    bool (*prepare)(struct jinja *jinja, struct apply_state *state);
};

static bool prepared(struct jinja *jinja, struct apply_state *state)
{
    if (!state->prepare)
        return true;
    bool done = state->prepare(jinja, state);
    state->prepare = NULL;
    return done;
}

static bool named_filter(struct jinja *jinja, struct value name, const char *what,
                         const struct jinja_builtin *(*find)(const struct jinja_string *),
                         const struct jinja_builtin **builtin)
{
    *builtin = name.kind == VALUE_STRING ? find(name.string) : NULL;
    if (*builtin)
        return true;
    return jinja_fail(jinja, "no %s named '%.*s'", what,
                      name.kind == VALUE_STRING ? (int)(name.string->size & 0xff) : 0,
                      name.kind == VALUE_STRING ? name.string->data : "");
}

static bool prepare_map(struct jinja *jinja, struct apply_state *state)
{
    struct arguments all = state->arguments;
    struct value attribute = {0}, otherwise = {0};
    for (size_t i = 0; all.count == 0 && i < all.n_named; i++) {
        if (string_is(all.named[i].name, "attribute"))
            attribute = all.named[i].value;
        else if (string_is(all.named[i].name, "default"))
            otherwise = all.named[i].value;
        else
            return jinja_fail(jinja, "map() got an unexpected keyword argument '%.*s'",
                              (int)(all.named[i].name->size & 0xff), all.named[i].name->data);
    }
    if (all.count == 0) {
        if (attribute.kind == VALUE_ABSENT)
            return jinja_fail(jinja, "map requires a filter argument");
        if (!attribute_parse(jinja, attribute, &state->path))
            return false;
        state->path.otherwise = otherwise.kind == VALUE_NONE ? (struct value){0} : otherwise;
        return true;
    }
    state->arguments.positional++;
    state->arguments.count--;
    return named_filter(jinja, all.positional[0], "filter", filter_find, &state->builtin);
}

static bool next_mapped(struct jinja *jinja, struct jinja_iterator *iterator, struct value *item)
{
    struct apply_state *state = iterator->state;
    if (!prepared(jinja, state) || !iterator_next(jinja, iterator->source, item))
        return false;
    if (item->kind == VALUE_ABSENT)
        return true;
    if (state->builtin)
        return builtin_call(jinja, state->builtin, *item, &state->arguments, item);
    return attribute_get(jinja, &state->path, *item, item);
}

static bool nothing(struct jinja *jinja, struct jinja_iterator *iterator, struct value *item)
{
    (void)jinja;
    (void)iterator;
    *item = (struct value){0};
    return true;
}

static bool apply(struct jinja *jinja, const struct call *call, bool keeps,
                  bool (*prepare)(struct jinja *, struct apply_state *),
                  bool (*next)(struct jinja *, struct jinja_iterator *, struct value *), struct value *out)
{
    struct apply_state *state = jinja_alloc(jinja, 1, sizeof *state);
    if (!state)
        return false;
    state->arguments = *call->all;
    state->keeps = keeps;
    state->prepare = prepare;
    // What is false (0, None, an empty list) has no elements, whatever it is.
    if (!value_truth(call->self))
        return iterator_create(jinja, value_undefined(), nothing, state, "generator", out);
    return iterator_create(jinja, call->self, next, state, "generator", out);
}

bool filter_map(struct jinja *jinja, const struct call *call, struct value *out)
{
    return apply(jinja, call, true, prepare_map, next_mapped, out);
}

static bool prepare_select(struct jinja *jinja, struct apply_state *state)
{
    struct arguments *arguments = &state->arguments;
    if (arguments->count == 0)
        return true; // the element's own truth
    struct value name = arguments->positional[0];
    arguments->positional++;
    arguments->count--;
    return named_filter(jinja, name, "test", test_find, &state->builtin);
}

static bool prepare_select_attribute(struct jinja *jinja, struct apply_state *state)
{
    struct arguments *arguments = &state->arguments;
    if (arguments->count == 0)
        return jinja_fail(jinja, "missing parameter for attribute name");
    struct value attribute = arguments->positional[0];
    arguments->positional++;
    arguments->count--;
    return attribute_parse(jinja, attribute, &state->path) && prepare_select(jinja, state);
}

static bool next_selected(struct jinja *jinja, struct jinja_iterator *iterator, struct value *item)
{
    struct apply_state *state = iterator->state;
    if (!prepared(jinja, state))
        return false;
    for (;;) {
        struct value subject;
        if (!iterator_next(jinja, iterator->source, item))
            return false;
        if (item->kind == VALUE_ABSENT)
            return true;
        if (!attribute_get(jinja, &state->path, *item, &subject))
            return false;
        if (state->builtin && !builtin_call(jinja, state->builtin, subject, &state->arguments, &subject))
            return false;
        if (value_truth(subject) == state->keeps)
            return true;
    }
}

bool filter_select(struct jinja *jinja, const struct call *call, struct value *out)
{
    return apply(jinja, call, true, prepare_select, next_selected, out);
}

bool filter_reject(struct jinja *jinja, const struct call *call, struct value *out)
{
    return apply(jinja, call, false, prepare_select, next_selected, out);
}

bool filter_selectattr(struct jinja *jinja, const struct call *call, struct value *out)
{
    return apply(jinja, call, true, prepare_select_attribute, next_selected, out);
}

bool filter_rejectattr(struct jinja *jinja, const struct call *call, struct value *out)
{
    return apply(jinja, call, false, prepare_select_attribute, next_selected, out);
}
