// The template interpreter: every case of tests/data/jinja and of the vendors' templates (where they are), which text
// counts as the template's own, the limits, and that time grows with the work alone.
#include "text/template.h"

#include "test_paths.h"

#include <cmocka.h>

#include <dirent.h>
#include <locale.h>
#include <string.h>

enum { NOW = 1767323045 }; // 2026-01-02 03:04:05 UTC: the clock of all cases

static char *read_text(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s cannot be read", path);
    char *text = NULL;
    size_t capacity = 0;
    *size = 0;
    for (size_t got = 1; got; *size += got) {
        if (capacity - *size < 4096)
            text = realloc(text, capacity = capacity * 2 + 8192);
        assert_non_null(text);
        got = fread(text + *size, 1, capacity - *size - 1, file);
    }
    text[*size] = '\0';
    fclose(file);
    return text;
}

static json_t *read_json(const char *path)
{
    json_error_t error;
    json_t *json = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (!json)
        fail_msg("%s: %s", path, error.text);
    return json;
}

// ---- cases in files

// What a case must give: its output, any error, or the very message of raise_exception.
static bool is_right(const json_t *line, enum status status, const struct rendered *rendered, const struct error *error)
{
    const json_t *output = json_object_get(line, "output");
    const char *kind = json_string_value(json_object_get(line, "kind"));
    if (json_is_null(output))
        return true;
    if (output)
        return status == STATUS_OK && rendered->text.size == json_string_length(output) &&
               (rendered->text.size == 0 ||
                memcmp(rendered->text.data, json_string_value(output), rendered->text.size) == 0);
    if (status == STATUS_OK || rendered->text.size != 0)
        return false;
    bool raised = kind && (strcmp(kind, "raise") == 0 || strcmp(kind, "TemplateError") == 0);
    return !raised || strcmp(error->message, json_string_value(json_object_get(line, "error"))) == 0;
}

static size_t check_case(const json_t *line, const char *source, size_t size, const json_t *input, const char *name)
{
    struct rendered rendered;
    struct error error = {0};
    enum status status = template_render(source, size, input, NOW, NULL, &rendered, &error);
    bool right = is_right(line, status, &rendered, &error);
    if (!right) {
        char *wanted =
            json_dumps(json_object_get(line, json_object_get(line, "output") ? "output" : "error"), JSON_ENCODE_ANY);
        print_error("%s: %.200s\n  wanted %s\n  got    %s\n", name, size < 200 ? source : "", wanted,
                    status == STATUS_OK ? rendered.text.data : error.message);
        free(wanted);
    }
    rendered_free(&rendered);
    return !right;
}

// Every line of a file is a case. source: of all its templates, or NULL where each line has its own; input: likewise.
static size_t check_lines(const char *path, const char *source, size_t source_size, const json_t *input)
{
    size_t size, n_wrong = 0, n_cases = 0;
    char *text = read_text(path, &size);
    for (char *line = text, *end; line < text + size; line = end + 1) {
        json_error_t json_error;
        end = memchr(line, '\n', (size_t)(text + size - line));
        assert_non_null(end);
        json_t *json = json_loadb(line, (size_t)(end - line), JSON_ALLOW_NUL, &json_error);
        if (!json)
            fail_msg("%s: %s", path, json_error.text);
        const json_t *own = json_object_get(json, "template"), *id = json_object_get(json, "id");
        const json_t *variables = input ? input : json_object_get(json, "input");
        const char *name = json_string_value(id ? id : json_object_get(json, "name"));
        n_wrong += check_case(json, source ? source : json_string_value(own),
                              source ? source_size : json_string_length(own), variables, name ? name : "a case");
        n_cases++;
        json_decref(json);
    }
    free(text);
    assert_true(n_cases > 0);
    return n_wrong;
}

static void test_language(void **state)
{
    (void)state;
    json_t *context = read_json(TEST_DATA "/jinja/language.context.json");
    size_t n_wrong = check_lines(TEST_DATA "/jinja/language.jsonl", NULL, 0, context) +
                     check_lines(TEST_DATA "/jinja/more.jsonl", NULL, 0, context);
    json_decref(context);
    assert_int_equal(n_wrong, 0);
}

static size_t check_template(const char *template_path, const char *cases_path)
{
    size_t size;
    char *source = read_text(template_path, &size);
    size_t n_wrong = check_lines(cases_path, source, size, NULL);
    if (n_wrong)
        print_error("%s: %zu cases are wrong\n", template_path, n_wrong);
    free(source);
    return n_wrong;
}

