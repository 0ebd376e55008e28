// Memory runs out at the n-th allocation, for every n: rendering a template must fail cleanly and leak nothing.
// Linked with --wrap for malloc and its kin.
#include "text/template.h"

#include "test_paths.h"

#include <cmocka.h>

#include "failing_heap.h"

static const char source[] =
    "{% set ns = namespace(text='') %}{% macro show(x) %}<{{ x | upper }}>{% endmacro %}"
    "{% for m in messages %}{% set ns.text = ns.text ~ show(m.content) %}{{ loop.index }}{{ m | tojson(indent=2) }}"
    "{{ '%5s' % m.role }}{{ messages | map(attribute='role') | join(', ') }}{% endfor %}{{ ns.text * 100 }}"
    "{{ range(500) | list }}{{ 2 ** 500 }}{{ ns.text.split('<') | sort | reverse | list }}";

static json_t *input; // made before the heap fails

static enum status render(struct error *error)
{
    struct rendered rendered;
    enum status status = template_render(source, sizeof source - 1, input, 0, NULL, &rendered, error);
    if (status != STATUS_OK)
        assert_int_equal(rendered.text.size, 0);
    rendered_free(&rendered);
    return status;
}

static void test_render(void **state)
{
    (void)state;
    input =
        json_loads("{\"messages\": [{\"role\": \"user\", \"content\": \"h\\u00e9llo\"}, {\"role\": \"x\", \"content\": "
                   "\"<b>\"}], \"eos_token\": \"</s>\"}",
                   0, NULL);
    assert_non_null(input);
    exhaust(render);
    json_decref(input);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_render)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
