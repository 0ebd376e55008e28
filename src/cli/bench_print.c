#include "bench.h"

#include "output.h"

#include <stdlib.h>
#include <string.h>

const char *bench_bound_name(enum bench_bound bound)
{
    return bound == BOUND_MEMORY ? "memory" : "compute";
}

// "pp512", "tg128 @ d4096"
static void test_name(const struct bench_result *result, char *text, size_t size)
{
    int used = result->n_prompt ? snprintf(text, size, "pp%zu", result->n_prompt)
                                : snprintf(text, size, "tg%zu", result->n_generated);
    if (result->n_depth && used > 0) {
        snprintf(text + used, size - (size_t)used, " @ d%zu", result->n_depth);
    }
}

// All fields of a result, in the order of the CSV columns.
static json_t *result_to_json(const struct bench_result *result)
{
    char test[64];
    test_name(result, test, sizeof test);
    json_t *samples = json_array();
    for (size_t i = 0; i < result->repetitions; i++) {
        json_array_append_new(samples, json_real(result->seconds[i]));
    }
    return json_pack("{s:s, s:s, s:I, s:I, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:s, s:I, "
                     "s:f, s:f, s:o}",
                     "test", test, "model", result->model, "size", (json_int_t)result->model_bytes, "parameters",
                     (json_int_t)result->parameters, "isa", result->isa, "precision", result->precision, "kv",
                     result->kv, "n_threads", (json_int_t)result->n_threads, "n_batch", (json_int_t)result->n_batch,
                     "n_prompt", (json_int_t)result->n_prompt, "n_gen", (json_int_t)result->n_generated, "n_depth",
                     (json_int_t)result->n_depth, "repetitions", (json_int_t)result->repetitions, "tokens_per_second",
                     result->mean, "deviation", result->deviation, "limit", result->limit, "share_of_limit",
                     result->limit > 0 ? result->mean / result->limit : 0, "bound", bench_bound_name(result->bound),
                     "n_devices", (json_int_t)result->n_devices, "collectives_per_token", result->collectives,
                     "collectives_share", result->collectives_share, "seconds", samples);
}

static void print_md(const struct bench_result *result)
{
    const char *slash = strrchr(result->model, '/');
    const char *name = slash ? slash + 1 : result->model;
    char test[64], speed[64], limit[64], meetings[64] = "";
    test_name(result, test, sizeof test);
    snprintf(speed, sizeof speed, "%.2f ± %.2f", result->mean, result->deviation);
    snprintf(limit, sizeof limit, "%.0f%% (%s)", result->limit > 0 ? 100 * result->mean / result->limit : 0,
             bench_bound_name(result->bound));
    if (result->n_devices > 1) {
        snprintf(meetings, sizeof meetings, " %zu devices, collectives %.1f%% |", result->n_devices,
                 100 * result->collectives_share);
    }
    fputs("| ", stdout);
    print_escaped(stdout, name, strlen(name));
    // "±" is two bytes and one column wide.
    printf(" | %8s | %6.1f M | %-6s | %7zu | %14s | %18s | %14s |%s\n", format_bytes(result->model_bytes).text,
           result->parameters / 1e6, result->isa, result->n_threads, test, speed, limit, meetings);
}

// A text in quotes, as RFC 4180 has it.
static void print_quoted(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"') {
            putchar('"');
        }
        putchar(*text);
    }
    putchar('"');
}

static void print_csv(const struct bench_result *result, bool first)
{
    json_t *fields = result_to_json(result), *value;
    const char *key;
    bool comma = false;
    json_object_del(fields, "seconds"); // a list has no place in a table
    if (first) {
        json_object_foreach(fields, key, value)
        {
            printf("%s%s", comma ? "," : "", key);
            comma = true;
        }
        putchar('\n');
    }
    comma = false;
    json_object_foreach(fields, key, value)
    {
        fputs(comma ? "," : "", stdout);
        comma = true;
        if (json_is_string(value)) {
            print_quoted(json_string_value(value));
        } else {
            printf("%.9g", json_number_value(value));
        }
    }
    putchar('\n');
    json_decref(fields);
}

void bench_print_begin(enum bench_format format)
{
    if (format == BENCH_MD) {
        fputs("| model | size | parameters | isa | threads | test | tokens/s | share of limit |\n"
              "|---|--:|--:|---|--:|--:|--:|--:|\n",
              stdout);
    } else if (format == BENCH_JSON) {
        fputs("[\n", stdout);
    }
    fflush(stdout);
}

void bench_print(enum bench_format format, const struct bench_result *result, bool first)
{
    if (format == BENCH_MD) {
        print_md(result);
    } else if (format == BENCH_CSV) {
        print_csv(result, first);
    } else {
        json_t *value = result_to_json(result);
        fputs(first ? "  " : ",\n  ", stdout);
        json_dumpf(value, stdout, 0);
        json_decref(value);
    }
    fflush(stdout); // a line appears when it is known
}

void bench_print_end(enum bench_format format)
{
    if (format == BENCH_JSON) {
        fputs("\n]\n", stdout);
    }
}

void bench_print_machine(enum bench_format format, const mote_machine *machine, size_t n_threads)
{
    const double giga = 1e-9;
    if (format == BENCH_JSON) {
        print_json_pretty(json_pack("{s:s, s:I, s:f, s:f, s:f}", "cpu", machine->cpu, "n_threads",
                                    (json_int_t)n_threads, "int8_ops", machine->int8_ops, "f32_ops", machine->f32_ops,
                                    "read_bytes", machine->read_bytes));
    } else if (format == BENCH_CSV) {
        fputs("cpu,n_threads,int8_ops,f32_ops,read_bytes\n", stdout);
        print_quoted(machine->cpu);
        printf(",%zu,%.9g,%.9g,%.9g\n", n_threads, machine->int8_ops, machine->f32_ops, machine->read_bytes);
    } else {
        print_escaped(stdout, machine->cpu, strlen(machine->cpu));
        fputs(", ", stdout);
        if (n_threads > 0) {
            printf("%zu", n_threads);
        } else {
            fputs("all", stdout);
        }
        printf(" threads: %.1f G int8 operations/s, %.1f G F32 operations/s, %.1f GB/s read from memory\n",
               machine->int8_ops * giga, machine->f32_ops * giga, machine->read_bytes * giga);
    }
}
