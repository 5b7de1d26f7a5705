import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";

const BINARY = fileURLToPath(new URL("../../src/bin/gwctl.js", import.meta.url));
/** At 50 ms and a call of tmux each: half a minute on a busy machine. */
const MAX_LOOKS = 400;
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
  return {
    press: (...keys: string[]) => void tmux("send-keys", ...keys),
    resize: (columns: number, rows: number) => void tmux("resize-window", "-x", String(columns), "-y", String(rows)),
    screen: () => tmux("capture-pane", "-p"),
    /** Looks again until the screen shows it; a terminal left behind would outlive the test, so the wait ends. */
    async shows(pattern: RegExp): Promise<string> {
      let screen = "";
      for (let look = 0; look < MAX_LOOKS; look++) {
        screen = tmux("capture-pane", "-p");
        if (pattern.test(screen)) return screen;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      return assert.fail(`the screen never showed ${pattern}:\n${screen}`);
    },
    close: () => void tmux("kill-server"),
  };
}

test("the terminal UI in a real terminal: waits, shows a request, moves, resizes, quits", {
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
