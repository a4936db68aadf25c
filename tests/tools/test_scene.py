"""docs/tools.md shows the commands' real output."""

from tests.tools.scene import PAGE, Scene, blocks, steady


def test_the_page_shows_real_output(tmp_path):
    shown = blocks(PAGE.read_text())
    assert len(shown) > 10
    scene = Scene(tmp_path)
    try:
        for command, text in shown:
            assert steady(scene.run(command)) == steady(text), command
    finally:
        scene.close()
