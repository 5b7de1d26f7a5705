/**
 * Runs LiteLLM's proxy and the imported configuration with the same calls and the same stand-in for all providers, and
 * prints the differences. `--record` writes what LiteLLM did, for `test/import-behavior.test.ts`.
 *
 * The files follow the pages of LiteLLM's documentation about configuration files, load balancing, fallbacks, credentials,
 * and providers (docs.litellm.ai/docs/proxy/configs, load_balancing, reliability, docs/providers).
 */
import { spawn } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { freePort } from "../../free-port.ts";
import { compareObserved, NOT_COMPARED } from "./differences.ts";
import { goldenText, observeImported } from "./imported-gateway.ts";
import { callsFor, litellmEnvironment, type Observed, observe } from "./litellm-calls.ts";
import { type Providers, startProviders } from "./providers.ts";

const SOURCES = join(process.cwd(), "test", "import", "litellm");
const RECORDED = join(process.cwd(), "test", "support", "import", "behavior", "recorded");
const LOG_LINES = 40;

const [python = "python3", ...args] = process.argv.slice(2);
const isRecording = args.includes("--record");
const only = args.filter((arg) => !arg.startsWith("--"));
const files = readdirSync(SOURCES)
  .filter((name) => name.endsWith(".yaml") && !name.endsWith(".golden.yaml"))
  .map((name) => basename(name, ".yaml"))
  .filter((name) => !Object.hasOwn(NOT_COMPARED, name))
  .filter((name) => only.length === 0 || only.includes(name));

let unexplained = 0;
let failed = 0;
for (const name of files) {
  try {
    await compareFile(name);
  } catch (error) {
    failed += 1;
    process.stdout.write(`FAILED    ${name}: ${(error as Error).message}\n`);
  }
}
process.stdout.write(`${files.length} files, ${failed} failed, ${unexplained} differences without a reason\n`);
process.exitCode = unexplained + failed === 0 ? 0 : 1;

async function compareFile(name: string): Promise<void> {
  const file = join(SOURCES, `${name}.yaml`);
  const text = readFileSync(file, "utf8");
  const calls = callsFor(text);
  const providers = await startProviders();
  const theirs = await withLitellm(file, text, providers, async (url) => {
    const all: Observed[] = [];
    for (const call of calls) all.push(await observe(call, url, providers));
    return all;
  });
  if (isRecording) {
    mkdirSync(RECORDED, { recursive: true });
    writeFileSync(join(RECORDED, `${name}.json`), recordedText(calls.map(({ name }, i) => [name, theirs[i]])));
  }
  const lines: string[] = [];
  const ours = await observeImported(name, calls, providers);
  for (const [i, call] of calls.entries())
    for (const { field, theirs: there, ours: here, reason } of compareObserved(
      call,
      theirs[i],
      ours[i],
      goldenText(name),
    )) {
      if (reason === undefined) unexplained += 1;
      const values = `LiteLLM ${JSON.stringify(there)}, gateway ${JSON.stringify(here)}`;
      lines.push(`  ${call.name}: ${field}: ${reason ?? `UNEXPLAINED: ${values}`}`);
    }
  await providers.close();
  const hasUnexplained = lines.some((line) => line.includes("UNEXPLAINED"));
  const verdict = lines.length === 0 ? "equal" : hasUnexplained ? "DIFFERENT" : "known";
  process.stdout.write(
    `${verdict.padEnd(9)} ${name} (${calls.length} calls)\n${lines.map((line) => `${line}\n`).join("")}`,
  );
}

function recordedText(entries: readonly (readonly [string, unknown])[]): string {
  return `{\n${entries.map(([name, value]) => `${JSON.stringify(name)}: ${JSON.stringify(value)}`).join(",\n")}\n}\n`;
}

async function withLitellm<Result>(
  file: string,
  text: string,
  providers: Providers,
  use: (url: string) => Promise<Result>,
): Promise<Result> {
  const port = await freePort();
  const environment = {
    PATH: process.env.PATH,
    HOME: process.env.HOME,
    PYTHONPATH: join(process.cwd(), "test", "support", "import", "behavior"),
    GATEWAY_STAND_IN_PORT: String(providers.port),
    SSL_VERIFY: "False",
    LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY: "true",
    LITELLM_LOCAL_MODEL_COST_MAP: "True",
    PYTHONUNBUFFERED: "1",
    AWS_ACCESS_KEY_ID: "AKIAENVIRONMENT",
    AWS_SECRET_ACCESS_KEY: "environment",
    ...litellmEnvironment(text),
  };
  const program = ["-m", "litellm.proxy.proxy_cli", "--config", file, "--port", String(port), "--host", "127.0.0.1"];
  const child = spawn(python, program, { env: environment, stdio: ["ignore", "pipe", "pipe"] });
  let log = "";
  const isStarted = new Promise<boolean>((resolve) => {
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (chunk) => {
        log += chunk;
        if (log.includes("Uvicorn running on")) resolve(true);
      });
    child.once("exit", () => resolve(false));
  });
  try {
    if (!(await isStarted))
      throw new Error(`LiteLLM did not start:\n${log.trim().split("\n").slice(-LOG_LINES).join("\n")}`);
    return await use(`http://127.0.0.1:${port}`);
  } finally {
    const exited = new Promise((resolve) => child.once("exit", resolve));
    if (child.exitCode === null && child.kill("SIGKILL")) await exited;
  }
}
