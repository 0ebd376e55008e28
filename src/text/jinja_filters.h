// The filters, grouped by what they work on; jinja_filters.c has the table.
#ifndef MOTE_TEXT_JINJA_FILTERS_H
#define MOTE_TEXT_JINJA_FILTERS_H

#include "text/jinja_run.h"

typedef bool jinja_filter(struct jinja *jinja, const struct call *call, struct value *out);

// jinja_filters_text.c
jinja_filter filter_capitalize, filter_center, filter_escape, filter_filesizeformat, filter_forceescape, filter_format,
    filter_indent, filter_lower, filter_pprint, filter_replace, filter_safe, filter_string, filter_striptags,
    filter_title, filter_tojson, filter_trim, filter_truncate, filter_upper, filter_urlencode, filter_urlize,
    filter_wordcount, filter_xmlattr;
// jinja_wrap.c
jinja_filter filter_wordwrap;
// jinja_filters_value.c
jinja_filter filter_abs, filter_attr, filter_default, filter_float, filter_int, filter_length, filter_round, filter_sum,
    filter_min, filter_max;
// jinja_filters_sequence.c
jinja_filter filter_batch, filter_dictsort, filter_first, filter_groupby, filter_items, filter_join, filter_last,
    filter_list, filter_random, filter_reverse, filter_slice, filter_sort, filter_unique;
// jinja_filters_select.c
jinja_filter filter_map, filter_reject, filter_rejectattr, filter_select, filter_selectattr;

// What an `attribute` argument means: 'a.0.b' is item b of item 0 of item a.
struct attribute_path {
    struct value parts[16];
    size_t count;
    struct value otherwise; // for what is undefined on the way; ABSENT: none
};

bool attribute_parse(struct jinja *jinja, struct value attribute, struct attribute_path *path);
bool attribute_get(struct jinja *jinja, const struct attribute_path *path, struct value item, struct value *out);
// As the key of a sort: texts in lower case unless case matters.
bool attribute_key(struct jinja *jinja, const struct attribute_path *path, struct value item, bool case_sensitive,
                   struct value *out);

#endif
