"""How the pages are built: ``make docs``. Nothing is fetched, neither while building nor while reading."""

import os
import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
# For the kernels that run the pages' cells: tqdm misses widgets, which no page uses.
os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"

project = "pdcc"
version = release = installed("pdcc")
copyright = "the authors of pdcc, MIT licence"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "docstrings", "mathml"]
exclude_patterns = ["measured"]

html_theme = "pydata_sphinx_theme"
html_title = "pdcc"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_sidebars: dict[str, list[str]] = {"index": [], "tutorial": [], "contributing": []}  # nothing lies below them
html_theme_options = {
    "logo": {"text": "pdcc"},
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "navigation_with_keys": False,
    "show_toc_level": 2,
}

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

nb_execution_mode = "force"
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_merge_streams = True
nb_output_stderr = "remove-warn"
nb_ipywidgets_js: dict[str, dict[str, str]] = {}

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings give shapes, which types do not have
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Fitted attributes", "params_style")]

nitpicky = True
