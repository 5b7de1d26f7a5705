/**
 * An exchange and a compile environment for unit tests of policies, without sockets.
 */

import { systemClock } from "../../src/base/clock.ts";
import { createMemoryBudget } from "../../src/base/memory-budget.ts";
import { Owner } from "../../src/base/owner.ts";
import { claimAlone } from "../../src/base/shared-memory.ts";
import { createTasks } from "../../src/base/tasks.ts";
import { compileExpression } from "../../src/cel/expression.ts";
import { createLimitRegistry } from "../../src/config/compile/limit-registry.ts";
import { Exchange, NO_BODY, type RequestBody } from "../../src/core/exchange.ts";
import type { CompileEnv, Outcome } from "../../src/core/policy.ts";
import type { RequestAttributes } from "../../src/core/request-attributes.ts";
import { EgressGuard } from "../../src/http/egress-guard.ts";
import { HeaderList } from "../../src/http/headers.ts";
import { FinishedRequest } from "../../src/record/finished-request.ts";
import { silentLogger } from "../../src/record/log/logger.ts";
import { createMetrics } from "../../src/record/log/metrics.ts";
import { createRedaction } from "../../src/record/trace/redact.ts";
import { createMemoryStore } from "../../src/store/memory-store.ts";
import { ownedStore } from "../../src/store/owned-store.ts";
import { createSigningKey } from "../../src/store/signing-key.ts";

export interface ExchangeParts extends RequestAttributes {
  readonly method?: string;
  readonly path?: string;
  readonly query?: string;
  readonly host?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly source?: string;
}

export function finishedRequest(
  exchange: Exchange,
  outcome: Outcome,
  durationMs: number,
  redaction = createRedaction(),
): FinishedRequest {
  return new FinishedRequest(exchange, outcome, durationMs, redaction);
}

export function anExchange(parts: ExchangeParts = {}): Exchange {
  const {
    method = "GET",
    path = "/",
    query = "",
    host = "gateway.test",
    headers = {},
    body,
    source = "192.0.2.1",
    ...attributes
  } = parts;
  const requestBody: RequestBody = body === undefined ? NO_BODY : { kind: "bytes", bytes: Buffer.from(body) };
  const exchange = new Exchange({
    id: "test",
    listener: "default",
    source: { address: source, port: 40000 },
    request: {
      method,
      scheme: "http",
      namesHttps: false,
      host,
      path,
      rawPath: path,
      query,
      version: "1.1",
      headers: HeaderList.of(headers),
      body: requestBody,
    },
    startedAt: Date.UTC(2026, 0, 1),
    startedMs: 0,
  });
  Object.assign(exchange.attributes, attributes);
  return exchange;
}

/** With a response of the backend, for response hooks. */
export function anAnsweredExchange(
  parts: ExchangeParts & { status?: number; responseHeaders?: Readonly<Record<string, string>> } = {},
): Exchange {
  const { status = 200, responseHeaders = {}, ...rest } = parts;
  const exchange = anExchange(rest);
  exchange.response = { status, headers: HeaderList.of(responseHeaders), source: "upstream" };
  return exchange;
}

export const testEnv: CompileEnv = {
  cel: compileExpression,
  clock: systemClock,
  egress: EgressGuard.for("configuration"),
  fetch: () => Promise.reject(new Error("a unit test does not fetch")),
  logger: silentLogger,
  tasks: createTasks(systemClock),
  metrics: createMetrics(),
  limits: createLimitRegistry(),
  memory: createMemoryBudget(systemClock),
  store: ownedStore(createMemoryStore(systemClock), Owner.standalone),
  signingKey: createSigningKey(createMemoryStore(systemClock), systemClock, silentLogger).of(Owner.standalone),
  owner: Owner.standalone,
  scopeName: "route test",
  matchedPrefixes: ["/"],
  machine: { resolvePath: (path) => path, environment: {} },
  readFile: () => {
    throw new Error("a unit test does not read files");
  },
  acquire: (_name, _definition, open) => open(),
  acquireShared: (_name, open) => open(claimAlone),
  serving: (action) => action(),
  warn: () => undefined,
};
