// for: elements are taken one at a time, as Python's generators give them, and ahead only as far as the template asks
// (loop.last needs the next one, loop.length all).
#include "text/jinja_run.h"

struct jinja_loop {
    const struct jinja_node *node;
    struct jinja_scope *outer; // around the loop
    struct jinja_scope *tests; // in which the loop's `if` is evaluated, or NULL
    struct jinja_iterator *iterator;
    struct list_builder ahead; // elements that were taken already, from `taken` on to come
    size_t taken;
    int64_t index0;
    int64_t depth0;
    int64_t length; // −1: not known yet
    struct value previous, current;
    struct value changed; // what loop.changed saw last
};

// The next element that the loop's `if` lets through; ABSENT at the end.
static bool fetch(struct jinja *jinja, struct jinja_loop *loop, struct value *item)
{
    for (;;) {
        struct value test;
        if (!iterator_next(jinja, loop->iterator, item))
            return false;
        if (item->kind == VALUE_ABSENT || !loop->node->loop.test)
            return true;
        loop->tests->count = 0;
        if (!scope_begin(jinja, loop->tests, &loop->node->loop.test_plan) ||
            !jinja_assign(jinja, loop->node->loop.target, *item, loop->tests) ||
            !jinja_evaluate(jinja, loop->node->loop.test, loop->tests, &test))
            return false;
        if (value_truth(test))
            return true;
    }
}

// The element after the current one, which stays to come.
static bool peek(struct jinja *jinja, struct jinja_loop *loop, struct value *item)
{
    if (loop->taken < loop->ahead.count) {
        *item = loop->ahead.items[loop->taken];
        return true;
    }
    if (!fetch(jinja, loop, item))
        return false;
    return item->kind == VALUE_ABSENT || list_builder_add(jinja, &loop->ahead, *item);
}

static bool advance(struct jinja *jinja, struct jinja_loop *loop)
{
    struct value item;
    if (loop->taken < loop->ahead.count) {
        item = loop->ahead.items[loop->taken++];
        if (loop->taken == loop->ahead.count)
            loop->taken = loop->ahead.count = 0;
    } else if (!fetch(jinja, loop, &item)) {
        return false;
    }
    loop->previous = loop->current;
    loop->current = item;
    loop->index0++;
    return true;
}

static bool know_length(struct jinja *jinja, struct jinja_loop *loop)
{
    struct value item;
    if (loop->length >= 0)
        return true;
    for (;;) {
        if (!fetch(jinja, loop, &item))
            return false;
        if (item.kind == VALUE_ABSENT)
            break;
        if (!list_builder_add(jinja, &loop->ahead, item))
            return false;
    }
    loop->length = loop->index0 + 1 + (int64_t)(loop->ahead.count - loop->taken);
    return true;
}

static enum flow run(struct jinja *jinja, struct jinja_loop *loop)
{
    struct jinja_scope *scope = scope_create(jinja, loop->outer);
    const struct jinja_node *node = loop->node;
    bool ran = false; // an iteration to its end: one that `break` or `continue` ends does not keep `else` away
    enum flow flow = FLOW_NORMAL;
    while (scope && flow != FLOW_BREAK) {
        if (!advance(jinja, loop))
            return FLOW_FAILED;
        if (loop->current.kind == VALUE_ABSENT)
            break;
        scope->count = 0;
        if (!scope_begin(jinja, scope, &node->loop.body_plan) ||
            !scope_set(jinja, scope, jinja->syntax->loop, (struct value){.kind = VALUE_LOOP, .loop = loop}) ||
            !jinja_assign(jinja, node->loop.target, loop->current, scope))
            return FLOW_FAILED;
        flow = jinja_execute(jinja, &node->loop.body, scope);
        if (flow == FLOW_FAILED)
            return flow;
        ran |= flow == FLOW_NORMAL;
    }
    if (!scope)
        return FLOW_FAILED;
    if (ran || node->loop.otherwise.count == 0)
        return FLOW_NORMAL;
    struct jinja_scope *otherwise = scope_create(jinja, loop->outer);
    return otherwise && scope_begin(jinja, otherwise, &node->loop.otherwise_plan)
               ? jinja_execute(jinja, &node->loop.otherwise, otherwise)
               : FLOW_FAILED;
}

static struct jinja_loop *create(struct jinja *jinja, const struct jinja_node *node, struct value iterable,
                                 struct jinja_scope *outer, int64_t depth0)
{
    struct jinja_loop *loop = jinja_alloc(jinja, 1, sizeof *loop);
    if (!loop || !iterator_open(jinja, iterable, &loop->iterator))
        return NULL;
    loop->node = node;
    loop->outer = outer;
    loop->index0 = -1;
    loop->depth0 = depth0;
    loop->length = -1;
    size_t length;
    if (node->loop.test) {
        loop->tests = scope_create(jinja, outer);
        return loop->tests ? loop : NULL;
    }
    if (iterable.kind != VALUE_ITERATOR && value_length(jinja, iterable, &length))
        loop->length = (int64_t)length;
    return loop;
}

enum flow jinja_execute_loop(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope)
{
    struct value iterable;
    if (!jinja_evaluate(jinja, node->loop.iterable, scope, &iterable))
        return FLOW_FAILED;
    struct jinja_loop *loop = create(jinja, node, iterable, scope, 0);
    return loop ? run(jinja, loop) : FLOW_FAILED;
}

