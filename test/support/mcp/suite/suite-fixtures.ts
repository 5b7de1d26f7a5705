/**
 * The servers that the conformance suite runs against: our own on the TypeScript SDK, and the official servers for
 * Python and Go, installed into node_modules/.cache. Missing languages are reported and skipped.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "../../eventually.ts";
import { freePort } from "../../free-port.ts";
import { startHttpFixture } from "../conformance.ts";
import { stdioFixture } from "../fixture.ts";

const PYTHON_SDK = "2.3.0";
const GO_SDK = "1.8.0";
const CACHE = join(process.cwd(), "node_modules/.cache/conformance");

export interface Running {
  readonly url: string;
  close(): Promise<void>;
}

export interface Fixture {
  readonly name: string;
  /** The server asked directly is the measure of all others with this name. */
  readonly sdk: string;
  /** Absent: it speaks over its standard streams. */
  readonly start?: () => Promise<Running>;
  readonly stdio?: { readonly cmd: string; readonly args: readonly string[]; readonly env?: object };
}

/** Fixtures by language; a text says why there are none. */
export function fixturesOf(language: string): readonly Fixture[] | string {
  switch (language) {
    case "typescript":
      return [
        { name: "TypeScript, HTTP", sdk: "typescript", start: () => startHttpFixture() },
        { name: "TypeScript, stdio", sdk: "typescript", stdio: stdioFixture("conformance-server", "stdio") },
      ];
    case "python":
      return pythonFixtures();
    case "go":
      return goFixtures();
    default:
      return `no fixture is written in ${language}: choose typescript, python or go`;
  }
}

function pythonFixtures(): readonly Fixture[] | string {
  const home = join(CACHE, `python-${PYTHON_SDK}`);
  const python = join(home, "venv/bin/python");
  const sources = join(home, `mcp-${PYTHON_SDK}`, "examples/servers/everything-server");
  if (!existsSync(sources)) {
    const draft = `${home}.${process.pid}`;
    mkdirSync(draft, { recursive: true });
    const pip = join(draft, "venv/bin/python");
    const failure =
      failureOf("python3", ["-m", "venv", join(draft, "venv")]) ??
      failureOf(pip, ["-m", "pip", "-q", "install", `mcp==${PYTHON_SDK}`, "click", "uvicorn"]) ??
      // The package for running does not contain the example; its sources do.
      failureOf(pip, [
        "-m",
        "pip",
        "-q",
        "download",
        "--no-deps",
        "--no-binary",
        "mcp",
        "-d",
        draft,
        `mcp==${PYTHON_SDK}`,
      ]) ??
      failureOf("tar", ["-xzf", join(draft, `mcp-${PYTHON_SDK}.tar.gz`), "-C", draft]);
    if (failure !== undefined) return failure;
    renameSync(draft, home);
  }
  const env = { PYTHONPATH: sources };
  const overHttp = "import sys; from mcp_everything_server.server import main; main()";
  const overStdio = "from mcp_everything_server.server import mcp; mcp.run('stdio')";
  return [
    {
      name: "Python, HTTP",
      sdk: "python",
      start: () => startServer(python, (port) => ["-c", overHttp, "--port", String(port), "--log-level", "ERROR"], env),
    },
    { name: "Python, stdio", sdk: "python", stdio: { cmd: python, args: ["-c", overStdio], env } },
  ];
}

function goFixtures(): readonly Fixture[] | string {
  const home = join(CACHE, `go-${GO_SDK}`);
  const program = join(home, "everything-server");
  if (!existsSync(program)) {
    mkdirSync(home, { recursive: true });
    const module = `github.com/modelcontextprotocol/go-sdk/conformance/everything-server@v${GO_SDK}`;
    const failure = failureOf("go", ["install", module], { GOBIN: home });
    if (failure !== undefined) return failure;
  }
  const start = (isStateless: boolean) => (): Promise<Running> =>
    startServer(program, (port) => ["-http", `127.0.0.1:${port}`, `-stateless=${isStateless}`]);
  return [
    { name: "Go, HTTP", sdk: "go", start: start(true) },
    { name: "Go, HTTP with sessions", sdk: "go with sessions", start: start(false) },
    { name: "Go, stdio", sdk: "go with sessions", stdio: { cmd: program, args: [] } },
  ];
}

function failureOf(command: string, args: readonly string[], env: object = {}): string | undefined {
  console.error(`── ${command} ${args.join(" ")}`);
  const { status, error, stderr } = spawnSync(command, args, { encoding: "utf8", env: { ...process.env, ...env } });
  if (status === 0) return undefined;
  return `${command} failed: ${error?.message ?? String(stderr).trim().split("\n").at(-1)}`;
}

/** A server that takes its port as an argument and prints nothing when it listens. */
async function startServer(command: string, args: (port: number) => string[], env: object = {}): Promise<Running> {
  const port = await freePort();
  const child = spawn(command, args(port), { stdio: "ignore", env: { ...process.env, ...env } });
  const url = `http://127.0.0.1:${port}/mcp`;
  try {
    await eventually(`${command} answers at ${url}`, async () => child.exitCode !== null || (await answers(url)));
    if (child.exitCode !== null) throw new Error(`${command} exited with ${child.exitCode}`);
  } catch (error) {
    await ended(child);
    throw error;
  }
  return { url, close: () => ended(child) };
}

async function answers(url: string): Promise<boolean> {
  try {
    const response = await fetch(url, { method: "OPTIONS", signal: AbortSignal.timeout(1000) });
    await response.body?.cancel();
    return true;
  } catch {
    return false;
  }
}

function ended(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) return resolve();
    child.once("exit", () => resolve());
    child.kill("SIGKILL");
  });
}
