// Functions that every template has, and those that transformers adds.
#include "text/jinja_number.h"
#include "text/jinja_repr.h"
#include "text/jinja_run.h"
#include "text/jinja_time.h"

enum { MOST_RANGE = 100000 }; // elements of a range: the sandbox's own limit

static bool call_range(struct jinja *jinja, const struct call *call, struct value *out)
{
    int64_t numbers[3] = {0, 0, 1};
    size_t count = call->all->count;
    if (count < 1 || count > 3 || call->all->n_named)
        return jinja_fail(jinja, "range expects 1 to 3 integers");
    for (size_t i = 0; i < count; i++)
        if (!number_to_int64(jinja, call->all->positional[i], "an argument of range", &numbers[count == 1 ? 1 : i]))
            return false;
    int64_t start = numbers[0], stop = numbers[1], step = numbers[2];
    if (step == 0)
        return jinja_fail(jinja, "range() arg 3 must not be zero");
    uint64_t distance = step > 0 ? (stop > start ? (uint64_t)stop - (uint64_t)start : 0)
                                 : (start > stop ? (uint64_t)start - (uint64_t)stop : 0);
    uint64_t stride = step < 0 ? -(uint64_t)step : (uint64_t)step;
    uint64_t length = distance ? (distance - 1) / stride + 1 : 0;
    if (length > MOST_RANGE)
        return jinja_fail(jinja, "range too big: the sandbox blocks ranges of more than %d elements", MOST_RANGE);
    struct jinja_range *range = jinja_alloc(jinja, 1, sizeof *range);
    if (!range)
        return false;
    *range = (struct jinja_range){start, stop, step, length};
    *out = (struct value){.kind = VALUE_RANGE, .range = range};
    return true;
}

// dict(mapping or pairs, name=value …), also what a namespace begins with.
static bool fill_dict(struct jinja *jinja, const struct arguments *arguments, struct jinja_dict *dict)
{
    const struct jinja_list *pairs = NULL;
    if (arguments->count > 1)
        return jinja_fail(jinja, "dict expected at most 1 argument, got %zu", arguments->count);
    if (arguments->count && arguments->positional[0].kind == VALUE_DICT) {
        const struct jinja_dict *from = arguments->positional[0].dict;
        for (size_t i = 0; i < from->count; i++)
            if (!jinja_step(jinja) || !dict_set(jinja, dict, from->entries[i].key, from->entries[i].value))
                return false;
    } else if (arguments->count && !value_collect(jinja, arguments->positional[0], &pairs)) {
        return false;
    }
    for (size_t i = 0; pairs && i < pairs->count; i++) {
        const struct jinja_list *pair;
        if (!value_collect(jinja, pairs->items[i], &pair))
            return false;
        if (pair->count != 2)
            return jinja_fail(jinja, "dictionary update sequence element #%zu has length %zu; 2 is required", i,
                              pair->count);
        if (!dict_set(jinja, dict, pair->items[0], pair->items[1]))
            return false;
    }
    for (size_t i = 0; i < arguments->n_named; i++)
        if (!dict_set(jinja, dict, value_string((struct jinja_string *)arguments->named[i].name),
                      arguments->named[i].value))
            return false;
    return true;
}

static bool call_dict(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_dict *dict = dict_create(jinja, 0);
    *out = value_dict(dict);
    return dict && fill_dict(jinja, call->all, dict);
}

static bool call_namespace(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_dict *dict = dict_create(jinja, 0);
    *out = (struct value){.kind = VALUE_NAMESPACE, .namespace = dict};
    return dict && fill_dict(jinja, call->all, dict);
}

static bool call_cycler(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_cycler *cycler = jinja_alloc(jinja, 1, sizeof *cycler);
    struct jinja_list *items = list_create(jinja, call->all->count);
    if (!cycler || !items)
        return false;
    if (items->count == 0)
        return jinja_fail(jinja, "at least one item has to be provided");
    for (size_t i = 0; i < items->count; i++)
        items->items[i] = call->all->positional[i];
    cycler->items = items;
    *out = (struct value){.kind = VALUE_CYCLER, .cycler = cycler};
    return true;
}

static bool call_joiner(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_joiner *joiner = jinja_alloc(jinja, 1, sizeof *joiner);
    if (!joiner)
        return false;
    joiner->separator = call->arguments[0];
    *out = (struct value){.kind = VALUE_JOINER, .joiner = joiner};
    return joiner->separator.kind != VALUE_ABSENT || value_from_literal(jinja, ", ", &joiner->separator);
}

static bool call_lipsum(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)call;
    (void)out;
    return jinja_fail(jinja, "lipsum() makes random text, which a prompt must not hold");
}

static bool call_raise_exception(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_string *message;
    (void)out;
    if (!value_to_string(jinja, call->arguments[0], &message))
        return false;
    return jinja_raise(jinja, message->data, message->size);
}

static bool call_strftime_now(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_string *format;
    if (!argument_string(jinja, call, 0, "the format of strftime_now", &format))
        return false;
    if (!format)
        return jinja_fail(jinja, "the format of strftime_now must be str");
    return time_format(jinja, format, jinja->now, out);
}

static const struct jinja_builtin globals[] = {
    {.name = "range", .function = call_range, .variadic = true},
    {.name = "dict", .function = call_dict, .variadic = true},
    {.name = "namespace", .function = call_namespace, .variadic = true},
    {.name = "cycler", .function = call_cycler, .variadic = true},
    {.name = "joiner", .function = call_joiner, .parameters = {"sep"}},
    {.name = "lipsum", .function = call_lipsum, .variadic = true},
    {.name = "raise_exception", .function = call_raise_exception, .parameters = {"message"}, .n_required = 1},
    {.name = "strftime_now", .function = call_strftime_now, .parameters = {"format"}, .n_required = 1},
    {0},
};

bool globals_add(struct jinja *jinja, struct jinja_dict *context)
{
    for (const struct jinja_builtin *builtin = globals; builtin->name; builtin++)
        if (!dict_set_name(jinja, context, builtin->name, (struct value){.kind = VALUE_FUNCTION, .function = builtin}))
            return false;
    return true;
}
