"""Logs: one JSON object per line, whatever is in it, or readable lines for people."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def run(code: str) -> str:
    """Standard output of a program that logs."""
    begin = "import logging, structlog\nfrom kinema_core.runtime.logs import configure\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + code], capture_output=True, check=True, timeout=30, encoding="utf-8"
    )
    assert not done.stderr
    return done.stdout


def lines(code: str) -> list[dict[str, Any]]:
    """The objects that a program logs."""
    return [json.loads(line) for line in run(code).splitlines()]


def test_json_lines_say_who_and_when() -> None:
    """Each line is one object with time, level, service, cluster, version and its own fields."""
    (line,) = lines("configure('decider', 'prod.eu', 'json')\nstructlog.get_logger().info('handled', seq=7)")
    assert line["event"] == "handled"
    assert (line["service"], line["cluster"], line["level"], line["seq"]) == ("decider", "prod.eu", "info", 7)
    assert line["ts"].endswith("Z")
    assert line["version"]


def test_without_a_terminal_auto_is_json() -> None:
    """Into a pipe the automatic format writes JSON."""
    assert lines("configure('decider', 'c1')\nstructlog.get_logger().warning('x')")[0]["level"] == "warning"


def test_hostile_text_stays_in_its_line() -> None:
    """Line ends and control characters in a value neither break the line nor reach the terminal raw."""
    hostile = 'a\\n{\\"event\\": \\"forged\\"}\\r\\x1b[2J'
    out = run(f"configure('d', 'c', 'json')\nstructlog.get_logger().info('x', label=\"{hostile}\")")
    assert out.count("\n") == 1
    assert "\x1b" not in out
    out = run(f"configure('d', 'c', 'console')\nstructlog.get_logger().info('x', label=\"{hostile}\")")
    assert "\x1b[2J" not in out


def test_other_libraries_log_the_same_way() -> None:
    """Warnings of libraries come as JSON objects too; their chatter is left out."""
    code = "log = logging.getLogger('lib')\nlog.warning('careful %s', 1)\nlog.info('no')"
    (line,) = lines("configure('d', 'c', 'json')\n" + code)
    assert (line["event"], line["level"], line["service"]) == ("careful 1", "warning", "d")


def test_tracebacks_are_one_field() -> None:
    """An exception is logged with its traceback inside the object."""
    code = "try:\n 1 / 0\nexcept ZeroDivisionError:\n structlog.get_logger().exception('bad')"
    (line,) = lines("configure('d', 'c', 'json')\n" + code)
    assert "ZeroDivisionError" in line["exception"]


def test_console_lines_are_for_people() -> None:
    """The console format is no JSON and has no colors outside a terminal."""
    out = run("configure('d', 'c', 'console')\nstructlog.get_logger().info('handled', seq=7)")
    assert "handled" in out
    assert "seq=7" in out
    assert "\x1b[" not in out
    assert not out.startswith("{")
