#!/usr/bin/env python3
"""Makes tests/data/tokenizer/{bpe,spm}-*: small vocabularies of our own, and what the reference programs say of texts.

usage: make_tokenizer_tests.py FOLDER

Needs the Python packages sentencepiece, protobuf and tokenizers (Hugging Face's). A vocabulary is a GGUF file without
tensors; beside it NAME.jsonl has lines {"text", "ids", "parse_special"}, and NAME.decode.jsonl lines {"ids", "special",
"hex"}. The vocabularies are trained on the text below, which was written for this purpose.

bpe-gpt2     GPT-2's pre-tokenizer; only the bytes of the text have tokens; control and user-defined tokens
bpe-llama3   Llama 3's; all bytes; words that are tokens are taken whole, though no merges lead to some of them
spm-bytes    SentencePiece with byte fallback and a space prefix, as Llama 2 has
spm-unknown  without bytes: an unknown token; extra spaces are removed; user-defined and unused tokens
"""
import io
import json
import pathlib
import random
import struct
import sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

MARK = "\u2581"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

TEXT = """
The engine reads a file, checks every number in it, and then reads the weights. Nothing that comes from outside is
trusted: a length is compared with what is left, a name with the names that are known, a sum with what fits.
When the user types a question, the question becomes tokens, the tokens become rows, and the rows run through layers
until the last one says which token comes next. That token becomes text again, and the text appears on the screen.
It's simple, isn't it? We'll see; they've said so, and I'd say that you're right, though he'd rather not.
int main(void) { for (int i = 0; i < 1000; i++) { sum += table[i] * 3; } return sum == 42 ? 0 : 1; }
    if (left < right):
        return left + right  # the sum of both
In the year 2026 there were 365 days, 12 months and 8760 hours; 1,000,000 is a million, 3.14159 is nearly pi.
Wörter mit Umlauten: schön, größer, über, Mädchen, Straße. Les élèves étaient déjà là, à côté de l'école.
El niño comió una manzana mañana. Привет, как дела? Сегодня хорошая погода. Καλημέρα κόσμε.
今天天气很好，我们去公园。日本語のテキストです。한국어 문장입니다. नमस्ते दुनिया। مرحبا بالعالم
Readers, writers, rewriting, reader's, unread, tokens, tokenizer, tokenized, untokenized, layers, layered, player.
"""

SAMPLES = [
    "", " ", "  ", "   ", "\n", "\n\n", "\t", " \n ", "a", " a", "a ", "  a  b  ", "the", "The engine reads",
    "It's simple, isn't it? WE'LL SEE", "Hello   world", "tokens tokens tokens", "untokenizer", "readerlayers",
    "1234567890", "3.14159 and 1,000,000", "x=1;y=2", "    return left + right", "if (left < right):\n\treturn",
    "schöner größer", "élève", "e\u0301le\u0300ve", "Привет мир", "Καλημέρα", "今天天气很好", "日本語", "한국어",
    "नमस्ते", "مرحبا", "😀 smile", "🇪🇺", "\u0000", "a\u0000b", "\u2581", "a\u2581b", "\u2581\u2581the", "\ufffd",
    "\u00a0nbsp\u3000wide", "zzzzzzzzzzzzzzzzzzzzzzzzzzzz", "thethethethethe", "????", "§§§", "§a§§b§", "ÿþ",
    "<|end|>", "a<|end|>b", "<|end|><|end|>", " <|end|> ", "<|end|", "<<|end|>>", "<|begin|>The<|end|>",
    "<tool>", "a<tool>b", "<tool><tool>", "<tool", "  <tool>  ", "<tool>s", "<toolbox>", "the<toolbox>the", "<tool<tool>>",
    "code  code", "a    b", "the  \n  the", "éé<|end|>éé", "§<tool>§", "reading writing", "layer by layer",
    "The quick brown fox jumps over the lazy dog.", "\r\n", "line\r\nline\r\n", "…", "“quoted”", "naïve café",
]


