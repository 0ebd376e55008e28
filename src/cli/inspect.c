// mote inspect: what is in a file, how it would run, and the memory that takes.
#include "commands.h"
#include "compute.h"
#include "input.h"
#include "inspect_mesh.h"
#include "inspect_print.h"
#include "output.h"
#include "signals.h"

#include <stdlib.h>
#include <string.h>

struct inspect_options {
    struct compute_options compute;
    const char *model, *tensor, *out, *link;
    struct numbers speed;
    bool tensors, plan, json;
};

static const struct option inspect_table[] = {
    {OPTION(TEXT, "-m --model", "FILE", "the model (or the first argument)", struct inspect_options, model)},
    {OPTION(FLAG, "--tensors", NULL, "the tensors", struct inspect_options, tensors)},
    {OPTION(FLAG, "--plan", NULL, "the steps of a forward pass, with kernels and memory", struct inspect_options,
            plan)},
    {OPTION(TEXT, "--link", "LATENCY,BANDWIDTH",
            "with --plan of several devices: what to expect over such links between them (20us,25Gb/s)",
            struct inspect_options, link)},
    {OPTION(
         NUMBERS, "--speed", "PROMPT,DECODE",
         "with --link: tokens/s that one device was measured to make of the whole model (default: from this machine's "
         "limits)",
         struct inspect_options, speed),
     .low = 1e-6, .high = 1e9},
    {OPTION(FLAG, "--json", NULL, "as JSON", struct inspect_options, json)},
    {OPTION(TEXT, "--tensor", "NAME", "write the values of one tensor, in F32, to the file of -o",
            struct inspect_options, tensor)},
    {OPTION(TEXT, "-o --output", "OUT.gguf", "the file to write", struct inspect_options, out)},
    COMPUTE_OPTIONS(struct inspect_options, compute),
    {.kind = OPTION_END},
};

// NULL, with *error: it could not be described.
static json_t *describe(mote_model *model, mote_description what, const mote_engine_params *params, mote_error *error)
{
    char *text = NULL;
    json_t *value = NULL;
    if (mote_model_describe(model, what, params, &text, error) == MOTE_OK) {
        json_error_t problem;
        value = json_loads(text, JSON_ALLOW_NUL, &problem);
        if (!value) {
            set_error(error, MOTE_INVALID, "a description is no JSON: %s", problem.text);
        }
    }
    mote_free(text);
    return value;
}

static json_t *memory_to_json(const mote_memory *memory, size_t n_context)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "n_context", (json_int_t)n_context, "weights",
                     (json_int_t)memory->weights, "kv", (json_int_t)memory->kv, "work", (json_int_t)memory->work,
                     "logits", (json_int_t)memory->logits, "total", (json_int_t)memory->total, "available",
                     (json_int_t)memory->available, "n_context_fits", (json_int_t)memory->n_context_fits);
}

// What the file holds; what a file that is no model lacks is said, and no failure.
static int show_summary(const struct inspect_options *options, mote_model *model, const mote_engine_params *params)
{
    mote_error error = {0}, not_runnable = {0};
    mote_memory memory;
    json_t *metadata = describe(model, MOTE_METADATA, NULL, &error);
    if (!metadata) {
        return fail(&error);
    }
    json_t *about = describe(model, MOTE_MODEL, NULL, &not_runnable);
    bool predicted = about && mote_engine_predict(model, params, &memory, &not_runnable) == MOTE_OK;
    size_t n_context = inspect_context(model, params);
    if (options->json) {
        if (about) {
            json_object_set_new(metadata, "model", about);
        }
        if (predicted) {
            json_object_set_new(metadata, "memory", memory_to_json(&memory, n_context));
        } else {
            json_object_set_new(metadata, "error", json_string(not_runnable.message));
        }
        return print_json_pretty(metadata) ? EXIT_DONE : fail_message("out of memory");
    }
    inspect_print_summary(options->model, metadata, about);
    if (predicted) {
        inspect_print_memory(&memory, n_context);
    } else {
        fputs("\nDoes not run as a model: ", stdout);
        print_escaped(stdout, not_runnable.message, strlen(not_runnable.message));
        putchar('\n');
    }
    json_decref(metadata);
    json_decref(about);
    return EXIT_DONE;
}

// What to expect of the plan's mesh over the links that were asked about, into the plan.
static mote_status add_expected(const struct inspect_options *options, const mote_engine_params *params, json_t *plan,
                                mote_error *error)
{
    struct link link;
    mote_machine machine;
    const json_t *mesh = json_object_get(plan, "mesh");
    if (!inspect_parse_link(options->link, &link)) {
        return set_error(error, MOTE_INVALID,
                         "--link %.64s: give a latency and a bandwidth with their units, such as 20us,25Gb/s",
                         options->link);
    }
    if (!mesh) {
        return set_error(error, MOTE_INVALID, "--link is about several devices: give --devices N too");
    }
    size_t n_devices = json_array_size(json_object_get(mesh, "devices"));
    size_t n_threads = (size_t)json_integer_value(json_object_get(json_object_get(plan, "settings"), "n_threads"));
    mote_status status =
        mote_machine_measure(n_threads > n_devices ? n_threads / n_devices : 1, params->isa, &machine, error);
    if (status == MOTE_OK) {
        json_object_set_new(plan, "expected", inspect_expect(plan, &link, &machine, &options->speed));
    }
    return status;
}

