// a.b, a[b] and a[b:c:d]. A dot looks for a method first and then for an item, brackets the other way round; what is
// not there is undefined. What the sandbox refuses (methods that change a value, names with double underscores) is
// undefined too, with a message of its own.
#include "text/jinja_number.h"
#include "text/jinja_run.h"

#include <string.h>

static bool is_internal(const struct jinja_string *name)
{
    return name->size > 4 && memcmp(name->data, "__", 2) == 0 && memcmp(name->data + name->size - 2, "__", 2) == 0;
}

static bool cycler_attribute(struct jinja_cycler *cycler, const struct jinja_string *name, struct value *out)
{
    if (string_is(name, "current"))
        *out = cycler->items->items[cycler->position];
    return true;
}

static bool number_attribute(struct value number, const struct jinja_string *name, struct value *out)
{
    bool real = number.kind == VALUE_FLOAT, boolean = number.kind == VALUE_BOOL;
    if (string_is(name, "real") || (string_is(name, "numerator") && !real))
        *out = boolean ? value_int(number.boolean) : number;
    else if (string_is(name, "imag"))
        *out = real ? value_float(0) : value_int(0);
    else if (string_is(name, "denominator") && !real)
        *out = value_int(1);
    return true;
}

static bool block_attribute(struct jinja *jinja, const struct jinja_string *name, struct value *out)
{
    const struct node_list *blocks = &jinja->syntax->blocks;
    for (size_t i = 0; i < blocks->count; i++)
        if (string_equal(blocks->items[i]->block.name, name))
            *out = (struct value){.kind = VALUE_BLOCK, .block = blocks->items[i]};
    return true;
}

// What getattr finds: a method, or a fact of the object. ABSENT: nothing. *unsafe: there is, but it must not be used.
static bool find_attribute(struct jinja *jinja, struct value object, struct jinja_string *name, struct value *out,
                           bool *unsafe)
{
    *out = (struct value){0};
    *unsafe = is_internal(name) || method_is_refused(object, name);
    if (*unsafe)
        return true;
    const struct jinja_builtin *builtin = methods_find(object, name);
    if (builtin) {
        struct jinja_method *method = jinja_alloc(jinja, 1, sizeof *method);
        if (!method)
            return false;
        *method = (struct jinja_method){object, builtin};
        *out = (struct value){.kind = VALUE_METHOD, .method = method};
        return true;
    }
    switch (object.kind) {
    case VALUE_BOOL:
    case VALUE_INT:
    case VALUE_BIG:
    case VALUE_FLOAT:
        return number_attribute(object, name, out);
    case VALUE_NAMESPACE:
        return dict_get(jinja, object.namespace, value_string(name), out);
    case VALUE_LOOP:
        return loop_attribute(jinja, object.loop, name, out);
    case VALUE_MACRO:
        return macro_attribute(jinja, object.macro, name, out);
    case VALUE_CYCLER:
        return cycler_attribute(object.cycler, name, out);
    case VALUE_SELF:
        return block_attribute(jinja, name, out);
    case VALUE_TUPLE:
        if (object.list->group && (string_is(name, "grouper") || string_is(name, "list")))
            *out = object.list->items[name->data[0] == 'l'];
        return true;
    case VALUE_RANGE:
        if (string_is(name, "start"))
            *out = value_int(object.range->start);
        else if (string_is(name, "stop"))
            *out = value_int(object.range->stop);
        else if (string_is(name, "step"))
            *out = value_int(object.range->step);
        return true;
    default:
        return true;
    }
}

static bool is_hashable(struct value value)
{
    if (value.kind == VALUE_TUPLE) {
        for (size_t i = 0; i < value.list->count; i++)
            if (value.list->items[i].kind == VALUE_TUPLE || !is_hashable(value.list->items[i]))
                return false; // tuples inside tuples are no keys that anyone looks up
        return true;
    }
    return value.kind != VALUE_LIST && value.kind != VALUE_DICT && value.kind != VALUE_VIEW;
}

static bool item_at(struct jinja *jinja, struct value object, struct value key, struct value *out)
{
    size_t length;
    int64_t index = key.kind == VALUE_BOOL ? key.boolean : key.integer;
    if (!value_length(jinja, object, &length))
        return false;
    if (index < 0)
        index += (int64_t)length;
    if (index < 0 || (uint64_t)index >= length)
        return true;
    return value_at(jinja, object, (size_t)index, out);
}

// What object[key] finds; ABSENT: nothing.
static bool find_item(struct jinja *jinja, struct value object, struct value key, struct value *out)
{
    *out = (struct value){0};
    switch (object.kind) {
    case VALUE_DICT:
        return !is_hashable(key) || dict_get(jinja, object.dict, key, out);
    case VALUE_STRING:
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
        return (key.kind != VALUE_INT && key.kind != VALUE_BOOL) || item_at(jinja, object, key, out);
    default:
        return true;
    }
}

bool value_attribute(struct jinja *jinja, struct value object, struct jinja_string *name, struct value *out)
{
    bool unsafe;
    if (object.kind == VALUE_UNDEFINED)
        return value_fail_undefined(jinja, object);
    if (!find_attribute(jinja, object, name, out, &unsafe))
        return false;
    if (out->kind == VALUE_ABSENT && !unsafe && !find_item(jinja, object, value_string(name), out))
        return false;
    return out->kind != VALUE_ABSENT ||
           value_undefined_attribute(jinja, object, value_string(name), false, unsafe, out);
}

