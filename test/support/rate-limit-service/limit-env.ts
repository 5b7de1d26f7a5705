/**
 * The environment of a rate limit in unit tests: a fake clock, resources that survive recompilation as they survive a
 * reload, and exchanges without a socket.
 */

import type { Clock } from "../../../src/base/clock.ts";
import { createMemoryBudget } from "../../../src/base/memory-budget.ts";
import { Owner } from "../../../src/base/owner.ts";
import { claimAlone } from "../../../src/base/shared-memory.ts";
import { createTasks } from "../../../src/base/tasks.ts";
import { compileExpression } from "../../../src/cel/expression.ts";
import { Exchange, NO_BODY } from "../../../src/core/exchange.ts";
import type { AdmitHook, CompileEnv, Hooks, LimitView, Outcome } from "../../../src/core/policy.ts";
import type { RequestAttributes } from "../../../src/core/request-attributes.ts";
import { EgressGuard } from "../../../src/http/egress-guard.ts";
import { HeaderList } from "../../../src/http/headers.ts";
import { runAdmission } from "../../../src/pipeline/phases/run-hooks.ts";
import { silentLogger } from "../../../src/record/log/logger.ts";
import { createMetrics } from "../../../src/record/log/metrics.ts";
import { createRedaction } from "../../../src/record/trace/redact.ts";
import { createMemoryStore } from "../../../src/store/memory-store.ts";
import { ownedStore } from "../../../src/store/owned-store.ts";
import { noSigningKey } from "../../../src/store/signing-key.ts";
import { fakeClock } from "../fake-clock.ts";

export interface LimitEnv {
  readonly env: CompileEnv;
  readonly warnings: string[];
  advance(ms: number): void;
  /** Somebody sets the machine's clock; no time passes. */
  setWallClock(byMs: number): void;
  views(key?: string): readonly LimitView[];
  /** A reload: what the new compilation does not claim is closed. */
  reload(compile: () => void): void;
}

interface Kept {
  readonly definition: string;
  readonly living: unknown;
  close(): void;
}

export function limitEnv(owner = "route test"): LimitEnv {
  let nowMs = 1_000.25;
  let wallMs = 1_700_000_000_000;
  const clock: Clock = {
    now: () => wallMs + nowMs,
    monotonicMs: () => nowMs,
    after: () => ({ cancel: () => undefined }),
    every: () => ({ cancel: () => undefined }),
  };
  const views = new Set<(key: string | undefined) => readonly LimitView[]>();
  const warnings: string[] = [];
  let kept = new Map<string, Kept>();
  let before = new Map<string, Kept>();

  const env: CompileEnv = {
    cel: compileExpression,
    clock,
    egress: EgressGuard.for("configuration"),
    fetch: () => Promise.reject(new Error("no network in this test")),
    logger: silentLogger,
    tasks: createTasks(clock),
    metrics: createMetrics(),
    limits: {
      register(view) {
        views.add(view);
        return () => {
          views.delete(view);
        };
      },
      views: (key) => [...views].flatMap((view) => view(key)),
      handed: () => [],
      requiresStore: () => false,
      registerBudgets: () => () => undefined,
      budgets: async () => [],
    },
    memory: createMemoryBudget(clock),
    store: ownedStore(createMemoryStore(clock), Owner.standalone),
    signingKey: noSigningKey.of(Owner.standalone),
    owner: Owner.standalone,
    scopeName: owner,
    machine: { resolvePath: (path) => path, environment: {} },
    readFile: (path) => {
      throw new Error(`no files in this test: ${path}`);
    },
    matchedPrefixes: [],
    acquire<Living>(key: string, definition: unknown, open: () => Living, close?: (living: Living) => void): Living {
      const text = JSON.stringify(definition);
      const found = kept.get(key) ?? before.get(key);
      if (found?.definition === text) {
        kept.set(key, found);
        return found.living as Living;
      }
      const living = open();
      kept.set(key, { definition: text, living, close: () => close?.(living) });
      return living;
    },
    acquireShared: (_name, open) => open(claimAlone),
    serving: (action) => action(),
    warn: (message) => warnings.push(message),
  };

  return {
    env,
    warnings,
    advance(ms) {
      nowMs += ms;
    },
    setWallClock(byMs) {
      wallMs += byMs;
    },
    views: (key) => env.limits.views(key),
    reload(compile) {
      before = kept;
      kept = new Map();
      compile();
      for (const [key, entry] of before) if (kept.get(key) !== entry) entry.close();
      before = new Map();
    },
  };
}

export function limitExchange(
  attributes: RequestAttributes = {},
  headers: Readonly<Record<string, string>> = {},
): Exchange {
  const exchange = new Exchange({
    id: "test",
    listener: "default",
    source: { address: "127.0.0.1", port: 1234 },
    request: {
      method: "POST",
      scheme: "http",
      namesHttps: false,
      host: "localhost",
      path: "/",
      rawPath: "/",
      query: "",
      version: "1.1",
      headers: HeaderList.of(headers),
      body: NO_BODY,
    },
    startedAt: 0,
    startedMs: 0,
  });
  Object.assign(exchange.attributes, attributes);
  return exchange;
}

const COMPLETE: Outcome = { status: 200, end: "complete", responseBytes: 10 };

/** One request through admission and response, as the pipeline runs them. Returns the headers of the answer, or what was thrown. */
export async function request(scopes: readonly Hooks[], exchange: Exchange): Promise<HeaderList> {
  await admission(scopes, exchange, "head");
  await admission(scopes, exchange, "body");
  if (exchange.attributes.llm) await admission(scopes, exchange, "call");
  return respond(scopes, exchange);
}

export async function respond(
  scopes: readonly Hooks[],
  exchange: Exchange,
  headers: Readonly<Record<string, string>> = {},
): Promise<HeaderList> {
  exchange.response ??= { status: 200, headers: HeaderList.of(headers), source: "upstream" };
  for (const hooks of [...scopes].reverse()) await hooks.response?.head(exchange);
  return exchange.response.headers;
}

export function settleAll(scopes: readonly Hooks[], exchange: Exchange, outcome: Outcome = COMPLETE): void {
  for (const hooks of scopes) hooks.settle?.(exchange, outcome);
}

/** The pipeline's own admission: rejects with what a limit threw, after everything was given back. */
function admission(scopes: readonly Hooks[], exchange: Exchange, on: keyof AdmitHook): Promise<void> {
  const policies = scopes
    .filter(({ admit }) => admit?.[on] !== undefined)
    .map((hooks) => ({ phase: "route" as const, kind: "rateLimit", hooks }));
  return new Promise((resolve, reject) => {
    const run = { exchange, clock: fakeClock(), redaction: createRedaction(), isDry: false, fail: reject };
    runAdmission(run, on, policies, resolve);
  });
}