bool loop_call(struct jinja *jinja, struct jinja_loop *loop, const struct arguments *arguments, struct value *out)
{
    if (!loop->node->loop.recursive)
        return jinja_fail(jinja, "the loop must have the 'recursive' marker to be called");
    if (arguments->count != 1 || arguments->n_named)
        return jinja_fail(jinja, "loop() takes exactly one argument");
    struct jinja_loop *inner = create(jinja, loop->node, arguments->positional[0], loop->outer, loop->depth0 + 1);
    if (!inner || !jinja_enter(jinja))
        return false;
    struct jinja_writer writer = {.jinja = jinja, .limit = jinja->limits->memory}, *outer = jinja->output;
    jinja->output = &writer;
    enum flow flow = run(jinja, inner);
    jinja->output = outer;
    jinja_leave(jinja);
    writer.markup = jinja->autoescape;
    return flow != FLOW_FAILED && writer_finish_value(&writer, out);
}

static bool cycle(struct jinja *jinja, const struct call *call, struct value *out)
{
    if (call->all->count == 0)
        return jinja_fail(jinja, "no items for cycling given");
    *out = call->all->positional[(size_t)call->self.loop->index0 % call->all->count];
    return true;
}

static bool changed(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_loop *loop = call->self.loop;
    struct jinja_list *now = list_create(jinja, call->all->count);
    bool same = false;
    if (!now)
        return false;
    for (size_t i = 0; i < now->count; i++)
        now->items[i] = call->all->positional[i];
    if (loop->changed.kind == VALUE_TUPLE && !value_equal(jinja, loop->changed, value_tuple(now), &same))
        return false;
    loop->changed = value_tuple(now);
    *out = value_bool(!same);
    return true;
}

static const struct jinja_builtin methods[] = {
    {.name = "cycle", .function = cycle, .variadic = true},
    {.name = "changed", .function = changed, .variadic = true},
    {0},
};

enum loop_fact {
    LOOP_INDEX,
    LOOP_INDEX0,
    LOOP_REVINDEX,
    LOOP_REVINDEX0,
    LOOP_FIRST,
    LOOP_LAST,
    LOOP_LENGTH,
    LOOP_PREVITEM,
    LOOP_NEXTITEM,
    LOOP_DEPTH,
    LOOP_DEPTH0,
    LOOP_FACTS
};

static const char *const facts[LOOP_FACTS] = {
    [LOOP_INDEX] = "index",         [LOOP_INDEX0] = "index0",     [LOOP_REVINDEX] = "revindex",
    [LOOP_REVINDEX0] = "revindex0", [LOOP_FIRST] = "first",       [LOOP_LAST] = "last",
    [LOOP_LENGTH] = "length",       [LOOP_PREVITEM] = "previtem", [LOOP_NEXTITEM] = "nextitem",
    [LOOP_DEPTH] = "depth",         [LOOP_DEPTH0] = "depth0",
};

bool loop_attribute(struct jinja *jinja, struct jinja_loop *loop, const struct jinja_string *name, struct value *out)
{
    size_t fact = 0;
    *out = (struct value){0};
    while (fact < LOOP_FACTS && !string_is(name, facts[fact]))
        fact++;
    const struct jinja_builtin *builtin = fact == LOOP_FACTS ? builtin_find(methods, name) : NULL;
    if (builtin) {
        struct jinja_method *method = jinja_alloc(jinja, 1, sizeof *method);
        if (!method)
            return false;
        *method = (struct jinja_method){{.kind = VALUE_LOOP, .loop = loop}, builtin};
        *out = (struct value){.kind = VALUE_METHOD, .method = method};
        return true;
    }
    struct value next;
    switch ((enum loop_fact)fact) {
    case LOOP_INDEX:
    case LOOP_INDEX0:
        *out = value_int(loop->index0 + (fact == LOOP_INDEX));
        return true;
    case LOOP_LENGTH:
    case LOOP_REVINDEX:
    case LOOP_REVINDEX0:
        if (!know_length(jinja, loop))
            return false;
        *out = value_int(fact == LOOP_LENGTH ? loop->length : loop->length - loop->index0 - (fact != LOOP_REVINDEX));
        return true;
    case LOOP_FIRST:
        *out = value_bool(loop->index0 == 0);
        return true;
    case LOOP_LAST:
    case LOOP_NEXTITEM:
        if (!peek(jinja, loop, &next))
            return false;
        *out = fact == LOOP_LAST ? value_bool(next.kind == VALUE_ABSENT) : next;
        return out->kind != VALUE_ABSENT || value_undefined_text(jinja, "there is no next item", out);
    case LOOP_PREVITEM:
        *out = loop->previous;
        return out->kind != VALUE_ABSENT || value_undefined_text(jinja, "there is no previous item", out);
    case LOOP_DEPTH:
    case LOOP_DEPTH0:
        *out = value_int(loop->depth0 + (fact == LOOP_DEPTH));
        return true;
    default:
        return true;
    }
}

bool loop_repr(struct jinja_writer *writer, struct jinja_loop *loop)
{
    if (!know_length(writer->jinja, loop))
        return false;
    return writer_format(writer, "<LoopContext %lld/%lld>", (long long)loop->index0 + 1, (long long)loop->length);
}
