"""python -m nsqc.commands.pages FOLDER: writes the generated page of the repository, docs/options.md."""

import sys
from pathlib import Path

from nsqc.commands.pages.markdown import options_page

Path(sys.argv[1], "options.md").write_text(options_page(), encoding="utf-8")
