/**
 * What each gwctl command prints at 80 and 120 columns, compared with the files in test/golden/gwctl. Write them with
 * `UPDATE_GOLDEN=1 npm test -- test/gwctl-output.test.ts`, and look at the difference.
 */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import type { Command } from "commander";
import { systemClock } from "../src/base/clock.ts";
import { createProgram, runGwctl } from "../src/cli/gwctl.ts";
import { textWidth } from "../src/cli/terminal/table.ts";
import type { Terminal } from "../src/cli/terminal/terminal.ts";
import { NOW, openFixedAdmin } from "./support/gwctl-fixtures.ts";

const FOLDER = "test/golden/gwctl";
const WIDTHS = [80, 120];
const UPDATES = process.env.UPDATE_GOLDEN === "1";
const CONFIG = "gateways: { default: { port: 3000, adress: x } }\n";
const OURS = "gateways: { default: { port: 3000 } }\n";
const LITELLM = "model_list: [{ model_name: fast, litellm_params: { model: openai/gpt-4o-mini } }]\n";
const PRICES = JSON.stringify({
  "gpt-4o-mini": { litellm_provider: "openai", input_cost_per_token: 1.5e-7, output_cost_per_token: 6e-7 },
});

/** The arguments that make a command print data. */
const RUNS: Readonly<Record<string, readonly (readonly string[])[]>> = {
  status: [[]],
  top: [["--once"]],
  explain: [["7b0e4a52-98a1-4b3f-a1d4-0f6c2f3f9a10"]],
  requests: [[], ["--failed", "-o", "yaml"], ["--since", "2026-01-01", "--route", "tools"]],
  routes: [[]],
  limits: [[]],
  sessions: [[], ["-o", "json"]],
  policies: [[]],
  usage: [
    ["--by", "team,model"],
    ["--by", "team,model", "-o", "csv"],
  ],
  "history status": [[]],
  "history budgets": [[]],
  "history delete": [["--subject", "alice"]],
  budgets: [[]],
  "keys create": [
    ["--name", "alice"],
    ["--name", "alice", "-o", "json"],
  ],
  "keys list": [[]],
  "keys revoke": [["3f9c02a17be4"]],
  "prices import": [["prices.json", "-o", "yaml"]],
  cel: [['request.method == "GET" && response.code == 403'], ["true", "--exit-code", "-o", "yaml"]],
  "shadow report": [[]],
  "mirror report": [[]],
  "what-if": [
    ["POST", "http://localhost:3000/mcp", "--tool", "delete_file"],
    ["POST", "http://localhost:3000/mcp", "--tool", "delete_file", "--exit-code", "-o", "json"],
  ],
  access: [[], ["--who-can", "tool:files/delete_file", "--denied"]],
  "mcp servers": [[]],
  "mcp tools": [[], ["-o", "json"]],
  "mcp lock": [["--check", "--lock-file", "tools.lock"]],
  "mcp connections": [[]],
  validate: [
    ["-f", "config.yaml"],
    ["-f", "config.yaml", "-o", "yaml"],
  ],
  import: [["litellm.yaml"], ["litellm.yaml", "-o", "json"], ["ours.yaml"]],
  version: [[], ["-o", "json"]],
  "proxy config all": [[]],
  "proxy config listeners": [[]],
  "proxy config routes": [[]],
  "proxy config backends": [[]],
  "proxy log": [[], ["-o", "json"]],
  "proxy memory": [[]],
  "proxy tasks": [[]],
  upgrade: [[]],
};

/** These commands wait for requests, write files or scripts, or use a cluster: the golden files only have their help. */
const HELP_ONLY = [
  "auth check",
  "completion",
  "gateway list",
  "proxy profile cpu",
  "proxy profile heap",
  "proxy trace",
  "record",
  "replay",
];

/** The commands that have subcommands, and print their help; the first is `gwctl` itself. */
function groups(command: Command, path: readonly string[] = []): string[] {
  const children = command.createHelp().visibleCommands(command);
  if (children.length === 0) return [];
  return [path.join(" "), ...children.flatMap((child) => groups(child, [...path, child.name()]))];
}

function leaves(command: Command, path: readonly string[] = []): string[] {
  const children = command
    .createHelp()
    .visibleCommands(command)
    .filter((one) => one.name() !== "help");
  if (children.length === 0) return [path.join(" ")];
  return children.flatMap((child) => leaves(child, [...path, child.name()]));
}

function terminalOf(columns: number, write: (text: string) => void): Terminal {
  return {
    out: write,
    err: write,
    isInteractive: false,
    hasColor: false,
    columns,
    environment: { HOME: "/nonexistent" },
    clock: { ...systemClock, now: () => NOW },
    readStdin: () => "",
  };
}

async function printed(args: readonly string[], columns: number): Promise<string> {
  let text = "";
  const code = await runGwctl(
    args,
    terminalOf(columns, (part) => {
      text += part;
    }),
  );
  return `${text}[exit code ${code}]\n`;
}

/** One file per command: its help and its output at each width. */
async function goldenOf(command: string, port: number, folder: string): Promise<string> {
  const parts: string[] = [];
  const shown = (text: string): string =>
    text.replaceAll(`127.0.0.1:${port}`, "127.0.0.1:15000").replaceAll(`${folder}/`, "");
  for (const columns of WIDTHS)
    for (const args of [["--help"], ...(RUNS[command] ?? [])]) {
      const real = args.map((one) => (/\.(?:json|yaml|lock)$/.test(one) ? join(folder, one) : one));
      const target = args[0] === "--help" || /^(?:import|validate|version|prices|auth)/.test(command);
      const all = [...command.split(" ").filter(Boolean), ...real, ...(target ? [] : ["-p", String(port)])];
      parts.push(
        ["$ gwctl", command, ...args].filter(Boolean).join(" "),
        ` # ${columns} columns\n`,
        await printed(all, columns),
        "\n",
      );
    }
  return shown(parts.join(""));
}

function fileName(command: string): string {
  return `${command === "" ? "gwctl" : command.replaceAll(" ", "-")}.txt`;
}

function filesOf(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "gwctl-output-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, "config.yaml"), CONFIG);
  writeFileSync(join(folder, "ours.yaml"), OURS);
  writeFileSync(join(folder, "litellm.yaml"), LITELLM);
  writeFileSync(join(folder, "prices.json"), PRICES);
  return folder;
}

const program = createProgram(
  terminalOf(80, () => undefined),
  undefined,
);

test("every command prints at 80 and 120 columns what its golden file has", async (t) => {
  const port = await openFixedAdmin(t);
  const folder = filesOf(t);
  const commands = [...groups(program), ...leaves(program)];
  if (UPDATES) mkdirSync(FOLDER, { recursive: true });
  for (const command of commands) {
    const file = join(FOLDER, fileName(command));
    const text = await goldenOf(command, port, folder);
    if (UPDATES) writeFileSync(file, text);
    assert.ok(existsSync(file), `${file} is missing`);
    assert.equal(text, readFileSync(file, "utf8"), `gwctl ${command}`);
  }
  const files = commands.map(fileName).sort();
  assert.deepEqual(readdirSync(FOLDER).sort(), files, "no golden file without a command");
});

test("help and tables stay within the terminal", () => {
  for (const name of readdirSync(FOLDER)) {
    let columns = 0;
    let isTable = false;
    for (const line of readFileSync(join(FOLDER, name), "utf8").split("\n")) {
      const start = /^\$ (.*) # (\d+) columns$/.exec(line);
      if (start) {
        columns = Number(start[2]);
        // Data, problems of files and the commands of examples are not wrapped.
        isTable = !/-o |import|validate -f|proxy config all/.test(start[1] ?? "");
      } else if (isTable && !/^ {2}(?:gwctl|source|go) /.test(line))
        assert.ok(textWidth(line) <= columns, `${name}: ${line}`);
    }
  }
});

test("every command is run with data, or is known to print only its help", () => {
  assert.deepEqual([...Object.keys(RUNS), ...HELP_ONLY].sort(), leaves(program).sort());
});
