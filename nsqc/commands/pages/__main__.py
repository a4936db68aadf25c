"""python -m nsqc.commands.pages FOLDER: writes docs/options.md, and the options in docs/lookupd.md."""

import sys
from pathlib import Path

from nsqc.commands.pages.markdown import options_page, with_lookupd_options

Path(sys.argv[1], "options.md").write_text(options_page(), encoding="utf-8")
lookupd = Path(sys.argv[1], "lookupd.md")
lookupd.write_text(with_lookupd_options(lookupd.read_text(encoding="utf-8")), encoding="utf-8")
