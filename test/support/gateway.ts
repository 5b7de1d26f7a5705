/**
 * Runs a gateway in this process on free ports and captures its log, for scenario tests. The configuration is in a
 * temporary folder, so that reloads and relative paths work.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startApp } from "../../src/app/app.ts";
import type { App, AppOptions } from "../../src/app/app-options.ts";
import { type Clock, systemClock } from "../../src/base/clock.ts";

export interface TestGateway {
  /** `http://127.0.0.1:<port>` of a listener; the first if no name is given. */
  url(listener?: string): string;
  port(listener?: string): number;
  readonly adminUrl: string;
  readonly app: App;
  /** The folder that the configuration stands in. */
  readonly folder: string;
  /** Every log line so far. */
  log(): string[];
  /** Resolves with the first line (also an earlier one) that contains the text. */
  logged(text: string): Promise<string>;
  /** Writes a new configuration; resolves when it was loaded or refused. */
  reload(yaml: string): Promise<"loaded" | "refused">;
  close(): Promise<void>;
}

export interface TestGatewayOptions {
  readonly environment?: Readonly<Record<string, string>>;
  readonly clock?: Clock;
  /** More files beside the configuration, by name. */
  readonly files?: Readonly<Record<string, string>>;
  readonly random?: () => number;
  readonly listenerLimits?: NonNullable<AppOptions["listenerLimits"]>;
  readonly heapSize?: NonNullable<AppOptions["heapSize"]>;
  readonly memoryLimits?: NonNullable<AppOptions["memoryLimits"]>;
}

export async function startGateway(yaml: string, options: TestGatewayOptions = {}): Promise<TestGateway> {
  const folder = mkdtempSync(join(tmpdir(), "gateway-test-"));
  const file = join(folder, "config.yaml");
  for (const [name, text] of Object.entries(options.files ?? {})) writeFileSync(join(folder, name), text);
  writeFileSync(file, yaml);
  const lines: string[] = [];
  const waiting = new Set<{ text: string; from: number; resolve(line: string): void }>();
  const output = {
    write(line: string) {
      lines.push(line.trimEnd());
      for (const one of waiting) {
        if (!line.includes(one.text)) continue;
        waiting.delete(one);
        one.resolve(line);
      }
    },
    dropped: () => 0,
    flushSync: () => undefined,
  };
  let app: App;
  try {
    app = await startApp({
      sources: [file],
      environment: options.environment ?? {},
      clock: options.clock ?? systemClock,
      output,
      version: "0.0.0-test",
      readStdin: () => "",
      defaultAdminAddr: "127.0.0.1:0",
      ...(options.random ? { random: options.random } : {}),
      ...(options.listenerLimits ? { listenerLimits: options.listenerLimits } : {}),
      ...(options.heapSize ? { heapSize: options.heapSize } : {}),
      ...(options.memoryLimits ? { memoryLimits: options.memoryLimits } : {}),
    });
  } catch (error) {
    rmSync(folder, { recursive: true, force: true });
    throw error;
  }

  const port = (listener?: string): number => {
    const ports = app.ports();
    const found = listener === undefined ? [...ports.values()][0] : ports.get(listener);
    if (found === undefined) throw new Error(`no listener ${listener ?? ""}`);
    return found;
  };
  const next = (text: string): Promise<string> =>
    new Promise((resolve) => {
      waiting.add({ text, from: lines.length, resolve });
    });

  return {
    url: (listener) => `http://127.0.0.1:${port(listener)}`,
    port,
    adminUrl: app.adminUrl ?? "",
    app,
    folder,
    log: () => lines,
    logged: (text) => {
      const known = lines.find((line) => line.includes(text));
      return known === undefined ? next(text) : Promise.resolve(known);
    },
    async reload(changed) {
      const outcome = Promise.race([
        next("configuration loaded").then(() => "loaded" as const),
        next("configuration rejected").then(() => "refused" as const),
      ]);
      writeFileSync(file, changed);
      return outcome;
    },
    async close() {
      // Called twice, so that a test never waits for the drain limit.
      const stopping = app.stop();
      await app.stop();
      await stopping;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
