// Making values, and what every value has: a type, a truth, a length.
#include "text/jinja_value.h"

#include "text/jinja_iterate.h"
#include "text/jinja_number.h"
#include "text/jinja_repr.h"

static const char *const type_names[VALUE_KINDS] = {
    [VALUE_ABSENT] = "missing",
    [VALUE_UNDEFINED] = "Undefined",
    [VALUE_NONE] = "NoneType",
    [VALUE_BOOL] = "bool",
    [VALUE_INT] = "int",
    [VALUE_BIG] = "int",
    [VALUE_FLOAT] = "float",
    [VALUE_STRING] = "str",
    [VALUE_LIST] = "list",
    [VALUE_TUPLE] = "tuple",
    [VALUE_DICT] = "dict",
    [VALUE_RANGE] = "range",
    [VALUE_NAMESPACE] = "Namespace",
    [VALUE_MACRO] = "Macro",
    [VALUE_FUNCTION] = "function",
    [VALUE_METHOD] = "builtin_function_or_method",
    [VALUE_LOOP] = "LoopContext",
    [VALUE_CYCLER] = "Cycler",
    [VALUE_JOINER] = "Joiner",
    [VALUE_SELF] = "TemplateReference",
    [VALUE_BLOCK] = "BlockReference",
};

const char *value_type_name(struct value value)
{
    static const char *const views[] = {"dict_keys", "dict_values", "dict_items"};
    if (value.kind == VALUE_VIEW)
        return views[value.view->kind];
    if (value.kind == VALUE_ITERATOR)
        return value.iterator->type_name;
    if (value.kind == VALUE_STRING && value.string->markup)
        return "Markup";
    return type_names[value.kind];
}

static bool create_undefined(struct jinja *jinja, struct jinja_undefined content, struct value *out)
{
    struct jinja_undefined *undefined = jinja_alloc(jinja, 1, sizeof *undefined);
    if (!undefined)
        return false;
    *undefined = content;
    *out = (struct value){.kind = VALUE_UNDEFINED, .undefined = undefined};
    return true;
}

bool value_undefined_name(struct jinja *jinja, const struct jinja_string *name, struct value *out)
{
    return create_undefined(jinja, (struct jinja_undefined){.why = UNDEFINED_NAME, .name = name}, out);
}

bool value_undefined_attribute(struct jinja *jinja, struct value owner, struct value key, bool item, bool unsafe,
                               struct value *out)
{
    struct jinja_undefined content = {.owner = owner, .key = key};
    content.why = unsafe ? UNDEFINED_UNSAFE : item ? UNDEFINED_ITEM : UNDEFINED_ATTRIBUTE;
    return create_undefined(jinja, content, out);
}

bool value_undefined_text(struct jinja *jinja, const char *text, struct value *out)
{
    return create_undefined(jinja, (struct jinja_undefined){.why = UNDEFINED_TEXT, .text = text}, out);
}

bool value_fail_undefined(struct jinja *jinja, struct value value)
{
    const struct jinja_undefined *undefined = value.undefined;
    struct jinja_writer key = {.jinja = jinja};
    if (!undefined)
        return jinja_fail(jinja, "a value is undefined");
    if (undefined->why == UNDEFINED_NAME)
        return jinja_fail(jinja, "'%.*s' is undefined", (int)(undefined->name->size & 0x3ff), undefined->name->data);
    if (undefined->why == UNDEFINED_TEXT)
        return jinja_fail(jinja, "%s", undefined->text);
    bool names_attribute = undefined->key.kind == VALUE_STRING;
    if (names_attribute ? !writer_slice(&key, string_all(undefined->key.string)) : !value_repr(&key, undefined->key))
        return false;
    if (key.size > 200)
        key.size = 200;
    const char *type = value_type_name(undefined->owner);
    bool none = undefined->owner.kind == VALUE_NONE;
    if (undefined->why == UNDEFINED_UNSAFE)
        return jinja_fail(jinja, "access to attribute '%.*s' of '%s' object is unsafe", (int)key.size, key.data, type);
    if (names_attribute)
        return jinja_fail(jinja, none ? "'%s' has no attribute '%.*s'" : "'%s object' has no attribute '%.*s'",
                          none ? "None" : type, (int)key.size, key.size ? key.data : "");
    return jinja_fail(jinja, none ? "%s has no element %.*s" : "%s object has no element %.*s", none ? "None" : type,
                      (int)key.size, key.size ? key.data : "");
}

