#include "inspect_mesh.h"

#include "options.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_SIZE = 512 };
// Shares of a machine's limits that mote reaches on one device, where no measured speed is given: fitted to what
// docs/mesh.md reports.
static const double prompt_share = 0.35, decode_share = 0.85;

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

// ---- layers

static bool is_of_layer(const json_t *item, int layer)
{
    const json_t *value = json_object_get(item, "layer");
    return layer < 0 ? json_is_null(value) : json_is_integer(value) && json_integer_value(value) == layer;
}

static int last_layer(const json_t *mesh)
{
    int last = -1;
    size_t i;
    const json_t *tensor;
    json_array_foreach(json_object_get(mesh, "tensors"), i, tensor)
    {
        const json_t *layer = json_object_get(tensor, "layer");
        if (json_is_integer(layer) && json_integer_value(layer) > last) {
            last = (int)json_integer_value(layer);
        }
    }
    return last;
}

static void print_tensor(FILE *out, const json_t *tensor)
{
    const char *name = text(tensor, "name"), *dot = strncmp(name, "blk.", 4) == 0 ? strchr(name + 4, '.') : NULL;
    char shape[96] = "";
    size_t i, size = 0;
    const json_t *value;
    json_array_foreach(json_object_get(tensor, "shape"), i, value)
    {
        size += (size_t)snprintf(shape + size, size < sizeof shape ? sizeof shape - size : 0, "%s%lld", i ? " × " : "",
                                 (long long)json_integer_value(value));
    }
    fprintf(out, "  %-26s %-6s %-22s %-10s", dot ? dot + 1 : name, text(tensor, "dtype"), shape,
            text(tensor, "placement"));
    json_array_foreach(json_object_get(tensor, "ranges"), i, value)
    {
        long long begin = json_integer_value(json_array_get(value, 0)),
                  end = json_integer_value(json_array_get(value, 1));
        fputs(i ? " | " : " ", out);
        if (begin == end) {
            fputs("none", out);
        } else {
            fprintf(out, "%lld-%lld", begin, end - 1);
        }
    }
    fputc('\n', out);
}

static void print_collective(FILE *out, const json_t *collective)
{
    fprintf(out, "  -> %s of %s, %s: ", text(collective, "kind"), text(collective, "of"), text(collective, "from"));
    size_t i;
    const json_t *bytes;
    json_array_foreach(json_object_get(collective, "row_bytes"), i, bytes)
        fprintf(out, "%s%s", i ? " | " : "", format_bytes(json_number_value(bytes)).text);
    fprintf(out, " a %s%s\n", strcmp(text(collective, "rows"), "logits") == 0 ? "row of logits" : "token",
            json_is_true(json_object_get(collective, "adapters")) ? ", where a row has an adapter" : "");
}

// What is said of a layer, without its number; NULL: out of memory.
static char *layer_text(const json_t *mesh, int layer)
{
    char *block = NULL;
    size_t size = 0, i;
    const json_t *item;
    FILE *out = open_memstream(&block, &size);
    if (!out) {
        return NULL;
    }
    json_array_foreach(json_object_get(mesh, "tensors"), i, item)
    {
        if (is_of_layer(item, layer)) {
            print_tensor(out, item);
        }
    }
    json_array_foreach(json_object_get(mesh, "collectives"), i, item)
    {
        if (is_of_layer(item, layer)) {
            print_collective(out, item);
        }
    }
    fclose(out);
    return block;
}

// Layers of which the same is said are one.
static void print_layers(const json_t *mesh)
{
    int last = last_layer(mesh), first = 0;
    char *block = layer_text(mesh, -1), *next;
    printf("\nBeside the layers\n%s", block ? block : "");
    free(block);
    block = layer_text(mesh, 0);
    for (int layer = 1; layer <= last + 1; layer++) {
        next = layer <= last ? layer_text(mesh, layer) : NULL;
        if (block && next && strcmp(block, next) == 0) {
            free(next);
            continue;
        }
        if (first + 1 == layer) {
            printf("\nLayer %d\n%s", first, block ? block : "");
        } else {
            printf("\nLayers %d to %d\n%s", first, layer - 1, block ? block : "");
        }
        free(block);
        block = next;
        first = layer;
    }
    free(block);
}

// ---- devices

// Integer and float operations together.
static double operations(const json_t *cost)
{
    return number(cost, "int8_ops") + number(cost, "f32_ops");
}