static int show(const struct inspect_options *options, mote_model *model, mote_description what,
                const mote_engine_params *params)
{
    mote_error error = {0};
    json_t *value = describe(model, what, params, &error);
    if (!value) {
        return fail(&error);
    }
    if (options->link && add_expected(options, params, value, &error) != MOTE_OK) {
        json_decref(value);
        return fail(&error);
    }
    if (options->json) {
        return print_json_pretty(value) ? EXIT_DONE : fail_message("out of memory");
    }
    (what == MOTE_PLAN ? inspect_print_plan : inspect_print_tensors)(value);
    inspect_print_mesh(value);
    json_decref(value);
    return EXIT_DONE;
}

// ---- one tensor to a file

enum { CHUNK_ELEMENTS = 1 << 20 };

static mote_status copy_values(const mote_model *model, const char *name, const mote_tensor_info *info,
                               mote_writer *writer, mote_error *error)
{
    uint64_t row = info->shape[0] ? info->shape[0] : 1;
    uint64_t chunk = row > CHUNK_ELEMENTS ? row : CHUNK_ELEMENTS / row * row;
    float *values = chunk > SIZE_MAX / sizeof *values ? NULL : malloc((size_t)chunk * sizeof *values);
    if (!values) {
        return set_error(error, MOTE_MEMORY, "out of memory for rows of %s", name);
    }
    mote_status status = MOTE_OK;
    for (uint64_t first = 0; status == MOTE_OK && first < info->n_elements; first += chunk) {
        uint64_t count = info->n_elements - first < chunk ? info->n_elements - first : chunk;
        status = mote_tensor_read_f32(model, name, first, count, values, error);
        if (status == MOTE_OK) {
            status = mote_writer_write(writer, values, (size_t)count * sizeof *values, error);
        }
        if (status == MOTE_OK && signals_caught()) {
            status = set_error(error, MOTE_CANCELLED, "interrupted");
        }
    }
    free(values);
    return status;
}

static int write_tensor(const mote_model *model, const char *name, const char *out)
{
    mote_tensor_info info;
    mote_writer *writer = NULL;
    mote_error error = {0};
    if (mote_tensor_find(model, name, &info, &error) != MOTE_OK ||
        mote_writer_create(out, &writer, &error) != MOTE_OK) {
        return fail(&error);
    }
    if (mote_writer_add_string(writer, "general.type", "tensor", &error) != MOTE_OK ||
        mote_writer_add_tensor(writer, name, "f32", info.n_dims, info.shape, &error) != MOTE_OK ||
        copy_values(model, name, &info, writer, &error) != MOTE_OK) {
        mote_writer_abort(writer);
        return fail(&error);
    }
    return mote_writer_finish(writer, &error) == MOTE_OK ? EXIT_DONE : fail(&error);
}

static int inspect_main(int argc, char **argv)
{
    struct inspect_options options = {.compute = compute_options_default};
    struct positionals positionals;
    int exit_code;
    if (!options_parse(&command_inspect, argc, argv, &options, &positionals, &exit_code)) {
        return exit_code;
    }
    options.model = positional_model(&positionals, options.model);
    if (positionals.count > 0) {
        return usage_error(&command_inspect, "unexpected argument \"%.200s\"", positionals.values[0]);
    }
    if (!options.model) {
        return usage_error(&command_inspect, "which model? Give a GGUF file");
    }
    if (options.tensors + options.plan + (options.tensor != NULL) > 1 || (options.tensor && options.json)) {
        return usage_error(&command_inspect, "--tensors, --plan and --tensor exclude each other");
    }
    if ((options.link && !options.plan) || (options.speed.count > 0 && !options.link)) {
        return usage_error(&command_inspect, "--link goes with --plan, and --speed with --link");
    }
    if (!options.tensor != !options.out) {
        return usage_error(&command_inspect, "--tensor NAME and -o OUT.gguf go together");
    }
    if (options.out && is_same_file(options.out, options.model)) {
        return usage_error(&command_inspect, "-o %s would overwrite what is read", options.out);
    }
    mote_model *model = NULL;
    mote_engine_params params;
    mote_error error = {0};
    if (compute_open_model(options.model, &options.compute, &model, &error) != MOTE_OK ||
        compute_params(model, &options.compute, &params, &error) != MOTE_OK) {
        exit_code = fail(&error);
    } else if (options.tensor) {
        exit_code = write_tensor(model, options.tensor, options.out);
    } else if (options.tensors || options.plan) {
        exit_code = show(&options, model, options.plan ? MOTE_PLAN : MOTE_TENSORS, &params);
    } else {
        exit_code = show_summary(&options, model, &params);
    }
    mote_model_close(model);
    return exit_code;
}

const struct command command_inspect = {
    .name = "inspect",
    .summary = "show what is in a GGUF file, and what it takes to run it",
    .arguments = "MODEL",
    .details = "Shows the metadata of a GGUF file, the model in it, and the memory that it takes at a context of -c\n"
               "tokens; --tensors lists the tensors, --plan the steps of a forward pass.\n"
               "\n"
               "  mote inspect MODEL.gguf -c 4096\n"
               "  mote inspect MODEL.gguf --tensor token_embd.weight -o embedding.gguf",
    .options = inspect_table,
    .max_positionals = 2,
    .main = inspect_main,
};
