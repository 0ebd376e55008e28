// See jinja_json.h. The text is what Python's json.dumps writes.
#include "text/jinja_json.h"

#include "text/jinja_number.h"
#include "text/jinja_repr.h"
#include "text/jinja_sort.h"

#include <math.h>
#include <string.h>

static bool array_to_value(struct jinja *jinja, const json_t *json, struct value *out)
{
    struct jinja_list *list = list_create(jinja, json_array_size(json));
    for (size_t i = 0; list && i < list->count; i++)
        if (!json_to_value(jinja, json_array_get(json, i), false, &list->items[i]))
            return false;
    *out = value_list(list);
    return list != NULL;
}

static bool object_to_value(struct jinja *jinja, const json_t *json, struct value *out)
{
    struct jinja_dict *dict = dict_create(jinja, json_object_size(json));
    if (!dict)
        return false;
    json_t *object = (json_t *)(uintptr_t)json; // iterating does not change it
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
        struct value key, value;
        const char *name = json_object_iter_key(at);
        struct slice text = {name, json_object_iter_key_len(at), NULL, false};
        if (!value_from_slice(jinja, text, false, &key) ||
            !json_to_value(jinja, json_object_iter_value(at), false, &value) || !dict_set(jinja, dict, key, value))
            return false;
    }
    *out = value_dict(dict);
    return true;
}

static bool convert(struct jinja *jinja, const json_t *json, bool trusted, struct value *out)
{
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return object_to_value(jinja, json, out);
    case JSON_ARRAY:
        return array_to_value(jinja, json, out);
    case JSON_STRING: {
        struct slice text = {json_string_value(json), json_string_length(json), NULL, trusted};
        return value_from_slice(jinja, text, false, out);
    }
    case JSON_INTEGER:
        *out = value_int(json_integer_value(json));
        return true;
    case JSON_REAL:
        *out = value_float(json_real_value(json));
        return true;
    case JSON_NULL:
        *out = value_none();
        return true;
    default:
        *out = value_bool(json_is_true(json));
        return true;
    }
}

bool json_to_value(struct jinja *jinja, const json_t *json, bool trusted, struct value *out)
{
    if (!json)
        return jinja_fail(jinja, "the template's input is not JSON");
    if (!jinja_enter(jinja))
        return false;
    bool done = convert(jinja, json, trusted, out);
    jinja_leave(jinja);
    return done;
}

