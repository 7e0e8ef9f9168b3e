"""A private daemon with one server, and the browser of a person who agrees; shared by the programs here."""

import http.client
import http.cookiejar
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request


class Daemon:
    def __init__(self, hermesd, hermesctl, entry, section=None):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="hc")).resolve()
        for name in ("home", "user"):
            (self.root / name).mkdir()
        self.ctl_binary = hermesctl
        self.env = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
        self.env |= {"HOME": str(self.root / "user"), "USER": "tester", "LOGNAME": "tester", "SHELL": "/bin/sh"}
        self.env |= {"HERMES_HOME": str(self.root / "home"), "HERMESD_RUNTIME_DIR": str(self.root / "run")}
        config = self.root / "home/config.yaml"
        whole = {"mcp_servers": {"s": entry}} | ({"hermesd": section} if section else {})
        config.write_text(json.dumps(whole, indent=2), encoding="utf-8")
        config.chmod(0o600)
        self.binary = hermesd
        self.start()

    def start(self):
        log = open(self.root / "daemon.err", "ab")
        self.process = subprocess.Popen([self.binary], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env)
        end = time.monotonic() + 60
        while True:
            try:
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.connect(str(self.root / "run/control.sock"))
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise SystemExit("hermesd did not come up")
                time.sleep(0.02)

    def ctl(self, *args):
        done = subprocess.run([self.ctl_binary, *args], env=self.env, capture_output=True, stdin=subprocess.DEVNULL, timeout=120)
        out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        if args[1] not in ("status", "tools"):
            print(f"$ hermesctl {' '.join(args)} -> {done.returncode}\n{out[:1500]}{err[:1500]}", flush=True)
        return done.returncode, out

    def status(self):
        _, out = self.ctl("--json", "status")
        server = next((s for s in json.loads(out)["servers"] if s["name"] == "s"), {}) if out.strip() else {}
        print(f"status: {server.get('phase')} {server.get('reason')}", flush=True)
        return server

    def settled(self):
        """Waits until the server is ready or waits for somebody."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            status = self.status()
            if status.get("phase") not in ("starting", "stopping"):
                return status
            time.sleep(0.1)
        return self.status()

    def tools(self):
        """What clients see, once they see something: the catalogue follows a start after a moment."""
        end = time.monotonic() + 10
        while True:
            code, out = self.ctl("--json", "tools", "--server", "s")
            tools = json.loads(out) if code == 0 and out.strip() else []
            if tools or time.monotonic() > end:
                return tools
            time.sleep(0.2)

    def login(self):
        """True when it is complete; whether the server then works is another matter."""
        complete = False
        command = [self.ctl_binary, "--json", "mcp", "login", "s", "--no-browser"]
        child = subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        for line in child.stdout:
            event = json.loads(line)
            print(f"login: {event}", flush=True)
            if event["step"] == "waiting":
                browse(event["url"])
            complete |= event["step"] == "done"
        child.wait()
        return complete

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def end(self):
        self.stop()
        print((self.root / "daemon.err").read_text(errors="replace")[-6000:], flush=True)
        shutil.rmtree(self.root, ignore_errors=True)


def browse(url):
    """Opens the address and follows wherever it leads, as a browser of a person who agrees."""
    browser = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    )
    try:
        with browser.open(url, timeout=60) as page:
            print(f"browser: {page.status} {page.url.split('?')[0]}", flush=True)
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        print(f"browser: {error}", flush=True)
