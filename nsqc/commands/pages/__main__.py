"""python -m nsqc.commands.pages FOLDER: writes the pages that are kept in the repository."""

import sys
from pathlib import Path

from nsqc.commands.pages.markdown import options_page

Path(sys.argv[1], "options.md").write_text(options_page(), encoding="utf-8")
