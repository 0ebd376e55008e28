// What the devices of a mesh take together: as much as one device, and once more a device what is replicated. What is
// replicated is read off the plan: weights that are on every device, and rows that two devices have (KV heads).
#include "mote.h"

#include "test_paths.h"

#include <cmocka.h>
#include <jansson.h>

#include <math.h>
#include <string.h>

static const char *const names[] = {"llama",    "llama-rope3", "qwen2",   "qwen3",        "gemma3",
                                    "qwen2moe", "mellum",      "gpt-oss", "deepseek2-old"};

enum { N_NAMES = sizeof(names) / sizeof(names[0]) };

static const double slack = 1.05;

static json_t *describe(mote_model *model, mote_description what, const mote_engine_params *params)
{
    mote_error error = {0};
    char *text = NULL;
    if (mote_model_describe(model, what, params, &text, &error) != MOTE_OK)
        fail_msg("%s", error.message);
    json_t *json = json_loads(text, 0, NULL);
    mote_free(text);
    assert_non_null(json);
    return json;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

// How many times a tensor is there, all devices together: 1 where each row is on one of them.
static double copies(const json_t *tensor, size_t n_devices)
{
    const char *placement = json_string_value(json_object_get(tensor, "placement"));
    unsigned dim = 0;
    if (strcmp(placement, "Replicate") == 0)
        return (double)n_devices;
    assert_int_equal(sscanf(placement, "Shard(%u)", &dim), 1);
    const json_t *ranges = json_object_get(tensor, "ranges"), *range;
    double sum = 0, all = json_number_value(json_array_get(json_object_get(tensor, "shape"), dim));
    size_t i;
    assert_int_equal(json_array_size(ranges), n_devices);
    json_array_foreach(ranges, i, range) sum +=
        json_number_value(json_array_get(range, 1)) - json_number_value(json_array_get(range, 0));
    assert_true(sum >= all);
    return sum / all;
}

// A router of one row takes a panel as one of 16 does.
static double panel_rounding(const json_t *tensor)
{
    const json_t *shape = json_object_get(tensor, "shape");
    double n_rows = json_number_value(json_array_get(shape, 1));
    return json_array_size(shape) < 2 ? 1 : 16 * ceil(n_rows / 16) / n_rows;
}

// Bytes of a tensor in panels of 16 rows, as dense as in the file.
static double size_of(const json_t *tensors, const char *name)
{
    size_t i;
    const json_t *tensor;
    json_array_foreach(tensors, i, tensor)
    {
        if (strcmp(json_string_value(json_object_get(tensor, "name")), name) == 0)
            return number(tensor, "size") * panel_rounding(tensor);
    }
    return 0; // made by the builder
}

// Bytes of weights beyond one copy of each, and the most copies of any layer's keys.
static double replicated(const json_t *mesh, const json_t *file, size_t n_devices, double *key_copies)
{
    double bytes = 0;
    size_t i;
    const json_t *tensor;
    *key_copies = 1;
    json_array_foreach(json_object_get(mesh, "tensors"), i, tensor)
    {
        const char *name = json_string_value(json_object_get(tensor, "name"));
        double n = copies(tensor, n_devices);
        bytes += (n - 1) * size_of(file, name);
        if ((strstr(name, "attn_k.weight") != NULL || strstr(name, "attn_kv_a") != NULL) && n > *key_copies)
            *key_copies = n;
    }
    return bytes;
}

static void check(const char *name, const json_t *mesh, const json_t *file, const mote_memory *one, size_t n_devices)
{
    double key_copies, extra = replicated(mesh, file, n_devices, &key_copies), weights = 0, kv = 0;
    size_t i;
    const json_t *device;
    assert_int_equal(json_array_size(json_object_get(mesh, "devices")), n_devices);
    json_array_foreach(json_object_get(mesh, "devices"), i, device)
    {
        const json_t *memory = json_object_get(device, "memory");
        weights += number(memory, "weights");
        kv += number(memory, "kv");
    }
    if (weights > slack * (double)one->weights + extra)
        fail_msg("%s: %zu devices hold %.0f bytes of weights, one %zu, and %.0f are replicated", name, n_devices,
                 weights, (size_t)one->weights, extra);
    if (kv > slack * (double)one->kv * key_copies)
        fail_msg("%s: %zu devices hold %.0f bytes of KV cache, one %zu, in %.3f copies", name, n_devices, kv,
                 (size_t)one->kv, key_copies);
    assert_true(kv >= 0.999 * (double)one->kv);
}

static void test_sum_of_devices(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++) {
        char path[512];
        mote_model *model = NULL;
        mote_error error = {0};
        mote_engine_params params;
        mote_memory one;
        snprintf(path, sizeof(path), "%s/models/%s.gguf", TEST_DATA, names[i]);
        if (mote_model_open(path, NULL, &model, &error) != MOTE_OK)
            fail_msg("%s", error.message);
        mote_engine_params_default(&params);
        params.n_context = 1000;
        params.n_devices = 1;
        if (mote_engine_predict(model, &params, &one, &error) != MOTE_OK)
            fail_msg("%s", error.message);
        json_t *file = describe(model, MOTE_TENSORS, NULL);
        for (size_t n_devices = 2; n_devices <= 8; n_devices++) {
            params.n_devices = n_devices;
            json_t *plan = describe(model, MOTE_PLAN, &params);
            check(names[i], json_object_get(plan, "mesh"), file, &one, n_devices);
            json_decref(plan);
        }
        json_decref(file);
        mote_model_close(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sum_of_devices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