def random_samples(seed, count):
    generator = random.Random(seed)
    words = TEXT.split()
    parts = ["", " ", "  ", "\n", "<|end|>", "<tool>", "<|begin|>", "<toolbox>", MARK, "§", "ж", "界", "12", "'s"]
    out = []
    for _ in range(count):
        text = ""
        for _ in range(generator.randrange(1, 9)):
            word = generator.choice(words)
            cut = generator.randrange(len(word) + 1)
            text += generator.choice([word[:cut], word, word[cut:], " " + word]) + generator.choice(parts)
        out.append(text)
    return out


class Gguf:
    def __init__(self):
        self.out = io.BytesIO()
        self.count = 0

    @staticmethod
    def string(text):
        data = text if isinstance(text, bytes) else text.encode()
        return struct.pack("<Q", len(data)) + data

    def add(self, key, kind, data):
        self.out.write(self.string(key) + struct.pack("<I", kind) + data)
        self.count += 1

    def text(self, key, value):
        self.add(key, 8, self.string(value))

    def u32(self, key, value):
        self.add(key, 4, struct.pack("<I", value))

    def boolean(self, key, value):
        self.add(key, 7, struct.pack("<?", value))

    def strings(self, key, values):
        self.add(key, 9, struct.pack("<IQ", 8, len(values)) + b"".join(map(self.string, values)))

    def numbers(self, key, code, kind, values):
        self.add(key, 9, struct.pack("<IQ", kind, len(values)) + struct.pack(f"<{len(values)}{code}", *values))

    def write(self, path):
        header = b"GGUF" + struct.pack("<IQQ", 3, 0, self.count)
        data = header + self.out.getvalue()
        path.write_bytes(data + bytes(-len(data) % 32))


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="ascii")


def split_special(text, specials):
    """Cuts text at special tokens, longest first: [(piece, is_special)]."""
    out = []
    begin = at = 0
    while at < len(text):
        found = max((s for s in specials if text.startswith(s, at)), key=len, default=None)
        if found is None:
            at += 1
            continue
        if at > begin:
            out.append((text[begin:at], False))
        out.append((found, True))
        at += len(found)
        begin = at
    if begin < len(text):
        out.append((text[begin:], False))
    return out


# ---- byte-level BPE

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CONTROLS = ["<|begin|>", "<|end|>"]
USERS = ["<tool>", "<toolbox>", "  "]


def make_bpe(folder, name, pre, expression, alphabet, whole_words):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(expression), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        TEXT.splitlines(keepends=True),
        trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False, min_frequency=2))
    state = json.loads(tokenizer.to_str())
    vocabulary = state["model"]["vocab"]
    if whole_words:  # tokens that no merge gives
        for word in ["Ġquick", "zzzz", "lazy", "ĠWORLD"]:
            vocabulary[word] = len(vocabulary)
    state["model"]["ignore_merges"] = whole_words
    merges = [" ".join(m) if isinstance(m, list) else m for m in state["model"]["merges"]]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    plain = Tokenizer.from_str(json.dumps(state))  # without control tokens
    tokenizer.add_special_tokens([AddedToken(c, special=True, normalized=False) for c in CONTROLS])
    n_base = plain.get_vocab_size()
    users = [AddedToken(u, special=False, normalized=False) for u in USERS]
    tokenizer.add_tokens(users)
    ids = tokenizer.get_vocab()
    plain.add_tokens(users)  # their ids are shifted
    n_controls = len(CONTROLS)
    shift = {plain.get_vocab()[u]: ids[u] for u in USERS}

    pieces = [None] * len(ids)
    for piece, index in ids.items():
        pieces[index] = piece
    types = [NORMAL] * n_base + [CONTROL] * n_controls + [USER_DEFINED] * len(USERS)
    out = Gguf()
    out.text("general.architecture", "llama")
    out.text("tokenizer.ggml.model", "gpt2")
    out.text("tokenizer.ggml.pre", pre)
    out.strings("tokenizer.ggml.tokens", pieces)
    out.numbers("tokenizer.ggml.token_type", "i", 5, types)
    out.strings("tokenizer.ggml.merges", merges)
    out.u32("tokenizer.ggml.bos_token_id", ids["<|begin|>"])
    out.u32("tokenizer.ggml.eos_token_id", ids["<|end|>"])
    out.write(folder / f"{name}.gguf")

    lines = []
    decoded = []
    for text in SAMPLES + random_samples(name, 60):
        encoded = tokenizer.encode(text, add_special_tokens=False).ids
        lines.append({"text": text, "ids": encoded, "parse_special": True})
        without = [shift.get(i, i) for i in plain.encode(text, add_special_tokens=False).ids]
        if without != encoded:
            lines.append({"text": text, "ids": without, "parse_special": False})
        for special in (True, False):
            # piece by piece: bytes that are not UTF-8 stay what they are
            data = b""
            for i in encoded:
                if i >= n_base:
                    data += pieces[i].encode() if special or types[i] != CONTROL else b""
                else:
                    data += bytes(BYTES[letter] for letter in pieces[i])
            decoded.append({"ids": encoded, "special": special, "hex": data.hex()})
    write_lines(folder / f"{name}.jsonl", lines)
    write_lines(folder / f"{name}.decode.jsonl", decoded[::7])


