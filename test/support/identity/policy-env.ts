/**
 * The environment of a policy in unit tests: a stopped clock, a fetch that responds from a table, and short ways to
 * create exchanges.
 */

import { type ClaimMemory, claimAlone } from "../../../src/base/shared-memory.ts";
import { createTasks } from "../../../src/base/tasks.ts";
import { Exchange, type GatewayRequest, NO_BODY, type RequestBody } from "../../../src/core/exchange.ts";
import type { CompileEnv } from "../../../src/core/policy.ts";
import type { Reply } from "../../../src/core/reply.ts";
import { HeaderList } from "../../../src/http/headers.ts";
import { type LogFields, type Logger, silentLogger } from "../../../src/record/log/logger.ts";
import { testEnv } from "../exchange.ts";
import { type FakeClock, fakeClock } from "../fake-clock.ts";
import { createFakeFetch, type FakeFetch } from "./fake-fetch.ts";

export interface TestEnv extends CompileEnv {
  readonly clock: FakeClock;
  readonly provider: FakeFetch;
  readonly logged: { level: string; message: string; fields: LogFields }[];
}

export function createTestEnv(files: Readonly<Record<string, string>> = {}): TestEnv {
  const clock = fakeClock();
  const provider = createFakeFetch();
  const living = new Map<string, unknown>();
  const logged: TestEnv["logged"] = [];
  return {
    ...testEnv,
    clock,
    provider,
    fetch: provider.fetch,
    logged,
    logger: loggerInto(logged),
    tasks: createTasks(clock),
    readFile(path) {
      const text = files[path];
      if (text === undefined) throw new Error(`cannot read ${path}: ENOENT`);
      return text;
    },
    acquire<Living>(key: string, definition: unknown, open: () => Living): Living {
      const identity = `${key} ${JSON.stringify(definition)}`;
      if (!living.has(identity)) living.set(identity, open());
      return living.get(identity) as Living;
    },
    acquireShared<Living>(name: string, open: (claim: ClaimMemory) => Living): Living {
      if (!living.has(name)) living.set(name, open(claimAlone));
      return living.get(name) as Living;
    },
  };
}

export interface RequestWords {
  readonly method?: string;
  readonly path?: string;
  readonly query?: string;
  /** Lines in order; names in any case. */
  readonly headers?: Readonly<Record<string, string>> | readonly (readonly [string, string])[];
  readonly body?: string | Buffer;
  readonly source?: string;
}

export function createExchange(words: RequestWords = {}): Exchange {
  const lines = Array.isArray(words.headers) ? words.headers : Object.entries(words.headers ?? {});
  const body: RequestBody = words.body === undefined ? NO_BODY : { kind: "bytes", bytes: Buffer.from(words.body) };
  const request: GatewayRequest = {
    method: words.method ?? "POST",
    scheme: "http",
    namesHttps: false,
    host: "localhost:3000",
    path: words.path ?? "/mcp",
    rawPath: words.path ?? "/mcp",
    query: words.query ?? "",
    version: "1.1",
    headers: HeaderList.fromRaw(lines.flat()),
    body,
  };
  const source = { address: words.source ?? "127.0.0.1", port: 50_000 };
  return new Exchange({ id: "test", listener: "default", source, request, startedAt: 0, startedMs: 0 });
}

export function bodyOf(reply: Reply | undefined): unknown {
  return JSON.parse(reply?.body?.toString("utf8") ?? "null");
}

function loggerInto(logged: TestEnv["logged"]): Logger {
  const at =
    (level: string) =>
    (message: string, fields: LogFields = {}): void =>
      void logged.push({ level, message, fields });
  const logger: Logger = { ...silentLogger, warn: at("warn"), error: at("error"), info: at("info"), for: () => logger };
  return logger;
}