bool value_truth(struct value value)
{
    switch (value.kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return value.boolean;
    case VALUE_INT:
        return value.integer != 0;
    case VALUE_FLOAT:
        return value.real != 0;
    case VALUE_STRING:
        return value.string->size != 0;
    case VALUE_LIST:
    case VALUE_TUPLE:
        return value.list->count != 0;
    case VALUE_DICT:
        return value.dict->count != 0;
    case VALUE_VIEW:
        return value.view->dict->count != 0;
    case VALUE_RANGE:
        return value.range->count != 0;
    default:
        return true;
    }
}

bool value_length(struct jinja *jinja, struct value value, size_t *length)
{
    switch (value.kind) {
    case VALUE_UNDEFINED:
        *length = 0;
        return true;
    case VALUE_STRING:
        if (value.string->length == LENGTH_UNKNOWN && !jinja_work(jinja, value.string->size))
            return false;
        *length = string_length(value.string);
        return true;
    case VALUE_LIST:
    case VALUE_TUPLE:
        *length = value.list->count;
        return true;
    case VALUE_DICT:
        *length = value.dict->count;
        return true;
    case VALUE_VIEW:
        *length = value.view->dict->count;
        return true;
    case VALUE_RANGE:
        *length = value.range->count;
        return true;
    default:
        return jinja_fail(jinja, "object of type '%s' has no len()", value_type_name(value));
    }
}

bool value_contains(struct jinja *jinja, struct value container, struct value element, bool *contained)
{
    *contained = false;
    switch (container.kind) {
    case VALUE_STRING:
        if (element.kind == VALUE_UNDEFINED)
            return value_fail_undefined(jinja, element);
        if (element.kind != VALUE_STRING)
            return jinja_fail(jinja, "'in <string>' requires string as left operand, not %s", value_type_name(element));
        *contained = string_find(string_all(container.string), string_all(element.string), 0) != SIZE_MAX;
        return jinja_work(jinja, container.string->size);
    case VALUE_DICT:
    case VALUE_VIEW: {
        struct value found;
        if (container.kind == VALUE_VIEW && container.view->kind != VIEW_KEYS)
            break;
        if (!dict_get(jinja, container.kind == VALUE_DICT ? container.dict : container.view->dict, element, &found))
            return false;
        *contained = found.kind != VALUE_ABSENT;
        return true;
    }
    case VALUE_NONE:
    case VALUE_BOOL:
    case VALUE_INT:
    case VALUE_BIG:
    case VALUE_FLOAT:
        return jinja_fail(jinja, "argument of type '%s' is not iterable", value_type_name(container));
    default:
        break;
    }
    struct jinja_iterator *iterator;
    if (!iterator_open(jinja, container, &iterator))
        return false;
    while (!*contained) {
        struct value item;
        if (!iterator_next(jinja, iterator, &item))
            return false;
        if (item.kind == VALUE_ABSENT)
            break;
        if (value_same(item, element))
            *contained = true;
        else if (!value_equal(jinja, item, element, contained))
            return false;
    }
    return true;
}

struct jinja_list *list_create(struct jinja *jinja, size_t count)
{
    struct jinja_list *list = jinja_alloc(jinja, 1, sizeof *list);
    if (!list)
        return NULL;
    list->items = jinja_alloc(jinja, count, sizeof *list->items);
    list->count = count;
    return list->items ? list : NULL;
}

bool list_builder_add(struct jinja *jinja, struct list_builder *builder, struct value item)
{
    void *items = builder->items;
    if (!jinja_grow(jinja, &items, &builder->capacity, builder->count + 1, sizeof item))
        return false;
    builder->items = items;
    builder->items[builder->count++] = item;
    return true;
}

struct jinja_list *list_builder_finish(struct jinja *jinja, struct list_builder *builder)
{
    struct jinja_list *list = jinja_alloc(jinja, 1, sizeof *list);
    if (!list)
        return NULL;
    list->items = builder->items;
    list->count = builder->count;
    return list;
}

bool value_pair(struct jinja *jinja, struct value a, struct value b, struct value *out)
{
    struct jinja_list *list = list_create(jinja, 2);
    if (!list)
        return false;
    list->items[0] = a;
    list->items[1] = b;
    *out = value_tuple(list);
    return true;
}
