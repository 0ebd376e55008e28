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

const struct pretokenizer_rules pretokenizer_table[] = {
    // What files without tokenizer.ggml.pre mean.
    {"default", false, false, {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"gpt-2 olmo mpt phi-2 jais mellum modern-bert exaone4 trillion granite-docling gigachat a.x-4.0 jina-es jina-de "
     "jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe",
     false,
     false,
     {GPT2}},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     true,
     true,
     {LLAMA3("\\p{N}{1,3}")}},
    {"chatglm-bpe glm4 dbrx smaug-bpe", false, false, {LLAMA3("\\p{N}{1,3}")}},
    {"qwen2 stablelm2 deepseek-r1-qwen hunyuan megrez solar-open grok-2 kormo f2llmv2",
     false,
     false,
     {LLAMA3("\\p{N}")}},
    {"qwen35",
     false,
     false,
     {"(?i:" SUFFIX ")|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" SPACES
      "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES_AND_SPACES}},
    {"gpt-4o llama4 minimax-m2 kanana2 talkie",
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
    {"deepseek-coder",
     false,
     false,
     {"[\\r\\n]", SPACE "?\\p{L}+", SPACE "?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", "\\p{N}"}},
    {"deepseek-v3 hunyuan-dense joyai-llm",
     false,
     false,
     {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
      "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES_AND_SPACES}},
    {"seed-coder",
     false,
     false,
     {"(?i:" SUFFIX ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" SPACES "\\p{L}\\p{N}\\r\\n]+|" LINES_AND_SPACES}},
    {"deepseek-llm",
     false,
     false,
     {"[\\r\\n]",
      SPACE
      "?["
      "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-"
      "ἕἘ-"
      "Ἕἠ-"
      "ὅ"
      "Ὀ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-"
      "ꚛꜢ-"
      "ꝯ"
      "ꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
      "]+",
      SPACE "?["
            "!-/:-~！-／：-～‘-‟　-。"
            "]+",
      "(?<!" SPACE ")" SPACE "+$", "[一-龥ࠀ-一가-퟿]+", "\\p{N}+"}},
    {0},
};