static void test_own_templates(void **state)
{
    (void)state;
    assert_int_equal(check_template(TEST_DATA "/jinja/chat/chatml.jinja", TEST_DATA "/jinja/chat/chatml.jsonl"), 0);
    assert_int_equal(check_template(TEST_DATA "/jinja/chat/tools.jinja", TEST_DATA "/jinja/chat/tools.jsonl"), 0);
}

static void test_vendor_templates(void **state)
{
    (void)state;
    char folder[1024];
    if (!test_shared_path(folder, sizeof folder, "fixtures/templates"))
        return;
    DIR *templates = opendir(folder);
    assert_non_null(templates);
    size_t n_templates = 0, n_wrong = 0;
    for (struct dirent *entry; (entry = readdir(templates));) {
        const char *ending = strrchr(entry->d_name, '.');
        char source[2048], cases[2048];
        if (!ending || strcmp(ending, ".jinja") != 0)
            continue;
        snprintf(source, sizeof source, "%s/%s", folder, entry->d_name);
        snprintf(cases, sizeof cases, "%s/cases/%.*s.jsonl", folder, (int)(ending - entry->d_name), entry->d_name);
        n_wrong += check_template(source, cases);
        n_templates++;
    }
    closedir(templates);
    assert_true(n_templates > 0);
    assert_int_equal(n_wrong, 0);
}

// ---- which text is the template's own

static json_t *parse_input(const char *text)
{
    json_error_t error;
    json_t *input = json_loads(text, 0, &error);
    if (!input)
        fail_msg("%s", error.text);
    return input;
}

// Renders, and marks the output: letters of the template's own text are kept, all others become '.'.
static void render_marked(const char *source, const char *input_text, char *marked, size_t capacity)
{
    struct rendered rendered;
    struct error error = {0};
    json_t *input = parse_input(input_text);
    if (template_render(source, strlen(source), input, NOW, NULL, &rendered, &error) != STATUS_OK)
        fail_msg("%s: %s", source, error.message);
    assert_true(rendered.text.size < capacity);
    memset(marked, '.', rendered.text.size);
    marked[rendered.text.size] = '\0';
    size_t last = 0;
    for (size_t i = 0; i < rendered.n_trusted; i++) {
        const struct text_range *range = &rendered.trusted[i];
        assert_true(range->begin < range->end && range->end <= rendered.text.size);
        assert_true(i == 0 || range->begin > last);
        memcpy(marked + range->begin, rendered.text.data + range->begin, range->end - range->begin);
        last = range->end;
    }
    rendered_free(&rendered);
    json_decref(input);
}

static void assert_marked(const char *source, const char *expected)
{
    char marked[4096];
    render_marked(source,
                  "{\"x\": \"user\", \"y\": \"U V\", \"m\": [{\"role\": \"r\", \"content\": \"c<|im_end|>\"}], "
                  "\"bos_token\": \"<s>\", \"token\": \"tok\", \"eos_token\": {\"a\": \"b\"}, \"n\": 12}",
                  marked, sizeof marked);
    if (strcmp(marked, expected) != 0)
        fail_msg("%s\n  wanted %s\n  got    %s", source, expected, marked);
}

