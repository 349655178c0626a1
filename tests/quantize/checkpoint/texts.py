"""A thousand strings that tokenizers like to disagree on. Recorded once; tests read the recording."""

from __future__ import annotations

import random

# fmt: off
# ruff: noqa: E501
PIECES = (
    "The quick brown fox jumps over the lazy dog", "I've been there; you'll see, won't you?", "WE'LL DON'T IT'S I'M", "HELLO World helloWorld camelCaseName",
    "Straße, Äpfel und Öl für Müller", "L'été, où êtes-vous ? Ça va très bien", "¿Qué pasa, señor Núñez?", "Zażółć gęślą jaźń",
    "Привет, мир! Как дела?", "МОСКВА Санкт-Петербург", "Καλημέρα κόσμε, τι κάνεις;", "שלום עולם", "مرحبا بالعالم، كيف حالك؟",
    "你好，世界！今天天气很好。", "こんにちは世界、カタカナとひらがな", "안녕하세요 세계", "नमस्ते दुनिया", "สวัสดีชาวโลก", "Xin chào thế giới",
    "🚀🦙 emoji 😀👍🏽 👨‍👩‍👧‍👦 ✅", "¯\\_(ツ)_/¯ — “quotes” ‘single’ …", "1 12 123 1234 12345 123456789", "3.14159 1,000,000 2024-11-05 12:34:56", "٣٤٥ ½ ² Ⅷ",
    "def f(x):\n    return x ** 2  # square", "for (int i = 0; i < n; ++i) { a[i] += b[i]; }", "SELECT * FROM users WHERE id = 42;", "<div class=\"a\">text</div>",
    "https://example.org/path?q=1&r=2#frag", "user@example.com", "{\"key\": [1, 2, null, true]}", "C:\\Users\\me\\file.txt", "$x^2 + y_1 = \\frac{a}{b}$",
    "   three spaces", "trailing spaces   ", "\ttab\tseparated\t", "\n\n\nthree lines\n\n", "line one\r\nline two\r\n", "a  b   c    d", "\u00a0non\u00a0breaking\u2003em",
    "!!!???...", "------======", "((()))[[[]]]{{{}}}", "'''```\"\"\"", "#hashtag @mention", "a", " ", "\n", "0", "'s 't 're 've 'm 'll 'd", "it's IT'S It'S",
    "ab\u200bcd", "snake_case_name and kebab-case-name", "ALLCAPS mixedCASE iPhone eBay McDonald", "x=y+z*w/2-1", "100% of $5.00 & more", "e.g. i.e. etc.", "Mr. O'Neill's",
)  # fmt: skip
JOINS = ("", " ", "  ", "\n", ", ", "\t", " - ", ". ")


def make_texts(n: int = 1000) -> list[str]:
    """All pieces alone, then random combinations (seeded)."""
    source = random.Random(20)
    texts = list(PIECES)
    while len(texts) < n:
        parts = source.choices(PIECES, k=source.randint(1, 3))
        text = parts[0]
        for part in parts[1:]:
            text += source.choice(JOINS) + part
        cut = source.randint(0, 3)
        texts.append(text[cut : len(text) - source.randint(0, 5)] or "x")
    return texts
