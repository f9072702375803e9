"""Text from data cannot act: not in a terminal, not in Markdown, not in a page."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from flows.pages.escape import json_line, json_script, markdown, markdown_code, one_line, plain


@given(st.text())
def test_plain_text_has_no_character_that_a_terminal_obeys(text):
    shown = plain(text)
    assert all(c in "\n\t" or ord(c) >= 32 for c in shown)
    assert not any(0x7F <= ord(c) < 0xA0 for c in shown)


@given(st.text())
def test_a_cell_of_a_table_is_one_line_whatever_is_in_it(text):
    assert all(ord(c) >= 32 for c in one_line(text)) and len(one_line(text).splitlines()) <= 1


def test_plain_text_is_left_alone():
    assert plain("Pumpe 7 · Öl/µm [/] <b>") == "Pumpe 7 · Öl/µm [/] <b>"
    assert plain("a\x1b[31mb\u202e") == "a\\x1b[31mb\\u202e"


@given(st.text(alphabet=st.characters(blacklist_categories=("Cs",)), min_size=1))
def test_markdown_shows_a_text_and_nothing_more(text):
    shown = MarkdownIt("commonmark").enable("table")
    html = shown.render(f"x {markdown(text)} y")
    assert html.count("<") == 2, html  # the paragraph
    html = (
        MarkdownIt("commonmark")
        .enable("table")
        .render(f"| a | b |\n|---|---|\n| {markdown_code(text)} | 1 |")
    )
    assert html.count("<td>") == 2, html


@pytest.mark.parametrize("text", ["`", "``a`", "a|b", "<img src=x>", "[a](http://x)", "a\n# b", "|`|"])
def test_code_in_markdown_cannot_be_ended(text):
    html = MarkdownIt("commonmark").enable("table").render(f"| a |\n|---|\n| {markdown_code(text)} |")
    assert html.count("<code>") == html.count("</code>") == 1
    assert "<img" not in html and "<a " not in html and html.count("<td>") == 1


@given(st.text())
def test_data_in_a_page_cannot_end_its_script_element(text):
    packed = json_script({"name": text})
    assert "<" not in packed and "\u2028" not in packed
    assert json.loads(packed)["name"] == text


@given(st.text())
def test_json_for_a_terminal_is_json(text):
    assert json.loads(json_line([text, float("nan")])) == [text, None]