static void test_provenance(void **state)
{
    (void)state;
    // What a message contains is never the template's, what stands around it always is.
    assert_marked("{% for i in m %}{{ '<|im_start|>' + i.role + '\\n' + i.content + '<|im_end|>' }}{% endfor %}",
                  "<|im_start|>.\n...........<|im_end|>");
    assert_marked("<a>{{ x }}</a>", "<a>....</a>");
    // A token put together from both is not.
    assert_marked("<|{{ x }}|>", "<|....|>");
    assert_marked("{{ '<|' ~ x ~ '|>' }}", "<|....|>");
    assert_marked("{{ '<|' }}{{ 'end' }}{{ '|>' }}", "<|end|>");
    // Variables of the model's file are as good as the template; others that end alike are not.
    assert_marked("{{ bos_token }}{{ token }}{{ eos_token.a }}", "<s>....");
    // Through everything that keeps characters.
    assert_marked("{{ ('a' + x + 'b') | upper }}", "A....B");
    assert_marked("{{ ('a' + x + 'b')[::-1] }}", "b....a");
    assert_marked("{{ ('a' + x + 'b')[1:] }}", "....b");
    assert_marked("{{ ('  ' + x + ' b ') | trim }}", ".... b");
    assert_marked("{{ ('a,' + x + ',b').split(',') | join('+') }}", "a+....+b");
    assert_marked("{{ ['a', x, 'b'] | join('-') }}", "a-....-b");
    assert_marked("{{ '-'.join(['a', x]) }}", "a-....");
    assert_marked("{{ 'abc' | replace('b', x) }}", "a....c");
    assert_marked("{{ x | replace('s', 'S') }}", ".S..");
    assert_marked("{{ x | replace(x, 'safe') }}", "safe");
    assert_marked("{{ 'a%sb%d' % (x, 5) }}", "a....b.");
    assert_marked("{{ 'a{}b{:>6}'.format(x, 'q') }}", "a....b.....q");
    assert_marked("{{ {'k': 'v', x: y} | tojson }}", ".."
                                                     "k"
                                                     "...."
                                                     "v"
                                                     "...."
                                                     "...."
                                                     "...."
                                                     "..."
                                                     "..");
    assert_marked("{{ '<b>' | e }}{{ x | e }}", "&lt;b&gt;....");
    assert_marked("{{ ['a', x] }}", "..a...."
                                    "......");
    assert_marked("{% set z %}a{{ x }}b{% endset %}{{ z }}", "a....b");
    assert_marked("{% macro f(v) %}[{{ v }}]{% endmacro %}{{ f(x) }}{{ f('q') }}", "[....][q]");
    assert_marked("{% macro f() %}({{ caller() }}){% endmacro %}{% call f() %}a{{ x }}{% endcall %}", "(a....)");
    assert_marked("{% filter upper %}a{{ x }}{% endfilter %}", "A....");
    assert_marked("{% for c in 'a' + x %}{{ c }}{% endfor %}", "a....");
    assert_marked("{{ x | indent(2, true) }}{{ 'a\nb' | indent('>') }}", "......a.>b");
    assert_marked("{{ 'abcdefgh' | truncate(5, true, '!', 0) }}{{ y | truncate(2, true, '', 0) }}", "abcd!..");
    assert_marked("{{ ('a ' + y) | title }}{{ (x + 'B') | lower }}", "A .......b");
    assert_marked("{{ 'abc' if n else x }}{{ x or 'abc' }}{{ q | default('d') }}", "abc....d");
    assert_marked("{{ 'a-b'.partition('-')[2] }}{{ x.partition('s')[1] }}", "b.");
    assert_marked("{{ 'ab' * 2 }}{{ x * 2 }}", "abab........");
    assert_marked("{{ 'ab'.center(6, '*') }}{{ x.ljust(5, '_') }}", "**ab**...._");
    assert_marked(
        "{% set ns = namespace(t='') %}{% for i in [1, 2] %}{% set ns.t = ns.t + 'a' + x %}{% endfor %}{{ ns.t }}",
        "a....a....");
    // Numbers, dates and the like are nobody's text.
    assert_marked("{{ 12 }}{{ n }}{{ true }}{{ strftime_now('%Y') }}", "............");
}

// Strings that grow in place must not see each other's ends.
static void test_shared_memory(void **state)
{
    (void)state;
    struct rendered rendered;
    struct error error = {0};
    json_t *input = parse_input("{\"x\": \"-user-\"}");
    const char *source =
        "{% set a = ('abc' * 200) ~ x %}{% set b = a ~ '1' %}{% set c = a ~ '2' %}{% set d = b ~ x %}"
        "{{ a[-3:] }}|{{ b[-3:] }}|{{ c[-3:] }}|{{ d[-3:] }}|{{ (b[1:] ~ 'z')[-3:] }}|{{ a | length }}";
    assert_int_equal(template_render(source, strlen(source), input, NOW, NULL, &rendered, &error), STATUS_OK);
    assert_string_equal(rendered.text.data, "er-|r-1|r-2|er-|-1z|606");
    rendered_free(&rendered);
    json_decref(input);
}

// ---- limits

static enum status render_with(const char *source, const struct template_limits *limits, struct error *error)
{
    struct rendered rendered;
    json_t *input = json_object();
    *error = (struct error){0};
    enum status status = template_render(source, strlen(source), input, NOW, limits, &rendered, error);
    if (status != STATUS_OK) {
        assert_int_equal(rendered.text.size, 0);
        assert_int_equal(rendered.n_trusted, 0);
        assert_int_equal(error->status, status);
        assert_true(error->message[0] != '\0');
    }
    rendered_free(&rendered);
    json_decref(input);
    return status;
}

