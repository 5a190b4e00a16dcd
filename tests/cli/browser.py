"""Chromium without a window, driven over a pipe by its DevTools protocol. No driver and no network are needed."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One page. Messages are JSON texts, each ended by a zero byte."""

    def __init__(self, process, to_browser, from_browser):
        self.process, self.to_browser, self.from_browser = process, to_browser, from_browser
        self.buffer, self.number, self.session, self.events = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def receive(self):
        while b"\0" not in self.buffer:
            piece = os.read(self.from_browser, 1 << 16)
            if not piece:
                raise RuntimeError("the browser ended")
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def open(self, path, width=1100, height=900, dark=False):
        """Shows a file. Fails if its script throws, or if it asks for anything but itself."""
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self.call("Page.navigate", url=f"file://{path}")
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.receive())
        thrown = [e["params"]["exceptionDetails"] for e in self.events if e.get("method") == "Runtime.exceptionThrown"]
        assert not thrown, thrown
        asked = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        assert all(url.startswith(f"file://{path}") for url in asked), asked

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def move_mouse(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path, whole=True):
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))


@contextlib.contextmanager
def browser():
    to_browser, from_browser = os.pipe(), os.pipe()

    def use_pipes():  # Chromium reads descriptor 3 and writes descriptor 4
        read, write = os.dup(to_browser[0]), os.dup(from_browser[1])
        os.dup2(read, 3)
        os.dup2(write, 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [PROGRAM, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
             "--no-first-run", "--disable-background-networking", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=use_pipes,
            close_fds=False,
        )  # fmt: skip
        os.close(to_browser[0])
        os.close(from_browser[1])
        try:
            yield Browser(process, to_browser[1], from_browser[0])
        finally:
            process.kill()
            process.wait()
            os.close(to_browser[1])
            os.close(from_browser[0])
