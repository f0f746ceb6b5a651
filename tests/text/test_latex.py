"""Formulas and commands of LaTeX, and dollars that are none."""

from __future__ import annotations

import pytest

from marstts.text.normalize import normalize
from marstts.text.reading import read_text


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        (r"$6{x}_{1} + 4{x}_{2} \leq {24}$", "six x one plus four x two less than or equal to twenty-four"),
        ("$x_{1} + 5{y}_{2}$", "x one plus five y two"),
        (r"$\sum_{i=1}^{n} i$", "the sum from i equals one to n of i"),
        (r"$\prod_{k \in S} k = n!$", "the product over k in S of k equals n factorial"),
        (r"$\int_{-\infty}^{\infty} e^{-x^2} dx = \sqrt{\pi}$",
         "the integral from minus infinity to infinity of e to the minus x squared d x equals square root of pi"),
        (r"$\lim_{n \to \infty} \frac{1}{n} = 0$", "the limit as n approaches infinity of one over n equals zero"),
        (r"$A \cap B$ or $A \cup B \subseteq C$", "A intersection B or A union B is a subset of or equal to C"),
        (r"$\lceil x \rceil$ up", "the ceiling of x, up"),
        (r"Let $x \in \mathbb{R}$ be $3$.", "Let x in R be three."),
        (r"$\forall x \exists y$ and $\neg p \lor q$", "for all x there exists y and not p or q"),
        (r"$x_i^2$, $x_{i,j}$, $a_{n+1}$, $A^T$, $f^{-1}$, $x^*$.",
         "x i squared, x i j, a n plus one, A transpose, f to the minus one, x star."),
        (r"$2^{10}$, $90^\circ$, $10\%$ and $\$5$", "two to the tenth, ninety degrees, ten percent and five dollars"),
        (r"$P(A|B) = \frac{a}{P(B)}$ and $|x| < 1$",
         "P of A given B equals a over P of B and the absolute value of x less than one"),
        (r"$O(n \log n)$ time, $\log_2 8$", "O of n log n time, log base two of eight"),
        (r"$\binom{n}{k}$, $\vec{v} \cdot \hat{u}$, $\sqrt[3]{8}$",
         "n choose k, vector v times u hat, cube root of eight"),
        (r"\begin{aligned} a &= b \\ c &= d \end{aligned} It ends.", "a equals b, c equals d, It ends."),
        ("$$\nx = \\frac{1}{2}\n$$\nThen it ends.", "x equals one over two. Then it ends."),
        (r"So **$x_1$ and $y_1$** and \[ a_1 * b_1 \] differ.", "So x one and y one and, a one times b one, differ."),
        (r"\section{The Storm} It \emph{rained} on \href{http://x.org}{the pier}.",
         "The Storm. It rained on the pier."),
        (r"Use \alpha, a \leq b and 3\times4.", "Use alpha, a less than or equal to b and three times four."),
        (r"An \odd{case} of $\foo x$.", "An odd, case, of foo x."),
    ],
)  # fmt: skip
def test_formulas_are_read(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("It costs $5 and $10. I pay $15.",
         "It costs five dollars and ten dollars. I pay fifteen dollars."),
        ("From $5-$10 to $1,000.", "From five dollars to ten dollars to one thousand dollars."),
        ("She owes $5, or $6x$.", "She owes five dollars, or six x."),
        ("It is A$6 or 13$. He has $20.",
         "It is six Australian dollars or thirteen dollars. He has twenty dollars."),
        (r"Open C:\times\frac and \\server\alpha now.",
         "Open C colon backslash times backslash frac and backslash backslash server backslash alpha now."),
    ],
)  # fmt: skip
def test_money_and_paths_are_no_formulas(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


def test_what_only_typesets_is_left_out_with_a_warning() -> None:
    reading = read_text(r"\usepackage[utf8]{inputenc} It fell \cite{knuth84}.")
    assert reading.sentences == ("It fell.",)
    assert r"commands of LaTeX (\usepackage[utf8]{inputenc} \cite{knuth84})" in "; ".join(reading.warnings)


@pytest.mark.parametrize(
    "unit", [r"\frac{", r"$x_{", "$", r"\sqrt[", r"\(", r"\left|", "{", r"\text{\text{", "_^", r"$$\ "]
)
def test_broken_formulas_end(unit: str) -> None:
    assert isinstance(normalize(unit * 300), str)


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        (r"The cube root \sqrt[3]{27} is 3.", "The cube root of twenty-seven is three."),
        (r"the square root $\sqrt{16}$.", "the square root of sixteen."),
    ],
)
def test_a_root_is_named_once(text: str, spoken: str) -> None:
    reading = read_text(text)
    assert " ".join(reading.sentences) == spoken