static bool write_escape(struct jinja_writer *writer, uint32_t c)
{
    static const char named[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    for (size_t i = 0; c < 0x80 && i + 1 < sizeof named; i += 2) {
        if ((uint32_t)(unsigned char)named[i] == c) {
            char text[3] = {'\\', named[i + 1], '\0'};
            return writer_text(writer, text);
        }
    }
    if (c < 0x10000)
        return writer_format(writer, "\\u%04x", (unsigned)c);
    c -= 0x10000;
    return writer_format(writer, "\\u%04x\\u%04x", (unsigned)(0xd800 + (c >> 10)), (unsigned)(0xdc00 + (c & 0x3ff)));
}

static bool write_string(struct jinja_writer *writer, struct slice text, bool ascii)
{
    size_t done = 0;
    if (!writer_text(writer, "\""))
        return false;
    for (size_t i = 0, length; i < text.size; i += length) {
        uint32_t c = string_decode(text.data + i, text.size - i, &length);
        if (c >= 0x20 && c != '"' && c != '\\' && (!ascii || c < 0x7f))
            continue;
        struct slice plain = {text.data + done, i - done, text.shadow ? text.shadow + done : NULL, text.trusted};
        if (!writer_slice(writer, plain) || !write_escape(writer, c))
            return false;
        done = i + length;
    }
    struct slice rest = {text.data + done, text.size - done, text.shadow ? text.shadow + done : NULL, text.trusted};
    return writer_slice(writer, rest) && writer_text(writer, "\"");
}

static bool write_real(struct jinja_writer *writer, double real)
{
    if (isfinite(real))
        return number_write_float(writer, real);
    return writer_text(writer, isnan(real) ? "NaN" : real < 0 ? "-Infinity" : "Infinity");
}

// A number, true, false or null: what may also be a key.
static bool write_scalar(struct jinja_writer *writer, struct value value, bool *scalar)
{
    *scalar = true;
    switch (value.kind) {
    case VALUE_NONE:
        return writer_text(writer, "null");
    case VALUE_BOOL:
        return writer_text(writer, value.boolean ? "true" : "false");
    case VALUE_INT:
    case VALUE_BIG:
        return number_write_int(writer, value);
    case VALUE_FLOAT:
        return write_real(writer, value.real);
    default:
        *scalar = false;
        return true;
    }
}

static bool write_key(struct jinja_writer *writer, struct value key, const struct json_layout *layout)
{
    bool scalar;
    if (key.kind == VALUE_STRING)
        return write_string(writer, string_all(key.string), layout->ascii);
    if (!writer_text(writer, "\"") || !write_scalar(writer, key, &scalar))
        return false;
    if (!scalar)
        return jinja_fail(writer->jinja, "keys must be str, int, float, bool or None, not %s", value_type_name(key));
    return writer_text(writer, "\"");
}

static bool new_line(struct jinja_writer *writer, const struct json_layout *layout, size_t level)
{
    if (!layout->indent)
        return true;
    return writer_text(writer, "\n") && writer_repeat(writer, string_all(layout->indent), level);
}

static bool write_separator(struct jinja_writer *writer, const struct json_layout *layout, size_t level, bool first)
{
    if (!first && layout->item_separator && !writer_string(writer, layout->item_separator))
        return false;
    if (!first && !layout->item_separator && !writer_text(writer, layout->indent ? "," : ", "))
        return false;
    return new_line(writer, layout, level);
}

static bool write_value(struct jinja_writer *writer, struct value value, const struct json_layout *layout,
                        size_t level);

static bool write_array(struct jinja_writer *writer, const struct jinja_list *list, const struct json_layout *layout,
                        size_t level)
{
    if (list->count == 0)
        return writer_text(writer, "[]");
    if (!writer_text(writer, "["))
        return false;
    for (size_t i = 0; i < list->count; i++)
        if (!write_separator(writer, layout, level + 1, i == 0) ||
            !write_value(writer, list->items[i], layout, level + 1))
            return false;
    return new_line(writer, layout, level) && writer_text(writer, "]");
}

static bool write_object(struct jinja_writer *writer, const struct jinja_dict *dict, const struct json_layout *layout,
                         size_t level)
{
    const struct jinja_dict_entry *entries = dict->entries;
    if (dict->count == 0)
        return writer_text(writer, "{}");
    if (!writer_text(writer, "{") || (layout->sorted && !sort_entries(writer->jinja, dict, &entries)))
        return false;
    for (size_t i = 0; i < dict->count; i++) {
        if (!write_separator(writer, layout, level + 1, i == 0) || !write_key(writer, entries[i].key, layout))
            return false;
        if (!(layout->key_separator ? writer_string(writer, layout->key_separator) : writer_text(writer, ": ")))
            return false;
        if (!write_value(writer, entries[i].value, layout, level + 1))
            return false;
    }
    return new_line(writer, layout, level) && writer_text(writer, "}");
}

static bool write_value(struct jinja_writer *writer, struct value value, const struct json_layout *layout, size_t level)
{
    bool scalar, done = false;
    if (value.kind == VALUE_STRING)
        return write_string(writer, string_all(value.string), layout->ascii);
    if (!jinja_step(writer->jinja) || !write_scalar(writer, value, &scalar))
        return false;
    if (scalar)
        return true;
    if (!value_is_list(value) && value.kind != VALUE_DICT)
        return jinja_fail(writer->jinja, "Object of type %s is not JSON serializable", value_type_name(value));
    if (!jinja_enter(writer->jinja))
        return false;
    done = value.kind == VALUE_DICT ? write_object(writer, value.dict, layout, level)
                                    : write_array(writer, value.list, layout, level);
    jinja_leave(writer->jinja);
    return done;
}

bool json_write(struct jinja_writer *writer, struct value value, const struct json_layout *layout)
{
    return write_value(writer, value, layout, 0);
}
