// The pre-tokenizers by name, as data. The expressions are the published ones, with three changes of form that do
// not change what they match:
// - \s and \S are written out as Unicode's White_Space, since PCRE2's \s also holds U+180E;
// - a class intersected with "not Han" is the complement of everything else, which is one class and no group;
// - \s+$ has a lookbehind, so that a run of spaces is tried once and not once per space.
// No expression has a repeated group, and none matches the empty text: pretokenize.c counts on both.
#include "text/pretokenize.h"

#define SPACES "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define SPACE "[" SPACES "]"
// The last alternatives of most expressions: a run of spaces, less the one that belongs to the word behind it.
#define RUN_OF_SPACES SPACE "+(?![^" SPACES "])|" SPACE "+"
#define LINES_AND_SPACES SPACE "*[\\r\\n]+|" RUN_OF_SPACES
#define SUFFIX "'s|'t|'re|'ve|'m|'ll|'d"
#define GPT2 SUFFIX "| ?\\p{L}+| ?\\p{N}+| ?[^" SPACES "\\p{L}\\p{N}]+|" RUN_OF_SPACES
#define SYMBOLS " ?[^" SPACES "\\p{L}\\p{N}]+"
// Llama 3 and its relatives differ in how many digits make a piece.
#define LLAMA3(digits) "(?i:" SUFFIX ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "|" SYMBOLS "[\\r\\n]*|" LINES_AND_SPACES
// Words of GPT-4o: letters that may be capitals, then letters that may be small ones; one of the two may be absent.
#define NOT_SMALL "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define NOT_CAPITAL "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define WORDS_BY_CASE(not_small, not_capital, suffix)                                                                  \
    "[^\\r\\n\\p{L}\\p{N}]?" not_small "*" not_capital "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" not_small "+" not_capital  \
    "*" suffix
#define NOT_SMALL_NOR_HAN "[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]"
#define NOT_CAPITAL_NOR_HAN "[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]"

// The letters of DeepSeek LLM, as its authors list them. By number: many look alike, and editors normalize some.
#define DEEPSEEK_LETTERS                                                                                               \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}"                    \
    "\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}"             \
    "\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}"                    \
    "\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"                  \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}"                  \
    "\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}"          \
    "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}"         \
    "\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"                   \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}"                    \
    "\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}"                    \
    "\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}"                   \
    "\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}"                  \
    "\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"                \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}"                             \
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"
#define DEEPSEEK_CJK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]"

const struct pretokenizer_rules pretokenizer_table[] = {
    // What files without tokenizer.ggml.pre mean.
    {"default", false, false, {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"gpt-2 olmo mpt phi-2 jais mellum exaone4 trillion granite-docling gigachat a.x-4.0", false, false, {GPT2}},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", true, true, {LLAMA3("\\p{N}{1,3}")}},
    {"chatglm-bpe glm4 dbrx smaug-bpe", false, false, {LLAMA3("\\p{N}{1,3}")}},
    {"qwen2 stablelm2 deepseek-r1-qwen hunyuan megrez solar-open grok-2", false, false, {LLAMA3("\\p{N}")}},
    {"qwen35",
     false,
     false,
     {"(?i:" SUFFIX ")|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" SPACES
      "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES_AND_SPACES}},
    {"gpt-4o llama4 minimax-m2 kanana2",
     false,
     false,
     {WORDS_BY_CASE(NOT_SMALL, NOT_CAPITAL, "(?i:" SUFFIX ")?") "|\\p{N}{1,3}|" SYMBOLS
                                                                "[\\r\\n/]*|" LINES_AND_SPACES}},
    {"tekken",
     true,
     true,
     {WORDS_BY_CASE(NOT_SMALL, NOT_CAPITAL, "") "|\\p{N}|" SYMBOLS "[\\r\\n/]*|" LINES_AND_SPACES}},
    {"kimi-k2",
     false,
     false,
     {"\\p{sc:Han}+|" WORDS_BY_CASE(NOT_SMALL_NOR_HAN, NOT_CAPITAL_NOR_HAN,
                                    "(?i:" SUFFIX ")?") "|\\p{N}{1,3}|" SYMBOLS "[\\r\\n]*|" LINES_AND_SPACES}},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", false, false, {"\\p{N}", GPT2}},
    {"falcon", false, false, {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {"deepseek-coder", false, false, {"[\\r\\n]", SPACE "?\\p{L}+", SPACE "?\\p{P}+", DEEPSEEK_CJK "+", "\\p{N}"}},
    {"deepseek-v3 hunyuan-dense joyai-llm",
     false,
     false,
     {"\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
      "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES_AND_SPACES}},
    {"seed-coder",
     false,
     false,
     {"(?i:" SUFFIX ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" SPACES "\\p{L}\\p{N}\\r\\n]+|" LINES_AND_SPACES}},
    {"deepseek-llm",
     false,
     false,
     {"[\\r\\n]", SPACE "?[" DEEPSEEK_LETTERS "]+",
      SPACE "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
      "(?<!" SPACE ")" SPACE "+$", DEEPSEEK_CJK "+", "\\p{N}+"}},
    {0},
};
