import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";

const BINARY = fileURLToPath(new URL("../../src/bin/gwctl.js", import.meta.url));
/** Enough on a busy machine. */
const MAX_WAIT_MS = 60_000;
const STARTED = '{"eventStart":null,"eventEnd":1,"severity":"info","message":{"type":"requestStarted"}}';
const hasTmux = spawnSync("tmux", ["-V"]).status === 0;

let backend: TestBackend;
let gateway: TestGateway;
before(async () => {
  backend = await startBackend();
  gateway = await startGateway(`
gateways: { default: { port: 0 } }
routes: [{ name: all, backends: [{ host: "${backend.host}" }] }]
`);
});
after(async () => {
  await gateway?.close();
  await backend?.close();
});

/** A terminal of 80 by 24 in a server of its own, so that nobody's sessions are touched. */
function openTerminal(command: string) {
  const server = `gwctl-${randomBytes(4).toString("hex")}`;
  // Where `CI` is set the screen library draws only the last frame; a person's terminal has no such variable.
  const { CI: _, CONTINUOUS_INTEGRATION: __, ...env } = process.env;
  const tmux = (...args: string[]): string =>
    spawnSync("tmux", ["-L", server, ...args], { encoding: "utf8", env }).stdout;
  tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", command);
  // A client in control mode has no size of its own, and is told of everything that is written to the terminal.
  const watcher = spawn("tmux", ["-L", server, "-C", "attach"], { env, stdio: ["pipe", "pipe", "ignore"] });
  return {
    press: (...keys: string[]) => void tmux("send-keys", ...keys),
    resize: (columns: number, rows: number) => void tmux("resize-window", "-x", String(columns), "-y", String(rows)),
    /** Looks whenever something was written; a terminal left behind would outlive the test, so the wait ends. */
    shows(pattern: RegExp): Promise<string> {
      return new Promise((resolve, reject) => {
        let screen = "";
        const done = (settle: () => void): void => {
          clearTimeout(limit);
          watcher.stdout.off("data", look);
          settle();
        };
        const look = (): void => {
          screen = tmux("capture-pane", "-p");
          if (pattern.test(screen)) done(() => resolve(screen));
        };
        const limit = setTimeout(
          () => done(() => reject(new Error(`the screen never showed ${pattern}:\n${screen}`))),
          MAX_WAIT_MS,
        );
        watcher.stdout.on("data", look);
        look();
      });
    },
    close: () => void tmux("kill-server"),
  };
}

test("the terminal UI in a real terminal: waits, shows a request, moves, resizes, quits [S4.4-3]", {
  skip: !hasTmux && "tmux is not installed",
}, async () => {
  const port = new URL(gateway.adminUrl).port;
  const terminal = openTerminal(
    `'${process.execPath}' '${BINARY}' proxy trace --local -p ${port}; echo ended with $?; exec cat`,
  );
  try {
    await terminal.shows(/waiting for the next request/);
    await fetch(`${gateway.url()}/seen`, { method: "POST", body: "a\u001b[31mb" }).then((response) => response.text());
    const screen = await terminal.shows(/complete/);
    assert.match(screen, /Request Done/);
    for (const line of screen.split("\n")) assert.ok(line.length <= 80, line);
    assert.ok(screen.trimEnd().split("\n").length <= 24);
    terminal.press("w");
    await terminal.shows(/Waterfall/);
    terminal.press("e", "g");
    await terminal.shows(/type: requestStarted/);
    terminal.resize(120, 40);
    await terminal.shows(/Request Done +request finished status=200/);
    terminal.press("q");
    assert.doesNotMatch(await terminal.shows(/ended with 0/), /Request Done/);
  } finally {
    terminal.close();
  }
});

test("whoever ends gwctl from outside gets his terminal back", {
  skip: !hasTmux && "tmux is not installed",
}, async () => {
  const port = new URL(gateway.adminUrl).port;
  const folder = mkdtempSync(join(tmpdir(), "gwctl-terminal-"));
  const pidFile = join(folder, "pid");
  const command = `echo $$ > "${pidFile}"; exec "${process.execPath}" "${BINARY}" proxy trace --local -p ${port}`;
  const terminal = openTerminal(`echo was here before; sh -c '${command}'; echo ended with $?; exec cat`);
  try {
    assert.doesNotMatch(await terminal.shows(/waiting for the next request/), /was here before/);
    process.kill(Number(readFileSync(pidFile, "utf8")), "SIGTERM");
    const screen = await terminal.shows(/ended with 143/);
    assert.match(screen, /was here before/);
    assert.doesNotMatch(screen, /waiting for/);
  } finally {
    terminal.close();
    rmSync(folder, { recursive: true, force: true });
  }
});

test("a trace that breaks off stays on the screen until it is left, and fails", {
  skip: !hasTmux && "tmux is not installed",
}, async () => {
  const broken = createServer((_req, res) => {
    res.writeHead(200, { "content-type": "text/event-stream" });
    res.write(`: armed\n\ndata: ${STARTED}\n\n`, () => res.destroy());
  });
  await new Promise<void>((resolve) => broken.listen(0, "127.0.0.1", resolve));
  const { port } = broken.address() as AddressInfo;
  const terminal = openTerminal(
    `'${process.execPath}' '${BINARY}' proxy trace --local -p ${port}; echo ended with $?; exec cat`,
  );
  try {
    assert.match(await terminal.shows(/the trace ended early/), /Request Start/);
    terminal.press("q");
    assert.match(await terminal.shows(/ended with 1/), /gwctl: the trace ended early/);
  } finally {
    terminal.close();
    broken.close();
  }
});

test("leaving the screen also ends a request that is still being sent", {
  skip: !hasTmux && "tmux is not installed",
}, async () => {
  let left: () => void = () => undefined;
  const hasLeft = new Promise<void>((resolve) => {
    left = resolve;
  });
  const silent = createServer((req) => void req.socket.once("close", left));
  await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
  const { port } = silent.address() as AddressInfo;
  const slow = await startGateway(`
gateways: { default: { port: 0 } }
routes: [{ name: all, backends: [{ host: "127.0.0.1:${port}" }] }]
`);
  const terminal = openTerminal(
    `'${process.execPath}' '${BINARY}' proxy trace --local -p ${new URL(slow.adminUrl).port} --port ${slow.port()} -- http://a.test/x; echo ended with $?; exec cat`,
  );
  try {
    await terminal.shows(/Backend Start/);
    terminal.press("q");
    await terminal.shows(/ended with 0/);
    await hasLeft;
  } finally {
    terminal.close();
    await slow.close();
    silent.close();
  }
});
