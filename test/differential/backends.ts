/**
 * Real servers that report what they read of a request: Node, Python's WSGI reference server, Go's net/http. A server
 * whose language is not installed is left out with a reason.
 */
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { startBackend } from "../support/backend.ts";

/** A request as an application on that server sees it. */
export interface Reading {
  readonly method: string;
  /** Decoded. */
  readonly path: string;
  readonly query: string;
  readonly host: string | null;
  readonly role: string | null;
  readonly user: string | null;
  readonly model: string | null;
  readonly credential: string | null;
  readonly apiKey: string | null;
}

export type BackendName = "node" | "python" | "go";

export interface ReportingBackend {
  readonly name: BackendName;
  readonly host: string;
  close(): Promise<void>;
}

const FOLDER = join(process.cwd(), "test/differential");

/** A reason instead of a backend if its language is not installed. */
export async function openReportingBackend(name: BackendName): Promise<ReportingBackend | string> {
  if (name === "node") return openNode();
  if (name === "python")
    return isInstalled("python3", "--version")
      ? openProgram(name, "python3", [join(FOLDER, "wsgi_backend.py")])
      : "python3 is not installed";
  if (!isInstalled("go", "version")) return "go is not installed";
  const folder = mkdtempSync(join(tmpdir(), "differential-"));
  const program = join(folder, "backend");
  const built = spawnSync("go", ["build", "-o", program, join(FOLDER, "go-backend/main.go")], { encoding: "utf8" });
  if (built.status === 0) return openProgram(name, program, [], folder);
  rmSync(folder, { recursive: true, force: true });
  return `go build failed: ${built.stderr.trim()}`;
}

function isInstalled(program: string, argument: string): boolean {
  return spawnSync(program, [argument]).status === 0;
}

async function openNode(): Promise<ReportingBackend> {
  const backend = await startBackend((req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      const [path = "", query = ""] = (req.url ?? "").split(/\?(.*)/s, 2);
      const { "x-role": role, "x-user": user, "x-api-key": apiKey } = req.headers;
      const reading: Reading = {
        method: req.method ?? "",
        path: path.replace(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16))),
        query,
        host: req.headers.host ?? null,
        role: typeof role === "string" ? role : null,
        user: typeof user === "string" ? user : null,
        model: chunks.length === 0 ? null : modelOf(Buffer.concat(chunks)),
        credential: req.headers.authorization ?? null,
        apiKey: typeof apiKey === "string" ? apiKey : null,
      };
      const report = Buffer.from(JSON.stringify(reading));
      res.writeHead(200, { "content-type": "application/json", "content-length": report.length }).end(report);
    });
  });
  // Otherwise Node closes a connection that the gateway may reuse at the same moment.
  backend.server.keepAliveTimeout = 0;
  return { name: "node", host: backend.host, close: () => backend.close() };
}

function modelOf(body: Buffer): string | null {
  try {
    const { model } = JSON.parse(body.toString("utf8").replace(/^\uFEFF/, "")) as { model?: unknown };
    return typeof model === "string" ? model : null;
  } catch {
    return null;
  }
}

export async function openProgram(
  name: BackendName,
  program: string,
  args: readonly string[],
  folder?: string,
): Promise<ReportingBackend> {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "ignore"] });
  const lines = createInterface({ input: child.stdout });
  const port = await new Promise<string>((resolve, reject) => {
    lines.once("line", resolve);
    child.once("error", reject);
    child.once("exit", (code) => reject(new Error(`${program} exited with ${code}`)));
  });
  return {
    name,
    host: `127.0.0.1:${port}`,
    close: () =>
      new Promise((resolve) => {
        child.once("exit", () => {
          if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
          resolve();
        });
        child.kill("SIGKILL");
      }),
  };
}
