"""The code of docs/training.md runs, and prints what stands under it."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


def test_the_page_is_true(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) == PAGE.read_text().count("```python")
    namespace = {}
    for code, printed in blocks:
        exec(compile(code, PAGE.name, "exec"), namespace)
        assert capsys.readouterr().out == printed
    assert (tmp_path / "curves.png").exists()
