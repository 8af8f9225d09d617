"""A browser without a window, for pages."""

import contextlib
import fcntl
import itertools
import json
import os
import subprocess
import sys
import time

# A browser finds its pipes under the numbers 3 and 4.
START = """
import os, sys
reads, writes, *command = sys.argv[1:]
os.dup2(int(reads), 3)
os.dup2(int(writes), 4)
os.execv(command[0], command)
"""
FLAGS = ("--headless", "--disable-gpu", "--no-sandbox", "--remote-debugging-pipe")


class Browser:
    """Chromium, which answers commands of its DevTools protocol through two pipes.

    Errors of a page's script, also those in its console, are raised by the next command.
    """

    def __init__(self, program, directory):
        self._numbers = itertools.count(1)
        self._session = {}
        answers, browser_writes = _pipe()
        browser_reads, commands = _pipe()
        pipes = (browser_reads, browser_writes)
        start = [sys.executable, "-c", START, *map(str, pipes)]
        self._process = subprocess.Popen(
            [*start, program, *FLAGS, f"--user-data-dir={directory}", "about:blank"],
            pass_fds=pipes,
            stderr=subprocess.DEVNULL,
        )
        os.close(browser_reads)
        os.close(browser_writes)
        self._answers = os.fdopen(answers, "rb")
        self._commands = os.fdopen(commands, "wb")
        targets = self._call("Target.getTargets")["targetInfos"]
        [page] = [target["targetId"] for target in targets if target["type"] == "page"]
        session = self._call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = {"sessionId": session["sessionId"]}
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def close(self):
        with contextlib.suppress(OSError, EOFError):
            self._call("Browser.close")
        self._process.wait(10)
        self._answers.close()
        self._commands.close()

    def open(self, address):
        """Opens a page anew, also where only what follows # differs."""
        for each in ("about:blank", address):
            self._call("Page.navigate", url=each)
            self.wait("document.readyState === 'complete'")

    def run(self, script):
        """Returns the value of a script, or of its promise."""
        options = {"awaitPromise": True, "returnByValue": True}
        result = self._call("Runtime.evaluate", expression=script, **options)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, condition, seconds=20):
        """Waits until a script gives true."""
        end = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < end, condition
            time.sleep(0.02)

    def press(self, key, code):
        """Presses a key, which also has a number."""
        text = {" ": {"text": " "}, "Enter": {"text": "\r"}}.get(key, {})
        for kind in ("keyDown", "keyUp"):
            self._call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text
            )
            text = {}

    def resize(self, width, height):
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self._call("Emulation.setDeviceMetricsOverride", mobile=width < 600, **size)

    def picture(self):
        """Returns what is in view as a PNG, in base64."""
        return self._call("Page.captureScreenshot", format="png")["data"]

    def set_theme(self, name):
        feature = {"name": "prefers-color-scheme", "value": name}
        self._call("Emulation.setEmulatedMedia", features=[feature])

    def _call(self, method, **parameters):
        number = next(self._numbers)
        command = {"id": number, "method": method, "params": parameters, **self._session}
        self._commands.write(json.dumps(command).encode() + b"\0")
        self._commands.flush()
        while True:
            message = self._message()
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            assert message.get("method") not in ("Runtime.exceptionThrown", "Log.entryAdded"), (
                message
            )

    def _message(self):
        result = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            if not byte:
                raise EOFError("the browser ended")
            result += byte
        return json.loads(result)


def _pipe():
    """Returns a pipe whose file numbers are none of the browser's."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved
