/**
 * The nine clients of `npm run test:realm`: how each is installed, logs in, and calls a tool without a user. They are
 * installed into node_modules/.cache.
 */
import { spawn } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root, step } from "../steps.mjs";

const CACHE = join(root, "node_modules/.cache/realm-clients");
const HERE = join(root, "scripts/realm");
const NPM = {
  "mcp-remote": "0.15.1",
  "@modelcontextprotocol/inspector": "2.12.0",
  "@openai/codex": "0.166.0",
  "@anthropic-ai/claude-code": "2.1.325",
};
const PYTHON = { "python-1": "mcp==1.30.0", "python-2": "mcp==2.3.0", fastmcp: "fastmcp==4.1.2" };
const PATIENCE_MS = 180_000;

export function installClients() {
  mkdirSync(CACHE, { recursive: true });
  for (const [name, version] of Object.entries(NPM)) {
    const folder = join(CACHE, `${name.replace(/.*\//, "")}-${version}`);
    if (existsSync(join(folder, "node_modules", ".bin"))) continue;
    step(`install ${name}`, "npm", [
      "install",
      "--ignore-scripts=false",
      "--no-audit",
      "--no-fund",
      "--prefix",
      folder,
      `${name}@${version}`,
    ]);
  }
  for (const [name, requirement] of Object.entries(PYTHON)) {
    const folder = join(CACHE, `${name}-${requirement.split("==")[1]}`);
    if (existsSync(join(folder, "ready"))) continue;
    step(`install ${requirement}`, "python3", ["-m", "venv", folder]);
    step(`install ${requirement}`, join(folder, "bin/pip"), ["-q", "install", requirement]);
    writeFileSync(join(folder, "ready"), "");
  }
}

/**
 * Programs by name. Each gets the gateway's URL and a new home folder, and succeeds if its last command exits with 0
 * and prints the expected output.
 */
export const CLIENTS = {
  "Python SDK 1.x": (url) => [python("python-1", "official-client.py", url, /hello from Python/)],
  "Python SDK 2.x": (url) => [python("python-2", "official-client.py", url, /hello from Python/)],
  fastmcp: (url) => [python("fastmcp", "fastmcp-client.py", url, /hello from fastmcp/)],
  "mcp-remote": (url) => [npm("mcp-remote", "mcp-remote-client", [url], /Connected successfully/)],
  Inspector: (url) => [
    npm("@modelcontextprotocol/inspector", "mcp-inspector", ["--cli", url, "--method", "tools/list"], /"echo"/),
  ],
  Codex: (url) => [
    npm("@openai/codex", "codex", ["mcp", "add", "gateway", "--url", url]),
    npm("@openai/codex", "codex", ["mcp", "login", "gateway"], /logged in/i),
    npm("@openai/codex", "codex", ["mcp", "list"], /gateway/),
  ],
  "Claude Code": (url) => [
    npm("@anthropic-ai/claude-code", "claude", ["mcp", "add", "--transport", "http", "gateway", url]),
    atTerminal(npm("@anthropic-ai/claude-code", "claude", ["mcp", "login", "gateway"])),
    npm("@anthropic-ai/claude-code", "claude", ["mcp", "list"], /gateway.*Connected/),
  ],
};

/** Runs a client's commands one after another; rejects with their output. */
export async function runClient(name, url, { scratch, environment }) {
  const home = join(scratch, name.replaceAll(/\W/g, "-"));
  mkdirSync(home, { recursive: true });
  for (const command of CLIENTS[name](url)) await runCommand(command, home, environment);
}

/** What clients find when they look for a browser: the variable, and the command of Linux desktops. */
export function browserEnvironment(scratch, module, user) {
  const folder = join(scratch, "browser");
  mkdirSync(folder, { recursive: true });
  const log = join(scratch, "browser.log");
  // In the background: a desktop's command returns at once, and some clients wait for it.
  const script = `#!/bin/sh\n"${process.execPath}" "${join(HERE, "visit.mjs")}" "$@" >>"${log}" 2>&1 &\n`;
  for (const name of ["xdg-open", "www-browser"]) {
    writeFileSync(join(folder, name), script);
    chmodSync(join(folder, name), 0o755);
  }
  return {
    BROWSER: join(folder, "www-browser"),
    PATH: `${folder}:${process.env.PATH}`,
    DISPLAY: ":0",
    // Inspector opens one only at a terminal otherwise.
    MCP_AUTO_OPEN_ENABLED: "true",
    REALM_SCRATCH: scratch,
    REALM_BROWSER_MODULE: module,
    REALM_USER: user.username,
    REALM_PASSWORD: user.password,
  };
}

function python(name, file, url, expected) {
  const folder = `${name}-${PYTHON[name].split("==")[1]}`;
  return { command: join(CACHE, folder, "bin/python"), args: [join(HERE, file), url], expected };
}

function npm(name, program, args, expected) {
  const folder = `${name.replace(/.*\//, "")}-${NPM[name]}`;
  return { command: join(CACHE, folder, "node_modules/.bin", program), args, expected };
}

/** For programs that log in only where a person sits; wide enough for an address on one line. */
function atTerminal({ command, args, expected }) {
  const line = `stty cols 4000; exec "${command}" ${args.join(" ")}`;
  return { command: "script", args: ["-qec", line, "/dev/null"], expected };
}

function runCommand({ command, args, expected = /(?:)/ }, home, environment) {
  return new Promise((resolve, reject) => {
    const env = { HOME: home, LANG: "C.UTF-8", ...environment };
    const child = spawn(command, args, { cwd: home, env, stdio: ["ignore", "pipe", "pipe"], detached: true });
    let output = "";
    const visited = new Set();
    const look = (chunk) => {
      output += chunk;
      // A user copies the address when no browser opens.
      for (const [url] of output.matchAll(/https?:\/\/\S+[?&]redirect_uri=\S+(?=\s)/g)) {
        if (visited.has(url)) continue;
        visited.add(url);
        spawn(process.execPath, [join(HERE, "visit.mjs"), url], { env, stdio: "ignore" });
      }
    };
    for (const stream of [child.stdout, child.stderr]) stream.on("data", look);
    const timer = setTimeout(() => process.kill(-child.pid, "SIGKILL"), PATIENCE_MS);
    child.on("error", reject);
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      if (code === 0 && expected.test(output)) resolve();
      else reject(new Error(`${args.join(" ")} ended with ${code ?? signal}:\n${output.trim().slice(-1500)}`));
    });
  });
}