bool value_own_attribute(struct jinja *jinja, struct value object, struct jinja_string *name, struct value *out)
{
    bool unsafe;
    if (object.kind == VALUE_UNDEFINED)
        return value_fail_undefined(jinja, object);
    if (!find_attribute(jinja, object, name, out, &unsafe))
        return false;
    return out->kind != VALUE_ABSENT ||
           value_undefined_attribute(jinja, object, value_string(name), false, unsafe, out);
}

bool value_item(struct jinja *jinja, struct value object, struct value key, struct value *out)
{
    bool unsafe = false;
    if (object.kind == VALUE_UNDEFINED)
        return value_fail_undefined(jinja, object);
    if (!find_item(jinja, object, key, out))
        return false;
    if (out->kind == VALUE_ABSENT && key.kind == VALUE_STRING &&
        !find_attribute(jinja, object, key.string, out, &unsafe))
        return false;
    return out->kind != VALUE_ABSENT || value_undefined_attribute(jinja, object, key, true, unsafe, out);
}

// A bound of a slice, clamped as Python does. absent: what it is when left out.
static bool slice_bound(struct jinja *jinja, struct value bound, int64_t length, int64_t step, int64_t absent,
                        int64_t *out)
{
    *out = absent;
    if (bound.kind == VALUE_NONE)
        return true;
    if (bound.kind == VALUE_BIG) {
        bool negative;
        negative = number_is_negative(bound);
        *out = negative ? (step < 0 ? -1 : 0) : (step < 0 ? length - 1 : length);
        return true;
    }
    if (!number_to_int64(jinja, bound, "a slice index", out))
        return false;
    int64_t least = step < 0 ? -1 : 0, most = step < 0 ? length - 1 : length;
    if (*out < 0 && *out + length < 0)
        *out = least;
    else if (*out < 0)
        *out += length;
    *out = *out > most ? most : *out;
    return true;
}

static bool slice_string(struct jinja *jinja, struct jinja_string *string, int64_t start, int64_t step, size_t count,
                         struct value *out)
{
    // In ASCII a position is an offset; elsewhere it must be searched for.
    if (string_length(string) != string->size && !jinja_work(jinja, string->size))
        return false;
    if (step == 1 || count < 2) {
        size_t begin = string_offset(string, (size_t)(count ? start : 0));
        size_t end = string_offset(string, (size_t)(count ? start : 0) + count);
        return value_from_slice(jinja, string_slice(string, begin, end), string->markup, out);
    }
    // Offsets of all characters once, so that each is found at once.
    size_t length = string_length(string), n = 0;
    size_t *offsets = jinja_alloc(jinja, length + 1, sizeof *offsets);
    struct jinja_writer writer = {.jinja = jinja, .markup = string->markup};
    if (!offsets)
        return false;
    for (size_t i = 0, size; i < string->size; i += size) {
        offsets[n++] = i;
        string_decode(string->data + i, string->size - i, &size);
    }
    offsets[n] = string->size;
    for (size_t i = 0; i < count; i++) {
        size_t at = (size_t)(start + (int64_t)i * step);
        if (!writer_slice(&writer, string_slice(string, offsets[at], offsets[at + 1])))
            return false;
    }
    return writer_finish_value(&writer, out);
}

static bool slice_range(struct jinja *jinja, const struct jinja_range *range, int64_t start, int64_t stop, int64_t step,
                        size_t count, struct value *out)
{
    struct jinja_range *part = jinja_alloc(jinja, 1, sizeof *part);
    if (!part)
        return false;
    // No overflow: ranges have at most 100000 elements, and what they hold fits.
    *part = (struct jinja_range){range->start + start * range->step, range->start + stop * range->step,
                                 range->step * (count ? step : 1), count};
    *out = (struct value){.kind = VALUE_RANGE, .range = part};
    return true;
}

bool value_slice(struct jinja *jinja, struct value object, const struct value parts[3], struct value *out)
{
    int64_t step = 1, start, stop;
    size_t length;
    if (object.kind == VALUE_UNDEFINED)
        return value_fail_undefined(jinja, object);
    if (object.kind != VALUE_STRING && !value_is_list(object) && object.kind != VALUE_RANGE)
        return jinja_fail(jinja, "'%s' object cannot be sliced", value_type_name(object));
    if (parts[2].kind != VALUE_NONE && !number_to_int64(jinja, parts[2], "a slice step", &step))
        return false;
    if (step == 0)
        return jinja_fail(jinja, "slice step cannot be zero");
    if (!value_length(jinja, object, &length))
        return false;
    int64_t n = (int64_t)length;
    if (!slice_bound(jinja, parts[0], n, step, step < 0 ? n - 1 : 0, &start) ||
        !slice_bound(jinja, parts[1], n, step, step < 0 ? -1 : n, &stop))
        return false;
    uint64_t distance =
        step < 0 ? (start > stop ? (uint64_t)(start - stop) : 0) : (stop > start ? (uint64_t)(stop - start) : 0);
    uint64_t stride = step < 0 ? -(uint64_t)step : (uint64_t)step;
    size_t count = distance ? (size_t)((distance - 1) / stride + 1) : 0;
    if (count < 2) // a huge step must not overflow below
        step = step < 0 ? -1 : 1;
    if (object.kind == VALUE_STRING)
        return slice_string(jinja, object.string, start, step, count, out);
    if (object.kind == VALUE_RANGE)
        return slice_range(jinja, object.range, start, stop, step, count, out);
    struct jinja_list *list = list_create(jinja, count);
    if (!list || !jinja_work(jinja, count))
        return false;
    for (size_t i = 0; i < count; i++)
        list->items[i] = object.list->items[start + (int64_t)i * step];
    *out = object.kind == VALUE_LIST ? value_list(list) : value_tuple(list);
    return true;
}