static void assert_fails(const char *source, const char *with)
{
    struct error error;
    struct template_limits limits = template_limits_default;
    limits.steps = 5 * 1000 * 1000; // the others are what is tested: soon enough
    if (render_with(source, &limits, &error) != STATUS_INVALID)
        fail_msg("%.60s … did not fail", source);
    if (!strstr(error.message, with))
        fail_msg("%.60s …: %s", source, error.message);
}

static char *repeated(const char *before, const char *unit, size_t times, const char *middle, const char *close)
{
    size_t size = strlen(before) + times * (strlen(unit) + strlen(close)) + strlen(middle) + 1;
    char *text = malloc(size), *at = text;
    assert_non_null(text);
    at = stpcpy(at, before);
    for (size_t i = 0; i < times; i++)
        at = stpcpy(at, unit);
    at = stpcpy(at, middle);
    for (size_t i = 0; i < times; i++)
        at = stpcpy(at, close);
    return text;
}

static void test_limits(void **state)
{
    (void)state;
    assert_fails("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps");
    assert_fails("{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
                 "MB");
    assert_fails("{{ 'x' * 999999999999 }}", "too long");
    assert_fails("{{ [0] * 999999999999 }}", "too long");
    assert_fails("{% for a in range(1000) %}{{ 'x' * 100000 }}{% endfor %}", "output");
    assert_fails("{{ '%999999999d' % 1 }}", "");
    assert_fails("{{ '{:999999999}'.format(1) }}", "");
    assert_fails("{{ 'x'.center(999999999999) }}", "");
    assert_fails("{{ range(100001) }}", "range");
    assert_fails("{{ 9 ** 99999999 }}", "bits");
    assert_fails("{{ 1.5 | round(9999999999) }}{{ '%.99999f' % 1.5 }}", "precision");
    assert_fails("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deep");
    assert_fails(
        "{% set ns = namespace(a=[]) %}{% for i in range(9000) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}",
        "deep");
    assert_fails(
        "{% set ns = namespace(a=[1]) %}{% for i in range(9000) %}{% set ns.a = ns.a | map('string') %}{% endfor %}"
        "{{ ns.a | list }}",
        "deep");
    struct error error;
    static const struct {
        const char *before, *unit, *middle, *close;
    } nests[] = {{"{{ ", "(", "1", ")"},
                 {"{{ ", "[", "1", "]"},
                 {"{{ ", "{1:", "1", "}"},
                 {"{{ ", "-", "1", ""},
                 {"{{ ", "not ", "1", ""},
                 {"{{ ", "f(", "1", ")"},
                 {"{{ a", "[a", "1", "]"},
                 {"", "{% if 1 %}", "", "{% endif %}"},
                 {"", "{% for x in y %}", "", "{% endfor %}"}};
    for (size_t i = 0; i < sizeof nests / sizeof nests[0]; i++) {
        char *source = repeated(nests[i].before, nests[i].unit, 100000, nests[i].middle, nests[i].close);
        assert_fails(source, "deep");
        free(source);
    }
    // Chains are not nests for the parser; evaluating them may be too deep, and must not be too deep for the stack.
    static const char *const chains[] = {" + 1", " | string", " ~ 'a'", " and 1", " == 1", ".a", "[0]"};
    for (size_t i = 0; i < sizeof chains / sizeof chains[0]; i++) {
        char *source = repeated("{% if false %}{{ 1", chains[i], 100000, " }}{% endif %}ok", "");
        assert_int_equal(render_with(source, NULL, &error), STATUS_OK);
        free(source);
    }
    char *elif = repeated("{% if 0 %}", "{% elif 0 %}", 50000, "{% else %}x{% endif %}", "");
    assert_int_equal(render_with(elif, NULL, &error), STATUS_OK);
    free(elif);
}

static void test_given_limits(void **state)
{
    (void)state;
    struct error error;
    struct template_limits limits = template_limits_default;
    const char *source = "{% for i in range(1000) %}{{ i }}{% endfor %}";
    assert_int_equal(render_with(source, &limits, &error), STATUS_OK);
    limits.steps = 1000;
    assert_int_equal(render_with(source, &limits, &error), STATUS_INVALID);
    limits = template_limits_default;
    limits.output = 100;
    assert_int_equal(render_with(source, &limits, &error), STATUS_INVALID);
    limits = template_limits_default;
    limits.memory = 2000;
    assert_int_equal(render_with(source, &limits, &error), STATUS_INVALID);
    limits = template_limits_default;
    limits.depth = 1;
    assert_int_equal(render_with(source, &limits, &error), STATUS_INVALID);
}

