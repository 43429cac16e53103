"""Texts that a golden's tokenizer is asked about: each has shown a difference between two tokenizers somewhere."""

TEXTS = (
    "Hello world!",
    " leading space",
    "  two  spaces ",
    "The quick brown fox jumps over the lazy dog.",
    "I'm fine, THEY'LL see 3.14159 and 1000000",
    "café naïve über",
    "e\u0301 combining, \u00a0no-break, \u200bzero width",
    "日本語 😀👩‍👩‍👧 tail",
    "def main(args):\n    for i in range(10):\n\tprint(i)\n\n\n",
    "CR\r\nLF \t tab   \n \n end",
    "<|im_start|>user<|im_end|><bos><end_of_turn>",
    "ΑΒΓ абв العربية हिन्दी 한국어",
)