def byte_letters():
    kept = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    moved = [b for b in range(256) if b not in kept]
    letters = {chr(b): b for b in kept}
    letters.update({chr(0x100 + i): b for i, b in enumerate(moved)})
    return letters


BYTES = byte_letters()


# ---- SentencePiece

def train(**options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.splitlines()), model_writer=model, model_type="bpe",
        normalization_rule_name="identity", minloglevel=2, num_threads=1, max_sentence_length=10000,
        unk_surface="", **options)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return proto


def make_spm(folder, name, proto, unused_every):
    mergeable = [p for p in proto.pieces if p.type == NORMAL and len(p.piece) > 2]
    for piece in mergeable[::unused_every] if unused_every else []:
        piece.type = UNUSED
    processor = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    pieces = [p.piece for p in proto.pieces]
    types = [p.type for p in proto.pieces]
    out = Gguf()
    out.text("general.architecture", "llama")
    out.text("tokenizer.ggml.model", "llama")
    out.strings("tokenizer.ggml.tokens", pieces)
    out.numbers("tokenizer.ggml.scores", "f", 6, [p.score for p in proto.pieces])
    out.numbers("tokenizer.ggml.token_type", "i", 5, types)
    out.u32("tokenizer.ggml.bos_token_id", pieces.index("<s>"))
    out.u32("tokenizer.ggml.eos_token_id", pieces.index("</s>"))
    out.u32("tokenizer.ggml.unknown_token_id", pieces.index("<unk>"))
    out.boolean("tokenizer.ggml.add_space_prefix", proto.normalizer_spec.add_dummy_prefix)
    out.boolean("tokenizer.ggml.remove_extra_whitespaces", proto.normalizer_spec.remove_extra_whitespaces)
    out.write(folder / f"{name}.gguf")

    controls = [p for p, t in zip(pieces, types) if t == CONTROL]
    lines = []
    decoded = []
    for text in SAMPLES + random_samples(name, 60):
        plain = processor.encode(text)
        lines.append({"text": text, "ids": plain, "parse_special": False})
        encoded = []
        for part, special in split_special(text, controls):
            encoded += [pieces.index(part)] if special else processor.encode(part)
        if encoded != plain:
            lines.append({"text": text, "ids": encoded, "parse_special": True})
        if UNKNOWN not in [types[i] for i in plain]:
            surface = processor.decode(plain)
            if "\ufffd" not in surface:
                decoded.append({"ids": plain, "special": False, "hex": surface.encode().hex()})
    write_lines(folder / f"{name}.jsonl", lines)
    write_lines(folder / f"{name}.decode.jsonl", decoded[::5])


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[1])
    make_bpe(folder, "bpe-gpt2", "gpt-2", GPT2, [], False)
    make_bpe(folder, "bpe-llama3", "llama-bpe", LLAMA3, pre_tokenizers.ByteLevel.alphabet(), True)
    make_spm(folder, "spm-bytes",
             train(vocab_size=900, byte_fallback=True, remove_extra_whitespaces=False, character_coverage=0.98,
                   control_symbols=CONTROLS, user_defined_symbols=["<tool>", "<toolbox>"]), 0)
    make_spm(folder, "spm-unknown",
             train(vocab_size=600, byte_fallback=False, remove_extra_whitespaces=True, character_coverage=0.98,
                   control_symbols=CONTROLS, user_defined_symbols=["<tool>", "<toolbox>", MARK + MARK]), 3)
    return 0


if __name__ == "__main__":
    sys.exit(main())
