"""Parts of pages that people look at: one style, templates, charts as inline SVG, and safe Markdown.

A page is one file without scripts and without network. These functions know nothing of models; what they are given is
shown as it is.
"""

from dppl.pages.charts import Axis, Line, bar, chart, swatch
from dppl.pages.markdown import markdown_table, markdown_text
from dppl.pages.templates import breakable, rendered

__all__ = ["Axis", "Line", "bar", "breakable", "chart", "markdown_table", "markdown_text", "rendered", "swatch"]
