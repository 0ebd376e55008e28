// What an observing engine saw, as JSON.
#include "engine/engine.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct lists {
    json_t *sources, *keys, *values, *routers;
};

// The N of "blk.N.…"; null where the tensor is of no layer.
static json_t *layer_json(const char *name)
{
    if (strncmp(name, "blk.", 4) != 0)
        return json_null();
    json_int_t layer = 0;
    for (const char *digit = name + 4; *digit >= '0' && *digit <= '9'; digit++)
        layer = 10 * layer + (*digit - '0');
    return json_integer(layer);
}

static json_t *counts_json(const struct observation *seen)
{
    return json_pack("{s:I, s:I, s:I, s:f, s:i}", "rows", (json_int_t)seen->n_rows, "over", (json_int_t)seen->n_over,
                     "not_finite", (json_int_t)seen->n_not_finite, "largest", (double)seen->largest, "exponent",
                     (int)seen->exponent);
}

static json_t *source_json(const struct observation *seen)
{
    size_t size;
    const struct tensor *weight = seen->weight;
    const char *kind = tensor_kind(weight->name, &size);
    json_t *json = json_pack("{s:s, s:s%, s:o, s:s, s:s}", "tensor", weight->name, "kind", kind, size, "layer",
                             layer_json(weight->name), "dtype", dtype_get(weight->dtype)->name, "default",
                             precision_name(precision_of_weight(weight->dtype)));
    json_object_update_new(json, counts_json(seen));
    return json;
}

static json_t *kv_json(const struct observation *seen)
{
    json_t *json = json_pack("{s:i}", "layer", (int)seen->layer);
    json_object_update_new(json, counts_json(seen));
    return json;
}

static json_t *route_json(const struct observation *seen)
{
    json_t *picks = json_array();
    for (uint32_t e = 0; e < seen->n_expert; e++)
        json_array_append_new(picks, json_integer((json_int_t)seen->picks[e]));
    return json_pack("{s:i, s:o}", "layer", (int)seen->layer, "picks", picks);
}

static void add_observation(void *user, const struct observation *seen)
{
    const struct lists *lists = user;
    switch (seen->what) {
    case OBSERVED_SOURCE:
        json_array_append_new(lists->sources, source_json(seen));
        break;
    case OBSERVED_KEYS:
        json_array_append_new(lists->keys, kv_json(seen));
        break;
    case OBSERVED_VALUES:
        json_array_append_new(lists->values, kv_json(seen));
        break;
    case OBSERVED_ROUTE:
        json_array_append_new(lists->routers, route_json(seen));
        break;
    }
}

mote_status mote_engine_observed(const mote_engine *engine, char **text, mote_error *error)
{
    struct lists lists = {json_array(), json_array(), json_array(), json_array()};
    bool observes = engine->device->ops->observed(engine->plan, add_observation, &lists);
    json_t *json = json_pack("{s:o, s:o, s:o, s:o}", "sources", lists.sources, "keys", lists.keys, "values",
                             lists.values, "routers", lists.routers);
    *text = json == NULL ? NULL : json_dumps(json, JSON_COMPACT);
    json_decref(json);
    if (!observes) {
        free(*text);
        *text = NULL;
        return (mote_status)error_set(inner_error(error), STATUS_INVALID,
                                      "the engine observes nothing: make it with `observe`");
    }
    return *text == NULL ? (mote_status)error_memory(inner_error(error), "the observations") : MOTE_OK;
}
