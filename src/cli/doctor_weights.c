// What users confuse with overflow: NaN and infinity in weights, experts that are all zeros.
#include "doctor.h"
#include "input.h"
#include "signals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_ELEMENTS = 1 << 18 };

struct scan {
    mote_model *model;
    const char *name;
    uint64_t n_nan, n_infinite;
    float *values; // [capacity]
    uint64_t capacity;
};

static void count_values(struct scan *scan, uint64_t n, bool *zero)
{
    uint32_t any = 0, bad = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &scan->values[i], sizeof bits);
        bits &= 0x7fffffffu;
        any |= bits;
        bad |= bits >= 0x7f800000u;
    }
    *zero = *zero && any == 0;
    for (uint64_t i = 0; bad && i < n; i++) {
        scan->n_nan += isnan(scan->values[i]);
        scan->n_infinite += isinf(scan->values[i]) != 0;
    }
}

// Elements [first, first + count), which are whole rows of `row`. *zero: whether they are all zeros.
static mote_status scan_range(struct scan *scan, uint64_t row, uint64_t first, uint64_t count, bool *zero,
                              mote_error *error)
{
    uint64_t chunk = row > CHUNK_ELEMENTS ? row : CHUNK_ELEMENTS / row * row;
    *zero = true;
    if (chunk > scan->capacity) {
        float *values = chunk > SIZE_MAX / sizeof *values ? NULL : realloc(scan->values, chunk * sizeof *values);
        if (!values) {
            return set_error(error, MOTE_MEMORY, "out of memory for rows of %s", scan->name);
        }
        scan->values = values;
        scan->capacity = chunk;
    }
    for (uint64_t done = 0; done < count; done += chunk) {
        uint64_t n = count - done < chunk ? count - done : chunk;
        mote_status status = mote_tensor_read_f32(scan->model, scan->name, first + done, n, scan->values, error);
        if (status != MOTE_OK) {
            return status;
        }
        count_values(scan, n, zero);
    }
    return MOTE_OK;
}

// A stack of experts' matrices is read expert by expert.
static bool is_experts(const char *name, const mote_tensor_info *info)
{
    return strstr(name, "_exps.weight") && info->n_dims == 3 && info->shape[2] > 1;
}

static mote_status scan_tensor(struct scan *scan, const mote_tensor_info *info, json_t *found, mote_error *error)
{
    bool experts = is_experts(scan->name, info), zero;
    uint64_t n = experts ? info->shape[2] : 1, each = info->n_elements / n;
    json_t *zeros = json_array();
    mote_status status = MOTE_OK;
    scan->n_nan = scan->n_infinite = 0;
    for (uint64_t i = 0; status == MOTE_OK && each > 0 && i < n; i++) {
        status = scan_range(scan, info->shape[0], i * each, each, &zero, error);
        if (status == MOTE_OK && experts && zero) {
            json_array_append_new(zeros, json_integer((json_int_t)i));
        }
    }
    if (scan->n_nan + scan->n_infinite > 0) {
        json_array_append_new(json_object_get(found, "not_finite"),
                              json_pack("{s:s, s:I, s:I}", "tensor", scan->name, "nan", (json_int_t)scan->n_nan,
                                        "infinite", (json_int_t)scan->n_infinite));
    }
    if (json_array_size(zeros) > 0) {
        json_array_append_new(json_object_get(found, "zero_experts"),
                              json_pack("{s:s, s:O}", "tensor", scan->name, "experts", zeros));
    }
    json_decref(zeros);
    return status;
}

json_t *doctor_check_weights(mote_model *model, struct progress *progress, mote_error *error)
{
    char *text = NULL;
    if (mote_model_describe(model, MOTE_TENSORS, NULL, &text, error) != MOTE_OK) {
        return NULL;
    }
    json_t *tensors = json_loads(text, JSON_ALLOW_NUL, NULL), *tensor;
    mote_free(text);
    json_t *found =
        json_pack("{s:I, s:[], s:[]}", "tensors", (json_int_t)json_array_size(tensors), "not_finite", "zero_experts");
    struct scan scan = {.model = model};
    mote_status status = found ? MOTE_OK : set_error(error, MOTE_MEMORY, "out of memory");
    size_t i;
    json_array_foreach(tensors, i, tensor)
    {
        mote_tensor_info info;
        scan.name = json_string_value(json_object_get(tensor, "name"));
        if (status == MOTE_OK && scan.name && mote_tensor_find(model, scan.name, &info, NULL) == MOTE_OK) {
            status = scan_tensor(&scan, &info, found, error);
            status = status == MOTE_UNSUPPORTED ? MOTE_OK : status; // integers, and blocks that mote cannot run either
        }
        if (progress_update(progress, i + 1, json_array_size(tensors)) && status == MOTE_OK) {
            status = set_error(error, MOTE_CANCELLED, "interrupted");
        }
    }
    free(scan.values);
    json_decref(tensors);
    if (status != MOTE_OK) {
        json_decref(found);
        found = NULL;
    }
    return found;
}