static void test_messages(void **state)
{
    (void)state;
    assert_fails("a\n\n{{ foo.bar }}", "line 3: 'foo' is undefined");
    assert_fails("a\n{% if x %}\n{{ 1 + }}\n{% endif %}", "line 3:");
    assert_fails("{% if x %}\n\n", "line 1");
    assert_fails("{{ {}.a.b }}", "'dict object' has no attribute 'a'");
    assert_fails("{{ [].append(1) }}", "unsafe");
    assert_fails("{{ 1\n | nosuch }}", "no filter named 'nosuch'");
    assert_fails("\xff", "UTF-8");
    struct error error;
    render_with("{{ raise_exception('first\nsecond \x01 é') }}", NULL, &error);
    assert_string_equal(error.message, "first\nsecond \\x01 é");
    char *source = repeated("{{ raise_exception('", "é", 900, "') }}", "");
    render_with(source, NULL, &error);
    free(source);
    assert_int_equal(strlen(error.message), (sizeof error.message - 1) / 2 * 2); // whole characters only
    json_t *array = json_array();
    struct rendered rendered;
    assert_int_equal(template_render("x", 1, array, NOW, NULL, &rendered, &error), STATUS_INVALID);
    assert_int_equal(template_render("x", 1, NULL, NOW, NULL, &rendered, NULL), STATUS_INVALID);
    json_decref(array);
}

// ---- work

static json_t *conversation(size_t n_messages)
{
    json_t *input = json_object(), *messages = json_array();
    for (size_t i = 0; i < n_messages; i++)
        json_array_append_new(messages,
                              json_pack("{ss ss}", "role", i % 2 ? "assistant" : "user", "content",
                                        "A message of some length, as people write them: about one line of text."));
    json_object_set_new(input, "messages", messages);
    json_object_set_new(input, "add_generation_prompt", json_true());
    return input;
}

// The fewest steps in which a template renders a conversation: steps count the work, so no clock is needed.
static uint64_t steps_of(const char *source, size_t size, size_t n_messages)
{
    json_t *input = conversation(n_messages);
    struct template_limits limits = template_limits_default;
    uint64_t too_few = 0, enough = limits.steps;
    while (enough - too_few > 1) {
        struct rendered rendered;
        limits.steps = too_few + (enough - too_few) / 2;
        if (template_render(source, size, input, NOW, &limits, &rendered, NULL) == STATUS_OK) {
            enough = limits.steps;
            rendered_free(&rendered);
        } else {
            too_few = limits.steps;
        }
    }
    assert_true(enough < template_limits_default.steps);
    json_decref(input);
    return enough;
}

// Eight times the messages: eight times the work, not sixty-four; text that grows piece by piece as well.
static void test_work(void **state)
{
    (void)state;
    size_t size;
    char *source = read_text(TEST_DATA "/jinja/chat/chatml.jinja", &size);
    uint64_t one = steps_of(source, size, 1000), eight = steps_of(source, size, 8000);
    print_message("1000 messages: %llu steps, 8000: %llu\n", (unsigned long long)one, (unsigned long long)eight);
    assert_true(eight <= 9 * one);
    static const char growing[] =
        "{% set ns = namespace(s='') %}{% for m in messages %}{% set ns.s = ns.s + m.content ~ 'x' %}"
        "{% endfor %}{{ ns.s }}";
    assert_true(steps_of(growing, sizeof growing - 1, 8000) <= 9 * steps_of(growing, sizeof growing - 1, 1000));
    free(source);
}

// A process may run under any locale.
static void test_locale(void **state)
{
    (void)state;
    struct error error;
    struct rendered rendered;
    static const char source[] =
        "{{ 1.5 }}|{{ '%.2f' % 2.5 }}|{{ '1.25' | float }}|{{ 2.345 | round(2) }}|{{ '{:,.1f}'.format(1234.5) }}";
    const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "C"};
    const char *used = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !used; i++)
        used = setlocale(LC_ALL, names[i]);
    if (!used || strcmp(used, "C") == 0)
        print_message("skipped: decimal commas: no locale that has them is installed\n");
    json_t *input = json_object();
    assert_int_equal(template_render(source, sizeof source - 1, input, NOW, NULL, &rendered, &error), STATUS_OK);
    assert_string_equal(rendered.text.data, "1.5|2.50|1.25|2.35|1,234.5");
    rendered_free(&rendered);
    json_decref(input);
    setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_language),
        cmocka_unit_test(test_own_templates),
        cmocka_unit_test(test_vendor_templates),
        cmocka_unit_test(test_provenance),
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_given_limits),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