static struct size_text format_operations(double n)
{
    struct size_text result;
    double unit = n >= 1e9 ? 1e9 : n >= 1e6 ? 1e6 : 1e3;
    snprintf(result.text, sizeof result.text, "%.1f %cop", n / unit, n >= 1e9 ? 'G' : n >= 1e6 ? 'M' : 'k');
    return result;
}

static void print_devices(const json_t *mesh)
{
    size_t i;
    const json_t *device, *one = json_object_get(json_object_get(mesh, "one"), "token");
    double sum = 0, all = number(one, "bytes"), all_operations = operations(one);
    printf("\nDevices     eighths  weights     KV cache    work        logits      a token reads  of one device  "
           "computes      of one device\n");
    json_array_foreach(json_object_get(mesh, "devices"), i, device)
    {
        const json_t *memory = json_object_get(device, "memory"), *token = json_object_get(device, "token");
        const json_t *eighths = json_object_get(device, "eighths");
        static const char *const keys[] = {"weights", "kv", "work", "logits"};
        printf("%7zu     %lld to %lld ", i, (long long)json_integer_value(json_array_get(eighths, 0)),
               (long long)json_integer_value(json_array_get(eighths, 1)));
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            printf("  %-10s", memory ? format_bytes(number(memory, keys[k])).text : "-");
        }
        char share[16];
        snprintf(share, sizeof share, "%.1f%%", all > 0 ? 100 * number(token, "bytes") / all : 0);
        printf("  %-13s  %-13s  %-12s  %.1f%%\n", format_bytes(number(token, "bytes")).text, share,
               format_operations(operations(token)).text,
               all_operations > 0 ? 100 * operations(token) / all_operations : 0);
        sum += number(token, "bytes");
    }
    if (all > 0) {
        printf("All together read %.3f times what one device reads (what is replicated is read by each).\n", sum / all);
    }
}

// ---- what to expect

static bool parse_unit(const char *value, double *number_out, const char *const *units, const double *factors,
                       size_t n_units)
{
    char digits[64];
    size_t size = strspn(value, "0123456789.");
    if (size == 0 || size >= sizeof digits) {
        return false;
    }
    memcpy(digits, value, size);
    digits[size] = '\0';
    for (size_t i = 0; i < n_units; i++) {
        if (strcmp(value + size, units[i]) == 0 && parse_number(digits, number_out)) {
            *number_out *= factors[i];
            return *number_out > 0;
        }
    }
    return false;
}

bool inspect_parse_link(const char *value, struct link *link)
{
    static const char *const times[] = {"ns", "us", "µs", "ms", "s"};
    static const double seconds[] = {1e-9, 1e-6, 1e-6, 1e-3, 1};
    static const char *const rates[] = {"b/s", "Kb/s", "Mb/s", "Gb/s", "Tb/s", "B/s", "KB/s", "MB/s", "GB/s", "TB/s"};
    static const double bytes[] = {0.125, 0.125e3, 0.125e6, 0.125e9, 0.125e12, 1, 1e3, 1e6, 1e9, 1e12};
    char latency[64];
    size_t size = strcspn(value, ",");
    if (value[size] != ',' || size >= sizeof latency) {
        return false;
    }
    memcpy(latency, value, size);
    latency[size] = '\0';
    return parse_unit(latency, &link->latency, times, seconds, sizeof seconds / sizeof seconds[0]) &&
           parse_unit(value + size + 1, &link->bandwidth, rates, bytes, sizeof bytes / sizeof bytes[0]);
}

// Latencies that a message takes: MPI asks before it sends many bytes.
static double latencies(double bytes)
{
    return bytes > 65536 ? 3 : 1;
}

// Seconds that the devices' exchange of n rows takes: each gives its rows to each other one, over a link of its own.
// Of many bytes in as many rows as devices at least, each takes its share of the rows first, and then the sums of the
// others' shares: the rule of is_scattered in src/cpu/run_exchange.c. So a single row never goes that way.
static double collective_seconds(const json_t *collective, double n_rows, const struct link *link)
{
    const json_t *row_bytes = json_object_get(collective, "row_bytes"), *value;
    size_t i, n = json_array_size(row_bytes);
    double all = 0, least = 1e300, most = 0, result = number(collective, "width") * 4;
    json_array_foreach(row_bytes, i, value)
    {
        double one = json_number_value(value);
        all += one;
        least = one < least ? one : least;
        most = one > most ? one : most;
    }
    double received = (all - least) * n_rows, sent = most * (double)(n - 1) * n_rows;
    bool sums = strcmp(text(collective, "kind"), "all_reduce") == 0;
    if (sums && n > 2 && n_rows >= (double)n && all * n_rows >= 65536) {
        double share = (double)(n - 1) / (double)n * n_rows;
        double each = share / (double)(n - 1);
        return (latencies(each * most) + latencies(each * result)) * link->latency +
               (share * most + share * result) / link->bandwidth;
    }
    return latencies(most * n_rows) * link->latency + (received > sent ? received : sent) / link->bandwidth;
}

static double all_collectives(const json_t *mesh, double n_rows, const struct link *link)
{
    double seconds = 0;
    size_t i;
    const json_t *collective;
    json_array_foreach(json_object_get(mesh, "collectives"), i, collective)
    {
        bool logits = strcmp(text(collective, "rows"), "logits") == 0;
        if (!json_is_true(json_object_get(collective, "adapters"))) {
            seconds += collective_seconds(collective, logits ? 1 : n_rows, link);
        }
    }
    return seconds;
}

// Seconds of computing: what is slower, the integer and float units or the memory.
static double compute_seconds(const json_t *cost, const mote_machine *machine, bool decode)
{
    double ops = number(cost, "int8_ops") / machine->int8_ops + number(cost, "f32_ops") / machine->f32_ops;
    double bytes = number(cost, "bytes") / machine->read_bytes;
    return decode ? (bytes > ops ? bytes : ops) / decode_share : (ops > bytes ? ops : bytes) / prompt_share;
}

// The slowest device's share of the work, in seconds.
static double slowest(const json_t *mesh, const char *what, const mote_machine *machine, double one_seconds)
{
    double seconds = 0, one = compute_seconds(json_object_get(json_object_get(mesh, "one"), what), machine,
                                              strcmp(what, "token") == 0);
    size_t i;
    const json_t *device;
    json_array_foreach(json_object_get(mesh, "devices"), i, device)
    {
        double own = compute_seconds(json_object_get(device, what), machine, strcmp(what, "token") == 0);
        seconds = own > seconds ? own : seconds;
    }
    return one_seconds > 0 ? one_seconds * seconds / one : seconds;
}

json_t *inspect_expect(const json_t *plan, const struct link *link, const mote_machine *machine,
                       const struct numbers *speed)
{
    const json_t *mesh = json_object_get(plan, "mesh");
    double n_rows = number(json_object_get(json_object_get(mesh, "one"), "batch"), "rows");
    double measured[2] = {speed->count > 0 ? n_rows / speed->values[0] : 0,
                          speed->count > 1 ? 1 / speed->values[1] : 0};
    double prompt = slowest(mesh, "batch", machine, measured[0]), decode = slowest(mesh, "token", machine, measured[1]);
    double prompt_link = all_collectives(mesh, n_rows, link), decode_link = all_collectives(mesh, 1, link);
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "prompt_tokens_per_second", n_rows / (prompt + prompt_link),
                     "prompt_collectives_share", prompt_link / (prompt + prompt_link), "decode_tokens_per_second",
                     1 / (decode + decode_link), "decode_collectives_share", decode_link / (decode + decode_link),
                     "latency", link->latency, "bandwidth", link->bandwidth);
}

void inspect_print_mesh(const json_t *plan)
{
    const json_t *mesh = json_object_get(plan, "mesh"), *expected = json_object_get(plan, "expected");
    if (!mesh) {
        return;
    }
    printf("\nMesh of %zu devices\n", json_array_size(json_object_get(mesh, "devices")));
    print_layers(mesh);
    print_devices(mesh);
    if (expected) {
        printf("\nOver links of %g us and %g GB/s, expect (docs/mesh.md says how, and how far to trust it)\n"
               "  prompt  %10.1f tokens/s, of which collectives take %.0f%% of the time\n"
               "  decode  %10.1f tokens/s, of which collectives take %.0f%%\n",
               1e6 * number(expected, "latency"), 1e-9 * number(expected, "bandwidth"),
               number(expected, "prompt_tokens_per_second"), 100 * number(expected, "prompt_collectives_share"),
               number(expected, "decode_tokens_per_second"), 100 * number(expected, "decode_collectives_share"));
    }
}
